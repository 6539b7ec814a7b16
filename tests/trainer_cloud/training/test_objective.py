"""The gradient of what is sent to a provider against that of the local trainer, on the same weights and samples.

`TorchTraining` and `TorchSampler` stand for the provider.
"""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace

from openclaw_rl.shared.records import Sample, TeacherScores
from openclaw_rl.shared.trainer import Recipe
from tests.trainer_cloud.both import Found, World, make_world
from tests.trainer_local.tiny import VOCABULARY, anchor, sample

SAMPLES = [
    sample(1, hints=1, response=5, reward=1.0, weight=0.5),
    sample(2, hints=1, prompt=1, response=1, reward=-1.0),
    sample(3, hints=1, prompt=17, response=9, reward=-0.5, weight=2.0),
    sample(4, hints=0, response=6, reward=-1.0, explicit=True),
    sample(5, hints=1, origin="rehearsal", turn_id=None, response=3),
]
SEVERAL = [replace(one, hinted_prompts=sample(10 + index, hints=3).hinted_prompts) for index, one in enumerate(SAMPLES)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("base"))


def on_policy(world: World, one: Sample, spread: float) -> Sample:
    """The sample with logprobs near those of the policy, so that ratios lie on both sides of every bound."""
    rows = torch.log_softmax(
        world.policy(input_ids=torch.tensor([[*one.prompt_ids, *one.response_ids]])).logits[0], dim=-1
    )
    start = len(one.prompt_ids)
    own = [float(rows[start - 1 + index, token].detach()) for index, token in enumerate(one.response_ids)]
    noise = torch.randn(len(own), generator=torch.Generator().manual_seed(start)).tolist()
    return replace(one, logprobs=[value + spread * shift for value, shift in zip(own, noise, strict=True)])


def off(found: Found, wanted: Found) -> float:
    """The length of the difference, relative to what is wanted."""
    assert float(wanted.gradient.norm()) > 1e-4, "the batch must have something to teach"
    return float((found.gradient - wanted.gradient).norm() / wanted.gradient.norm())


def cosine(found: Found, wanted: Found) -> float:
    return float(torch.nn.functional.cosine_similarity(found.gradient, wanted.gradient, dim=0))


EXACT = {
    "binary": {"method": "binary", "distillation": "none", "rewards": "all", "w_rl": 0.7},
    "opd": {"method": "opd", "distillation": "token", "w_opd": 0.5},
    "combined": {"method": "combined", "distillation": "token", "rewards": "all", "w_rl": 0.5, "w_opd": 2.0},
    "combined, live teacher": {"distillation": "token", "rewards": "all", "teacher": "live"},
    "topk": {"method": "topk", "distillation": "topk", "topk": 7, "w_opd": 1.5},
    "topk of one token": {"method": "topk", "distillation": "topk", "topk": 1},
    "topk, live teacher": {"method": "topk", "distillation": "topk", "topk": 7, "teacher": "live"},
    "select": {"method": "topk-select", "distillation": "select", "rewards": "all", "select_k": 3},
    "binary, mean over samples": {"distillation": "none", "rewards": "all", "aggregation": "sample"},
    "combined, mean over samples": {"distillation": "token", "rewards": "all", "aggregation": "sample"},
    "topk, mean over samples": {"distillation": "topk", "topk": 7, "aggregation": "sample"},
    "select, mean over samples": {"distillation": "select", "rewards": "all", "select_k": 3, "aggregation": "sample"},
    "select of the teacher": {"distillation": "select", "select_k": 3, "select_from": "teacher"},
    "select of both": {"distillation": "select", "select_k": 5, "select_from": "overlap"},
    "follow-up": {"distillation": "token", "teacher": "live", "advantage_clip": 0.05, "aggregation": "sample"},
    "select, narrow": {"distillation": "select", "advantage_clip": 0.3, "clip_low": 0.01, "clip_high": 0.01},
}


@pytest.mark.parametrize("kind", EXACT, ids=str)
async def test_the_gradient_is_that_of_the_local_trainer(world: World, kind: str) -> None:
    recipe = Recipe(**EXACT[kind])
    samples = [on_policy(world, one, 0.6) for one in SAMPLES]
    found, wanted = await world.cloud(samples, recipe), world.local(samples, recipe)
    assert off(found, wanted) < 1e-5
    shared = wanted.metrics.keys()
    assert {name: found.metrics[name] for name in shared} == pytest.approx(wanted.metrics, rel=1e-4, abs=1e-6)
    assert found.metrics["samples/left_out"] == 0


OTHER_TEACHER = {
    "combined": {"distillation": "token", "rewards": "all"},
    "topk": {"distillation": "topk", "topk": 7},
    "select of the teacher": {"distillation": "select", "select_k": 3, "select_from": "teacher"},
    "select of both": {"distillation": "select", "select_k": 5, "select_from": "overlap"},
}


@pytest.mark.parametrize("kind", OTHER_TEACHER, ids=str)
async def test_a_teacher_behind_an_engine_teaches_as_with_the_local_trainer(world: World, kind: str) -> None:
    recipe = Recipe(teacher="engine:http://elsewhere", **OTHER_TEACHER[kind])
    samples = []
    for one in SAMPLES:
        taught = None
        if one.hinted_prompts:
            text = torch.tensor([[*one.hinted_prompts[0], *one.response_ids]])
            start = len(one.hinted_prompts[0]) - 1
            rows = torch.log_softmax(world.base(input_ids=text).logits[0, start:-1].detach(), dim=-1)
            sampled = [float(row[token]) for row, token in zip(rows, one.response_ids, strict=True)]
            best = [row.topk(8) for row in rows]
            top = [list(zip(one.values.tolist(), one.indices.tolist(), strict=True)) for one in best]
            taught = TeacherScores(sampled, top)
        samples.append(replace(on_policy(world, one, 0.6), taught=taught))
    found, wanted = await world.cloud(samples, recipe), world.local(samples, recipe)
    assert off(found, wanted) < 1e-5
    base = recipe.replace(teacher="base")
    plainly = [replace(one, taught=None) for one in samples]
    assert found.metrics["loss/total"] == pytest.approx(world.local(plainly, base).metrics["loss/total"], rel=1e-4)


REVISION = sample(21, hints=0, response=3, origin="revision", turn_id=None, no_ratio="another prompt", weight=2.0)
DEMONSTRATION = sample(22, hints=1, response=5, origin="demonstration", turn_id=None, no_ratio="another prompt")
IMITATED = {
    "binary": {"distillation": "none", "rewards": "all", "w_opd": 0.5},
    "combined": {"distillation": "token", "rewards": "all", "w_opd": 0.5},
    "combined, mean over samples": {"distillation": "token", "rewards": "all", "aggregation": "sample"},
    "select": {"distillation": "select", "select_k": 3},
    "topk": {"distillation": "topk", "topk": 7},
    "topk, live teacher": {"distillation": "topk", "topk": 7, "teacher": "live"},
    "topk, colder teacher": {"distillation": "topk", "topk": VOCABULARY, "teacher_temperature": 0.7},
    "topk of the student": {"distillation": "topk", "topk": VOCABULARY, "topk_from": "student"},
    "rehearse": {"topk": VOCABULARY},
}


@pytest.mark.parametrize("others", [[], SAMPLES], ids=["alone", "among others"])
@pytest.mark.parametrize("kind", IMITATED, ids=str)
async def test_answers_of_others_are_imitated_as_by_the_local_trainer(
    world: World, kind: str, others: list[Sample]
) -> None:
    recipe = Recipe(**IMITATED[kind])
    samples = [*(on_policy(world, one, 0.3) for one in others), REVISION, DEMONSTRATION]
    found, wanted = await world.cloud(samples, recipe), world.local(samples, recipe)
    assert off(found, wanted) < 1e-4
    assert found.metrics["loss/imitate"] == pytest.approx(wanted.metrics["loss/imitate"], rel=1e-3)
    assert found.metrics["loss/total"] == pytest.approx(wanted.metrics["loss/total"], rel=1e-3)
    assert found.metrics["samples/imitate"] == 2


WHOLE = {
    "rehearse": {"w_opd": 0.5, "w_anchor": 0.3},
    "anchors alone": {"distillation": "none", "rewards": "none"},
    "topk of the student": {"distillation": "topk", "topk_from": "student"},
    "sdpo, live teacher": {
        **{"distillation": "topk", "topk_from": "student", "teacher": "live"},
        **{"divergence": "jensen-shannon", "ratio_weighted": True, "rewards": "none"},
    },
    "one hint a token": {"hint_selection": "overlap-token", "select_k": 8},
    "one hint a token, by tokens": {"distillation": "token", "rewards": "all", "hint_selection": "overlap-token"},
    "one hint a token, selected": {"distillation": "select", "select_k": 5, "hint_selection": "overlap-token"},
    "one hint a token, selected of the teacher": {
        "distillation": "select",
        "select_k": 5,
        "select_from": "teacher",
        "hint_selection": "overlap-token",
    },
    "one hint a token, selected of both": {
        "distillation": "select",
        "select_k": 5,
        "select_from": "overlap",
        "hint_selection": "overlap-token",
    },
    "kl and entropy": {"kl_base": 0.3, "entropy": 0.05, "w_opd": 0.1},
    "entropy alone": {"distillation": "none", "rewards": "all", "entropy": 0.3, "w_anchor": 0.0},
    "colder teacher": {"distillation": "topk", "teacher_temperature": 0.7},
    "colder teacher of tokens": {"distillation": "token", "teacher_temperature": 0.7},
    "several hints of tokens": {"distillation": "token", "rewards": "all"},
    "several hints of one selected": {"distillation": "select", "select_k": VOCABULARY, "advantage_clip": 1.0},
}


@pytest.mark.parametrize("kind", WHOLE, ids=str)
async def test_with_as_many_tokens_as_there_are_nothing_is_lost(world: World, kind: str) -> None:
    recipe = Recipe(**({"topk": VOCABULARY} | WHOLE[kind]))
    samples = [*(on_policy(world, one, 0.3) for one in SEVERAL), anchor(8), anchor(9)]
    found, wanted = await world.cloud(samples, recipe), world.local(samples, recipe)
    assert off(found, wanted) < 1e-4
    shared = wanted.metrics.keys()
    assert {name: found.metrics[name] for name in shared} == pytest.approx(wanted.metrics, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "count", "least"),
    [
        ("rehearse", 24, 0.99),
        ("rehearse", 12, 0.9),
        ("anchors alone", 24, 0.99),
        ("anchors alone", 12, 0.99),
        ("kl and entropy", 24, 0.99),
        ("topk of the student", 24, 0.99),
        ("several hints of tokens", 12, 0.99),
        ("several hints of one selected", 12, 0.99),
    ],
)
async def test_with_fewer_tokens_and_a_tail_the_direction_is_nearly_the_same(
    world: World, kind: str, count: int, least: float
) -> None:
    recipe = Recipe(**(WHOLE[kind] | {"topk": count, "select_k": count}))
    whole = recipe.replace(topk=VOCABULARY, select_k=VOCABULARY)
    samples = [*(on_policy(world, one, 0.1) for one in SEVERAL), anchor(8), anchor(9)]
    found, wanted = await world.cloud(samples, recipe), world.local(samples, whole)
    print(f"{kind} with {count} of {VOCABULARY}: cosine {cosine(found, wanted):.4f}")
    assert cosine(found, wanted) > least
