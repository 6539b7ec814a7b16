"""Score recorded answers again under the version that each names, with transformers and PEFT instead of our engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.checkpoints import SERVED
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Turn

TOLERANCE = 5e-4
"""Nats a token, in the mean over an answer, by which logprobs of two programs in single precision may differ."""


class Rescored(NamedTuple):
    """Numbers of answers: scored again, off under their own version, and distinguishable from the version before it;
    the `largest` mean difference under their own version, in nats a token.
    """

    answers: int
    off: int
    distinguishable: int
    largest: float


def rescore(data: Path, base: str, turn_ids: Sequence[str]) -> Rescored:
    """Score the turns of a data folder whose version's checkpoint is there still, under it and under its parent."""
    journal = Journal(data / "journal.db")
    try:
        turns = [turn for turn in map(journal.turn, turn_ids) if turn is not None and len(turn.versions) == 1]
        parents = {one.number: one.parent for one in journal.versions()}
    finally:
        journal.close()
    own = dict(_differences(data, base, [(turn, turn.versions[0].version) for turn in turns]))
    before = [(turn, parents.get(turn.versions[0].version)) for turn in turns if turn.turn_id in own]
    other = dict(_differences(data, base, [(turn, parent) for turn, parent in before if parent is not None]))
    off, distinguishable = (sum(one > TOLERANCE for one in found.values()) for found in (own, other))
    return Rescored(len(own), off, distinguishable, max(own.values(), default=0.0))


def _differences(data: Path, base: str, asked: Sequence[tuple[Turn, int]]) -> Iterator[tuple[str, float]]:
    """Mean |recorded − found| in nats a token by turn, for the versions that are there."""
    of_version: dict[int, list[Turn]] = defaultdict(list)
    for turn, version in asked:
        of_version[version].append(turn)
    for version, turns in sorted(of_version.items()):
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        if version:
            served = data / "checkpoints" / str(version) / SERVED
            if not served.is_dir():
                continue
            model = PeftModel.from_pretrained(model, str(served))
        model.eval()
        for turn in turns:
            found = _logprobs(model, turn)
            yield turn.turn_id, fmean(abs(one - two) for one, two in zip(turn.logprobs, found, strict=True))


@torch.inference_mode()
def _logprobs(model: Any, turn: Turn) -> list[float]:
    ids = torch.tensor([[*turn.prompt_ids, *turn.response_ids]])
    logits = model(input_ids=ids).logits[0, len(turn.prompt_ids) - 1 : -1].float() / turn.sampling.temperature
    chosen = torch.tensor(list(turn.response_ids))
    return [float(one) for one in logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0]]
