from __future__ import annotations

import base64
from typing import Any

from openclaw_rl.proxy.conversation.chain import ROOT, Chain
from openclaw_rl.shared.messages.normalize import assistant_message, normalize_messages
from tests.fixtures.openclaw import SYSTEM, call, floating, runtime, user
from tests.shared.tiny_vision import data_url, picture

Sent = dict[str, Any]
ASK: Sent = {"role": "user", "content": "Which fern is thirsty?"}
SAID: Sent = {"role": "assistant", "content": "The tall one."}
MORE: Sent = {"role": "user", "content": "Thanks!"}


def chain(*messages: Sent) -> Chain:
    return Chain(normalize_messages(list(messages)))


def places(*messages: Sent) -> list[tuple[int, bytes]]:
    """Index and digest of every place where an answer of ours may end."""
    return [(place.index, place.key) for place in chain(*messages).places()]


def answered(*messages: Sent, answer: Sent) -> bytes:
    """The digest under which the answer to these messages is found again."""
    return chain(*messages).answer_key(normalize_messages([answer])[0])


def test_an_answer_is_found_in_the_next_request() -> None:
    assert places(ASK, SAID, MORE)[0] == (1, answered(ASK, answer=SAID))


def test_additions_and_omissions_of_openclaw_change_nothing() -> None:
    first = answered({"role": "system", "content": SYSTEM}, user("Which fern?", "s-1"), floating("a"), answer=SAID)
    changed = {"role": "user", "content": "Which fern?" + runtime("s-1", model="clawrl/other")}
    second = places({"role": "system", "content": "another"}, changed, SAID, user("Thanks"), floating("b", "c"))
    assert second == [(2, first)]


def test_rewritten_tool_calls_are_the_same_answer() -> None:
    sampled = assistant_message(
        "", tool_calls=[{"id": "call_3_0", "name": "read", "arguments": {"path": "a", "n": 1.0}}]
    )
    echoed = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("read", '{"n":1,"path":"a"}', "call30")],
        "reasoning_content": "hm",
    }
    result = {"role": "tool", "content": "dry", "tool_call_id": "call30"}
    assert places(ASK, echoed, result)[0] == (1, chain(ASK).answer_key(sampled))


def test_merged_assistant_texts_are_found_as_the_two_they_were() -> None:
    tail: Sent = {"role": "assistant", "content": "And the ivy."}
    merged: Sent = {"role": "assistant", "content": "The tall one.\n\nAnd the ivy."}
    assert places(ASK, merged, MORE)[0][1] == answered(ASK, SAID, floating(), answer=tail)
    assert places(ASK, SAID, tail, MORE)[0][1] == answered(ASK, SAID, answer=tail)


def test_a_history_that_is_one_long_run_is_read_like_any_other() -> None:
    parts: list[Sent] = [{"role": "assistant", "content": f"Word {number} of very many."} for number in range(30_000)]
    whole: Sent = {"role": "assistant", "content": "\n\n".join(part["content"] for part in parts)}
    assert chain(ASK, *parts, MORE).request_key == chain(ASK, whole, MORE).request_key


def test_an_exchange_is_an_answer_and_what_it_was_given_to() -> None:
    call_it = {"role": "assistant", "content": None, "tool_calls": [call("read", "{}", "a"), call("exec", "{}", "b")]}
    results = [{"role": "tool", "content": text, "tool_call_id": text} for text in ("dry", "20")]
    known = chain(ASK, call_it, *results).exchange_key(normalize_messages([SAID])[0])
    for history in ([MORE, call_it, *results, SAID], [*results, floating(), SAID, MORE], [SAID, *results, SAID]):
        index = max(place.index for place in chain(*history).places())
        assert chain(*history).exchange_at(index) == known
    assert chain(ASK, call_it, results[1], SAID).exchange_at(3) != known
    assert chain(SAID, MORE).exchange_at(0) == b""


def test_other_words_are_another_conversation() -> None:
    keys = {
        answered(ASK, answer=SAID),
        answered(MORE, answer=SAID),
        answered(ASK, answer={"role": "assistant", "content": "The small one."}),
        answered(ASK, SAID, MORE, answer=SAID),
    }
    assert len(keys) == 4


def test_an_empty_answer_leaves_the_history_as_it_is() -> None:
    empty: Sent = {"role": "assistant", "content": ""}
    assert answered(ASK, answer=empty) == chain(ASK).request_key
    assert places(ASK, MORE) == [(0, chain(ASK).request_key)]
    assert chain(ASK, empty, MORE).request_key == chain(ASK, MORE).request_key


def test_a_request_that_nothing_follows_continues_nothing() -> None:
    assert places(ASK) == []
    assert places(ASK, floating()) == []
    assert chain({"role": "system", "content": "x"}).request_key == ROOT


def test_a_persons_words_are_the_next_state_without_the_wrapping() -> None:
    words = chain(ASK, SAID, user("No, look again."), floating("x")).after(1)
    assert (words.role, words.text) == ("user", "No, look again.")


def test_parallel_tool_results_are_one_next_state() -> None:
    calls = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("read", "{}", "a"), call("exec", "{}", "b")],
    }
    results = [{"role": "tool", "content": text, "tool_call_id": text} for text in ("dry", "20")]
    words = chain(ASK, calls, *results, floating()).after(1)
    assert (words.role, words.text) == ("tool", "dry\n\n20")


def test_words_of_a_person_next_to_tool_results_are_heard() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [call("read", "{}", "a")]}
    result = {"role": "tool", "content": "dry", "tool_call_id": "a"}
    words = chain(ASK, calls, result, user("stop that")).after(1)
    assert (words.role, words.text) == ("user", "stop that")


def test_text_of_a_program_is_no_next_state() -> None:
    for text in (
        "A background task completed.",
        "[cron:1 x] go",
        "Follow the heartbeat monitor scratch.",
        "/new",
        "[Subagent Context] x",
    ):
        assert chain(ASK, SAID, user(text), floating()).after(1).role is None


def test_commands_stand_next_to_the_next_words() -> None:
    words = chain(ASK, SAID, user("/good quick"), user("And the ivy?")).after(1)
    assert (words.role, words.text) == ("user", "And the ivy?")
    assert [command.text for command in words.commands] == ["/good quick"]


def test_answers_to_feedback_alone_are_passed_over() -> None:
    noted: Sent = {"role": "assistant", "content": "Noted."}
    calls = {"role": "assistant", "content": None, "tool_calls": [call("note", "{}", "a")]}
    result = {"role": "tool", "content": "written", "tool_call_id": "a"}
    thumbs = (user("/good quick"), noted, user("/bad"), calls, result, noted)
    words = chain(ASK, SAID, *thumbs, user("And the ivy?")).after(1)
    assert (words.role, words.text) == ("user", "And the ivy?")
    assert [command.text for command in words.commands] == ["/good quick", "/bad"]
    assert chain(ASK, SAID, *thumbs, user("And the ivy?"), SAID, user("Thanks")).after(1) == words
    assert chain(ASK, SAID, *thumbs).after(1).role is None
    assert chain(ASK, SAID, user("/help"), noted, user("And the ivy?")).after(1).role is None


def test_feedback_alone_is_distinguished_from_feedback_with_other_words() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [call("read", "{}", "a")]}
    result = {"role": "tool", "content": "dry", "tool_call_id": "a"}
    alone = [user("/good")], [user("/good"), user("/bad no"), floating()], [user("/bad"), calls, result]
    for said_last in alone:
        assert chain(ASK, SAID, *said_last).answers_feedback, said_last
    beside = [user("/good"), user("And the ivy?")], [user("And the ivy?"), user("/good")], [user("/help")], []
    for said_last in beside:
        assert not chain(ASK, SAID, *said_last).answers_feedback, said_last
    assert not chain(ASK, calls, result, user("/good")).answers_feedback
    assert chain(user("/good")).answers_feedback


def test_only_what_comes_before_the_next_answer_counts() -> None:
    alarm: Sent = {"role": "assistant", "content": "The kettle is on!"}
    heartbeat = user("Follow the heartbeat monitor scratch.")
    assert chain(ASK, SAID, heartbeat, alarm, user("thanks for that")).after(1).role is None


def seen(role: str, text: str, url: str) -> Chain:
    part = {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
    shown: Sent = {"role": role, "tool_call_id": "c", "content": [part, {"type": "text", "text": text}]}
    return Chain(normalize_messages([ASK, SAID, shown], blind=""))


def test_an_image_is_the_same_however_it_is_written() -> None:
    red, blue = picture(32, 32, "red"), picture(32, 32, "blue")
    for role in ("user", "tool"):
        key = seen(role, "This one.", data_url(red)).request_key
        wrapped = f"data:image/x;base64,{base64.encodebytes(red).decode()}"
        assert seen(role, "This one.", wrapped).request_key == key
        assert key not in {seen(role, "This one.", data_url(blue)).request_key, chain(ASK, SAID, MORE).request_key}
    context = floating("a")["content"][0]["text"]
    assert seen("user", context, data_url(red)).request_key != seen("user", context, data_url(blue)).request_key
