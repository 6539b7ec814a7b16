"""Every term of a step's loss against the same number worked out one token at a time in plain Python, on a policy
that has left its base.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openclaw_rl.shared.records import Sample
from tests.trainer_local import plain
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import anchor, sample


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def close(value: float) -> Any:
    return pytest.approx(value, rel=2e-4, abs=2e-6)


def average(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def student(moved: Moved, one: Sample, temperature: float = 1.0) -> list[list[float]]:
    return plain.log_probs(moved.policy, one.prompt_ids, one.response_ids, temperature)


def teacher(folder: Path, one: Sample, temperature: float = 1.0) -> list[list[float]]:
    return plain.mean([plain.log_probs(folder, prompt, one.response_ids, temperature) for prompt in one.hinted_prompts])


UNEVEN = [sample(1, hints=3, response=5), sample(2, prompt=3, hints=1, response=1), sample(3, prompt=17, hints=2)]


def two_hints_that_differ(first: int = 20) -> Sample:
    """Under its hinted prompts the teacher's likeliest tokens differ."""
    return sample(first, hints=3, response=6)


async def test_distillation_over_the_vocabulary(moved: Moved) -> None:
    values = [
        plain.divergence(mine, target)
        for one in UNEVEN
        for mine, target in zip(student(moved, one), teacher(moved.base, one, 1.5), strict=True)
    ]
    metrics = await moved.metrics(UNEVEN, w_opd=0.5, teacher_temperature=1.5)
    assert metrics["loss/distill"] == metrics["loss/opd"] == close(0.5 * average(values))
    assert metrics["loss/total"] == metrics["loss/distill"]


def binned(row: list[float], ids: list[int]) -> list[float]:
    chosen = [row[token] for token in ids]
    return [*chosen, math.log(1 - math.fsum(math.exp(value) for value in chosen))]


@pytest.mark.parametrize("source", ["teacher", "student"])
async def test_distillation_over_three_tokens_and_a_tail(moved: Moved, source: str) -> None:
    values = []
    for one in UNEVEN:
        for mine, target in zip(student(moved, one), teacher(moved.base, one), strict=True):
            ids = plain.likeliest(target if source == "teacher" else mine, 3)
            values.append(plain.divergence(binned(mine, ids), binned(target, ids)))
    metrics = await moved.metrics(UNEVEN, distillation="topk", topk=3, topk_from=source)
    assert metrics["loss/distill"] == close(average(values))


def jensen_shannon(one: list[float], other: list[float]) -> float:
    middle = [math.log((math.exp(p) + math.exp(q)) / 2) for p, q in zip(one, other, strict=True)]
    return (plain.divergence(one, middle) + plain.divergence(other, middle)) / 2


async def test_sdpo_is_jensen_shannon_over_the_students_tokens_weighted_by_the_truncated_ratio(moved: Moved) -> None:
    values, ratios = [], []
    greedy = replace(UNEVEN[1], no_ratio="greedy", temperature=0.0)
    for one in (UNEVEN[0], greedy):
        for place, (mine, target) in enumerate(zip(student(moved, one), teacher(moved.base, one), strict=True)):
            ids = plain.likeliest(mine, 3)
            ratio = min(2.0, math.exp(mine[one.response_ids[place]] - one.logprobs[place]))
            ratios.append(1.0 if one.no_ratio else ratio)
            values.append(ratios[-1] * jensen_shannon(binned(mine, ids), binned(target, ids)))
    recipe = {"distillation": "topk", "topk": 3, "topk_from": "student", "rewards": "none"}
    recipe |= {"divergence": "jensen-shannon", "ratio_weighted": True}
    assert min(ratios) < 0.9 and max(ratios) == 2.0, "some are truncated"
    metrics = await moved.metrics([UNEVEN[0], greedy, sample(9, hints=0, reward=1.0, explicit=True)], **recipe)
    assert metrics["loss/distill"] == metrics["loss/total"] == close(average(values))
    assert metrics["samples/binary"] == 0


async def test_as_many_tokens_as_there_are_is_the_whole_vocabulary(moved: Moved) -> None:
    whole = await moved.metrics(UNEVEN)
    for source in ("teacher", "student"):
        metrics = await moved.metrics(UNEVEN, distillation="topk", topk=1000, topk_from=source)
        assert metrics["loss/distill"] == pytest.approx(whole["loss/distill"], rel=1e-3)


def selected(
    old: list[float], target: list[float], now: list[float], count: int, bound: float, source: str = "student"
) -> float:
    """The published formula for one token, with its own widths of the clip."""
    sets = {"student": plain.likeliest(old, count), "teacher": plain.likeliest(target, count)}
    sets["overlap"] = [token for token in sets["student"] if token in sets["teacher"]]
    ids = sets[source]
    if not ids:
        return 0.0
    shares = [math.exp(value) for value in plain.normalised([old[token] for token in ids])]
    total = 0.0
    for token, share in zip(ids, shares, strict=True):
        advantage = max(-bound, min(bound, target[token] - old[token])) * share
        ratio = math.exp(now[token] - old[token])
        total += max(-advantage * ratio, -advantage * max(0.8, min(1.28, ratio)))
    return total


async def test_clipped_differences_of_the_likeliest_tokens(moved: Moved, tmp_path: Path) -> None:
    recipe = {"distillation": "select", "select_k": 3, "advantage_clip": 0.4}
    after = await moved.after(UNEVEN, tmp_path / "after", **recipe)
    first, second = [], []
    for one in UNEVEN:
        now = plain.log_probs(after, one.prompt_ids, one.response_ids)
        for mine, target, later in zip(student(moved, one), teacher(moved.base, one), now, strict=True):
            first.append(selected(mine, target, mine, 3, 0.4))
            second.append(selected(mine, target, later, 3, 0.4))
    assert (await moved.metrics(UNEVEN, **recipe))["loss/distill"] == close(average(first))
    assert (await moved.metrics(UNEVEN, epochs=2, **recipe))["loss/distill"] == close(average(second))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("source", ["student", "teacher", "overlap"])
async def test_the_support_set_is_the_students_the_teachers_or_what_both_have(
    moved: Moved, tmp_path: Path, source: str, several: bool
) -> None:
    samples = UNEVEN if several else [replace(one, hinted_prompts=one.hinted_prompts[:1]) for one in UNEVEN]
    recipe = {"distillation": "select", "select_k": 5, "select_from": source, "kl_base": 0.2, "advantage_clip": 1.0}
    after = await moved.after(samples, tmp_path / "after", **recipe)
    first, second, sizes = [], [], []
    for one in samples:
        now = plain.log_probs(after, one.prompt_ids, one.response_ids)
        for mine, target, later in zip(student(moved, one), teacher(moved.base, one), now, strict=True):
            first.append(selected(mine, target, mine, 5, 1.0, source))
            second.append(selected(mine, target, later, 5, 1.0, source))
            sizes.append(len(set(plain.likeliest(mine, 5)) & set(plain.likeliest(target, 5))))
    assert len(set(sizes)) > 1, "the sets must differ"
    assert (await moved.metrics(samples, **recipe))["loss/distill"] == close(average(first))
    assert (await moved.metrics(samples, epochs=2, **recipe))["loss/distill"] == close(average(second))


async def test_the_published_hybrid_is_a_mean_over_answers_with_one_denominator(moved: Moved) -> None:
    hinted = sample(1, hints=1, response=5, reward=1.0)
    rewarded = [sample(2, hints=0, response=1, reward=-1.0), sample(3, hints=0, response=7, reward=1.0)]
    recipe = {"distillation": "select", "rewards": "all", "aggregation": "sample", "select_k": 3, "w_opd": 0.5}
    recipe |= {"advantage_clip": 1.0}
    metrics = await moved.metrics([hinted, *rewarded], **recipe)
    taught = [
        selected(mine, target, mine, 3, 1.0)
        for mine, target in zip(student(moved, hinted), teacher(moved.base, hinted), strict=True)
    ]
    verdicts = []
    for one in (hinted, *rewarded):
        mine = plain.sampled(student(moved, one), one.response_ids)
        values = [
            plain.ppo(one.reward or 0.0, math.exp(now - then)) for now, then in zip(mine, one.logprobs, strict=True)
        ]
        verdicts.append(average(values))
    assert metrics["loss/distill"] == close(0.5 * average(taught) / 3)
    assert metrics["loss/binary"] == close(average(verdicts))
    assert metrics["loss/total"] == close(0.5 * average(taught) / 3 + average(verdicts))


async def test_each_token_takes_the_hint_that_is_most_like_the_policy(moved: Moved) -> None:
    one = two_hints_that_differ()
    mine = student(moved, one)
    under = [plain.log_probs(moved.base, prompt, one.response_ids) for prompt in one.hinted_prompts]
    values, choices = [], []
    for position, row in enumerate(mine):
        own = set(plain.likeliest(row, 8))
        common = [len(own & set(plain.likeliest(table[position], 8))) for table in under]
        choices.append(common.index(max(common)))
        values.append(plain.divergence(row, under[choices[-1]][position]))
    assert len(set(choices)) > 1, "the sample must make a difference"
    metrics = await moved.metrics([one, UNEVEN[1]], hint_selection="overlap-token", select_k=8)
    alone = [
        plain.divergence(row, target)
        for row, target in zip(student(moved, UNEVEN[1]), teacher(moved.base, UNEVEN[1]), strict=True)
    ]
    assert metrics["loss/distill"] == close(average(values + alone))


async def test_equal_overlaps_take_the_first_hint(moved: Moved) -> None:
    one = two_hints_that_differ()
    everything = await moved.metrics([one], hint_selection="overlap-token", select_k=64)
    first = await moved.metrics([replace(one, hinted_prompts=one.hinted_prompts[:1])])
    assert everything["loss/distill"] == close(first["loss/distill"])


async def test_the_reward_term_with_a_ratio_at_the_temperature_of_the_sampling(moved: Moved) -> None:
    samples = [
        sample(1, hints=0, reward=1.0, temperature=0.7),
        sample(2, hints=0, reward=-1.0, response=7, logprobs=[-3.0 - 0.3 * index for index in range(7)]),
        sample(3, hints=0, reward=0.0, advantage=0.25),
        sample(4, hints=0, reward=0.0),
        sample(5, hints=0, reward=1.0, no_ratio="sampled with top_p 0.9"),
    ]
    values, ratios = [], []
    for one, advantage in zip(samples, (1.0, -1.0, 0.25), strict=False):
        mine = plain.sampled(student(moved, one, one.temperature), one.response_ids)
        for now, then in zip(mine, one.logprobs, strict=True):
            ratios.append(min(2.0, math.exp(now - then)))
            values.append(plain.ppo(advantage, math.exp(now - then)))
    metrics = await moved.metrics(samples, distillation="none", rewards="all", w_rl=2.0)
    assert metrics["loss/binary"] == metrics["loss/total"] == close(2.0 * average(values))
    assert metrics["ratio/mean"] == close(average(ratios))
    assert metrics["ratio/clipped"] == close(average([float(not 0.8 <= ratio <= 1.28) for ratio in ratios]))
    advantages = [1.0] * 4 + [-1.0] * 7 + [0.25] * 4
    assert metrics["advantage/mean"] == close(average(advantages))
    spread = math.sqrt(average([(value - average(advantages)) ** 2 for value in advantages]))
    assert metrics["advantage/std"] == close(spread)
    assert metrics["samples/binary"] == 3
    assert (metrics["reward/mean"], metrics["reward/std"]) == (close(0.2), close(math.sqrt(0.56)))


async def test_a_signal_without_a_hint_trains_under_every_method_where_it_was_explicit(moved: Moved) -> None:
    for distillation in ("full", "token", "topk", "select"):
        samples = [sample(1, hints=0, reward=-1.0, explicit=True), sample(2, hints=0, reward=-1.0)]
        metrics = await moved.metrics(samples, distillation=distillation, rewards="explicit")
        assert metrics["samples/binary"] == 1 and metrics["samples/distill"] == 0
        alone = await moved.metrics(samples[:1], distillation="none", rewards="all")
        assert metrics["loss/total"] == close(alone["loss/binary"])


async def test_the_anchor_keeps_the_base_as_it_is_whatever_the_teachers_temperature(moved: Moved) -> None:
    one = anchor(5)
    base = plain.log_probs(moved.base, one.prompt_ids, one.response_ids)
    values = [plain.divergence(target, mine) for mine, target in zip(student(moved, one), base, strict=True)]
    for temperature in (1.0, 2.0):
        metrics = await moved.metrics([one], w_anchor=0.7, teacher_temperature=temperature)
        assert metrics["loss/anchor"] == metrics["loss/total"] == close(0.7 * average(values))


@pytest.mark.parametrize("distillation", ["full", "token", "select"])
async def test_kl_to_the_base_and_entropy_count_on_the_turns_that_train(moved: Moved, distillation: str) -> None:
    counted = [UNEVEN[0], sample(7, hints=0, reward=1.0, explicit=True)]
    idle = [sample(8, hints=0), sample(9, origin="rehearsal"), anchor(10)]
    away, spread = [], []
    for one in counted:
        base = plain.log_probs(moved.base, one.prompt_ids, one.response_ids)
        for mine, target in zip(student(moved, one), base, strict=True):
            away.append(plain.divergence(mine, target))
            spread.append(-math.fsum(math.exp(value) * value for value in mine))
    metrics = await moved.metrics([*counted, *idle], distillation=distillation, kl_base=0.3, entropy=0.01)
    assert metrics["samples/kl_base"] == metrics["samples/entropy"] == 2
    assert metrics["loss/kl_base"] == close(0.3 * average(away))
    assert metrics["loss/entropy"] == close(-0.01 * average(spread))
    main = "loss/policy" if distillation == "token" else "loss/distill"
    rest = 0.0 if distillation == "token" else metrics["loss/binary"]
    parts = metrics[main] + rest + metrics["loss/anchor"] + metrics["loss/kl_base"] + metrics["loss/entropy"]
    assert metrics["loss/total"] == close(parts)


KINDS = [
    {"distillation": "full"},
    {"distillation": "full", "hint_selection": "overlap-token", "kl_base": 0.1, "entropy": 0.1},
    {"distillation": "token", "rewards": "all"},
    {"distillation": "topk", "topk": 5},
    {"distillation": "topk", "topk": 5, "topk_from": "student"},
    {"distillation": "select", "rewards": "all", "kl_base": 0.1},
    {"distillation": "none", "rewards": "all"},
    {"distillation": "select", "rewards": "all", "aggregation": "sample"},
    {"distillation": "select", "select_from": "teacher", "hint_selection": "overlap-token", "kl_base": 0.1},
    {"distillation": "select", "select_from": "overlap", "hint_selection": "overlap-token"},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_rows_of_different_length_count_together_as_they_do_alone(moved: Moved, kind: dict[str, Any]) -> None:
    samples = [replace(one, reward=reward) for one, reward in zip(UNEVEN, (1.0, -1.0, 0.5), strict=True)]
    together = await moved.metrics(samples, **kind)
    sizes = [1 if "aggregation" in kind else len(one.response_ids) for one in samples]
    weighted = 0.0
    for one, size in zip(samples, sizes, strict=True):
        weighted += size * (await moved.metrics([one], **kind))["loss/total"]
    assert together["loss/total"] == close(weighted / sum(sizes))


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_micro_batches_add_up_to_the_whole(moved: Moved, kind: dict[str, Any]) -> None:
    samples = [replace(one, reward=reward) for one, reward in zip(UNEVEN, (1.0, -1.0, 0.5), strict=True)]
    whole = await moved.metrics([*samples, anchor(4)], epochs=2, **kind)
    cut = await moved.metrics([*samples, anchor(4)], epochs=2, micro_batch_tokens=1, **kind)
    for name in ("loss/total", "gradient/norm", "weights/change", "advantage/std"):
        assert cut[name] == pytest.approx(whole[name], rel=2e-3, abs=1e-6), name


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_same_step_twice_is_the_same_to_the_bit_and_every_figure_is_there(
    moved: Moved, kind: dict[str, Any]
) -> None:
    samples = [replace(one, reward=1.0) for one in UNEVEN] + [anchor(4), sample(6, origin="rehearsal")]
    first, second = [await moved.metrics(samples, epochs=2, teacher="ema", **kind) for _ in range(2)]
    assert {name: value for name, value in first.items() if "seconds" not in name} == {
        name: value for name, value in second.items() if "seconds" not in name
    }
    assert all(math.isfinite(value) for value in first.values())
    assert {
        *("loss/total", "loss/binary", "loss/distill", "loss/opd", "loss/policy", "loss/anchor", "learning_rate"),
        *("ratio/mean", "ratio/clipped", "kl/parent", "advantage/mean", "advantage/std", "reward/mean"),
        *("reward/std", "gradient/norm", "entropy/mean", "tokens", "samples/distill", "samples/binary"),
        *("samples/rehearsal", "samples/anchor", "seconds", "seconds/teacher"),
    } <= first.keys()
    assert first["samples/rehearsal"] == first["samples/anchor"] == 1


async def test_a_batch_of_one_token_trains_under_every_kind(moved: Moved) -> None:
    one = sample(30, prompt=1, response=1, hints=2, reward=1.0)
    for kind in KINDS:
        metrics = await moved.metrics([one], **kind)
        assert metrics["weights/change"] > 0, kind


OTHERS_LOSS = """
import torch

def compute_loss(policy_logits, reference_logits, rewards, advantages, config):
    ratio = torch.exp(policy_logits - reference_logits)
    return -(ratio * advantages).mean() * config.get("share", 0.5)
"""


async def test_a_loss_file_of_another_system_gets_the_sampled_tokens_of_policy_and_base(
    moved: Moved, tmp_path: Path
) -> None:
    path = tmp_path / "custom_loss.py"
    path.write_text(OTHERS_LOSS)
    one = replace(sample(1, response=5), reward=-0.5)
    base = plain.log_probs(moved.base, one.prompt_ids, one.response_ids, 1.0)
    pairs = zip(student(moved, one), base, one.response_ids, strict=True)
    ratios = [math.exp(mine[token] - theirs[token]) for mine, theirs, token in pairs]
    assert max(abs(ratio - 1.0) for ratio in ratios) > 1e-3
    metrics = await moved.metrics([one], custom_loss=str(path))
    assert metrics["loss/custom"] == metrics["loss/total"] == close(0.5 * 0.5 * average(ratios))
    assert metrics["gradient/norm"] > 0


async def test_a_revision_is_learned_token_by_token_and_counts_among_the_lessons(moved: Moved) -> None:
    hinted = sample(1, response=5)
    revision = replace(sample(2, hints=0, response=3), origin="revision", turn_id=None, no_ratio="another prompt")
    alone = await moved.metrics([revision])
    likely = plain.sampled(student(moved, revision), revision.response_ids)
    assert alone["loss/imitate"] == close(-average(likely)) and alone["samples/imitate"] == 1
    assert alone["loss/total"] == alone["loss/imitate"]
    both = await moved.metrics([hinted, revision])
    assert both["loss/imitate"] == close(-math.fsum(likely) / 8)
    assert (await moved.metrics([revision], epochs=4))["loss/imitate"] < alone["loss/imitate"]


async def test_a_revision_with_a_teacher_learns_its_distribution_forward(moved: Moved) -> None:
    taught = replace(sample(3, hints=1, response=4), origin="demonstration", turn_id=None, no_ratio="another prompt")
    (hinted,) = taught.hinted_prompts
    teacher = plain.log_probs(moved.base, hinted, taught.response_ids, 1.0)
    mine = student(moved, taught)
    divergences = [
        math.fsum(math.exp(one) * (one - other) for one, other in zip(theirs, ours, strict=True))
        for theirs, ours in zip(teacher, mine, strict=True)
    ]
    alone = await moved.metrics([taught])
    assert alone["loss/imitate"] == close(average(divergences)) == alone["loss/total"]
    assert (await moved.metrics([taught], epochs=4))["loss/imitate"] < alone["loss/imitate"]


async def test_passes_end_when_demonstrations_are_learned(moved: Moved) -> None:
    taught = replace(sample(4, hints=1, response=4), origin="demonstration", turn_id=None, no_ratio="another prompt")
    whole = await moved.metrics([taught], epochs=6, early_stop=0.0)
    early = await moved.metrics([taught], epochs=6, early_stop=0.99)
    assert whole["epochs"] == 6 and early["epochs"] < 6
