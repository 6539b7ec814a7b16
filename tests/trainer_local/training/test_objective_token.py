"""One policy loss with an advantage per sampled token (`opd`, `combined`), against plain Python, and its traps."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from msgspec.structs import replace

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from tests.trainer_local import plain
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import sample

COMBINED = {"distillation": "token", "rewards": "all", "w_rl": 0.5, "w_opd": 2.0}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def close(value: float) -> Any:
    return pytest.approx(value, rel=2e-4, abs=2e-6)


def average(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def worked_out(moved: Moved, one: Sample, reward: float, hinted: bool) -> tuple[list[float], list[float], list[float]]:
    """Per token: the ratio, and the two parts of the advantage, already weighted as in COMBINED."""
    mine = plain.sampled(
        plain.log_probs(moved.policy, one.prompt_ids, one.response_ids, one.temperature), one.response_ids
    )
    ratios = [math.exp(now - then) for now, then in zip(mine, one.logprobs, strict=True)]
    parts = [0.0] * len(ratios)
    if hinted:
        tables = [plain.log_probs(moved.base, p, one.response_ids, one.temperature) for p in one.hinted_prompts]
        taught = plain.sampled(plain.mean(tables), one.response_ids)
        parts = [2.0 * (target - then) for target, then in zip(taught, one.logprobs, strict=True)]
    return ratios, [0.5 * reward] * len(ratios), parts


async def test_the_sum_of_both_advantages_in_one_clipped_loss(moved: Moved) -> None:
    plain_prompt = sample(4, hints=0, reward=-1.0)
    samples = [
        (sample(1, hints=2, response=5, temperature=0.7, reward=1.0), 1.0, True),
        (sample(2, hints=1, prompt=15, response=1), 0.0, True),
        (sample(3, hints=0, response=3, reward=-1.0, advantage=-0.4), -0.4, False),
        (replace(plain_prompt, hinted_prompts=[plain_prompt.prompt_ids]), -1.0, False),
        (sample(5, hints=1, reward=0.0), 0.0, True),
    ]
    ratios, rewards, taught = [], [], []
    for one, reward, hinted in samples:
        parts = worked_out(moved, one, reward, hinted)
        ratios += parts[0]
        rewards += parts[1]
        taught += parts[2]
    both = [first + second for first, second in zip(rewards, taught, strict=True)]
    idle = [sample(6, hints=2, reward=1.0, no_ratio="sampled with top_p 0.9"), sample(7, hints=0, reward=0.0)]
    metrics = await moved.metrics([*(one for one, _, _ in samples), *idle], **COMBINED)
    for name, advantages in (("policy", both), ("binary", rewards), ("opd", taught)):
        values = [plain.ppo(advantage, ratio) for advantage, ratio in zip(advantages, ratios, strict=True)]
        assert metrics[f"loss/{name}"] == close(average(values)), name
    assert metrics["loss/total"] == metrics["loss/policy"]
    assert metrics["loss/distill"] == metrics["loss/opd"]
    assert metrics["advantage/mean"] == close(average(both))
    counts = [metrics[f"samples/{name}"] for name in ("policy", "distill", "binary")]
    assert counts == [5, 3, 3]


async def test_the_teachers_temperature_comes_on_top_of_that_of_the_sampling(moved: Moved) -> None:
    one = sample(1, hints=1, temperature=0.5)
    taught = plain.sampled(
        plain.log_probs(moved.base, one.hinted_prompts[0], one.response_ids, 0.5 * 3.0), one.response_ids
    )
    advantages = [target - then for target, then in zip(taught, one.logprobs, strict=True)]
    metrics = await moved.metrics([one], distillation="token", teacher_temperature=3.0)
    assert metrics["advantage/mean"] == close(average(advantages))


async def test_the_first_token_is_compared_under_the_last_token_of_the_hinted_prompt(moved: Moved) -> None:
    one = sample(11, hints=1, response=1)
    target = plain.log_probs(moved.base, one.hinted_prompts[0], one.response_ids)[0][one.response_ids[0]]
    metrics = await moved.metrics([one], distillation="token")
    assert metrics["advantage/mean"] == close(target - one.logprobs[0])


@pytest.mark.parametrize("distillation", ["token", "full", "topk", "select"])
async def test_an_empty_hint_teaches_exactly_nothing(moved: Moved, distillation: str) -> None:
    one = sample(12, hints=0, hint="")
    for prompts in ([], [one.prompt_ids], [one.prompt_ids, one.prompt_ids]):
        empty = replace(one, hinted_prompts=prompts)
        metrics = await moved.metrics([empty], distillation=distillation)
        assert metrics["loss/total"] == metrics["weights/change"] == metrics["samples/distill"] == 0
        rewarded = replace(empty, reward=1.0, explicit=True)
        metrics = await moved.metrics([rewarded], distillation=distillation)
        assert (metrics["advantage/mean"], metrics["advantage/std"]) == (1.0, 0.0)
        assert metrics["loss/distill"] == 0


async def test_a_turn_with_a_reward_and_no_hint_learns_as_by_the_reward_alone(moved: Moved) -> None:
    samples = [sample(1, hints=0, reward=1.0), sample(2, hints=0, reward=-1.0, temperature=0.6)]
    combined = await moved.metrics(samples, distillation="token", rewards="all", epochs=3)
    binary = await moved.metrics(samples, distillation="none", rewards="all", epochs=3)
    for name in ("loss/total", "loss/binary", "weights/change", "gradient/norm", "ratio/mean", "kl/parent"):
        assert combined[name] == binary[name], name


async def test_a_turn_with_a_hint_and_a_reward_that_may_not_train_learns_from_the_hint_alone(moved: Moved) -> None:
    judged, silent = sample(1, reward=-1.0), sample(1)
    first, second = [await moved.metrics([one], distillation="token") for one in (judged, silent)]
    assert first["loss/total"] == second["loss/total"] and first["weights/change"] == second["weights/change"]


async def test_tokens_that_the_hinted_teacher_finds_likelier_become_likelier(moved: Moved) -> None:
    samples = []
    for seed in range(40, 60):
        one = sample(seed, hints=1, response=1)
        now = plain.sampled(plain.log_probs(moved.policy, one.prompt_ids, one.response_ids), one.response_ids)[0]
        taught = plain.sampled(plain.log_probs(moved.base, one.hinted_prompts[0], one.response_ids), one.response_ids)
        if abs(taught[0] - now) > 0.5:
            samples.append((replace(one, logprobs=[now]), now, taught[0]))
    assert {taught > now for _, now, taught in samples} == {True, False}
    for one, now, taught in samples[:6]:
        trainer = await moved.trainer()
        await trainer.step([one], Recipe(distillation="token", epochs=1, learning_rate=1e-3))
        ratio = (await trainer.step([one], Recipe(distillation="token", epochs=1))).metrics["ratio/mean"]
        await trainer.close()
        assert (ratio > 1) == (taught > now)
