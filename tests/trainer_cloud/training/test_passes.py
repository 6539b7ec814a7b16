"""Training data of a step, place by place; `TorchTraining` stands for the provider where one has to answer."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.provider import Adam, Datum
from openclaw_rl.trainer_cloud.training.objective import LARGEST_PULL, CloudObjective
from tests.trainer_cloud.both import World, make_world
from tests.trainer_cloud.torch_training import TorchSampler, TorchTraining, torch_scorer
from tests.trainer_local.tiny import VOCABULARY, anchor, sample

BINARY = Recipe(method="binary", distillation="none", rewards="all")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("base"))


async def learned(samples: Sequence[Sample], recipe: Recipe, *, loss: str = "ppo") -> CloudObjective:
    """An objective without samplers."""
    objective = CloudObjective(samples, recipe, loss=loss)
    await objective.learn_targets(None, torch_scorer(None), None, top_logprobs=0, bill=Bill())
    return objective


def forward_results(objective: CloudObjective, answers: Sequence[Sequence[float]]) -> list[Any]:
    """The results of a forward pass in which the sampled tokens have these logprobs."""
    found = []
    for datum, answer in zip(objective.asked(), answers, strict=True):
        values = np.full(datum.targets.shape, -9.0, dtype=np.float32)
        values[len(values) - len(answer) :] = answer
        found.append(values)
    return found


def row(
    prompt: Sequence[int], response: Sequence[int], logprobs: Sequence[float], reward: float, **changes: Any
) -> Any:
    return sample(
        1, hints=0, prompt_ids=prompt, response_ids=response, logprobs=logprobs, reward=reward, versions=[], **changes
    )


async def test_a_rewarded_answer_is_shifted_by_one_and_its_prompt_is_masked() -> None:
    one = row([5, 6, 7], [8, 9], [-1.0, -2.0], -1.0)
    objective = await learned([one], BINARY)
    (asked,) = objective.asked()
    assert list(asked.ids) == [5, 6, 7, 8]
    assert asked.targets.tolist() == [6, 7, 8, 9] and asked.targets.dtype == np.int64
    (part,) = objective.passes(forward_results(objective, [[-1.0, -2.0]]))
    (datum,) = part.data
    assert part.loss == "ppo" and part.config == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}
    assert (list(datum.ids), datum.targets.tolist()) == ([5, 6, 7, 8], [6, 7, 8, 9])
    assert datum.logprobs is not None and datum.advantages is not None and datum.weights is None
    assert datum.logprobs.tolist() == [0.0, 0.0, -1.0, -2.0] and datum.logprobs.dtype == np.float32
    assert datum.advantages.tolist() == [0.0, 0.0, -0.5, -0.5] and datum.advantages.dtype == np.float32


async def test_advantages_hold_the_mean_over_the_tokens_of_the_batch_the_weights_and_the_factor() -> None:
    samples = [
        row([5], [8, 9, 10], [-1.0] * 3, 1.0, weight=0.5),
        row([5, 6], [8], [-1.0], -0.5, weight=2.0),
        row([5, 6], [8], [-1.0], 0.0),
    ]
    objective = await learned(samples, BINARY.replace(w_rl=3.0))
    (part,) = objective.passes(forward_results(objective, [[-1.0] * 3, [-1.0]]))
    tokens = 0.5 * 3 + 2.0 * 1
    assert part.data[0].advantages is not None and part.data[1].advantages is not None
    assert part.data[0].advantages.tolist() == pytest.approx([3.0 * 0.5 / tokens] * 3)
    assert part.data[1].advantages.tolist() == pytest.approx([0.0, 3.0 * 2.0 * -0.5 / tokens])
    assert objective.metrics()["loss/binary"] == pytest.approx(-3.0 * (0.5 * 3 * 1.0 - 2.0 * 0.5) / tokens)


RATIOS = [0.5, 0.9, 1.2, 1.5, 1.9, 2.1, 5.0]


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling"])
@pytest.mark.parametrize("reward", [1.0, -1.0])
@pytest.mark.parametrize("cap", [2.0, 1.1])
async def test_beyond_the_cap_no_place_is_trained(loss: str, reward: float, cap: float) -> None:
    one = row([5], range(8, 8 + len(RATIOS)), [-3.0] * len(RATIOS), reward)
    objective = await learned([one], BINARY.replace(ratio_cap=cap), loss=loss)
    (part,) = objective.passes(forward_results(objective, [[-3.0 + math.log(ratio) for ratio in RATIOS]]))
    advantages = part.data[0].advantages
    assert advantages is not None
    share = reward / len(RATIOS)
    assert advantages.tolist() == pytest.approx([0.0 if ratio > cap else share for ratio in RATIOS])
    assert objective.metrics()["ratio/mean"] == pytest.approx(sum(min(cap, ratio) for ratio in RATIOS) / len(RATIOS))


@pytest.mark.parametrize(("cap", "high"), [(2.0, 1.28), (1.1, 1.1)])
async def test_cispo_masks_nothing_and_bounds_the_weight_by_the_cap(cap: float, high: float) -> None:
    one = row([5], range(8, 8 + len(RATIOS)), [-3.0] * len(RATIOS), -1.0)
    objective = await learned([one], BINARY.replace(ratio_cap=cap), loss="cispo")
    (part,) = objective.passes(forward_results(objective, [[-3.0 + math.log(ratio) for ratio in RATIOS]]))
    assert part.loss == "cispo" and part.config == {"clip_low_threshold": 0.8, "clip_high_threshold": high}
    assert part.data[0].advantages is not None
    assert part.data[0].advantages.tolist() == pytest.approx([-1.0 / len(RATIOS)] * len(RATIOS))


async def test_importance_sampling_has_no_bounds_to_send() -> None:
    objective = await learned([row([5], [8], [-1.0], 1.0)], BINARY, loss="importance_sampling")
    (part,) = objective.passes(forward_results(objective, [[-1.0]]))
    assert (part.loss, dict(part.config)) == ("importance_sampling", {})


async def test_a_row_that_is_masked_everywhere_is_not_sent() -> None:
    objective = await learned([row([5], [8], [-3.0], 1.0), row([6], [9], [-3.0], 1.0)], BINARY)
    (part,) = objective.passes(forward_results(objective, [[-1.0], [-3.0]]))
    assert [list(datum.ids) for datum in part.data] == [[6]]
    assert objective.passes(forward_results(objective, [[-1.0], [-1.0]])) == []
    weightless = await learned([row([5], [8], [-3.0], 1.0, weight=0.0)], BINARY)
    assert weightless.passes(forward_results(weightless, [[-3.0]])) == []


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [sample(1, hints=0)],
        [sample(1, response=0, logprobs=[], reward=1.0, explicit=True)],
        [replace(anchor(1), response_ids=[], logprobs=[])],
    ],
    ids=["none", "no signal", "no answer", "empty anchor"],
)
@pytest.mark.parametrize("distillation", ["none", "token", "full"])
async def test_nothing_is_sent_if_nothing_teaches(world: World, samples: list[Sample], distillation: str) -> None:
    objective = await world.learned(samples, Recipe(distillation=distillation))
    assert (objective.asked(), objective.passes([])) == ([], [])
    assert objective.plan(4).updates == objective.plan(4).scored == 0
    metrics = objective.metrics() | objective.drift([], [])
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["loss/total"] == metrics["kl/parent"] == 0


async def test_an_answer_without_a_prompt_token_before_it_but_one_has_no_masked_place(world: World) -> None:
    one = sample(1, prompt=1, response=1, hints=1)
    objective = await world.learned([one], Recipe(topk=3))
    (asked,) = objective.asked()
    assert list(asked.ids) == list(one.prompt_ids) and asked.targets.shape == (1, 4)


async def test_candidates_stand_next_to_the_sampled_token_and_weigh_nothing_at_the_prompt(world: World) -> None:
    one = sample(1, prompt=4, response=3, hints=1)
    objective = await world.learned([one], Recipe(topk=5))
    (asked,) = objective.asked()
    assert asked.targets.shape == (6, 6) and not asked.targets[:3].any()
    assert asked.targets[3:, 0].tolist() == list(one.response_ids)
    for place, token in enumerate(one.response_ids):
        ids = asked.targets[3 + place, 1:].tolist()
        assert token in ids and len(set(ids)) == 5
    (part,) = objective.passes(await TorchTraining(world.policy).forward(objective.asked()))
    assert part.loss == "cross_entropy" and not part.config
    (datum,) = part.data
    assert datum.weights is not None and datum.weights.shape == datum.targets.shape == (6, 5)
    assert np.array_equal(datum.targets, asked.targets[:, 1:])
    assert not datum.weights[:3].any() and datum.weights[3:].all()
    assert datum.logprobs is None and datum.advantages is None


async def test_a_sample_with_terms_of_both_kinds_is_asked_once_and_sent_twice(world: World) -> None:
    one = sample(1, hints=1, reward=1.0)
    objective = await world.learned([one], Recipe(distillation="select", rewards="all", kl_base=0.1, topk=5))
    assert [datum.targets.shape for datum in objective.asked()] == [(9, 1 + 4 + 5)]
    passes = objective.passes(await TorchTraining(world.policy).forward(objective.asked()))
    assert [(part.loss, len(part.data)) for part in passes] == [("ppo", 1), ("cross_entropy", 1)]
    assert passes[1].data[0].targets.shape == (9, 9)
    plan = objective.plan(3)
    assert (plan.forward, plan.trained, plan.updates) == (4 * 9, 3 * 2 * 9, 3)


async def test_another_temperature_has_no_ratio_here_and_is_counted(world: World) -> None:
    warm = sample(1, hints=1, reward=1.0, temperature=0.8)
    plain = sample(2, hints=0, reward=1.0)
    objective = await world.learned([warm, plain], BINARY)
    assert objective.metrics()["samples/left_out"] == 1 and objective.metrics()["samples/binary"] == 1
    assert [list(one.ids) for one in objective.asked()] == [[*plain.prompt_ids, *plain.response_ids][:-1]]
    combined = await world.learned([warm, plain], Recipe(distillation="token", rewards="all"))
    assert combined.metrics()["samples/left_out"] == 1 and combined.metrics()["samples/policy"] == 1
    without = replace(plain, no_ratio="sampled with top_p 0.9")
    assert (await world.learned([without], BINARY)).metrics()["samples/left_out"] == 0


async def test_another_temperature_is_distilled_like_any(world: World) -> None:
    found = [
        await world.cloud([sample(1, temperature=temperature)], Recipe(topk=VOCABULARY)) for temperature in (0.8, 1.0)
    ]
    assert torch.equal(found[0].gradient, found[1].gradient)
    assert found[0].metrics["samples/left_out"] == 0 and found[0].metrics["samples/distill"] == 1


@pytest.mark.parametrize("loss", ["cispo", "importance_sampling"])
async def test_the_other_losses_report_what_the_provider_makes_smaller(world: World, loss: str) -> None:
    one = sample(1, hints=0, reward=-1.0, response=6)
    before = (await TorchTraining(world.policy).forward([Datum(ids(one), targets(one))]))[0][-6:]
    one = replace(one, logprobs=[float(value) + shift for value, shift in zip(before, SHIFTS, strict=True)])
    found = await world.cloud([one], BINARY, loss=loss)
    ratios = [math.exp(-shift) for shift in SHIFTS]
    if loss == "importance_sampling":
        values = [min(ratio, 2.0) for ratio in ratios]
    else:
        values = [max(0.8, min(1.28, ratio)) * float(now) for ratio, now in zip(ratios, before, strict=True)]
    assert found.metrics["loss/binary"] == pytest.approx(sum(values) / 6, rel=1e-4)
    smaller = TorchTraining(copy.deepcopy(world.policy))
    await smaller.update(found.passes, Adam(1e-4, 0.9, 0.98, 1e-8, 0.0, 1.0))
    after = (await smaller.forward([Datum(ids(one), targets(one))]))[0][-6:]
    trained = [shift > -math.log(2.0) for shift in SHIFTS] if loss == "importance_sampling" else [True] * 6
    assert sum((after - before)[trained]) < 0


SHIFTS = [0.5, -0.1, 0.0, 0.1, -0.4, -1.0]


def ids(one: Sample) -> list[int]:
    return [*one.prompt_ids, *one.response_ids][:-1]


def targets(one: Sample) -> Any:
    return np.array([*one.prompt_ids, *one.response_ids][1:], dtype=np.int64)


async def test_passes_of_a_batch_teach_until_it_sits(world: World) -> None:
    samples = [sample(1, hints=2, response=3), sample(2, hints=1, response=4), anchor(3)]
    recipe = Recipe(topk=24, early_stop=0.05)
    objective = await world.learned(samples, recipe)
    training = TorchTraining(copy.deepcopy(world.before))
    known = before = await training.forward(objective.asked())
    seen = []
    for _ in range(60):
        passes = objective.passes(known)
        seen.append(objective.metrics()["loss/distill"])
        if objective.is_taught:
            break
        await training.update(passes, Adam(5e-3, 0.9, 0.98, 1e-8, 0.0, 1.0))
        known = await training.forward(objective.asked())
    assert seen[-1] < 0.1 * seen[0] and 3 < len(seen) < 60
    assert objective.drift(before, known)["kl/parent"] > 0


async def test_a_batch_without_hints_never_waits_for_a_teacher(world: World) -> None:
    recipe = Recipe(early_stop=0.05)
    for samples, settled in (([anchor(1)], True), ([sample(1, hints=0, reward=1.0, explicit=True)], False)):
        objective = await world.learned(samples, recipe)
        objective.passes(await TorchTraining(world.policy).forward(objective.asked()))
        assert objective.is_taught is settled
    always = await world.learned([anchor(1)], recipe.replace(early_stop=0.0))
    assert not always.is_taught


async def test_the_pull_on_a_tail_that_the_policy_has_left_is_bounded(world: World) -> None:
    objective = await world.learned([anchor(1)], Recipe(topk=2))
    (asked,) = objective.asked()
    lead = len(asked.ids) - 4
    known = np.full(asked.targets.shape, math.log(0.5) - 1e-6, dtype=np.float32)
    (part,) = objective.passes([known])
    weights = part.data[0].weights
    assert weights is not None
    assert float(np.abs(weights[lead:]).max()) <= 0.5 * LARGEST_PULL / 4 + 1
    assert math.isfinite(objective.metrics()["loss/anchor"]) and objective.metrics()["loss/anchor"] > 0


REFUSED = [
    (Recipe(custom_loss="./mine.py"), 50, "custom_loss ./mine.py needs the logits"),
    (Recipe(teacher="ema"), 50, "teacher = base or teacher = live"),
    (Recipe(teacher_temperature=2.0), 50, "teacher_temperature = 2 spreads"),
    (Recipe(method="rehearse"), 0, "binary, opd, combined or follow-up"),
    (Recipe(method="topk", distillation="topk"), 0, "binary, opd, combined or follow-up"),
    (Recipe(method="topk-select", distillation="select"), 0, "binary, opd, combined or follow-up"),
    (Recipe(distillation="token", teacher_temperature=0.5), 0, "teacher_temperature = 0.5"),
    (Recipe(distillation="token", kl_base=0.1, entropy=0.1), 0, "kl_base and entropy .* set them to 0"),
    (Recipe(distillation="none", entropy=0.1), 0, "entropy .* set it to 0"),
    (Recipe(distillation="token", hint_selection="overlap-token"), 0, "hint_selection = overlap-token"),
    (Recipe(distillation="token"), 0, "anchor .* anchors = 0"),
]


@pytest.mark.parametrize(("recipe", "top_logprobs", "words"), REFUSED, ids=[words for *_, words in REFUSED])
async def test_a_recipe_that_a_provider_cannot_do_is_refused_before_anything_is_sent(
    recipe: Recipe, top_logprobs: int, words: str
) -> None:
    sampler = TorchSampler(None)
    with pytest.raises(TrainerError, match=words) as refused:
        objective = CloudObjective([sample(1), anchor(2)], recipe, loss="ppo")
        scorer = torch_scorer(None, sampler)
        await objective.learn_targets(scorer, scorer, scorer, top_logprobs=top_logprobs, bill=Bill())
    assert "nothing was sent" in str(refused.value) and not sampler.asked


async def test_a_loss_that_no_provider_has_is_refused() -> None:
    with pytest.raises(TrainerError, match="ppo, cispo, importance_sampling"):
        CloudObjective([], BINARY, loss="grpo")


async def test_logprobs_that_are_no_numbers_or_too_few_are_refused(world: World) -> None:
    objective = await learned([row([5], [8, 9], [-1.0, -1.0], 1.0)], BINARY)
    with pytest.raises(TrainerError, match="sample_1 that are not finite"):
        objective.passes(forward_results(objective, [[-1.0, math.nan]]))
    with pytest.raises(TrainerError, match=r"shape \(1,\)"):
        objective.passes([np.zeros(1, dtype=np.float32)])
    with pytest.raises(TrainerError, match="0 of 1 texts"):
        objective.passes([])
    odd = await learned([row([5], [8, 9], [-1.0, -1.0], math.nan)], BINARY)
    with pytest.raises(TrainerError, match="loss of binary is not finite"):
        odd.passes(forward_results(odd, [[-1.0, -1.0]]))
