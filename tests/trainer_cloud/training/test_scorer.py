"""Scores of texts before a step: by a sampler, by forward passes, and the number of likeliest tokens that there are.
`TorchSampler` and `TorchTraining` stand for the provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.provider import CloudError, Datum, Scored, ScoreRequest
from openclaw_rl.trainer_cloud.training.scorer import JoinedForward, Scorer, TopLogprobsLimit
from tests.trainer_cloud.both import World, make_world
from tests.trainer_cloud.torch_training import TorchSampler, TorchTraining, torch_scorer

IDS = [5, 6, 7, 8, 9, 10]
START = 4
CHOSEN = np.array([[3, 0], [0, 11]], dtype=np.int64)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("base"))


async def test_chosen_tokens_are_scored_as_a_sampler_would(world: World) -> None:
    training, served = TorchTraining(world.base), TorchSampler(world.base)
    found = await torch_scorer(None, served, training).score(
        ScoreRequest(IDS, START, top_logprobs=3, chosen=CHOSEN), Bill()
    )
    wanted = await TorchSampler(world.base).score(ScoreRequest(IDS, START, top_logprobs=3, chosen=CHOSEN))
    assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-6)
    assert found.top_logprobs == wanted.top_logprobs
    assert found.chosen is not None and wanted.chosen is not None
    np.testing.assert_allclose(found.chosen, wanted.chosen, atol=1e-6)
    assert served.asked == [(IDS, 3, False)]
    ((datum,),) = training.asked
    # Places of the prompt have nothing to score, so that a sparse wire can leave them out.
    assert datum.targets.tolist() == [[0, 0, 0]] * 3 + [[9, 3, 0], [10, 0, 11]] and datum.lead == 3


@pytest.mark.parametrize("scores_texts", [True, False])
async def test_the_tokens_of_a_text_are_scored_where_it_costs_less(world: World, scores_texts: bool) -> None:
    training, served = TorchTraining(world.base), TorchSampler(world.base)

    async def ready() -> TorchTraining:
        return training

    async def sampler() -> TorchSampler:
        return served

    found = await Scorer(ready, sampler, scores_texts=scores_texts).score(ScoreRequest(IDS, START), Bill())
    assert found.logprobs == pytest.approx(
        (await TorchSampler(world.base).score(ScoreRequest(IDS, START))).logprobs, abs=1e-6
    )
    assert (len(served.asked), len(training.asked)) == ((1, 0) if scores_texts else (0, 1))


async def test_without_a_sampler_forward_passes_score_all(world: World) -> None:
    training = TorchTraining(world.base)

    async def ready() -> TorchTraining:
        return training

    await Scorer(ready, None, scores_texts=True).score(ScoreRequest(IDS, START, chosen=CHOSEN), Bill())
    await Scorer(ready, None, scores_texts=True).score(ScoreRequest(IDS, START), Bill())
    assert len(training.asked) == 2


class Gated(TorchTraining):
    """Answers when it is let go, and fails if it is to."""

    def __init__(self, world: World, *, failing: bool = False) -> None:
        super().__init__(world.base)
        self.go = asyncio.Event()
        self._failing = failing

    async def forward(self, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        found = await super().forward(data)
        await self.go.wait()
        if self._failing:
            raise CloudError("away", "away")
        return found


def datum(token: int) -> Datum:
    return Datum([token, 2], np.array([2, token], dtype=np.int64))


def joined(training: TorchTraining) -> JoinedForward:
    async def ready() -> TorchTraining:
        return training

    return JoinedForward(ready)


async def test_texts_that_come_together_or_during_a_pass_share_one(world: World) -> None:
    training = Gated(world)
    forward = joined(training)
    first = [asyncio.create_task(forward.logprobs(datum(token), Bill())) for token in (3, 4)]
    while not training.asked:
        await asyncio.sleep(0)
    later = [asyncio.create_task(forward.logprobs(datum(token), Bill())) for token in (5, 6, 7)]
    await asyncio.sleep(0)
    training.go.set()
    found = await asyncio.gather(*first, *later)
    assert [len(data) for data in training.asked] == [2, 3]
    for token, logprobs in zip((3, 4, 5, 6, 7), found, strict=True):
        (wanted,) = await TorchTraining(world.base).forward([datum(token)])
        np.testing.assert_array_equal(logprobs, wanted)


async def test_a_pass_that_fails_fails_for_all_that_asked(world: World) -> None:
    training = Gated(world, failing=True)
    training.go.set()
    forward = joined(training)
    found = await asyncio.gather(*(forward.logprobs(datum(token), Bill()) for token in (3, 4)), return_exceptions=True)
    assert [type(one) for one in found] == [CloudError, CloudError] and len(training.asked) == 1


async def test_one_that_is_cancelled_leaves_the_others_with_an_answer(world: World) -> None:
    training = Gated(world)
    forward = joined(training)
    tasks = [asyncio.create_task(forward.logprobs(datum(token), Bill())) for token in (3, 4)]
    while not training.asked:
        await asyncio.sleep(0)
    tasks[0].cancel()
    training.go.set()
    (wanted,) = await TorchTraining(world.base).forward([datum(4)])
    np.testing.assert_array_equal(await tasks[1], wanted)
    assert [[one.ids[0] for one in data] for data in training.asked] == [[3, 4], [4]]


class Bounded(TorchSampler):
    """Refuses more than `bound` tokens times likeliest ones."""

    bound = 100

    async def score(self, asked: ScoreRequest) -> Scored:
        length, width = len(asked.ids), asked.top_logprobs
        if length * width > self.bound or length > 60:
            raise CloudError(f"{length} times {width}", "refused", undone=True)
        return await super().score(asked)


async def test_likeliest_tokens_are_tried_on_the_longest_text_and_again_on_a_longer_one(world: World) -> None:
    sampler, limit = Bounded(world.base), TopLogprobsLimit(1000)
    bill = Bill()
    assert await limit.find(sampler, ScoreRequest([5] * 5, 3, 20), bill) == 20 and bill.taken()["prefill"] == 5
    assert limit.is_known(20, 5) and not limit.is_known(20, 6)
    assert await limit.find(sampler, ScoreRequest([5] * 4, 3, 20), Bill()) == 20
    assert await limit.find(sampler, ScoreRequest([5] * 10, 3, 20), Bill()) == 10
    assert await limit.find(sampler, ScoreRequest([5] * 30, 3, 20), Bill()) == 0
    asked = len(sampler.asked)
    assert await limit.find(sampler, ScoreRequest([5] * 50, 3, 20), Bill()) == 0 and len(sampler.asked) == asked


async def test_a_text_that_is_refused_whatever_is_asked_says_nothing_of_likeliest_tokens(world: World) -> None:
    sampler, limit = Bounded(world.base), TopLogprobsLimit(1000)
    with pytest.raises(CloudError, match="61 times 0"):
        await limit.find(sampler, ScoreRequest([5] * 61, 3, 20), Bill())
    assert await limit.find(sampler, ScoreRequest([5] * 5, 3, 20), Bill()) == 20


async def test_a_documented_limit_is_not_exceeded(world: World) -> None:
    for most, wanted in ((5, 5), (0, 0)):
        sampler = TorchSampler(world.base)
        found = await TopLogprobsLimit(most).find(sampler, ScoreRequest(IDS, START, 20), Bill())
        assert found == wanted and [top for _, top, _ in sampler.asked] == ([5] if most else [])
    assert await TopLogprobsLimit(5).find(None, ScoreRequest(IDS, START, 20), Bill()) == 0
