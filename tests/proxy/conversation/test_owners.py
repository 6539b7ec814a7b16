"""Two owners side by side: neither's requests, sessions or feedback ever reach the other's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.proxy.conversation.session_id import fault, is_fresh
from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.owners import owned, owner_of, unowned, why_no_owner
from tests.fixtures.openclaw import call, user
from tests.proxy.talk import Sent, Talk, parent, said, says

LONG = "The tall fern in the north corner is dry again although it got two cups of water on Sunday evening. " * 3
PLAN = "We water the ferns in the north on Mondays, and the ivy that hangs above the door on Fridays alone. " * 3
SUMMARY = "The conversation history before this point was compacted into the following summary: "


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    journal = AsyncJournal(tmp_path / "journal.db", linger=0)
    yield Talk(journal)
    await journal.close()


@pytest.mark.parametrize(("named", "owner"), [("main", ""), ("main", "bob"), ("a@", "bob"), ("a@@b@", "key 3")])
def test_an_id_says_whose_it_is_and_what_its_owner_chose(named: str, owner: str) -> None:
    whole = owned(named, owner)
    assert owned(whole, owner) == whole and unowned(whole, owner) == named
    assert not owner or owner_of(whole) == owner


def test_a_session_cannot_be_named_into_another_owners() -> None:
    assert "not yours" in fault("main@@alice") and "not yours" in fault("main@@alice", "bob")
    assert fault(owned("main", "bob"), "bob") == fault("main", "bob") == ""
    assert why_no_owner("bob") == "" and all(map(why_no_owner, ("", " bob", "a@@b", "@bob", "b\n", "x" * 65)))


@pytest.mark.parametrize("restarted", [False, True])
async def test_two_owners_with_the_same_words_share_no_session(talk: Talk, *, restarted: bool) -> None:
    alice = await talk.ask(says("hi"), answer="hello", owner="alice")
    service = await talk.ask(says("hi"), answer="hello")
    if restarted:
        talk.restart()
    bob = await talk.ask(says("hi"), said("hello"), says("always answer in French"), owner="bob")
    assert parent(bob) is None and owner_of(bob.session_id) == "bob" and is_fresh(bob.session_id)
    assert await talk.next_state(alice) is None and await talk.next_state(service) is None
    again = await talk.ask(says("hi"), said("hello"), says("thanks"), owner="alice")
    assert (parent(again), again.session_id) == (alice.turn_id, alice.session_id)
    assert owner_of(alice.session_id) == "alice" and owner_of(service.session_id) == ""


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([says("go"), said(LONG), says("so?")], id="the words of an answer"),
        pytest.param([user("[cut]"), says(PLAN[::-1]), said("It is dry."), says("so?")], id="an exchange"),
        pytest.param(
            [
                {"role": "assistant", "content": "", "tool_calls": [call("read", "{}", "call_" + "5" * 32)]},
                {"role": "tool", "content": "dry", "tool_call_id": "call_" + "5" * 32},
            ],
            id="the id of a call",
        ),
        pytest.param([user(SUMMARY + PLAN), says("so?")], id="a summary"),
    ],
)
async def test_no_other_way_of_knowing_an_answer_reaches_another_owner(talk: Talk, history: list[Sent]) -> None:
    names = {"x-session-id": "plants"}
    calls = [{"id": "call_" + "5" * 32, "name": "read", "arguments": {}}]
    turns = [
        await talk.ask(says("before"), answer=LONG, owner="alice", headers=names),
        await talk.ask(says(PLAN[::-1]), answer="It is dry.", owner="alice"),
        await talk.ask(says("read it"), answer="", calls=calls, owner="alice"),
        await talk.ask(says("before"), said(LONG), says("sum up"), answer=PLAN, kind="side", owner="alice"),
    ]
    known = {turn.turn_id for turn in turns}
    mine = await talk.ask(*history, owner="alice")
    assert parent(mine) in known
    other = await talk.ask(*history, owner="bob")
    assert parent(other) is None and owner_of(other.session_id) == "bob"


async def test_the_same_session_id_of_two_owners_is_two_sessions(talk: Talk) -> None:
    named = {"x-session-id": "main"}
    service = await talk.ask(says("hi"), headers=named)
    bob = await talk.ask(says("hello"), headers=named, owner="bob")
    by_whole_id = await talk.ask(says("hello"), headers={"x-session-id": "main@@bob"}, owner="bob")
    assert service.session_id == "main" and bob.session_id == by_whole_id.session_id == "main@@bob"
    rows = {row.session_id: row.owner for row in await talk.journal.sessions()}
    assert rows == {"main": "", "main@@bob": "bob"}
    assert [row.session_id for row in await talk.journal.sessions(owner="bob")] == ["main@@bob"]
    for owner in ("", "alice"):
        with pytest.raises(BadRequest, match="not yours"):
            await talk.ask(says("hello"), headers={"x-session-id": "main@@bob"}, owner=owner)


async def test_a_retry_joins_no_other_owners_first_try(talk: Talk) -> None:
    cut = await talk.ask(says("hi"), answer=None, owner="alice")
    again = {"x-stainless-retry-count": "1"}
    assert (await talk.ask(says("hi"), answer=None, headers=again, owner="bob")).source == "new"
    assert (await talk.ask(says("hi"), headers=again, owner="alice")).session_id == cut.session_id


async def test_a_flood_of_the_same_words_hides_no_turn_of_another_owner(talk: Talk) -> None:
    mine = await talk.ask(says("hi"), answer="hello", owner="alice")
    for _ in range(70):
        await talk.ask(says("hi"), answer="hello", owner="bob")
    for restart in (False, True):
        if restart:
            talk.restart()
        after = await talk.ask(says("hi"), said("hello"), says("thanks"), answer=None, owner="alice")
        assert parent(after) == mine.turn_id
