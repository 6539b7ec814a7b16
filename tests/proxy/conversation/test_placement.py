"""The session that a request belongs to, against a real journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Feedback
from tests.fixtures.openclaw import floating, runtime, user
from tests.proxy.talk import Talk, parent, said, says


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    journal = AsyncJournal(tmp_path / "journal.db", linger=0)
    yield Talk(journal)
    await journal.close()


async def test_a_conversation_without_any_id_is_one_session(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello")
    second = await talk.ask(says("hi"), said("hello"), says("no, shorter"), answer="yo")
    third = await talk.ask(says("hi"), said("hello"), says("no, shorter"), said("yo"), says("thanks"))
    assert [first.source, second.source, third.source] == ["new", "tree", "tree"]
    assert first.session_id == second.session_id == third.session_id
    assert [parent(first), parent(second), parent(third)] == [None, first.turn_id, second.turn_id]
    state = await talk.next_state(first)
    assert state is not None
    assert (state.role, state.text, state.next_turn_id) == ("user", "no, shorter", second.turn_id)


async def test_a_first_message_says_why_it_has_no_parent(talk: Talk) -> None:
    assert (await talk.ask(says("hi"))).parent_reason == "the conversation begins here"
    foreign = await talk.ask(says("hi"), said("never sampled here"), says("more"))
    assert foreign.parent_reason == "no answer in its history was sampled here"


async def test_the_same_words_twice_are_two_conversations(talk: Talk) -> None:
    one = await talk.ask(says("hi"), answer="hello")
    two = await talk.ask(says("hi"), answer="hello")
    assert one.session_id != two.session_id
    later = await talk.ask(says("hi"), said("hello"), says("bye"))
    again = await talk.ask(says("hi"), said("hello"), says("and you?"))
    assert parent(later) == two.turn_id
    assert parent(again) == one.turn_id


async def test_a_retry_is_a_sibling_and_settles_nothing_twice(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello")
    tried = await talk.ask(says("hi"), said("hello"), says("thanks"), answer="sure")
    retried = await talk.ask(says("hi"), said("hello"), says("thanks"), answer="gladly")
    assert parent(tried) == parent(retried) == first.turn_id
    state = await talk.next_state(first)
    assert state is not None and state.next_turn_id == tried.turn_id
    await talk.ask(says("hi"), said("hello"), says("thanks"), said("gladly"), says("more"))
    assert await talk.next_state(tried) is None
    assert await talk.next_state(retried) is not None


async def test_of_two_equal_answers_the_discarded_retry_is_not_settled(talk: Talk) -> None:
    named = {"x-session-id": "r"}
    discarded = await talk.ask(says("hi"), answer="hello", headers=named)
    kept = await talk.ask(says("hi"), answer="hello", headers=named)
    for _ in range(2):
        after = await talk.ask(says("hi"), said("hello"), says("thanks"), headers=named)
        assert parent(after) == kept.turn_id
    assert await talk.next_state(discarded) is None


async def test_a_client_that_says_it_retries_stays_in_its_session(talk: Talk) -> None:
    cut = await talk.ask(says("hi"), answer=None)
    retried = await talk.ask(says("hi"), headers={"x-stainless-retry-count": "1"})
    assert (retried.session_id, retried.source) == (cut.session_id, "retry")
    other = await talk.ask(says("hi"), headers={"x-stainless-retry-count": "1"})
    assert other.source == "new"


async def test_an_edit_forks_where_it_differs(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello")
    second = await talk.ask(says("hi"), said("hello"), says("one"), answer="1")
    edited = await talk.ask(says("hi"), said("hello"), says("two"), answer="2")
    assert parent(edited) == first.turn_id
    assert edited.session_id == second.session_id
    state = await talk.next_state(first)
    assert state is not None and state.text == "one"


async def test_an_answer_that_the_client_rewrote_is_not_ours(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello")
    second = await talk.ask(says("hi"), said("hello"), says("one"), answer="wrong")
    fixed = await talk.ask(says("hi"), said("hello"), says("one"), said("right"), says("go on"))
    assert parent(fixed) == first.turn_id
    assert await talk.next_state(second) is None


async def test_a_restarted_proxy_places_right(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello")
    talk.restart()
    second = await talk.ask(says("hi"), said("hello"), says("more"), answer="ok")
    assert parent(second) == first.turn_id
    assert second.session_id == first.session_id


async def test_a_short_memory_does_not_hide_a_deeper_answer(talk: Talk) -> None:
    history = [says("hi"), said("a"), says("more"), said("b"), says("again")]
    await talk.ask(*history[:1], answer="a")
    deep = await talk.ask(*history[:3], answer="b")
    talk.restart()
    await talk.ask(says("hi"), said("a"), says("another way"))  # brings only the first answer back to memory
    assert parent(await talk.ask(*history)) == deep.turn_id


async def test_named_sessions_with_the_same_words_do_not_mix(talk: Talk) -> None:
    a = await talk.ask(says("hi"), answer="hello", headers={"x-session-id": "a"})
    b = await talk.ask(says("hi"), answer="hello", headers={"x-session-id": "b"})
    after_a = await talk.ask(says("hi"), said("hello"), says("go"), headers={"x-session-id": "a"})
    c = await talk.ask(says("hi"), said("hello"), says("go"), headers={"x-session-id": "c"})
    assert parent(after_a) == a.turn_id
    assert (parent(c), c.parent_reason) == (None, "its history was answered in another session")
    assert await talk.next_state(b) is None


async def test_a_retry_that_could_be_of_either_of_two_sessions_begins_a_third(talk: Talk) -> None:
    cut = [await talk.ask(says("hi"), answer=None), await talk.ask(says("hi"), answer="he", status="aborted")]
    retried = await talk.ask(says("hi"), headers={"x-stainless-retry-count": "1"})
    assert (retried.source, retried.session_id in [one.session_id for one in cut]) == ("new", False)


async def test_a_session_whose_header_got_lost_continues(talk: Talk) -> None:
    named = await talk.ask(says("hi"), answer="hello", headers={"x-session-id": "a"})
    lost = await talk.ask(says("hi"), said("hello"), says("go"))
    assert (lost.session_id, parent(lost)) == ("a", named.turn_id)


async def test_a_session_that_is_named_late_continues_the_nameless_one(talk: Talk) -> None:
    nameless = await talk.ask(says("hi"), answer="hello")
    named = await talk.ask(says("hi"), said("hello"), says("go"), headers={"x-session-id": "a"})
    assert (named.session_id, parent(named)) == ("a", nameless.turn_id)
    assert await talk.next_state(nameless) is not None


async def test_openclaw_names_its_session_in_the_body(talk: Talk) -> None:
    first = await talk.ask(user("hi", "s-7"), floating(), answer="hello")
    second = await talk.ask(user("hi", "s-7"), said("hello"), user("no!"), floating("new"))
    assert [first.session_id, second.session_id] == ["s-7", "s-7"]
    assert parent(second) == first.turn_id
    state = await talk.next_state(first)
    assert state is not None and state.text == "no!"


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({"metadata": {"session_id": "m-1"}}, "m-1"),
        ({"conversation_id": "c-1"}, "c-1"),
        ({"metadata": {"user_id": "user_9_account__session_12345678-aa"}}, "12345678-aa"),
        ({"user": "session:9f8e7d6c"}, "9f8e7d6c"),
    ],
)
async def test_bodies_that_name_a_session(talk: Talk, body: dict[str, Any], session: str) -> None:
    placement = await talk.ask(says("hi"), body=body)
    assert (placement.session_id, placement.source) == (session, "body")


async def test_a_user_is_no_session(talk: Talk) -> None:
    assert (await talk.ask(says("hi"), body={"user": "alice", "metadata": {"team": "x"}})).source == "new"


async def test_a_heartbeat_settles_nothing_and_is_no_parent(talk: Talk) -> None:
    main = await talk.ask(user("hi", "s"), answer="hello")
    beat = user("Follow the heartbeat monitor scratch.")
    side = await talk.ask(user("hi", "s"), said("hello"), beat, floating(), answer="NO_REPLY", kind="side")
    assert side.session_id == "s"
    assert await talk.next_state(main) is None
    after = await talk.ask(user("hi", "s"), said("hello"), beat, said("NO_REPLY"), user("thanks"))
    assert parent(after) == main.turn_id
    assert await talk.next_state(main) is None  # the words answer the heartbeat, not the main turn
    clean = await talk.ask(user("hi", "s"), said("hello"), user("thanks, that helps"))
    assert parent(clean) == main.turn_id
    state = await talk.next_state(main)
    assert state is not None and state.text == "thanks, that helps"


async def test_an_announcement_is_no_reaction(talk: Talk) -> None:
    main = await talk.ask(user("hi", "s"), answer="I will ask a helper")
    announcement = user("A background task completed. It is dry.")
    after = await talk.ask(user("hi", "s"), said("I will ask a helper"), announcement, floating(), answer="It is dry.")
    assert parent(after) == main.turn_id
    assert await talk.next_state(main) is None


async def test_an_episode_that_ended_takes_no_next_state(talk: Talk) -> None:
    named = {"x-session-id": "e"}
    first = await talk.ask(says("hi"), answer="hello", headers=named)
    await talk.journal.end_episode("e", "test")
    late = await talk.ask(says("hi"), said("hello"), says("back again"), headers=named)
    assert parent(late) == first.turn_id
    assert await talk.next_state(first) is None
    session = await talk.journal.session("e")
    assert session is not None and [row.episode for row in session.episodes] == [0, 1]


async def test_typed_scores_become_feedback_on_the_answer_before_them(talk: Talk) -> None:
    first = await talk.ask(user("hi", "s"), answer="hello")
    history = [user("hi", "s"), said("hello"), user("/bad too curt"), user("try again")]
    await talk.ask(*history, answer="Good day!")
    await talk.ask(*history, answer="Good day to you!")
    given = await talk.journal.feedback_for(first.turn_id)
    assert [(one.score, one.text, one.source) for one in given] == [(-1.0, "too curt", "command")]
    state = await talk.next_state(first)
    assert state is not None and state.text == "try again"


async def test_a_reaction_is_feedback_on_the_last_answer_once(talk: Talk) -> None:
    line = "System: [2026-11-20 10:17:41 UTC] Telegram reaction added: 👍 by Alice on msg 42"
    first = await talk.ask(user("hi", "s"), answer="hello")
    calls = [{"id": "1", "name": "read", "arguments": {}}]
    history = [user("hi", "s"), said("hello"), user("read it")]
    second = await talk.ask(*history, floating(line), answer="", calls=calls)
    echo = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    }
    result = {"role": "tool", "content": "dry", "tool_call_id": "1"}
    await talk.ask(*history, echo, result, floating(line))
    assert [one.score for one in await talk.journal.feedback_for(first.turn_id)] == [1.0]
    assert await talk.journal.feedback_for(second.turn_id) == []


async def test_a_reaction_is_about_the_turn_that_the_extension_names(talk: Talk) -> None:
    lines = [f"System: [2026-11-20 10:17:4{n} UTC] Telegram reaction added: 👍 by Alice on msg {n}" for n in range(3)]
    other = await talk.ask(user("hi", "t"), answer="hello there")
    first = await talk.ask(user("hi", "s"), answer="hello")
    history = [user("hi", "s"), said("hello"), user("more")]
    second = await talk.ask(*history, answer="more of it")
    names = f"0={first.turn_id};1={other.turn_id};2=turn_gone"
    headers = {"x-openclaw-reactions": names}
    await talk.ask(*history, said("more of it"), user("and?"), floating(*lines), headers=headers)
    given = {one.turn_id: len(await talk.journal.feedback_for(one.turn_id)) for one in (other, first, second)}
    assert given == {other.turn_id: 1, first.turn_id: 1, second.turn_id: 0}
    for header, heard in (("-", 0), ("", 1)):
        await talk.ask(
            *history, said("more of it"), user("so?"), floating(*lines), headers={"x-openclaw-reactions": header}
        )
        assert len(await talk.journal.feedback_for(second.turn_id)) == heard


async def test_a_command_that_the_extension_reported_is_not_heard_again_from_the_history(talk: Talk) -> None:
    first = await talk.ask(user("hi", "s"), answer="hello")
    history = [user("hi", "s"), said("hello"), user("more")]
    second = await talk.ask(*history, answer="more of it")
    reported = Feedback(turn_id=first.turn_id, session_id=first.session_id, score=-1.0, text="curt", source="extension")
    await talk.journal.add_feedback(reported)
    talk.restart()
    commands = [user("/bad curt"), user("/good")]
    await talk.ask(*history, said("more of it"), *commands, user("and?"))
    assert [one.score for one in await talk.journal.feedback_for(second.turn_id)] == [1.0]
    assert [one.score for one in await talk.journal.feedback_for(first.turn_id)] == [-1.0]


@pytest.mark.parametrize("restarts", [False, True])
async def test_typed_feedback_is_about_the_answer_before_it_however_often_it_is_given(
    talk: Talk, restarts: bool
) -> None:
    first = await talk.ask(user("hi", "s"), answer="hello")
    history = [user("hi", "s"), said("hello")]
    for words in ("/good quick", "/bad no, curt", "/good quick"):
        history.append(user(words))
        aside = await talk.ask(*history, answer="Noted.")
        assert (parent(aside), aside.session_id) == (first.turn_id, first.session_id)
        history.append(said("Noted."))
        if restarts:
            talk.restart()
    after = await talk.ask(*history, user("And the ivy?"), answer="It is dry.")
    assert parent(after) == first.turn_id
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("user", "And the ivy?")
    given = await talk.journal.feedback_for(first.turn_id)
    assert [(one.score, one.text) for one in given] == [(1.0, "quick"), (-1.0, "no, curt"), (1.0, "quick")]
    assert not await talk.journal.feedback_for(aside.turn_id)


async def test_feedback_that_openclaw_puts_into_one_message_is_heard_thumb_by_thumb(talk: Talk) -> None:
    first = await talk.ask(user("hi", "s"), answer="hello")
    texts = ["/Good", "/bad\ncurt", "/rl", "And the ivy?"]
    merged = {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}
    await talk.ask(user("hi", "s"), said("hello"), merged, answer="dry")
    assert [(one.score, one.text) for one in await talk.journal.feedback_for(first.turn_id)] == [
        (1.0, ""),
        (-1.0, "curt"),
    ]
    state = await talk.next_state(first)
    assert state is not None and state.text == "And the ivy?"


async def test_a_first_message_that_was_put_into_one_with_feedback_keeps_its_words(talk: Talk) -> None:
    line = runtime("s", None).strip()
    first = await talk.ask(says(f"/good fine\n\n{line}"), says("Dry?"), answer="Wet.")
    merged = {"role": "user", "content": [{"type": "text", "text": part} for part in ("/good fine", "Dry?", line)]}
    after = await talk.ask(merged, said("Wet."), says("And now?"))
    assert (parent(after), after.session_id, first.session_id) == (first.turn_id, "s", "s")


async def test_an_announcement_that_openclaw_does_not_keep_leaves_one_line(talk: Talk) -> None:
    first = await talk.ask(user("Count the plums", "s"), answer="A helper <think>does.")
    news = user("A background task completed. It counted 7.")
    announced = await talk.ask(user("Count the plums", "s"), said("A helper <think>does."), news, answer="There are 7.")
    merged = said("A helper <think>does.\nThere are 7.")
    after = await talk.ask(user("Count the plums", "s"), merged, user("And pears?"))
    assert (parent(announced), parent(after)) == (first.turn_id, announced.turn_id)
    state = await talk.next_state(announced)
    assert state is not None and state.text == "And pears?"
    assert await talk.next_state(first) is None


async def test_typed_feedback_is_the_last_word_also_after_a_reaction_of_the_same_mind(talk: Talk) -> None:
    first = await talk.ask(user("hi", "s"), answer="hello")
    thumb = Feedback(turn_id=first.turn_id, session_id=first.session_id, score=1.0, source="reaction")
    await talk.journal.add_feedback(thumb)
    earlier = Feedback(turn_id=first.turn_id, session_id=first.session_id, score=-1.0, source="extension", time=1.0)
    await talk.journal.add_feedback(earlier, late=True)
    await talk.ask(user("hi", "s"), said("hello"), user("/bad"), user("/good"), user("And?"))
    given = [one.score for one in await talk.journal.feedback_for(first.turn_id)]
    assert sorted(given[:2]) == [-1.0, 1.0] and given[2:] == [-1.0, 1.0]


async def test_a_reaction_that_a_heartbeat_brings_is_about_the_main_turn(talk: Talk) -> None:
    line = "System: [2026-11-20 10:17:41 UTC] Telegram reaction added: 👎 by Alice on msg 42"
    main = await talk.ask(user("hi", "s"), answer="hello")
    beat = user("Follow the heartbeat monitor scratch.")
    await talk.ask(user("hi", "s"), said("hello"), beat, floating(line), answer="NO_REPLY", kind="side")
    assert [one.score for one in await talk.journal.feedback_for(main.turn_id)] == [-1.0]


async def test_a_parent_that_was_forgotten_meanwhile_is_not_missed(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello")
    await talk.journal.forget(first.session_id)
    after = await talk.ask(says("hi"), said("hello"), says("more"), answer="ok")
    assert await talk.journal.turn(after.turn_id) is not None


async def test_an_aborted_answer_that_the_client_keeps_is_still_the_parent(talk: Talk) -> None:
    cut = await talk.ask(says("hi"), answer="hel", status="aborted")
    assert parent(await talk.ask(says("hi"), said("hel"), says("go on"))) == cut.turn_id


async def test_utility_calls_without_a_session_get_ids_of_their_own_kind(talk: Talk) -> None:
    title = await talk.ask({"role": "system", "content": "Give a title"}, says("hi"), kind="side")
    assert title.session_id.startswith("side_")
