"""The audit: real answers of a real engine, recorded rightly and wrongly."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from msgspec.structs import replace

from openclaw_rl.learner.audit import FIRST_TURNS, NOISE, Auditor, chosen, judged
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.engine.protocol import Engine, EngineInfo, Scores
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Audit, Sampling, Turn, VersionSpan
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.learner.things import turn
from tests.trainer_local.serving import collect, prompt, serving, write_adapter, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), scale=3.0)


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with serving(model) as (url, _):
        yield url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[SglangEngine]:
    client = SglangEngine(url)
    yield client
    await client.close()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[AsyncJournal]:
    opened = AsyncJournal(tmp_path / "journal.db")
    yield opened
    await opened.close()


async def answered(engine: Engine, number: int, **sampling: Any) -> Turn:
    """A turn as the proxy would record it."""
    asked = Sampling(max_tokens=30, ignore_eos=True, **sampling)
    ids = prompt(20 + number, seed=number)
    answer = await collect(engine.generate(ids, asked))
    return turn(
        number,
        prompt_ids=ids,
        response_ids=answer.ids,
        logprobs=answer.logprobs,
        versions=answer.last.versions,
        sampling=replace(asked, ignore_eos=False),
    )


async def audit(journal: AsyncJournal, engine: Engine, turns: Sequence[Turn], **changes: Any) -> list[Audit | None]:
    """Record these turns, let the auditor look at what waits, and tell what it found."""
    for one in turns:
        await journal.record_turn(one)
    auditor = Auditor(journal, engine, Settings(**({"audit_fraction": 1.0} | changes)), Progress())
    while await auditor.once():
        continue
    return [await journal.audit(one.turn_id) for one in turns]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.6}, {"temperature": 1.7}, {"temperature": 0}], ids=str)
async def test_sampled_answers_are_found_aligned(
    journal: AsyncJournal, engine: SglangEngine, sampling: dict[str, Any]
) -> None:
    (found,) = await audit(journal, engine, [await answered(engine, 1, **sampling)])
    assert found is not None and found.verdict == "aligned"
    assert len(found.differences) == 30 and max(found.differences) < 1e-3
    figures = await journal.audit_figures()
    assert figures.verdicts == {"aligned": 1} and figures.largest < 1e-3


def wrong_logprobs(right: Turn) -> Turn:
    return replace(right, logprobs=[logprob - 0.5 for logprob in right.logprobs])


def another_temperature(right: Turn) -> Turn:
    return replace(right, sampling=Sampling(temperature=0.4))


def tokens_that_were_not_sampled(right: Turn) -> Turn:
    return replace(right, response_ids=[right.response_ids[-1], *right.response_ids[:-1]])


def another_prompt(right: Turn) -> Turn:
    return replace(right, prompt_ids=right.prompt_ids[1:])


def the_end_alone_is_wrong(right: Turn) -> Turn:
    return replace(right, logprobs=[*right.logprobs[:-1], right.logprobs[-1] - 2.0])


@pytest.mark.parametrize(
    "spoil",
    [
        wrong_logprobs,
        another_temperature,
        tokens_that_were_not_sampled,
        another_prompt,
        the_end_alone_is_wrong,
    ],
)
async def test_a_wrongly_recorded_turn_is_set_aside_with_a_reason(
    journal: AsyncJournal, engine: SglangEngine, spoil: Any
) -> None:
    spoilt = spoil(await answered(engine, 2))
    (found,) = await audit(journal, engine, [spoilt])
    assert found is not None and found.verdict == "misaligned" and "more than 0.1" in found.reason
    explained = await journal.explain(spoilt.turn_id)
    assert explained is not None
    assert explained["quarantine"]["reason"] == "misaligned: its logprobs are not those that version 0 gives its tokens"


async def test_the_tolerance_is_the_operator_s(journal: AsyncJournal, engine: SglangEngine) -> None:
    (found,) = await audit(journal, engine, [wrong_logprobs(await answered(engine, 3))], audit_tolerance=0.6)
    assert found is not None and found.verdict == "aligned"


async def test_a_turn_is_scored_by_the_version_that_sampled_it(
    journal: AsyncJournal, engine: SglangEngine, model: Path, tmp_path: Path
) -> None:
    old = await answered(engine, 4)
    await engine.load(5, str(write_adapter(model, tmp_path / "adapter")), live=True)
    try:
        new = await answered(engine, 5)
        blamed = replace(await answered(engine, 6), versions=[VersionSpan(0, 0, 30)])
        gone = replace(await answered(engine, 7), versions=[VersionSpan(77, 0, 30)])
        found = await audit(journal, engine, [old, new, blamed, gone])
    finally:
        await engine.load(0, str(model), live=True)
    assert [one.verdict for one in found if one] == ["aligned", "aligned", "misaligned", "gone"]
    assert [one.version for one in found if one] == [0, 5, 0, 77]
    assert found[3] is not None and "version 77 no more" in found[3].reason


@pytest.mark.parametrize(
    ("sampling", "parameter"), [({"top_p": 0.9}, "top_p 0.9"), ({"presence_penalty": 0.5}, "presence_penalty 0.5")]
)
async def test_an_answer_that_no_engine_can_score_is_left_out_and_counted(
    journal: AsyncJournal, engine: SglangEngine, sampling: dict[str, Any], parameter: str
) -> None:
    (found,) = await audit(journal, engine, [await answered(engine, 8, **sampling)])
    assert found is not None and found.verdict == "incomparable" and parameter in found.reason
    assert (await journal.audit_figures()).verdicts == {"incomparable": 1}


async def test_an_engine_that_is_away_costs_the_audit_alone(journal: AsyncJournal, engine: SglangEngine) -> None:
    recorded = await answered(engine, 9)
    away = SglangEngine("http://127.0.0.1:9", patience=0.1)
    (found,) = await audit(journal, away, [recorded])
    await away.close()
    assert found is not None and found.verdict == "unavailable" and "cannot be reached" in found.reason
    assert (await journal.explain(recorded.turn_id) or {})["quarantine"] is None


class ScriptedEngine:
    """Stands for an engine whose answers are given; counts what it is asked."""

    def __init__(self, *, error: EngineError | None = None, **scores: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self._error = error
        self._scores = scores

    async def info(self) -> EngineInfo:
        return EngineInfo(0, (0, 1, 2), "model", 100, 50)

    async def score(self, prompt_ids: Sequence[int], continuation_ids: Sequence[int], **asked: Any) -> Scores:
        self.asked.append({"prompt": len(prompt_ids), "answer": len(continuation_ids), **asked})
        if self._error is not None:
            raise self._error
        fields = {"logprobs": [-0.5] * len(continuation_ids), "version": asked["version"]} | self._scores
        return Scores(**fields)


async def scripted(journal: AsyncJournal, engine: ScriptedEngine, **changes: Any) -> Audit:
    made = turn(1, **({"logprobs": [-0.5] * 3} | changes))
    (found,) = await audit(journal, engine, [made])  # type: ignore[arg-type]
    assert found is not None
    return found


async def test_scripted_each_span_of_an_answer_is_scored_by_its_version(journal: AsyncJournal) -> None:
    engine = ScriptedEngine()
    found = await scripted(journal, engine, versions=[VersionSpan(1, 0, 2), VersionSpan(2, 2, 3)])
    assert (found.verdict, found.version, list(found.differences)) == ("aligned", 2, [0.0] * 3)
    assert [(one["prompt"], one["answer"], one["version"]) for one in engine.asked] == [(4, 2, 1), (6, 1, 2)]
    assert all(one["fresh"] for one in engine.asked)


async def test_scripted_logprobs_reported_at_temperature_1_are_compared_there(journal: AsyncJournal) -> None:
    engine = ScriptedEngine()
    found = await scripted(journal, engine, sampling=Sampling(temperature=0.7, unscaled=True))
    assert found.verdict == "aligned" and engine.asked[0]["temperature"] == 1.0


async def test_scripted_scores_that_are_inexact_count_in_the_turn_s_favour(journal: AsyncJournal) -> None:
    found = await scripted(journal, ScriptedEngine(slack=[0.1, 0.3, 0.3]), logprobs=[-0.75] * 3)
    assert list(found.differences) == pytest.approx([0.15, 0.0, 0.0])


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ({"error": EngineError("serves its live version only", status=404)}, "gone"),
        ({"error": EngineError("scores at temperatures up to 1 only", status=501)}, "incomparable"),
        ({"error": EngineError("too many requests", status=503)}, "unavailable"),
        ({"version": 9}, "gone"),
    ],
    ids=["other version", "temperature", "busy", "published meanwhile"],
)
async def test_scripted_engines_that_cannot_score(journal: AsyncJournal, script: dict[str, Any], verdict: str) -> None:
    assert (await scripted(journal, ScriptedEngine(**script))).verdict == verdict


async def test_scripted_impossible_tokens_are_misaligned_and_stay_finite(journal: AsyncJournal) -> None:
    found = await scripted(journal, ScriptedEngine(logprobs=[-0.5, float("-inf"), -0.5]))
    assert found.verdict == "misaligned" and list(found.differences) == [0.0, 100.0, 0.0]


async def test_a_fraction_and_the_first_turns_of_each_version_are_audited(journal: AsyncJournal) -> None:
    turns = [turn(number, logprobs=[-0.5] * 3, versions=[VersionSpan(number // 100, 0, 3)]) for number in range(200)]
    engine = ScriptedEngine()
    found = await audit(journal, engine, turns, audit_fraction=0.05)  # type: ignore[arg-type]
    audited = {number for number, one in enumerate(found) if one}
    always = {number for number in range(200) if chosen(turns[number].turn_id, 0.05)}
    assert always <= audited and {0, 1, 2, 100, 101, 102} <= audited
    assert len(audited - always) <= 2 * FIRST_TURNS and 3 <= len(always) <= 20
    assert len(engine.asked) == len(audited)
    assert await journal.unaudited(1) == []


async def test_later_turns_of_a_version_may_use_what_the_engine_kept(journal: AsyncJournal) -> None:
    turns = [turn(number, logprobs=[-0.5] * 3) for number in range(FIRST_TURNS)]
    engine = ScriptedEngine()
    await audit(journal, engine, turns, audit_fraction=1e-9)  # type: ignore[arg-type]
    assert [one["fresh"] for one in engine.asked] == [True, False, False]


async def test_every_turn_is_audited_when_all_are_misaligned(journal: AsyncJournal) -> None:
    turns = [turn(number, logprobs=[-3.0] * 3) for number in range(40)]
    found = await audit(journal, ScriptedEngine(), turns, audit_fraction=0.01)  # type: ignore[arg-type]
    assert {one.verdict for one in found if one} == {"misaligned"} and None not in found


async def test_nothing_is_audited_where_it_is_off(journal: AsyncJournal) -> None:
    engine = ScriptedEngine()
    assert await audit(journal, engine, [turn(1)], audit_fraction=0.0) == [None]  # type: ignore[arg-type]
    assert not engine.asked and await journal.unaudited(1) == []


def test_a_larger_fraction_holds_the_smaller_one() -> None:
    ids = [f"turn_{number}" for number in range(3000)]
    few, many = ({one for one in ids if chosen(one, fraction)} for fraction in (0.02, 0.3))
    assert few < many and 20 <= len(few) <= 110 and all(chosen(one, 1.0) for one in ids)


def test_a_few_tokens_far_off_weigh_more_than_noise_on_all() -> None:
    assert judged([0.05] * 100, 0.1)[0] == "aligned"
    assert judged([0.0] * 95 + [1.0] * 5, 0.1)[0] == "misaligned"


@pytest.mark.parametrize("count", [1, 4, 16, 256])
def test_noise_of_half_precision_is_no_fault_however_short_an_answer_is(count: int) -> None:
    """Noise with heavy tails (Student's t of 3 degrees of freedom) of the published root mean square."""
    drawn = numpy.random.default_rng(count).standard_t(3, size=(10_000, count)) * NOISE / math.sqrt(3)
    answers = numpy.abs(drawn).tolist()
    refused = sum(judged(answer, 0.1)[0] == "misaligned" for answer in answers)
    fixed = sum(math.sqrt(sum(value * value for value in answer) / count) > 0.1 for answer in answers)
    assert refused <= 40 and refused <= fixed
    assert count > 4 or fixed > 3 * refused, "a fixed limit takes short answers for faulty"


@pytest.mark.parametrize(("differences", "verdict"), [([0.25], "aligned"), ([0.3], "misaligned")])
def test_a_fault_shows_in_one_token_and_a_small_one_in_many(differences: list[float], verdict: str) -> None:
    assert judged(differences, 0.1)[0] == verdict
    assert judged([0.12] * 10, 0.1)[0] == "aligned" and judged([0.12] * 100, 0.1)[0] == "misaligned"
    assert "more than 0.116" in judged([0.12] * 100, 0.1)[1]
