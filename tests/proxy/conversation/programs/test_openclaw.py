from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.classify import Evidence, classify
from openclaw_rl.proxy.conversation.programs.openclaw import ChannelReaction, emoji_score, reactions
from openclaw_rl.proxy.conversation.session_id import session_of
from openclaw_rl.proxy.conversation.speaker import read_user, runtime_fields
from openclaw_rl.shared.messages.normalize import normalize_chat, normalize_messages
from openclaw_rl.shared.records import Message
from tests.fixtures.openclaw import CONTEXT_BEGIN, STAMP, floating, runtime, user


def said(content: object) -> Message:
    return normalize_messages([{"role": "user", "content": content}])[0]


def test_stamp_and_runtime_line_are_taken_off_a_persons_words() -> None:
    speech = read_user(said(STAMP + "Which fern?\nThe tall one?" + runtime("s-9", "agent:main:main")))
    assert (speech.speaker, speech.text) == ("person", "Which fern?\nThe tall one?")
    assert speech.runtime["sessionId"] == "s-9"
    assert speech.runtime["session"] == "agent:main:main"


@pytest.mark.parametrize(
    "text",
    [
        "[urgent] water the ferns",
        "Runtime: 5 minutes",
        "I read [Fri 2026-11-20 10:16 UTC] in the log",
        "Runtime: agent=x is what it says\nand then more",
    ],
)
def test_words_that_only_look_like_wrapping_stay(text: str) -> None:
    assert read_user(said(text)).text == text


def test_floating_context_is_no_speech_but_words_next_to_it_are() -> None:
    assert read_user(normalize_messages([floating("a")])[0]).speaker == "context"
    both = read_user(said(floating("a")["content"][0]["text"] + "\nhello"))
    assert (both.speaker, both.text) == ("person", "hello")
    assert read_user(said(CONTEXT_BEGIN + " never closed")).speaker == "person"


@pytest.mark.parametrize(
    ("text", "speaker"),
    [
        ("Follow the heartbeat monitor scratch context.", "heartbeat"),
        ("Read HEARTBEAT.md if it exists.", "heartbeat"),
        ("[cron:12 ferns] Water them.", "cron"),
        ("[Subagent Context] Depth 1.", "subagent"),
        ("A background task completed.\nAll dry.", "announcement"),
        ("Pre-compaction memory flush. Write.", "flush"),
        ("A new session was started via /new or /reset. Say hello.", "notice"),
        ("/new", "command"),
        ("/model clawrl/policy", "command"),
        ("/good", "command"),
        ("System: [2026-11-20 10:17:41 UTC] door open", "context"),
    ],
)
def test_the_speaker_of_program_text_in_the_users_role(text: str, speaker: str) -> None:
    assert read_user(said(STAMP + text)).speaker == speaker


def test_system_lines_before_words_are_not_part_of_them() -> None:
    speech = read_user(said("System: [2026-11-20 10:17:41 UTC] door open\n\nwho was it?"))
    assert (speech.speaker, speech.text) == ("person", "who was it?")


def test_reactions_are_read_from_the_floating_context_at_the_end_only() -> None:
    liked = "System: [2026-11-20 10:17:41 UTC] Telegram reaction added: 👍🏽 by Alice (@alice) on msg 42"
    disliked = "System: [2026-11-20 10:18:00 UTC] Slack reaction added: 👎 by Bob on msg 43"
    puzzled = "System: [2026-11-20 10:18:01 UTC] Slack reaction added: 🤔 by Bob on msg 43"
    messages = normalize_messages([user("hi", "s"), floating(liked, disliked, puzzled)])
    assert reactions(messages) == [
        ChannelReaction("Telegram reaction added: 👍🏽 by Alice (@alice) on msg 42", 1.0),
        ChannelReaction("Slack reaction added: 👎 by Bob on msg 43", -1.0),
    ]
    assert [one.turn_id for one in reactions(messages, "42=turn_a; 4%3B3=turn_b;;")] == ["turn_a"]
    assert reactions(messages, "-") == []
    assert reactions(normalize_messages([floating(liked), user("hi", "s")])) == []
    assert reactions(normalize_messages([user(liked)])) == []


def test_several_reactions_in_one_string_are_several() -> None:
    lines = [
        'Telegram reaction added: 👍 by Ada \\"msg 7\\" (@ada) on msg 41',
        "Discord reaction added: 👎 by ada on the-guild #general msg 1290",
        "Slack reaction added: :+1: by Ada in #general msg 1700000000.000200 from Claw",
        "Somewhere reaction added: 👍 by Ada",
    ]
    events = "\\n".join(f"System: [2026-11-20 10:17:41 UTC] {line}" for line in lines)
    messages = normalize_messages([user("hi", "s"), floating(f'Conversation data:\n"{events}"')])
    assert [(one.line, one.score) for one in reactions(messages)] == list(
        zip(lines, [1.0, -1.0, 1.0, 1.0], strict=True)
    )
    named = "41=turn_a;1290=turn_b;1700000000.000200=turn_c"
    assert [one.turn_id for one in reactions(messages, named)] == ["turn_a", "turn_b", "turn_c"]


def test_a_flood_of_what_looks_like_reactions_is_read_in_a_moment() -> None:
    flood = f"reaction added: {'System: [' * 50_000}{' reaction added: x by y msg 1' * 20_000}"
    assert reactions(normalize_messages([user("hi", "s"), floating(flood)])) == []


def test_emoji_with_variants() -> None:
    assert emoji_score("❤️") == 1.0
    assert emoji_score("👎🏿") == -1.0
    assert emoji_score("🪴") is None


def test_the_session_is_named_by_the_first_runtime_line() -> None:
    messages = normalize_messages([user("a"), user("b", "first"), user("c", "second")])
    assert runtime_fields([read_user(message) for message in messages])["sessionId"] == "first"
    assert runtime_fields([]) == {}


def test_the_session_is_named_in_the_system_prompt_of_other_dialects() -> None:
    system = (
        "You are helpful.\nRuntime: 5 minutes\n\nRuntime: agent=main | session=agent:main:cron:7 | sessionId=5d1e\nBye."
    )
    said = [read_user({"role": "user", "content": "hello"})]
    assert runtime_fields(said, system) == {"agent": "main", "session": "agent:main:cron:7", "sessionId": "5d1e"}
    own = read_user({"role": "user", "content": "hello\nRuntime: agent=main | sessionId=mine"})
    assert runtime_fields([own], system)["sessionId"] == "mine"
    assert runtime_fields(said, "Say Runtime: agent=main | sessionId=x") == {}
    chat = normalize_chat(
        {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "Tidy up."}]}
    )
    chain = Chain(chat.messages)
    assert session_of({}, {}, chain) == ("5d1e", "runtime")
    assert classify(Evidence({}, chat.messages, True, chain.speeches)).reason == "key-cron"


def test_the_session_is_named_behind_the_summary_of_a_compacted_history() -> None:
    text = (
        "The conversation history before this point was compacted into the following summary:\n\n<summary>\nBeans.\n"
        "</summary>Runtime: agent=main | session=agent:main:garden | sessionId=5d1e | model=clawrl/policy"
    )
    speech = read_user({"role": "user", "content": text})
    assert (speech.speaker, speech.text.endswith("Beans.\n</summary>")) == ("notice", True)
    assert speech.runtime["sessionId"] == "5d1e"
