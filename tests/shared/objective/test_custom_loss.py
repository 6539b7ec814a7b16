"""Losses of the user's own, from real files: both contracts, and what is said of one that goes wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.objective.custom_loss import LossTokens, load_loss
from openclaw_rl.shared.trainer import Recipe

OURS = """
def loss(tokens):
    log_probs = tokens.logits.log_softmax(-1)
    return -tokens.rewards * log_probs.gather(-1, tokens.token_ids.unsqueeze(-1)).squeeze(-1)

def other(tokens):
    return (tokens.logits * 0).sum(-1) + tokens.weights
"""
THEIRS = """
def compute_loss(policy_logits, reference_logits, rewards, advantages, config):
    away = (policy_logits.log_softmax(-1) - reference_logits.log_softmax(-1)).square().sum(-1)
    values = away * rewards + advantages * config.clip_low
    return values.mean() if config.epochs == 4 else values
"""


def tokens(recipe: Recipe | None = None) -> LossTokens:
    """Three tokens over two."""
    logits = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    return LossTokens(
        logits=logits,
        token_ids=torch.tensor([0, 1, 1]),
        temperatures=torch.ones(3),
        behavior_logprobs=torch.tensor([-0.7, -1.3, -0.3]),
        has_ratio=torch.tensor([True, True, True]),
        base_log_probs=torch.full((3, 2), -0.693147),
        teacher_log_probs=None,
        has_hint=torch.tensor([False, False, False]),
        rewards=torch.tensor([1.0, -1.0, 0.0]),
        advantages=torch.tensor([1.0, -1.0, 2.0]),
        weights=torch.tensor([1.0, 2.0, 3.0]),
        sample_index=torch.tensor([0, 1, 1]),
        recipe=recipe or Recipe(),
    )


def written(folder: Path, text: str, name: str = "custom.py") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def test_a_file_holds_our_loss_and_others_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, OURS)
    given = tokens()
    values = load_loss(path)(given)
    assert values.tolist() == pytest.approx([0.6931, -1.3133, 0.0], abs=1e-4)
    values.sum().backward()
    assert given.logits.grad is not None and given.logits.grad[0].tolist() == pytest.approx([-0.5, 0.5])
    assert load_loss(f"{path}:other")(tokens()).tolist() == [1.0, 2.0, 3.0]


def test_the_contract_of_openclaw_rl_is_understood(tmp_path: Path) -> None:
    path = written(tmp_path, THEIRS)
    # log softmax of (1, 0) is (-0.3133, -1.3133); the base's is (-0.6931, -0.6931)
    away = [0.0, 0.3798**2 + 0.6201**2, 0.3798**2 + 0.6201**2]
    by_hand = [0.0 + 0.2, -away[1] - 0.2, 0.0 + 0.4]
    for name in (path, f"{path}:compute_loss"):
        each = load_loss(name)(tokens(Recipe(epochs=1)))
        assert each.tolist() == pytest.approx(by_hand, abs=1e-3)
        mean = load_loss(name)(tokens(Recipe(epochs=4)))
        assert mean.tolist() == pytest.approx([sum(by_hand) / 3] * 3, abs=1e-3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return t.logits.sum()", r"gave a tensor of shape \[\]; it must give one value per response token, \[3\]"),
        ("return t.logits", r"shape \[3, 2\]"),
        ("return 0.5", "gave float"),
        ("return None", "gave NoneType"),
        ("return t.logits.sum(-1) * float('nan')", "not finite"),
        ("return t.rewards", "without a gradient"),
        ("return t.no_such_field", "raised AttributeError: .*no_such_field"),
        ("raise KeyError('mine')", "raised KeyError"),
    ],
)
def test_a_loss_that_goes_wrong_is_named(tmp_path: Path, body: str, message: str) -> None:
    path = written(tmp_path, f"def loss(t):\n    {body}\n")
    with pytest.raises(TrainerError, match=message) as failure:
        load_loss(path)(tokens())
    assert path in str(failure.value)


def test_a_file_without_a_loss_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no 'loss'"):
        load_loss(written(tmp_path, "x = 1\n"))
    with pytest.raises(ConfigError, match="is a int; a loss is a function"):
        load_loss(written(tmp_path, "loss = 5\n", "five.py"))
    with pytest.raises(ConfigError, match="no such file"):
        load_loss(str(tmp_path / "missing.py"))


CLIPPED = """
import torch

def compute_loss(policy_logits, reference_logits, rewards, advantages, config):
    difference = policy_logits - reference_logits
    ratio = difference.exp()
    low, high = 1 - config.get("my_range", 0.25), 1 + config.get("my_range", 0.25)
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    return config.get("my_penalty", 0.5) * difference.mean() - surrogate.mean()
"""


def test_a_loss_that_works_on_one_number_per_token_gets_the_sampled_tokens_logprobs(tmp_path: Path) -> None:
    # Logprobs of the tokens 0, 1, 1 under the policy: -ln 2, -1.3133, -0.3133; under the base -ln 2 each.
    differences = [0.0, -1.313262 + 0.693147, -0.313262 + 0.693147]
    ratios = [math.exp(one) for one in differences]  # 1, 0.5378, 1.4621
    chosen = [1.0 * 1.0, min(ratios[1] * -1.0, 0.75 * -1.0), min(ratios[2] * 2.0, 1.25 * 2.0)]
    by_hand = 0.5 * sum(differences) / 3 - sum(chosen) / 3
    given = tokens()
    values = load_loss(written(tmp_path, CLIPPED))(given)
    assert values.tolist() == pytest.approx([by_hand] * 3, abs=1e-5)
    values.mean().backward()
    # d/d(logprob): the penalty gives 1/6; the first token's surrogate -1/3, the others are clipped.
    assert given.logits.grad is not None
    first = (1 / 6 - 1 / 3) * 0.5
    assert given.logits.grad[0].tolist() == pytest.approx([first, -first], abs=1e-5)
    third = 1 / 6 * (1 - math.exp(-0.313262))
    assert given.logits.grad[2].tolist() == pytest.approx([-third, third], abs=1e-5)


def test_a_square_batch_does_not_change_the_contract(tmp_path: Path) -> None:
    """With as many tokens as the vocabulary has, `[N, V]` times `[N]` would be computed, and mean nothing."""
    given = tokens()
    square = LossTokens(
        **{
            **{
                name: getattr(given, name)[:2]
                for name in ("temperatures", "behavior_logprobs", "has_ratio", "has_hint")
            },
            **{name: getattr(given, name)[:2] for name in ("token_ids", "rewards", "advantages", "weights")},
            "logits": given.logits[:2],
            "base_log_probs": given.base_log_probs[:2],
            "sample_index": given.sample_index[:2],
            "teacher_log_probs": None,
            "recipe": given.recipe,
        }
    )
    differences = [0.0, -1.313262 + 0.693147]
    by_hand = 0.5 * sum(differences) / 2 - (1.0 - 0.75) / 2
    assert load_loss(written(tmp_path, CLIPPED))(square).tolist() == pytest.approx([by_hand] * 2, abs=1e-5)


def test_config_has_our_settings_and_other_systems_names(tmp_path: Path) -> None:
    text = """
def compute_loss(policy_logits, reference_logits, rewards, advantages, config):
    assert config["learning_rate"] == config["lr"] == config.learning_rate == 0.5
    assert config.get("ppo_clip_ratio") == config["clip_low"] and config.get("none_of_ours", 7) == 7
    return policy_logits.sum(-1) * config["none_of_ours"]
"""
    with pytest.raises(TrainerError, match="raised KeyError: 'none_of_ours'"):
        load_loss(written(tmp_path, text))(tokens(Recipe(learning_rate=0.5)))


def test_trying_the_shapes_leaves_random_numbers_alone(tmp_path: Path) -> None:
    text = """
import torch

def compute_loss(policy_logits, reference_logits, rewards, advantages, config):
    return (policy_logits.log_softmax(-1) * torch.rand(policy_logits.shape)).sum(-1)
"""
    torch.manual_seed(3)
    noise = torch.rand(3, 2)
    torch.manual_seed(3)
    given = tokens()
    found = load_loss(written(tmp_path, text))(given)
    assert found.tolist() == pytest.approx((given.logits.log_softmax(-1) * noise).sum(-1).tolist())


def hinted(recipe: Recipe | None = None) -> LossTokens:
    """The same tokens; the last two have a hint, under which their teacher is surer of the sampled token."""
    teacher = torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.1, 0.9]]).log()
    return replace(tokens(recipe), has_hint=torch.tensor([False, True, True]), teacher_log_probs=teacher)


OPD = """
def compute_opd_loss(student_logprobs, teacher_logprobs, advantage_mask, clip_ratio=0.5):
    gap = (teacher_logprobs - student_logprobs).detach()
    return -(gap * student_logprobs * advantage_mask).sum() / advantage_mask.sum() + clip_ratio
"""


def test_a_distillation_loss_gets_the_logprobs_of_student_and_teacher(tmp_path: Path) -> None:
    given = hinted(Recipe(clip_low=0.125))
    student = [-1.313262, -0.313262]
    gaps = [math.log(0.8) - student[0], math.log(0.9) - student[1]]
    by_hand = 0.125 - sum(gap * one for gap, one in zip(gaps, student, strict=True)) / 2
    values = load_loss(written(tmp_path, OPD))(given)
    assert values.tolist() == pytest.approx([by_hand] * 3, abs=1e-5)
    values.mean().backward()
    assert given.logits.grad is not None and given.logits.grad[0].tolist() == [0.0, 0.0]  # it has no hint


def test_a_distillation_loss_without_any_hint_is_zero(tmp_path: Path) -> None:
    assert load_loss(written(tmp_path, OPD))(tokens()).tolist() == [0.0, 0.0, 0.0]


HYBRID = """
def compute_hybrid_loss(student_logprobs, teacher_logprobs, scalar_rewards, opd_weight=9, binary_weight=9):
    binary = -(scalar_rewards * student_logprobs).mean()
    distillation = -(teacher_logprobs - student_logprobs).mean()
    return binary_weight * binary + opd_weight * distillation, {"binary_loss": binary.item()}
"""


def test_a_hybrid_loss_may_give_metrics_too(tmp_path: Path) -> None:
    binary = -(1.0 * -0.693147 + -1.0 * -1.313262) / 3
    gaps = [0.0, math.log(0.8) + 1.313262, math.log(0.9) + 0.313262]
    by_hand = 0.5 * binary - 0.25 * sum(gaps) / 3
    for name in ("", ":compute_hybrid_loss"):
        path = written(tmp_path, HYBRID) + name
        values = load_loss(path)(hinted(Recipe(w_rl=0.5, w_opd=0.25)))
        assert values.tolist() == pytest.approx([by_hand] * 3, abs=1e-5)


def test_a_loss_that_asks_for_what_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "def compute_opd_loss(student_logprobs, value_targets): pass\n")
    with pytest.raises(ConfigError, match="asks for value_targets; a loss of this name may ask for student_logprobs"):
        load_loss(path)
