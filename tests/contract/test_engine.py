"""Promises of every engine (`shared.engine.protocol.Engine`), whatever it runs on. A backend passes this suite or
is none.

`tests/real` runs it on foreign engines, with `url`, `model` and `shape` of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from openclaw_rl.shared.engine.protocol import Engine, Priority, PromptImage
from openclaw_rl.shared.errors import ContextLengthExceeded, EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.trainer_local.serving import (
    CONTEXT,
    END,
    VOCABULARY,
    Reference,
    close_to,
    collect,
    prompt,
    serving,
    write_adapter,
    write_model,
)

BACKENDS = ["embedded"]


@dataclass(frozen=True)
class Shape:
    """Facts about the model that the suite needs: its end token, its context in tokens, and its vocabulary (0: the
    engine does not report it)."""

    end: int
    context: int
    vocabulary: int


@pytest.fixture(scope="module")
def shape() -> Shape:
    return Shape(END, CONTEXT, VOCABULARY)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(model, tmp_path_factory.mktemp("adapter"))


@pytest.fixture(scope="module")
def reference(model: Path) -> Reference:
    return Reference(model)


@pytest.fixture(scope="module", params=BACKENDS)
def url(model: Path) -> Iterator[str]:
    with serving(model) as (address, _):
        yield address


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    client = SglangEngine(url)
    yield client
    await client.close()


async def test_it_says_what_it_serves(engine: Engine, model: Path, shape: Shape) -> None:
    info = await engine.info()
    assert 0 in info.versions and info.live in info.versions
    assert (info.model_path, info.context_length, info.vocab_size) == (str(model), shape.context, shape.vocabulary)


async def test_answers_that_run_together_have_the_logprobs_of_the_training_forward(
    engine: Engine, reference: Reference
) -> None:
    prompts = [prompt(length, seed=length) for length in (1, 3, 17, 90, 700)]
    temperatures = [1.0, 0.7, 1.0, 1.3, 1.0]
    answers = await asyncio.gather(
        *(
            collect(engine.generate(ids, Sampling(temperature=temperature, max_tokens=24), version=0))
            for ids, temperature in zip(prompts, temperatures, strict=True)
        )
    )
    for ids, temperature, answer in zip(prompts, temperatures, answers, strict=True):
        assert close_to(answer.logprobs, reference.score(ids, answer.ids, temperature))
        assert answer.last.prompt_tokens == len(ids)


async def test_a_prompt_of_several_thousand_tokens_is_exact(engine: Engine, reference: Reference) -> None:
    ids = prompt(6000, seed=5)
    answer = await collect(engine.generate(ids, Sampling(max_tokens=12, ignore_eos=True), version=0))
    assert close_to(answer.logprobs, reference.score(ids, answer.ids))


async def test_a_shared_prefix_is_computed_once_and_stays_exact(engine: Engine, reference: Reference) -> None:
    shared = prompt(800, seed=8)
    first = await collect(engine.generate([*shared, 5, 6, 7], Sampling(max_tokens=6), version=0))
    second = await collect(engine.generate([*shared, 9, 10], Sampling(max_tokens=16), version=0))
    third = await collect(engine.generate([*shared, 5, 6, 7, *first.ids, 11], Sampling(max_tokens=16), version=0))
    assert second.last.cached_tokens >= 700 and third.last.cached_tokens >= 700
    assert close_to(second.logprobs, reference.score([*shared, 9, 10], second.ids))
    assert close_to(third.logprobs, reference.score([*shared, 5, 6, 7, *first.ids, 11], third.ids))


async def test_temperature_zero_takes_the_best_token(engine: Engine, reference: Reference) -> None:
    ids = prompt(20)
    answer = await collect(engine.generate(ids, Sampling(temperature=0, max_tokens=10, ignore_eos=True), version=0))
    rows = reference.logprobs([*ids, *answer.ids])[len(ids) - 1 : -1]
    assert answer.ids == rows.argmax(dim=-1).tolist()
    assert close_to(answer.logprobs, rows.max(dim=-1).values.tolist())


async def test_an_answer_ends_with_the_stop_token_and_its_logprob(
    engine: Engine, reference: Reference, shape: Shape
) -> None:
    asked = Sampling(max_tokens=600)
    answers = await asyncio.gather(*(collect(engine.generate(prompt(4, seed), asked, version=0)) for seed in range(8)))
    stopped = [(seed, answer) for seed, answer in enumerate(answers) if answer.last.finish_reason == "stop"]
    assert stopped
    for seed, answer in stopped:
        assert answer.ids[-1] == shape.end and shape.end not in answer.ids[:-1]
        assert close_to(answer.logprobs, reference.score(prompt(4, seed), answer.ids))


async def test_ignore_eos_continues_to_the_limit(engine: Engine, shape: Shape) -> None:
    answers = await asyncio.gather(
        *(collect(engine.generate(prompt(4, s), Sampling(max_tokens=150, ignore_eos=True))) for s in range(4))
    )
    assert all(len(a.ids) == 150 and a.last.finish_reason == "length" for a in answers)
    assert any(shape.end in a.ids for a in answers)


async def test_a_seed_repeats_an_answer(engine: Engine) -> None:
    asked = Sampling(max_tokens=30, seed=11)
    once, again = [await collect(engine.generate(prompt(9), asked)) for _ in range(2)]
    other = await collect(engine.generate(prompt(9), Sampling(max_tokens=30, seed=12)))
    assert once.ids == again.ids != other.ids


async def test_prompt_ids_may_be_json(engine: Engine) -> None:
    asked = Sampling(max_tokens=12, seed=3)
    plain = await collect(engine.generate(prompt(15), asked))
    encoded = await collect(engine.generate(msgspec.json.encode(prompt(15)), asked))
    assert plain.ids == encoded.ids and encoded.last.prompt_tokens == 15


async def test_top_logprobs_are_the_best_of_the_distribution(engine: Engine, reference: Reference) -> None:
    answer = await collect(engine.generate(prompt(6), Sampling(max_tokens=5), version=0, top_logprobs=4))
    rows = reference.logprobs([*prompt(6), *answer.ids])[5:-1]
    assert len(answer.top) == len(answer.ids)
    for found, row in zip(answer.top, rows, strict=True):
        values, ids = row.topk(4)
        assert [token for _, token in found] == ids.tolist()
        assert close_to([logprob for logprob, _ in found], values.tolist())


async def test_a_continuation_is_scored_like_the_training_forward(engine: Engine, reference: Reference) -> None:
    ids, continuation = prompt(40, seed=1), prompt(25, seed=2)
    scores = await engine.score(ids, continuation, version=0, top_k=3)
    assert close_to(scores.logprobs, reference.score(ids, continuation))
    rows = reference.logprobs([*ids, *continuation])[len(ids) - 1 : -1]
    assert [[token for _, token in top] for top in scores.top] == rows.topk(3).indices.tolist()
    assert scores.version == 0


async def test_scoring_what_was_sampled_gives_the_sampled_logprobs(engine: Engine) -> None:
    ids = prompt(30, seed=4)
    answer = await collect(engine.generate(ids, Sampling(max_tokens=40), version=0))
    scores = await engine.score(ids, answer.ids, version=0)
    assert close_to(scores.logprobs, answer.logprobs)


@pytest.mark.parametrize("temperature", [0.6, 0.9])
async def test_an_answer_is_scored_at_the_temperature_it_was_sampled_at(
    engine: Engine, reference: Reference, temperature: float
) -> None:
    ids = prompt(30, seed=14)
    answer = await collect(engine.generate(ids, Sampling(max_tokens=40, temperature=temperature), version=0))
    scores = await engine.score(ids, answer.ids, version=0, temperature=temperature, top_k=2)
    slack = scores.slack or [0.0] * len(answer.ids)
    wanted = reference.score(ids, answer.ids, temperature)
    assert all(
        abs(one - other) <= width + 1e-4 for one, other, width in zip(scores.logprobs, wanted, slack, strict=True)
    )
    assert sum(slack) / len(slack) < 0.1
    assert not close_to(scores.logprobs, reference.score(ids, answer.ids), tolerance=0.01)
    rows = reference.logprobs([*ids, *answer.ids])[len(ids) - 1 : -1]
    assert [[token for _, token in top] for top in scores.top] == rows.topk(2).indices.tolist()


async def test_a_fresh_score_uses_nothing_of_earlier_requests_and_leaves_nothing(
    engine: Engine, reference: Reference
) -> None:
    ids = prompt(900, seed=15)
    scores = await engine.score(ids, [4, 5, 6], version=0, fresh=True)
    assert close_to(scores.logprobs, reference.score(ids, [4, 5, 6]))
    answer = await collect(engine.generate(ids, Sampling(max_tokens=2), version=0))
    assert answer.last.cached_tokens < 100


async def test_a_new_version_serves_new_requests_and_those_in_flight_end_on_the_old_one(
    engine: Engine, model: Path, adapter: Path, reference: Reference
) -> None:
    before = (await engine.info()).live
    asked = Sampling(max_tokens=400, ignore_eos=True)
    stream = engine.generate(prompt(12), asked)
    first = await anext(stream)
    await engine.load(101, str(adapter), live=True)
    fresh = await collect(engine.generate(prompt(12), Sampling(max_tokens=30, ignore_eos=True)))
    rest = await collect(stream)
    old, new = reference, Reference(model, adapter)
    ids, logprobs = [*first.ids, *rest.ids], [*first.logprobs, *rest.logprobs]
    assert rest.version_numbers == {before} and list(rest.last.versions) == [VersionSpan(before, 0, len(ids))]
    assert close_to(logprobs, old.score(prompt(12), ids))
    assert fresh.version_numbers == {101} and list(fresh.last.versions) == [VersionSpan(101, 0, 30)]
    assert close_to(fresh.logprobs, new.score(prompt(12), fresh.ids))
    assert not close_to(fresh.logprobs, old.score(prompt(12), fresh.ids))
    base = await collect(engine.generate(prompt(12), asked, version=0))
    assert close_to(base.logprobs, old.score(prompt(12), base.ids))
    await engine.load(0, str(model), live=True)
    assert (await engine.info()).live == 0


async def test_a_candidate_is_sampled_by_number_and_is_not_live(engine: Engine, model: Path, adapter: Path) -> None:
    live = (await engine.info()).live
    await engine.load(102, str(adapter), live=False)
    await engine.load(102, str(adapter), live=False)
    assert (await engine.info()).live == live
    candidate = Reference(model, adapter)
    answer = await collect(engine.generate(prompt(7), Sampling(max_tokens=20), version=102))
    scores = await engine.score(prompt(7), [4, 5, 6], version=102)
    assert close_to(answer.logprobs, candidate.score(prompt(7), answer.ids))
    assert close_to(scores.logprobs, candidate.score(prompt(7), [4, 5, 6])) and scores.version == 102


async def test_a_folder_that_is_no_version_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    before = await engine.info()
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(EngineError, match="did not load"):
            await engine.load(103, str(path), live=True)
    assert await engine.info() == before
    assert (await collect(engine.generate(prompt(5), Sampling(max_tokens=3, ignore_eos=True)))).ids


async def test_an_unknown_version_is_an_error_before_the_first_token(engine: Engine) -> None:
    with pytest.raises(EngineError, match="999"):
        await anext(engine.generate(prompt(5), Sampling(), version=999))


async def test_a_prompt_that_does_not_fit_has_an_error_of_its_own(engine: Engine, shape: Shape) -> None:
    await engine.info()
    with pytest.raises(ContextLengthExceeded) as caught:
        await anext(engine.generate(prompt(shape.context - 10), Sampling(max_tokens=64)))
    error = caught.value
    assert (error.prompt_tokens, error.requested_tokens) == (shape.context - 10, 64)
    assert error.context_length == shape.context


@pytest.mark.parametrize("ids", [[], [VOCABULARY], [-1]], ids=["empty", "too large", "negative"])
async def test_a_prompt_that_is_none_is_an_error_before_the_first_token(engine: Engine, ids: list[int]) -> None:
    with pytest.raises(EngineError) as caught:
        await anext(engine.generate(ids, Sampling(max_tokens=2)))
    assert caught.value.status == 400


async def test_an_engine_that_does_not_see_refuses_images(engine: Engine) -> None:
    assert not (await engine.info()).sees
    image = PromptImage("data:image/png;base64,AAAA", 2, 4)
    with pytest.raises(EngineError) as refused:
        await collect(engine.generate(prompt(9), Sampling(max_tokens=2), images=[image]))
    with pytest.raises(EngineError) as unscored:
        await engine.score(prompt(9), [3, 4], images=[image])
    assert refused.value.status == unscored.value.status == 400


async def test_closing_the_iterator_ends_the_work(engine: Engine) -> None:
    async def run_and_leave(seed: int) -> None:
        asked = Sampling(max_tokens=4000, ignore_eos=True)
        async with contextlib.aclosing(engine.generate(prompt(5, seed), asked)) as stream:
            await anext(stream)

    await asyncio.gather(*(run_and_leave(seed) for seed in range(40)))
    # 40 abandoned answers of 4000 tokens would keep this one waiting far longer than the test may take.
    async with asyncio.timeout(20):
        answer = await collect(engine.generate(prompt(5), Sampling(max_tokens=50, ignore_eos=True)))
    assert len(answer.ids) == 50


async def test_requests_of_every_priority_are_answered(engine: Engine) -> None:
    asked = Sampling(max_tokens=20, ignore_eos=True)
    answers = await asyncio.gather(
        *(collect(engine.generate(prompt(5, seed), asked, priority=Priority(seed % 4))) for seed in range(16))
    )
    assert all(len(answer.ids) == 20 for answer in answers)
