"""Means and denominators of a batch's loss, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.objective.batch_loss import BatchLoss
from openclaw_rl.shared.objective.early_stop import is_taught
from openclaw_rl.shared.objective.terms import terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from tests.trainer_local.tiny import anchor, sample

LONG = sample(1, hints=1, response=4, reward=1.0)
SHORT = sample(2, hints=0, response=1, reward=-1.0)


def batch_loss(samples: Sequence[Sample], recipe: Recipe) -> BatchLoss:
    return BatchLoss(samples, [terms_of(one, recipe) for one in samples], recipe)


def published(name: str, **changes: Any) -> Recipe:
    """The recipe of a method as the learner makes it."""
    return METHODS[name].recipe(Recipe(**changes))


def share(batch: BatchLoss, term: str, *values: tuple[Sample, Sequence[float]]) -> float:
    """The share of `values`, the loss of each token of some samples, in the loss of the batch."""
    joined = torch.tensor([value for _, tokens in values for value in tokens])
    return float(batch.share(term, joined, [one for one, _ in values]))


def test_a_published_mean_is_over_the_tokens_of_each_answer_and_then_over_answers() -> None:
    batch = batch_loss([LONG, SHORT], published("binary"))
    # ((1 + 2 + 3 + 6) / 4 + 9) / 2 = (3 + 9) / 2; a mean over tokens is 21 / 5 = 4.2.
    assert share(batch, "binary", (LONG, [1, 2, 3, 6]), (SHORT, [9])) == pytest.approx(6.0)


def test_our_own_mean_is_over_the_tokens_of_the_batch() -> None:
    batch = batch_loss([LONG, SHORT], Recipe(distillation="none", rewards="all"))
    assert share(batch, "binary", (LONG, [1, 2, 3, 6]), (SHORT, [9])) == pytest.approx(4.2)


def test_one_hint_among_sixteen_verdicts_is_one_sixteenth_of_the_hybrid_sum() -> None:
    others = [sample(10 + number, hints=0, response=2, reward=-1.0) for number in range(15)]
    batch = batch_loss([LONG, *others], published("topk-select", w_rl=0.5, w_opd=2.0))
    # The distillation of the one answer has the mean 3: 2 · 3 / 16. The losses of the verdicts are 1 a token:
    # 0.5 · (16 · 1) / 16.
    assert share(batch, "distill", (LONG, [1, 2, 3, 6])) == pytest.approx(2 * 3 / 16)
    verdicts = [(LONG, [1.0] * 4), *((one, [1.0] * 2) for one in others)]
    assert share(batch, "binary", *verdicts) == pytest.approx(0.5)
    assert batch.metrics.values()["loss/total"] == pytest.approx(0.375 + 0.5)


def test_a_sample_with_half_the_weight_counts_half_in_the_sum_and_in_the_denominator() -> None:
    half = sample(3, hints=0, response=2, reward=1.0, weight=0.5)
    batch = batch_loss([half, SHORT], published("binary"))
    # (0.5 · (4 + 8) / 2 + 1 · 9) / (0.5 + 1)
    assert share(batch, "binary", (half, [4, 8]), (SHORT, [9])) == pytest.approx(12 / 1.5)


@pytest.mark.parametrize(("method", "term"), [("binary", "binary"), ("combined", "policy")])
def test_neutral_verdicts_are_no_part_of_the_mean(method: str, term: str) -> None:
    neutral = [sample(20 + number, hints=0, reward=0.0) for number in range(3)]
    batch = batch_loss([LONG, SHORT, *neutral], published(method))
    assert share(batch, term, (LONG, [1, 2, 3, 6]), (SHORT, [9])) == pytest.approx(12 / 2)


def test_a_turn_that_cannot_train_is_no_part_of_the_mean() -> None:
    without = sample(30, hints=0, reward=1.0, no_ratio="decoded greedily")
    batch = batch_loss([LONG, SHORT, without, sample(31, hints=0)], published("binary"))
    assert share(batch, "binary", (LONG, [1, 2, 3, 6]), (SHORT, [9])) == pytest.approx(6.0)


def test_kl_and_entropy_have_the_denominator_of_the_published_sum() -> None:
    neutral = sample(20, hints=0, reward=0.0)
    batch = batch_loss([LONG, SHORT, neutral], published("binary", kl_base=0.5, entropy=0.1))
    for term, factor in (("kl_base", 0.5), ("entropy", -0.1)):
        assert share(batch, term, (LONG, [1, 2, 3, 6]), (SHORT, [9])) == pytest.approx(factor * 12 / 2)


def test_a_bare_thumb_weighs_its_own_tokens_among_distilled_answers() -> None:
    thumb = sample(4, hints=0, response=2, reward=-1.0, explicit=True)
    taught = [LONG, *(sample(40 + number, hints=1, response=3, origin="rehearsal") for number in range(2))]
    batch = batch_loss([thumb, *taught, anchor(5), anchor(6)], published("rehearse"))
    # 2 + 4 + 3 + 3 tokens teach; the 8 tokens of the anchors are a mean of their own.
    assert share(batch, "binary", (thumb, [6, 6])) == pytest.approx(12 / 12)
    assert share(batch, "distill", *((one, [1.0] * len(one.response_ids)) for one in taught)) == pytest.approx(10 / 12)
    assert share(batch, "anchor", (anchor(5), [1.0] * 4), (anchor(6), [3.0] * 4)) == pytest.approx(2.0)


def test_without_a_bare_thumb_the_distillation_of_rehearse_is_the_mean_of_its_tokens() -> None:
    batch = batch_loss([LONG, anchor(5)], published("rehearse"))
    assert share(batch, "distill", (LONG, [1, 2, 3, 6])) == pytest.approx(3.0)


@pytest.mark.parametrize("aggregation", ["token", "sample"])
def test_passes_end_by_the_mean_over_the_distilled_answers_alone(aggregation: str) -> None:
    thumb = sample(4, hints=0, response=12, reward=-1.0, explicit=True)
    batch = batch_loss([LONG, thumb], Recipe(aggregation=aggregation))
    share(batch, "distill", (LONG, [0.1, 0.2, 0.3, 0.6]))
    assert batch.metrics.distance == pytest.approx(0.3)
    assert batch.metrics.losses["distill"] < 0.3
    assert not is_taught(batch.metrics, 0.29) and is_taught(batch.metrics, 0.31)


@pytest.mark.parametrize("name", METHODS)
def test_the_weight_of_a_token_is_its_share_in_the_loss(name: str) -> None:
    batch = batch_loss([LONG, SHORT], published(name, kl_base=0.3))
    for term in terms_of(LONG, published(name, kl_base=0.3)):
        alone = share(batch, term, (LONG, [0.0, 0.0, 1.0, 0.0]))
        assert batch.token_weight(term, LONG) == pytest.approx(alone) and alone


@pytest.mark.parametrize("name", METHODS)
def test_micro_batches_add_up_to_the_loss_of_the_batch(name: str) -> None:
    recipe = published(name)
    values = ((LONG, [1, 2, 3, 6]), (sample(7, hints=1, response=2, reward=1.0, weight=2.0), [5, 7]))
    batch = batch_loss([one for one, _ in values], recipe)
    for term in terms_of(LONG, recipe):
        together = share(batch, term, *values)
        assert share(batch, term, values[0]) + share(batch, term, values[1]) == pytest.approx(together)
