"""A step on slices of answers is the step on whole answers, and never holds the logits of more tokens than a slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training import distributions, slices
from openclaw_rl.trainer_local.training.slices import AnswerStates, Slice
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer
from tests.trainer_local.tiny import anchor, sample, settings, write_policy

VOCABULARY = 61
"""No other size of the model, so that tensors over the vocabulary are known by it."""
MOST = 7
"""Tokens of a slice."""
LONG = 40
"""Tokens of the longest answer."""
SAMPLES = [
    sample(1, response=LONG, hints=3),
    sample(2, prompt=11, response=1, hints=1, reward=-1.0),
    sample(3, hints=0, response=17, reward=1.0, explicit=True, temperature=0.8),
    sample(4, origin="rehearsal", turn_id=None, prompt=4, response=9),
    anchor(5),
]
METHODS: dict[str, dict[str, Any]] = {
    "rehearse": {"early_stop": 0.5},
    "topk of the teacher": {"distillation": "topk", "topk": 7},
    "topk of the student": {"distillation": "topk", "topk": 7, "topk_from": "student"},
    "select": {"distillation": "select", "teacher": "live", "kl_base": 0.1, "aggregation": "sample"},
    "select of the teacher": {"distillation": "select", "select_from": "teacher"},
    "select of both": {"distillation": "select", "select_from": "overlap", "hint_selection": "overlap-token"},
    "token": {"distillation": "token", "rewards": "all", "entropy": 0.05, "aggregation": "sample"},
    "binary": {"distillation": "none", "rewards": "all", "kl_base": 0.2, "entropy": 0.05, "minibatches": 2},
    "moving average": {"teacher": "ema", "ema_decay": 0.5, "teacher_temperature": 1.3},
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"), initializer_range=0.3, vocab_size=VOCABULARY)


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LOGIT_BYTES", MOST * 4 * VOCABULARY)


@pytest.fixture
def large_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of distributions over the vocabulary only the likeliest tokens are kept."""
    monkeypatch.setattr(distributions, "LARGE_VOCABULARY", VOCABULARY - 1)
    monkeypatch.setattr(distributions, "LIKELIEST", 5)


async def learn(trainer: TransformersTrainer, recipe: Recipe) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The metrics of the second of two steps, and the weights after it."""
    await trainer.step(SAMPLES, recipe)
    report = await trainer.step(SAMPLES, recipe)
    weights = trainer._weights.snapshot()
    await trainer.close()
    return {name: value for name, value in report.metrics.items() if not name.startswith("seconds")}, weights


def answers(lengths: Sequence[int]) -> AnswerStates:
    """Answers whose hidden states are their logits."""
    states = torch.arange(float(sum(lengths)))[:, None].expand(-1, VOCABULARY)
    return AnswerStates([10 * index for index in range(len(lengths))], lengths, states, lambda part: part, VOCABULARY)


def taken(lengths: Sequence[int], *, whole: bool = False) -> list[list[Slice]]:
    """The slices of answers that go together; their logits are those of their places."""
    found: list[list[Slice]] = []
    begins = dict(zip(answers(lengths).rows, torch.tensor([0, *lengths]).cumsum(0).tolist(), strict=False))

    def use(parts: Sequence[Slice], logits: Tensor) -> None:
        found.append(list(parts))
        places = [begins[part.row] + token for part in parts for token in range(part.start, part.end)]
        assert logits[:, 0].tolist() == places

    answers(lengths).each_slice(use, whole=whole)
    return found


def test_slices_hold_every_token_once_and_fit(sliced: None) -> None:
    assert taken([3, 2, 17, 1]) == [
        [Slice(0, 0, 3), Slice(10, 0, 2), Slice(20, 0, 2)],
        [Slice(20, 2, 9)],
        [Slice(20, 9, 16)],
        [Slice(20, 16, 17), Slice(30, 0, 1)],
    ]
    assert taken([3, 2, 17, 1], whole=True) == [
        [Slice(0, 0, 3), Slice(10, 0, 2)],
        [Slice(20, 0, 17)],
        [Slice(30, 0, 1)],
    ]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "all weights"])
async def test_a_step_on_slices_is_the_step_on_whole_answers(
    policy: Path, monkeypatch: pytest.MonkeyPatch, name: str, lora: bool
) -> None:
    recipe = Recipe(epochs=2, learning_rate=1e-3).replace(**METHODS[name])
    metrics, weights = await learn(TransformersTrainer(settings(policy, lora=lora)), recipe)
    monkeypatch.setattr(slices, "LOGIT_BYTES", MOST * 4 * VOCABULARY)
    found, changed = await learn(TransformersTrainer(settings(policy, lora=lora)), recipe)
    assert found == pytest.approx(metrics, rel=1e-3, abs=1e-5)
    assert max(float((changed[name] - weights[name]).abs().max()) for name in weights) < 2e-5
    assert metrics["weights/change"] > 1e-2


class LargestOverVocabulary(TorchDispatchMode):
    """Notes the most rows of any tensor over the vocabulary but the head's weight."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self._transposed = tuple(weight.shape)[::-1]
        self.rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for part in tree_leaves(found):
            over = isinstance(part, Tensor) and part.dim() > 1 and part.shape[-1] == VOCABULARY
            if over and tuple(part.shape) != self._transposed and part.is_floating_point():
                self.rows = max(self.rows, part.numel() // VOCABULARY)
        return found


Watched = tuple[TransformersTrainer, LargestOverVocabulary]


@pytest.fixture
def watched(policy: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    trainer = TransformersTrainer(settings(policy))
    largest = LargestOverVocabulary(trainer._weights.plain.get_output_embeddings().weight)
    step = trainer._fitting_step

    def watching(samples: list[Sample], recipe: Recipe) -> Any:
        with largest:
            return step(samples, recipe)

    monkeypatch.setattr(trainer, "_fitting_step", watching)
    return trainer, largest


@pytest.mark.parametrize("name", [name for name in METHODS if name != "topk of the student"])
@pytest.mark.usefixtures("sliced", "large_vocabulary")
async def test_no_tensor_over_the_vocabulary_is_larger_than_a_slice(watched: Watched, name: str) -> None:
    trainer, largest = watched
    await trainer.step(SAMPLES, Recipe(epochs=2).replace(**METHODS[name]))
    assert largest.rows == MOST
    await trainer.close()


@pytest.mark.usefixtures("large_vocabulary")
async def test_without_slices_the_watch_sees_whole_answers(
    watched: Watched,
) -> None:
    trainer, largest = watched
    await trainer.step(SAMPLES, Recipe(epochs=1))
    assert largest.rows >= 3 * LONG
    await trainer.close()


LOSS = """
def loss(tokens):
    lengths = tokens.sample_index.bincount().tolist()
    with open(FILE, "a") as file:
        print(*lengths, file=file)
    return -tokens.logits.log_softmax(-1).gather(-1, tokens.token_ids[:, None])[:, 0]
"""


@pytest.mark.usefixtures("sliced")
async def test_a_custom_loss_gets_whole_answers(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text(LOSS.replace("FILE", repr(str(tmp_path / "lengths"))))
    trainer = TransformersTrainer(settings(policy))
    await trainer.step(SAMPLES, Recipe(epochs=1, custom_loss=f"{tmp_path / 'loss.py'}:loss"))
    await trainer.close()
    lengths = [int(word) for word in (tmp_path / "lengths").read_text().split()]
    assert sorted(lengths) == sorted(len(one.response_ids) for one in SAMPLES)
