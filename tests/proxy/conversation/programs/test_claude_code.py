"""Text that Claude Code puts around a person's words is no part of them."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.session_id import session_of
from openclaw_rl.proxy.conversation.speaker import read_user
from openclaw_rl.shared.messages.normalize import normalize_chat
from tests.fixtures.clients import CALLS, CLAUDE_HEADERS, CLAUDE_TALK, REMINDER, SESSION, USER_ID, says

NOTHING = Chain([])
CALLS_BY_NAME = {call.name: call.messages for call in CALLS}
CAVEAT = "<local-command-caveat>These were local commands.</local-command-caveat>\n"
COMPACT = "<command-name>/compact</command-name>\n<command-message>compact</command-message>\n"
OUTPUT = "<local-command-stdout>Compacted</local-command-stdout>\n"


@pytest.mark.parametrize(
    ("sent", "speaker", "text"),
    [
        (REMINDER + "Which bed is dry?", "person", "Which bed is dry?"),
        ("Which bed is dry?\n" + REMINDER, "person", "Which bed is dry?"),
        (REMINDER, "context", ""),
        (REMINDER + REMINDER + "No, bed 4", "person", "No, bed 4"),
        (CAVEAT + COMPACT + OUTPUT, "context", ""),
        (CAVEAT + COMPACT + OUTPUT + "And bed 4?", "person", "And bed 4?"),
        ("<command-name>/review</command-name>\nLook at all changes.", "command", None),
        ("<bash-input>ls</bash-input><bash-stdout>beds.md</bash-stdout>", "context", ""),
        ("[Request interrupted by user]", "context", ""),
        ("[Request interrupted by user for tool use]Not that one!", "person", "Not that one!"),
        ("<task-notification>\ndone\n</task-notification>", "context", ""),
        ("This session is being continued from a previous conversation that was full.\nSummary: beds", "notice", None),
        (REMINDER + "This session is being continued from a previous conversation.", "notice", None),
        ("Continue from where you left off.", "notice", None),
        ("Operator note (not from the user): this was a reminder of the system.It has rained.", "context", ""),
        (REMINDER + "Tool loaded.", "notice", None),
        ("Tool loaded. What now?", "person", "Tool loaded. What now?"),
        ("What does <system-reminder> mean?", "person", "What does <system-reminder> mean?"),
        (
            "Continue from where you left off with the beds.",
            "person",
            "Continue from where you left off with the beds.",
        ),
    ],
)
def test_the_words_and_the_speaker_of_a_user_message(sent: str, speaker: str, text: str | None) -> None:
    speech = read_user({"role": "user", "content": sent})
    assert speech.speaker == speaker
    assert text is None or speech.text == text


def test_text_full_of_open_tags_is_read_in_one_go() -> None:
    sent = "<system-reminder>" * 20_000
    assert read_user({"role": "user", "content": sent}).text == sent


def test_a_history_is_found_again_when_its_reminders_change() -> None:
    answer = {"role": "assistant", "content": "Bed 3."}
    for asked in (says("user", "Which bed is dry?"), says("user", "Which bed is dry?", REMINDER)):
        before = Chain(normalize_chat({"messages": [CLAUDE_TALK[0], CLAUDE_TALK[1]]}).messages)
        after = Chain(normalize_chat({"messages": [asked]}).messages)
        assert before.answer_key(answer) == after.answer_key(answer)


def test_a_session_is_named_by_header_or_by_the_users_id() -> None:
    body = {"metadata": {"user_id": USER_ID}}
    assert session_of(CLAUDE_HEADERS, {}, NOTHING) == (SESSION, "header")
    assert session_of({}, body, NOTHING) == (SESSION, "body")
    old = {"metadata": {"user_id": f"user_{'a' * 64}_account__session_{SESSION}"}}
    assert session_of({}, old, NOTHING) == (SESSION, "body")
    assert session_of({"x-session-id": "mine", **CLAUDE_HEADERS}, body, NOTHING) == ("mine", "header")


@pytest.mark.parametrize(
    "user", ["{", '{"session_id": 3}', '{"device_id": "d"}', "[]", '{"session_id": ".."}', "person-17"]
)
def test_an_end_users_id_without_a_session_names_none(user: str) -> None:
    assert session_of({}, {"metadata": {"user_id": user}}, NOTHING) is None


def test_other_clients_name_their_conversations_in_headers_of_their_own() -> None:
    for name in ("x-openwebui-chat-id", "session_id", "session-id", "conversation_id"):
        assert session_of({name: "c-1"}, {}, NOTHING) == ("c-1", "header")
        assert session_of({name: "x" * 300}, {}, NOTHING) is None


def test_a_condensed_history_says_so() -> None:
    chain = Chain(normalize_chat({"messages": CALLS_BY_NAME["claude: continues after a compaction"]}).messages)
    assert chain.compacted_at is not None
    assert Chain(normalize_chat({"messages": CLAUDE_TALK}).messages).compacted_at is None
