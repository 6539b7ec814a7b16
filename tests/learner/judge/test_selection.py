"""The choice of a hint; the overlaps are counted here by hand, and once asked of a real engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.judge.selection import Selector, candidates_of, overlap
from openclaw_rl.learner.rollouts.rehearsal import hinted_prompt
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.engine.protocol import Engine as EngineProtocol
from openclaw_rl.shared.engine.protocol import Priority, Scores
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Turn, VersionSpan, Vote
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import ready, turn
from tests.processes import Engine, run_engine

HINTS = ["Use no bold type.", "Be very brief.", "Write as if you spoke to a friend, please."]


def votes(*hints: str | None, failed: int = 0) -> list[Vote]:
    return [Vote(score=-1.0, hint=hint) for hint in hints] + [Vote(failure="no answer")] * failed


class ScoringEngine:
    """Stands for an engine: the top_logprobs of a prompt come from a table by the prompt's ids."""

    def __init__(self, top_logprobs: dict[tuple[int, ...], list[list[int]]], *, missing: Sequence[int] = ()) -> None:
        self.top_logprobs = top_logprobs
        self.missing = missing
        self.asked: list[tuple[tuple[int, ...], int | None, int, Priority]] = []

    async def score(self, prompt_ids: Sequence[int], continuation_ids: Sequence[int], **options: Any) -> Scores:
        version = options["version"]
        self.asked.append((tuple(prompt_ids), version, options["top_k"], options["priority"]))
        if version in self.missing:
            raise EngineError(f"no version {version}", status=404)
        top_logprobs = [[(-1.0, token) for token in row] for row in self.top_logprobs[tuple(prompt_ids)]]
        return Scores([-1.0] * len(continuation_ids), 0, top_logprobs)


def made_turn(prompter: Prompter, *, version: int = 3, **changes: Any) -> Turn:
    messages = [{"role": "user", "content": "How much is 7 and 5?"}]
    ids = prompter.render(ChatInput(messages=messages)).ids()
    fields = {"prompt_ids": ids, "response_ids": [9, 10, 11], "versions": [VersionSpan(version, 0, 3)]}
    return turn(1, **(fields | changes))


def selector(way: str, engine: Any = None, prompter: Prompter | None = None, **changes: Any) -> Selector:
    lazy = ready(prompter) if prompter else None
    return Selector(Settings(hint_selection=way, **changes), engine, lazy)  # type: ignore[arg-type]


async def test_one_vote_with_a_hint_is_enough() -> None:
    one, two, three = HINTS
    choose = selector("longest").choose
    assert (await choose(turn(1), votes())).hint is None
    assert (await choose(turn(1), votes(None, None, failed=3))).hint is None
    assert (await choose(turn(1), votes(one, None, None))).hint == one
    assert (await choose(turn(1), votes(None, one, failed=2))).hint == one
    assert (await choose(turn(1), votes(two, three, None))).hint == three
    failed = [Vote(hint=one, failure="late"), *votes(None)]
    assert (await choose(turn(1), failed)).hint is None


def test_candidates_are_distinct_and_come_shortest_first() -> None:
    one, two, three = HINTS
    assert candidates_of(votes(three, one, None, f" {one} ", two, three, failed=1)) == [two, one, three]
    same = ["Ask first, please.", "Use no bold font.", "Name your sources."]
    assert candidates_of(votes(*same)) == [same[1], same[0], same[2]]  # equal lengths keep the order of the votes


async def test_hints_of_ten_characters_or_less_are_dropped() -> None:
    assert candidates_of(votes("Be brief.", "No tables.", "No tables!!", "不要用表格")) == ["No tables!!"]
    assert candidates_of(votes("请不要用表格")) == ["请不要用表格"]  # six characters, as wide as twelve
    dropped = await selector("shortest").choose(turn(1), votes("Be brief."))
    assert (dropped.hint, dropped.selection) == (None, "none") and "shorter than 11" in dropped.reason


async def test_longest_shortest_and_the_token_wise_choice() -> None:
    longest = await selector("longest").choose(turn(1), votes(*HINTS))
    assert (longest.hint, longest.selection) == (HINTS[2], "longest")
    shortest = await selector("shortest").choose(turn(1), votes(*HINTS))
    assert (shortest.hint, shortest.selection) == (HINTS[1], "shortest")
    each = await selector("overlap-token").choose(turn(1), votes(*HINTS))
    assert (each.hint, each.selection) == (HINTS[1], "overlap-token") and "each token" in each.reason
    four = [*HINTS, "A fourth one, and the longest of them all by far."]
    assert (await selector("longest").choose(turn(1), votes(*four))).hint == four[3]


async def test_the_hint_whose_likeliest_tokens_a_scripted_engine_shares_most_is_taken(prompter: Prompter) -> None:
    made = made_turn(prompter)
    student = [[1, 2], [3, 4], [5, 6]]
    top_logprobs = {tuple(made.prompt_ids): student}
    for hint, rows in zip(
        HINTS,
        ([[1, 9], [9, 8], [9, 8]], [[2, 1], [9, 3], [6, 5]], [[1, 2], [3, 9], [9, 8]]),  # 1, 5 and 3 in common
        strict=True,
    ):
        top_logprobs[tuple(hinted_prompt(prompter, made, hint))] = rows
    engine = ScoringEngine(top_logprobs)
    found = await selector("overlap-sequence", engine, prompter, select_k=2).choose(made, votes(*HINTS))
    assert (found.hint, found.selection) == (HINTS[1], "overlap-sequence")
    assert found.reason == "tokens in common, by hint: 5, 1, 3"  # shortest first
    assert [(version, top_k) for _, version, top_k, _ in engine.asked] == [(3, 2), (0, 2), (0, 2), (0, 2)]
    assert {priority for *_, priority in engine.asked} == {Priority.JUDGE}


async def test_at_most_three_distinct_hints_are_compared_and_one_needs_no_engine(prompter: Prompter) -> None:
    made = made_turn(prompter)
    prompts = [tuple(made.prompt_ids), *(tuple(hinted_prompt(prompter, made, hint)) for hint in HINTS)]
    engine = ScoringEngine({ids: [[1], [2], [3]] for ids in prompts})
    four = [HINTS[0], HINTS[0], *HINTS[1:], "A fourth one that no one asks about, the longest of them all by far."]
    found = await selector("overlap-sequence", engine, prompter).choose(made, votes(*four))
    assert found.hint == HINTS[1]  # all overlap alike: the shortest
    assert len(engine.asked) == 4
    engine.asked.clear()
    alone = await selector("overlap-sequence", engine, prompter).choose(made, votes(HINTS[0], HINTS[0]))
    assert (alone.hint, alone.selection, engine.asked) == (HINTS[0], "overlap-sequence", [])


async def test_a_version_that_a_scripted_engine_has_no_more_gives_way_to_the_live_one(prompter: Prompter) -> None:
    made = made_turn(prompter)
    prompts = [tuple(made.prompt_ids), *(tuple(hinted_prompt(prompter, made, hint)) for hint in HINTS[:2])]
    engine = ScoringEngine({ids: [[1], [2], [3]] for ids in prompts}, missing=[3])
    found = await selector("overlap-sequence", engine, prompter).choose(made, votes(*HINTS[:2]))
    assert found.selection == "overlap-sequence"
    assert [version for _, version, *_ in engine.asked] == [3, None, 0, 0]


@pytest.mark.parametrize("case", ["no engine", "cannot score"])
async def test_without_a_comparison_the_shortest_is_taken_with_the_reason(case: str, prompter: Prompter) -> None:
    made = made_turn(prompter)
    engine = None if case == "no engine" else ScoringEngine({}, missing=[3, None] if case == "cannot score" else ())
    found = await selector("overlap-sequence", engine, prompter).choose(made, votes(*HINTS))
    assert (found.hint, found.selection) == (HINTS[1], "shortest")
    assert found.reason.startswith("overlap-sequence was not possible, so the shortest hint: ")


def test_overlaps_are_summed_over_positions() -> None:
    def scores(*rows: list[int]) -> Scores:
        return Scores([0.0] * len(rows), 0, [[(-1.0, token) for token in row] for row in rows])

    assert overlap(scores([1, 2, 3], [4, 5, 6]), scores([3, 2, 9], [7, 8, 4])) == 3


@pytest.fixture(scope="module")
def engine_server(random_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with run_engine(random_policy, tmp_path_factory.mktemp("engine")) as running:
        yield running


async def test_a_real_engine_tells_the_overlaps(engine_server: Engine, prompter: Prompter) -> None:
    settings = Settings(
        model=str(engine_server.policy), engine_url=engine_server.url, hint_selection="overlap-sequence"
    )
    engine: EngineProtocol = create_engine(settings)
    try:
        made = made_turn(prompter, version=0, response_ids=[309, 310, 311])
        found = await Selector(settings, engine, ready(prompter)).choose(made, votes(*HINTS))
        assert found.selection == "overlap-sequence"
        student = await engine.score(list(made.prompt_ids), [309, 310, 311], version=0, top_k=4)
        counts = []
        shortest_first = sorted(HINTS, key=len)
        for hint in shortest_first:
            teacher = await engine.score(hinted_prompt(prompter, made, hint), [309, 310, 311], version=0, top_k=4)
            counts.append(
                sum(
                    len({token for _, token in one} & {token for _, token in other})
                    for one, other in zip(student.top, teacher.top, strict=True)
                )
            )
        assert found.reason == f"tokens in common, by hint: {counts[0]}, {counts[1]}, {counts[2]}"
        assert found.hint == shortest_first[counts.index(max(counts))]
    finally:
        await engine.close()
