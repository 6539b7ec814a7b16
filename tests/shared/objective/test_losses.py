"""Losses against numbers worked out by hand, and gradients against their closed forms and finite differences in
float64.
"""

from __future__ import annotations

import math

import pytest
import torch

from openclaw_rl.shared.objective import losses

torch.set_num_threads(1)

LN2, LN3 = math.log(2), math.log(3)


def logs(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def random_logits(rows: int = 3, vocabulary: int = 5, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64).requires_grad_()


def test_temperature_two_takes_square_roots_of_the_odds() -> None:
    logits = torch.tensor([[math.log(9.0), 0.0]], dtype=torch.float64)
    assert losses.log_softmax(logits).exp().tolist() == [pytest.approx([0.9, 0.1])]
    assert losses.log_softmax(logits, 2.0).exp().tolist() == [pytest.approx([0.75, 0.25])]


def test_each_token_may_have_a_temperature_of_its_own() -> None:
    logits = torch.tensor([[math.log(9.0), 0.0]] * 2, dtype=torch.float64)
    mixed = losses.log_softmax(logits, torch.tensor([1.0, 2.0])).exp()
    assert mixed.tolist() == [pytest.approx([0.9, 0.1]), pytest.approx([0.75, 0.25])]


def test_half_precision_logits_are_normalised_in_single_precision() -> None:
    log_probs = losses.log_softmax(torch.randn(4, 1000, dtype=torch.bfloat16))
    assert log_probs.dtype == torch.float32
    assert log_probs.exp().sum(-1).tolist() == pytest.approx([1.0] * 4, abs=1e-5)


def test_sampled_logprobs_pick_the_sampled_column_of_each_row() -> None:
    table = logs((0.5, 0.25, 0.25), (0.1, 0.2, 0.7))
    assert losses.sampled_logprobs(table, torch.tensor([0, 2])).exp().tolist() == pytest.approx([0.5, 0.7])


def test_ensemble_of_one_is_that_distribution() -> None:
    table = logs((0.5, 0.25, 0.25))
    assert torch.allclose(losses.ensemble_target(table.unsqueeze(0)), table)


def test_ensemble_of_two_is_the_normalised_geometric_mean() -> None:
    # sqrt(.8 * .2) = .4 on both sides; sqrt(.9 * .4) = .6, sqrt(.1 * .6) = .245 -> .7101 and .2899
    target = losses.ensemble_target(torch.stack([logs((0.8, 0.2), (0.9, 0.1)), logs((0.2, 0.8), (0.4, 0.6))])).exp()
    share = 0.6 / (0.6 + math.sqrt(0.06))
    assert target.tolist() == [pytest.approx([0.5, 0.5]), pytest.approx([share, 1 - share])]


def test_ensemble_target_minimises_the_mean_divergence_to_its_members() -> None:
    members = torch.log_softmax(torch.stack([random_logits(seed=seed).detach() for seed in range(3)]), dim=-1)
    best = losses.ensemble_target(members)

    def mean_divergence(candidate: torch.Tensor) -> float:
        return float(torch.stack([losses.reverse_kl(candidate, member) for member in members]).mean())

    for seed in range(5):
        nearby = torch.log_softmax(best + 0.1 * random_logits(seed=10 + seed).detach(), dim=-1)
        assert mean_divergence(best) < mean_divergence(nearby)


def test_reverse_kl_by_hand() -> None:
    # pi = (1/2, 1/2), target = (1/4, 3/4): 1/2 ln 2 + 1/2 ln(2/3)
    value = losses.reverse_kl(logs((0.5, 0.5)), logs((0.25, 0.75)))
    assert value.tolist() == pytest.approx([0.5 * LN2 + 0.5 * (LN2 - LN3)])


def test_forward_kl_by_hand() -> None:
    # base = (1/4, 3/4), pi = (1/2, 1/2): 1/4 ln(1/2) + 3/4 ln(3/2)
    value = losses.forward_kl(logs((0.25, 0.75)), logs((0.5, 0.5)))
    assert value.tolist() == pytest.approx([-0.25 * LN2 + 0.75 * (LN3 - LN2)])


def test_a_student_that_equals_its_target_has_no_loss_and_no_gradient() -> None:
    logits = random_logits()
    log_probs = losses.log_softmax(logits)
    total = losses.reverse_kl(log_probs, log_probs).sum() + losses.forward_kl(log_probs, log_probs).sum()
    total.backward()
    assert float(total) == pytest.approx(0.0, abs=1e-12)
    assert logits.grad is not None and logits.grad.abs().max() < 1e-12


def test_reverse_kl_gradient_is_its_closed_form() -> None:
    logits, target = random_logits(seed=1), losses.log_softmax(random_logits(seed=2))
    log_probs = losses.log_softmax(logits)
    divergence = losses.reverse_kl(log_probs, target)
    divergence.sum().backward()
    with torch.no_grad():
        expected = log_probs.exp() * (log_probs - target - divergence.unsqueeze(-1))
    assert logits.grad is not None and torch.allclose(logits.grad, expected, atol=1e-12)


def test_forward_kl_gradient_is_student_minus_base() -> None:
    logits, base = random_logits(seed=3), losses.log_softmax(random_logits(seed=4)).detach()
    log_probs = losses.log_softmax(logits)
    losses.forward_kl(base, log_probs).sum().backward()
    assert logits.grad is not None and torch.allclose(logits.grad, (log_probs.exp() - base.exp()).detach(), atol=1e-12)


def test_gradients_agree_with_finite_differences() -> None:
    target = losses.log_softmax(random_logits(seed=6)).detach()
    ids = torch.tensor([4, 0, 2])
    behavior = torch.tensor([-1.2, -0.4, -2.0], dtype=torch.float64)
    advantages = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)

    def everything(logits: torch.Tensor) -> torch.Tensor:
        log_probs = losses.log_softmax(logits, 0.7)
        policy = losses.clipped_policy_loss(
            losses.sampled_logprobs(log_probs, ids), behavior, advantages, clip_low=0.2, clip_high=0.28, ratio_cap=2.0
        )
        weights = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
        return losses.token_mean(
            losses.reverse_kl(log_probs, target) + losses.forward_kl(target, log_probs) + policy, weights
        )

    assert torch.autograd.gradcheck(everything, (random_logits(seed=5),))


def policy_loss(logprob: float, behavior: float, advantage: float) -> tuple[float, float]:
    """Loss and gradient with respect to log pi of one token."""
    logprobs = torch.tensor([logprob], dtype=torch.float64, requires_grad=True)
    value = losses.clipped_policy_loss(
        logprobs,
        torch.tensor([behavior], dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.28,
        ratio_cap=2.0,
    )
    value.sum().backward()
    assert logprobs.grad is not None
    return float(value), float(logprobs.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 1.0, -1.0, -1.0),  # on policy: the plain policy gradient
        (1.0, -1.0, 1.0, 1.0),
        (1.0, 0.0, 0.0, 0.0),
        (1.5, 1.0, -1.28, 0.0),  # already much likelier: no further push
        (0.5, 1.0, -0.5, -0.5),
        (0.5, -1.0, 0.8, 0.0),  # already much less likely: no further push
        (1.5, -1.0, 1.5, 1.5),
        (5.0, -1.0, 2.0, 0.0),  # stale: truncated at the cap
    ],
)
def test_policy_loss_by_hand(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    assert policy_loss(math.log(0.1 * ratio), math.log(0.1), advantage) == pytest.approx((loss, gradient))


def test_ratio_is_one_only_at_the_temperature_of_the_sampling() -> None:
    logits = torch.tensor([[math.log(9.0), 0.0]], dtype=torch.float64)
    sampled_at = losses.sampled_logprobs(losses.log_softmax(logits, 0.5), torch.tensor([1]))
    same = losses.importance_ratio(
        losses.sampled_logprobs(losses.log_softmax(logits, 0.5), torch.tensor([1])), sampled_at, 10.0
    )
    other = losses.importance_ratio(
        losses.sampled_logprobs(losses.log_softmax(logits), torch.tensor([1])), sampled_at, 10.0
    )
    assert float(same) == pytest.approx(1.0)
    assert float(other) == pytest.approx(0.1 / (1 / 82))


def test_masked_tokens_count_neither_above_nor_below_the_line() -> None:
    values = torch.tensor([1.0, 2.0, 30.0], dtype=torch.float64)
    assert float(losses.token_mean(values, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))) == pytest.approx(1.5)


def test_a_masked_token_that_is_not_finite_does_not_spread() -> None:
    values = torch.tensor([1.0, float("nan")], dtype=torch.float64, requires_grad=True)
    mean = losses.token_mean(values, torch.tensor([1.0, 0.0], dtype=torch.float64))
    mean.backward()
    assert float(mean) == 1.0
    assert values.grad is not None and values.grad.tolist() == [1.0, 0.0]


def test_micro_batches_add_up_to_the_mean_of_the_batch() -> None:
    values, weights = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 1.0, 0.5])
    whole = losses.token_mean(values, weights)
    parts = losses.token_mean(values[:1], weights[:1], 2.5) + losses.token_mean(values[1:], weights[1:], 2.5)
    assert float(whole) == pytest.approx(float(parts)) == pytest.approx(2.4)


def test_nothing_to_learn_from_is_a_loss_of_zero() -> None:
    empty = torch.zeros(0, requires_grad=True)
    mean = losses.token_mean(empty, torch.zeros(0))
    mean.backward()
    assert float(mean) == 0.0
