"""Distillation over some of the tokens, and per sampled token: numbers worked out in plain Python, gradients against
finite differences in float64.
"""

from __future__ import annotations

import math

import pytest
import torch

from openclaw_rl.shared.objective import losses

torch.set_num_threads(1)


def tensor(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def random_logits(rows: int = 3, vocabulary: int = 5, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64).requires_grad_()


def test_entropy_of_a_fair_and_a_loaded_coin() -> None:
    loaded = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert losses.entropy(tensor((0.5, 0.5), (0.9, 0.1)).log()).tolist() == pytest.approx([math.log(2), loaded])


def test_the_tail_is_what_the_chosen_tokens_leave() -> None:
    bins = losses.with_tail(tensor((0.5, 0.2), (0.1, 0.05)).log()).exp()
    assert bins.tolist() == [pytest.approx([0.5, 0.2, 0.3]), pytest.approx([0.1, 0.05, 0.85])]


def test_jensen_shannon_over_two_tokens_and_a_tail_by_hand() -> None:
    policy, teacher = (0.5, 0.2, 0.2, 0.1), (0.1, 0.6, 0.15, 0.15)
    pairs = ((0.5, 0.1), (0.2, 0.6), (0.3, 0.3))
    middle = [(p + q) / 2 for p, q in pairs]  # 0.3, 0.4, 0.3
    by_hand = sum(
        0.5 * p * math.log(p / m) + 0.5 * q * math.log(q / m) for (p, q), m in zip(pairs, middle, strict=True)
    )
    bins = [losses.with_tail(tensor(one[:2]).log()) for one in (policy, teacher)]
    assert losses.jensen_shannon(*bins).tolist() == pytest.approx([by_hand])
    assert losses.jensen_shannon(*bins[::-1]).tolist() == pytest.approx([by_hand]), "it is symmetric"
    apart = losses.jensen_shannon(tensor((1 - 1e-12, 1e-12)).log(), tensor((1e-12, 1 - 1e-12)).log())
    assert apart.tolist() == pytest.approx([math.log(2)]), "and bounded"


def test_the_gradient_of_jensen_shannon_by_the_formula() -> None:
    logits, target = random_logits(), torch.log_softmax(random_logits(seed=1).detach(), dim=-1)
    assert torch.autograd.gradcheck(lambda one: losses.jensen_shannon(torch.log_softmax(one, dim=-1), target), logits)
    log_probs = torch.log_softmax(logits, dim=-1)
    losses.jensen_shannon(log_probs, target).sum().backward()
    probabilities = log_probs.exp().detach()
    pull = log_probs.detach() - ((probabilities + target.exp()) / 2).log()
    wanted = 0.5 * probabilities * (pull - (probabilities * pull).sum(dim=-1, keepdim=True))
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, wanted)


def test_differences_are_clipped_where_a_bound_is_given() -> None:
    teacher, behavior = tensor((-0.5, -4.0, -1.0))[0], tensor((-1.5, -1.0, -1.2))[0]
    assert losses.distillation_advantages(teacher, behavior).tolist() == pytest.approx([1.0, -3.0, 0.2])
    assert losses.distillation_advantages(teacher, behavior, 0.5).tolist() == pytest.approx([0.5, -0.5, 0.2])


def test_reverse_kl_over_two_tokens_and_a_tail_by_hand() -> None:
    policy, teacher = (0.5, 0.2, 0.2, 0.1), (0.1, 0.6, 0.15, 0.15)
    by_hand = sum(p * math.log(p / q) for p, q in ((0.5, 0.1), (0.2, 0.6), (0.3, 0.3)))
    found = losses.reverse_kl(losses.with_tail(tensor(policy[:2]).log()), losses.with_tail(tensor(teacher[:2]).log()))
    assert found.tolist() == pytest.approx([by_hand])


def test_the_bins_never_show_more_divergence_than_the_vocabulary_does() -> None:
    policy, teacher = (losses.log_softmax(random_logits(seed=seed).detach()) for seed in (1, 2))
    ids = teacher.topk(2, dim=-1).indices
    few = losses.reverse_kl(losses.with_tail(policy.gather(-1, ids)), losses.with_tail(teacher.gather(-1, ids)))
    assert bool((few > 0).all()) and bool((few <= losses.reverse_kl(policy, teacher)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tokens_that_hold_everything_leave_a_tail_that_is_finite_and_still(dtype: torch.dtype) -> None:
    for rows in ([[0.0, -40.0]], [[math.log(0.5), math.log(0.5)]]):
        chosen = torch.tensor(rows, dtype=dtype, requires_grad=True)
        tail = losses.with_tail(chosen)[:, -1]
        tail.sum().backward()
        assert tail.tolist() == pytest.approx([math.log(torch.finfo(dtype).eps)], rel=0.1)
        assert chosen.grad is not None and chosen.grad.tolist() == [[0.0, 0.0]]


def test_a_small_tail_is_exact_in_single_precision() -> None:
    tail = losses.with_tail(torch.tensor([[math.log1p(-1e-4)]]))[0, -1]
    assert float(tail) == pytest.approx(math.log(1e-4), abs=2e-3)


def test_overlap_counts_common_tokens_in_any_order() -> None:
    own = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    others = torch.tensor([[3, 9, 1], [6, 4, 5], [1, 2, 3]])
    assert losses.overlap(own, others).tolist() == [2, 3, 0]


def test_the_advantage_of_a_token_is_how_much_likelier_the_teacher_finds_it() -> None:
    found = losses.distillation_advantages(tensor((0.6, 0.1)).log()[0], tensor((0.2, 0.4)).log()[0])
    assert found.tolist() == pytest.approx([math.log(3), -math.log(4)])


def test_advantages_of_selected_tokens_are_clipped_and_weighted() -> None:
    old, teacher = (0.4, 0.2, 0.1), (0.6, 0.19, 0.01)
    share = [value / 0.7 for value in old]
    by_hand = [share[0] * math.log(1.5), share[1] * math.log(0.95), share[2] * -1.0]
    assert losses.select_advantages(tensor(old).log(), tensor(teacher).log(), 1.0).tolist() == [pytest.approx(by_hand)]


def test_advantages_over_a_support_set_weigh_its_tokens_alone() -> None:
    old, teacher = tensor((0.4, 0.2, 0.1), (0.4, 0.2, 0.1)).log(), tensor((0.6, 0.19, 0.01), (0.6, 0.19, 0.01)).log()
    support = losses.contained(torch.tensor([[7, 8, 9], [7, 8, 9]]), torch.tensor([[9, 1, 7], [1, 2, 3]]))
    found = losses.select_advantages(old, teacher, 1.0, support)
    # Of 0.4 and 0.1 the shares are 0.8 and 0.2; log(0.01 / 0.1) is clipped to -1. The second row has no common token.
    assert found.tolist() == [pytest.approx([0.8 * math.log(1.5), 0.0, -0.2]), [0.0, 0.0, 0.0]]
    loss = losses.select_loss(old, old, found, clip_low=0.2, clip_high=0.28)
    assert loss.tolist() == pytest.approx([0.2 - 0.8 * math.log(1.5), 0.0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 0.5, -0.5, -0.5),
        (1.1, 0.5, -0.55, -0.55),
        (1.5, 0.5, -0.64, 0.0),  # 0.5 · 1.28
        (0.5, -0.5, 0.4, 0.0),  # 0.5 · 0.8
        (3.0, -0.5, 1.5, 1.5),  # no cap above
        (0.7, 0.5, -0.35, -0.35),
    ],
)
def test_loss_of_a_selected_token_by_hand(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    current = tensor((math.log(0.1 * ratio), math.log(0.3))).requires_grad_()
    value = losses.select_loss(
        current, tensor((0.1, 0.3)).log(), tensor((advantage, 0.25)), clip_low=0.2, clip_high=0.28
    )
    value.sum().backward()
    assert value.tolist() == pytest.approx([loss - 0.25])
    assert current.grad is not None and current.grad.tolist() == [pytest.approx([gradient, -0.25])]


def test_gradients_agree_with_finite_differences() -> None:
    teacher = losses.log_softmax(random_logits(seed=6).detach())
    ids = teacher.topk(3, dim=-1).indices
    known = teacher.gather(-1, ids)
    old = losses.log_softmax(random_logits(seed=7).detach()).gather(-1, ids)

    def everything(logits: torch.Tensor) -> torch.Tensor:
        log_probs = losses.log_softmax(logits, 0.7)
        chosen = log_probs.gather(-1, ids)
        selected = losses.select_loss(
            chosen, old, losses.select_advantages(old, known, 1.0), clip_low=0.2, clip_high=0.28
        )
        bins = losses.reverse_kl(losses.with_tail(chosen), losses.with_tail(known))
        return bins + selected + losses.entropy(log_probs)

    assert torch.autograd.gradcheck(everything, (random_logits(seed=5),))


def test_no_gradient_reaches_the_teacher_or_the_policy_before_the_step() -> None:
    logits, teacher, old = (losses.log_softmax(random_logits(seed=seed)) for seed in (1, 2, 3))
    for part in (teacher, old):
        part.retain_grad()
    advantages = losses.select_advantages(old, teacher, 1.0)
    total = losses.select_loss(logits, old, advantages, clip_low=0.2, clip_high=0.28).sum()
    total = total + losses.reverse_kl(losses.with_tail(logits[:, :2]), losses.with_tail(teacher[:, :2])).sum()
    total.backward()
    assert teacher.grad is None and old.grad is None
