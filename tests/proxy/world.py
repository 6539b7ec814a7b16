"""Clients that do to their conversations what clients do, and what must be true of the turns that come of it.

A program is a list of rounds; the actions of a round happen at the same time. Everything here is known from what the
clients did: who wrote which message, from which turn an answer was taken. Nothing is read with the proxy's own eyes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from openclaw_rl.proxy.conversation import changed_answers, parents
from openclaw_rl.proxy.conversation.session_id import is_fresh
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Kind, NextState, TurnStatus
from tests.fixtures.openclaw import runtime
from tests.proxy.history import Item, exchange, form, merged, words_after
from tests.proxy.talk import Asked, Talk

LONG = "The tall fern in the north corner is dry again although it got two cups of water on Sunday evening. " * 3
TEXTS = ("go on", "why?", "no, shorter", "a  b", LONG, "thanks")
ANSWERS = ("fine", "", "It is dry.", "call", "two calls", LONG + "So it is.", "a\nb", "fine")
CLIENTS = ("", "", "header", "header", "openclaw", "body")
"""What names each client's session; two clients share one name, and two have none."""

ACTIONS = (
    "say", "say twice", "retry", "edit", "back", "rewrite", "compact", "clear", "merge", "fork", "reset", "end",
    "restart", "leave out", "heartbeat", "cron", "command", "announce", "float", "thumb", "more", "abort", "lose",
    "unname",
)  # fmt: skip


class Action(NamedTuple):
    """An action of one client: `number` chooses among places in its history, `words` its text, `answer` its answer."""

    client: int
    name: str
    number: int = 0
    words: int = 0
    answer: int = 0


Program = list[list[Action]]


@dataclass(eq=False)
class Client:
    """A history, and what names its session."""

    naming: str
    name: str
    history: list[Item] = field(default_factory=list)


@dataclass
class Request:
    """A request and what became of it."""

    asked: Asked
    history: list[Item]
    kind: Kind
    ended: frozenset[tuple[str, int]]
    answer: Item | None = None
    status: TurnStatus = "complete"
    committed: bool = False

    @property
    def turn_id(self) -> str:
        return self.asked.placement.turn_id

    @property
    def session(self) -> tuple[str, int]:
        return self.asked.placement.session_id, self.asked.entry.opening.number


class World:
    """Runs a program against a real tree and a real journal, and checks what came of it."""

    def __init__(self, journal: AsyncJournal) -> None:
        self.talk = Talk(journal)
        self.journal = journal
        self.clients = [Client(naming, f"shared-{naming}") for naming in CLIENTS]
        self.requests: list[Request] = []
        self.ended: set[tuple[str, int]] = set()
        self.lines: set[str] = set()
        self._count = itertools.count()

    async def run(self, program: Program) -> None:
        """Play the program; every placement is checked as it is made, the journal at the end."""
        for actions in program:
            plays = [play for action in actions if (play := await self._prepare(action)) is not None]
            known = [request for request in self.requests if request.committed]
            begun = await asyncio.gather(*(self._begin(*play) for play in plays))
            for request in begun:
                self.check_placement(request, known)
            await asyncio.gather(
                *(self._finish(request, action) for request, (_, action, _, _) in zip(begun, plays, strict=True))
            )
        await self.check_journal()

    async def _prepare(self, action: Action) -> tuple[Client, Action, list[Item], Kind] | None:
        """Change a client's history, and make the request that comes of it."""
        client = self.clients[action.client % len(self.clients)]
        history, number = client.history, action.number
        spoken = Item("person", TEXTS[action.words % len(TEXTS)])
        answers = [index for index, item in enumerate(history) if item.role == "assistant"]
        persons = [index for index, item in enumerate(history) if item.speaker == "person"]
        last = history[-1] if history else None
        if action.name in ("end", "restart"):
            await self._interrupt(client, action.name)
            return None
        if action.name == "reset":
            history.clear()
        elif action.name == "retry" and last is not None:
            if last.role == "assistant":
                history.pop()
            return (client, action, list(history), "main") if history else None
        elif action.name == "leave out" and last is not None and last.role == "assistant":
            history.pop()
        elif action.name == "more" and last is not None and last.role == "assistant":
            return client, action, [*history, Item("context", "")], "main"
        elif action.name == "edit" and persons:
            del history[persons[number % len(persons)] :]
        elif action.name == "back" and answers:
            del history[answers[number % len(answers)] + 1 :]
        elif action.name == "rewrite" and answers:
            index = answers[number % len(answers)]
            history[index] = Item("assistant", TEXTS[action.words % len(TEXTS)] + "!")
        elif action.name == "compact" and persons:
            summary = "The conversation history before this point was compacted into the following summary: ferns."
            history[: persons[number % len(persons)]] = [Item("notice", summary)]
        elif action.name == "clear":
            for index, item in enumerate(history[:-1]):
                if item.role == "tool":
                    history[index] = Item("tool", "[cleared]")
                    break
        elif action.name == "merge":
            client.history = history = merged(history)
        elif action.name == "fork":
            other = self.clients[self.clients.index(client) ^ 1]
            if other.naming == client.naming:
                other.history = list(history)
                client, history = other, other.history
        elif action.name == "unname" and client.naming != "openclaw":
            client.naming = "" if client.naming else "header"
        elif action.name == "command":
            history.append(Item("command", "/good quick"))
        history += _results(history, next(self._count))
        kind: Kind = "main"
        if action.name in ("heartbeat", "cron"):
            text = {"heartbeat": "Follow the heartbeat monitor scratch.", "cron": "[cron:1 water] Time to water."}
            history.append(Item(action.name, text[action.name]))
            kind = "side"
        elif action.name == "announce":
            history.append(Item("announcement", "A background task completed. It is dry."))
        elif not (history and history[-1].role == "tool" and number % 2):
            history.append(spoken)
            if action.name == "say twice":
                history.append(Item("person", TEXTS[(action.words + number) % len(TEXTS)]))
        sent = list(history)
        if action.name == "float":
            sent.append(Item("context", ""))
        if action.name == "thumb":
            line = f"Telegram reaction added: 👍 by Ann on msg {next(self._count)}"
            self.lines.add(line)
            sent.append(Item("context", f"System: [2026-11-20 10:17 UTC] {line}"))
        return client, action, sent, kind

    async def _interrupt(self, client: Client, name: str) -> None:
        if name == "restart":
            self.talk.restart()
            return
        sessions = [request.session for request in self.requests if request.asked.placement.session_id == client.name]
        for session_id in {session for session, _ in sessions}:
            episode = await self.journal.end_episode(session_id, "test")
            if episode is not None:
                self.ended.add((session_id, episode))

    async def _begin(self, client: Client, action: Action, sent: list[Item], kind: Kind) -> Request:
        opening = client.naming == "openclaw"
        messages = [item.sent(action.number + index, "stamped" * opening) for index, item in enumerate(sent)]
        first = next((message for message in messages if message["role"] == "user"), None)
        if opening and first is not None and isinstance(first["content"], str):
            first["content"] += runtime(client.name)
        elif opening and first is not None and sent[0].role == "user":
            first["content"][0]["text"] += runtime(client.name)
        headers = {"x-session-id": client.name} if client.naming == "header" else {}
        if action.name == "retry" and action.number % 2:
            headers["x-stainless-retry-count"] = "1"
        body = {"metadata": {"session_id": client.name}} if client.naming == "body" else {}
        asked = await self.talk.begin(*messages, kind=kind, headers=headers, body=body)
        request = Request(asked, sent, kind, frozenset(self.ended))
        self.requests.append(request)
        return request

    async def _finish(self, request: Request, action: Action) -> None:
        client = self.clients[action.client % len(self.clients)]
        if action.name == "fork" and self.clients[self.clients.index(client) ^ 1].naming == client.naming:
            client = self.clients[self.clients.index(client) ^ 1]
        text, calls = _answer(action.answer)
        if action.name == "abort":
            request.status, text, calls = "aborted", text[: len(text) // 2], ()
        request.answer = Item("assistant", text, calls, request.turn_id)
        records = [
            {"id": f"call_{index}", "name": name, "arguments": json.loads(arguments)}
            for index, (name, arguments) in enumerate(calls)
        ]
        await self.talk.finish(request.asked, text, records, request.status, reasoning="hm" if calls else "")
        request.committed = True
        kept = action.name not in ("lose", "heartbeat") and not (action.name == "abort" and action.number % 2)
        if action.name == "heartbeat":
            client.history[:] = [item for item in client.history if item.speaker != "heartbeat" or action.number % 2]
        if kept:
            client.history.append(request.answer)

    def matches(self, request: Request, known: Sequence[Request]) -> Iterator[tuple[int, Request]]:
        """Every turn whose whole history and answer this history begins with, and where its answer ends."""
        items = request.history
        forms = {index: form(items[: index + 1]) for index, item in enumerate(items) if form([item])}
        for other in known:
            if other.answer is None or not may_continue(request, other):
                continue
            whole = form([*other.history, other.answer])
            empty = not form([other.answer])
            for index, shown in forms.items():
                spoken = (item for item in items[index + 1 :] if form([item]) or item.speaker == "announcement")
                after = next((item.role for item in spoken), "")
                answered = items[index].role == "assistant" or (empty and after == "user")
                if shown == whole and answered:
                    yield index, other

    def check_placement(self, request: Request, known: Sequence[Request]) -> None:
        """A request's parent is the deepest turn that its history shows, and its words are what stands after it."""
        placement = request.asked.placement
        parent = next((one for one in known if placement.parent and one.turn_id == placement.parent.turn_id), None)
        assert (placement.parent is None) == (parent is None), "a parent that was never committed"
        exact = list(self.matches(request, known))
        deepest = max((index for index, _ in exact), default=-1)
        reason = placement.parent_reason
        if parent is None:
            assert reason, "no parent and no reason"
            assert not exact, f"a turn that its whole history shows was not found: {reason}"
            assert placement.words is None
            return
        assert may_continue(request, parent)
        if reason == parents.FOUND_DROPPED:
            asked = form(parent.history)
            places = [index for index, _ in enumerate(request.history) if form(request.history[: index + 1]) == asked]
            assert places and parent.status == "complete"
            tries = [one for one in known if one.kind == request.kind and form(one.history) == asked]
            if placement.source != "tree":
                tries = [one for one in tries if one.session[0] == placement.session_id]
            assert tries == [parent], "one of several tries"
            own = [one for at, one in exact if at == places[-1] and one.session[0] == placement.session_id]
            assert places[-1] >= deepest and not own
            index = places[-1]
        elif reason == parents.FOUND_BY_EXCHANGE:
            wanted = exchange([*parent.history, parent.answer]) if parent.answer else []
            places = [
                index
                for index, item in enumerate(request.history)
                if item.role == "assistant" and wanted and exchange(request.history[: index + 1]) == wanted
            ]
            assert places and places[-1] > deepest, "its answer is not in the history"
            index = places[-1]
            source = next((one for one in known if one.turn_id == request.history[index].source), None)
            assert source or not self.asked_before(request, index, known), "an answer that the client changed"
            assert source is None or source is parent or same(source, parent) or not self.intact(request, index, source)
        elif reason == changed_answers.BY_WORDS:
            assert parent.answer is not None
            index = max(
                at for at, item in enumerate(request.history) if item.role == "assistant"
                and "".join(item.text.split()) == "".join(parent.answer.text.split())
            )  # fmt: skip
            assert index > deepest, "a deeper answer is certain"
            source = next((one for one in known if one.turn_id == request.history[index].source), None)
            assert source or not self.asked_before(request, index, known), "an answer that the client changed"
            assert source is None or source is parent or same(source, parent) or not self.intact(request, index, source)
        elif reason == changed_answers.BY_REQUEST:
            index = max(
                at for at in range(len(request.history)) if request.history[at].role == "assistant"
                and form(_asked(request.history, at)) == form(parent.history)
            )  # fmt: skip
            assert index > deepest and parent.answer is not None
        else:
            assert reason == ""
            assert any(index == deepest and one is parent for index, one in exact), "not the deepest, or not its answer"
            index = deepest
            own = [one for at, one in exact if at == index and one.session[0] == placement.session_id]
            newest = max((one.asked.arrived for one in own), default=parent.asked.arrived)
            assert parent.asked.arrived == newest, "a discarded try of the same request"
        role, text = words_after(request.history, index)
        if reason == parents.FOUND_DROPPED and role == "user":
            role = "environment"
        assert placement.words is not None
        assert (placement.words.role, placement.words.text) == (role, text), "words that did not follow"

    def asked_before(self, request: Request, index: int, known: Sequence[Request]) -> bool:
        """Return whether the session knows what was answered where the history has the answer at `index`."""
        asked = form(_asked(request.history, index))
        session_id = request.asked.placement.session_id
        return any(one.session[0] == session_id and form(one.history) == asked for one in known)

    def intact(self, request: Request, index: int, source: Request) -> bool:
        """Return whether the history still shows the request of the turn from which the answer there was taken."""
        assert source.answer is not None
        return exchange(request.history[: index + 1]) == exchange([*source.history, source.answer])

    async def check_journal(self) -> None:
        """Check the contents of the journal in the end."""
        turns = {request.turn_id: request for request in self.requests}
        stored = 0
        given: list[str] = []
        for request in self.requests:
            turn = await self.journal.turn(request.turn_id)
            assert turn is not None and request.answer is not None
            assert turn.messages == request.asked.history and list(turn.response_ids) == request.asked.response
            assert (turn.parent_turn_id is None) == (request.asked.placement.parent is None)
            assert turn.parent_turn_id in turns or turn.parent_reason
            given += [one.text for one in await self.journal.feedback_for(turn.turn_id) if one.source == "reaction"]
            self.check_next_state(request, await self.journal.next_state(turn.turn_id))
        for session in await self.journal.sessions(limit=1000):
            stored += session.main + session.side
        assert stored == len(self.requests), "a response was stored twice, or not at all"
        assert len(given) == len(set(given)) and set(given) <= self.lines, "a reaction counted twice"

    def check_next_state(self, request: Request, state: NextState | None) -> None:
        """A turn has a next state exactly if a main turn of its episode followed it with words or results."""
        followers = {
            one.turn_id: one
            for one in self.requests
            if one.kind == "main"
            and one.asked.placement.parent is not None
            and one.asked.placement.parent.turn_id == request.turn_id
            and one.asked.placement.words is not None
            and one.asked.placement.words.role is not None
            and request.session not in one.ended
            and (one.session[0] != request.session[0] or one.session == request.session)
        }
        assert (state is not None) == bool(followers), "settled by nothing, or not settled"
        if state is not None:
            assert state.next_turn_id in followers
            words = followers[state.next_turn_id].asked.placement.words
            assert words is not None and (state.role, state.text) == (words.role, words.text)


def may_continue(request: Request, other: Request) -> bool:
    """Return whether kinds and named sessions allow a continuation."""
    named = request.asked.placement.source in ("header", "runtime", "body")
    if request.kind == "main" and other.kind != "main":
        return False
    session = other.asked.placement.session_id
    return not named or session == request.asked.placement.session_id or is_fresh(session)


def same(one: Request, other: Request) -> bool:
    """Return whether two turns have the same words."""
    assert one.answer is not None and other.answer is not None
    return form([*one.history, one.answer]) == form([*other.history, other.answer])


def _answer(number: int) -> tuple[str, tuple[tuple[str, str], ...]]:
    text = ANSWERS[number] if number < len(ANSWERS) else f"Answer {number}."
    read = ("read", '{"path": "a", "n": 1.0}')
    if text == "call":
        return "", (read,)
    if text == "two calls":
        return "I look.", (read, ("exec", '{"command": "date"}'))
    return text, ()


def _asked(history: Sequence[Item], index: int) -> list[Item]:
    """The history before the run of answers that ends at `index`."""
    return list(itertools.dropwhile(lambda item: item.role == "assistant", reversed(history[:index])))[::-1]


def _results(history: Sequence[Item], number: int) -> list[Item]:
    calls = history[-1].calls if history and history[-1].role == "assistant" else ()
    return [Item("tool", f"result {number % 3} of {name}") for name, _ in calls]
