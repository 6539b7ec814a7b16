"""The comparison of what a client did, by its tap, with what the service made of it, by its journal.

The truth is the client's: which requests are its conversation's own, in which order they came, and what a person
typed. Each own request continues the answer to the own request before it; a person's reaction is about the last own
answer before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from openclaw_rl.learner.judge.loop import JudgeLoop
from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.records import NextState, Turn
from openclaw_rl.shared.settings.settings import Settings
from tests.real.clients.client import SUBAGENT, UTILITY, Client
from tests.real.clients.tap import Exchange, Said, Tap

SIGNS = {"complaint": -1.0, "thanks": 1.0}
JUDGING_SECONDS = 60.0


@dataclass
class Score:
    """The figures of a client. Pairs are [right, all]; `notes` tells each thing that was not."""

    version: str
    works: bool = True
    turns: int = 0
    utility: list[int] = field(default_factory=lambda: [0, 0])
    parents: list[int] = field(default_factory=lambda: [0, 0])
    reactions: list[int] = field(default_factory=lambda: [0, 0])
    trained_wrongly: int = 0
    notes: list[str] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """The figures, without the notes."""
        return {name: value for name, value in vars(self).items() if name != "notes"}

    def check(self, pair: list[int], right: bool, note: str) -> None:
        """Count one thing in a pair; note it if it is wrong."""
        pair[0] += right
        pair[1] += 1
        if not right:
            self.notes.append(note)


def judge_all(settings: Settings) -> None:
    """Judge every turn that waits, by the rules, as the learner does."""
    asyncio.run(_judge_all(settings))


async def _judge_all(settings: Settings) -> None:
    journal = AsyncJournal(settings.serve.journal_path)
    loop = asyncio.create_task(JudgeLoop(journal, RuleJudge(), settings, Progress(), set()).run())
    deadline = time.monotonic() + JUDGING_SECONDS
    while await journal.unjudged(1) and time.monotonic() < deadline and not loop.done():
        await asyncio.sleep(0.1)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await journal.close()


def score(client: Client, tap: Tap, journal: Journal, problem: str) -> Score:
    """Score a client. `problem`: why it did not finish, "" if it did."""
    exchanges = tap.exchanges
    result = Score(client.version, works=not problem, turns=sum(bool(one.turn_id) for one in exchanges))
    if problem:
        result.notes.append(f"it did not finish: {problem}")
    for one in exchanges:
        if one.status >= 400:
            result.works = False
            result.notes.append(f"refused with {one.status}: {one.refusal}")
    made = [(one, turn) for one in exchanges if (turn := journal.turn(one.turn_id)) is not None]
    purposes = {turn.turn_id: client.purpose(one) for one, turn in made}
    own = [(one, turn) for one, turn in made if not purposes[turn.turn_id]]
    for one, turn in made:
        if purposes[turn.turn_id] == UTILITY:
            result.check(result.utility, turn.kind == "side", f"utility call as {_described(one, turn)}")
    _score_parents(result, own, tap.said)
    for said, about in _reactions(tap.said, exchanges, {turn.turn_id for _, turn in own}):
        result.check(result.reactions, *_credited(journal, said, about))
    typed = [said.words for said in tap.said]
    for one, turn in made:
        if why := _trained_wrongly(journal, purposes[turn.turn_id], turn, typed):
            result.trained_wrongly += 1
            result.notes.append(f"trained wrongly, {why}: {_described(one, turn)}")
    return result


def _score_parents(result: Score, own: list[tuple[Exchange, Turn]], said: list[Said]) -> None:
    before: dict[int, tuple[Exchange, Turn]] = {}
    compacted = {one.conversation: one.before for one in said if one.kind == "compact"}
    order = {id(one.seen): place for place, (one, _) in enumerate(own)}
    for one, turn in own:
        previous = before.get(one.conversation)
        before[one.conversation] = (one, turn)
        if previous is not None and one.body == previous[0].body:  # it tries again
            right = turn.parent_turn_id == previous[1].parent_turn_id
        elif previous is None:
            right = turn.parent_turn_id is None
        elif _first_after(one, previous[0], said, compacted):
            right = turn.session_id == previous[1].session_id
        else:
            right = turn.parent_turn_id == previous[1].turn_id
        expected = "none" if previous is None else previous[1].turn_id
        note = f"parent {turn.parent_turn_id} ({turn.parent_reason}), not {expected}: {_described(one, turn)}"
        result.check(result.parents, right and turn.kind == "main", f"own request {order[id(one.seen)]}: {note}")


def _first_after(one: Exchange, previous: Exchange, said: list[Said], compacted: dict[int, int]) -> bool:
    """True for the first own request after its conversation's compaction."""
    at = compacted.get(one.conversation)
    return at is not None and previous.place < at <= one.place


def _reactions(said: list[Said], exchanges: list[Exchange], own: set[str]) -> Iterator[tuple[Said, str]]:
    """Reactions that were typed, each with the turn of the answer that it is about."""
    for one in said:
        earlier = [other.turn_id for other in exchanges[: one.before] if other.conversation == one.conversation]
        about = next((turn_id for turn_id in reversed(earlier) if turn_id in own), "")
        if one.kind in SIGNS:
            yield one, about


def _credited(journal: Journal, said: Said, about: str) -> tuple[bool, str]:
    state = journal.next_state(about)
    judged = journal.judgement(about)
    found = state is not None and state.role == "user" and said.words in state.text
    sign = judged.score if judged is not None else None
    text = "nothing" if state is None else f"{state.role}: {state.text[:200]!r}"
    return found and sign == SIGNS[said.kind], f"{said.words!r} about {about}: next state is {text}, score {sign}"


def _trained_wrongly(journal: Journal, purpose: str, turn: Turn, typed: list[str]) -> str:
    """Say why a turn's sample is none to train on; "" where there is none, or it may."""
    summary = journal.session(turn.session_id)
    states = {one.turn_id: one.state for one in summary.turns} if summary is not None else {}
    if states.get(turn.turn_id) != "ready":
        return ""
    if purpose in (UTILITY, SUBAGENT):
        return purpose
    state = journal.next_state(turn.turn_id)
    if state is not None and state.role == "user" and not _is_typed(state, typed):
        return f"program text {state.text[:200]!r}"
    return ""


def _is_typed(state: NextState, typed: list[str]) -> bool:
    return any(words and words in state.text for words in typed)


def _described(one: Exchange, turn: Turn) -> str:
    words = " ".join(one.newest.split())[:120]
    return f"{turn.turn_id} {turn.kind}/{turn.kind_reason} of conversation {one.conversation}, newest words {words!r}"
