"""Losses of the user's own, from real files: both contracts, and what is said of one that goes wrong."""

from __future__ import annotations

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
