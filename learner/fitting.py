"""Steps whose answers do not all fit in the trainer's memory.

A trainer makes its passes smaller by itself. If one answer does not fit even alone, its first half is trained on, and
so forth: the loss is that of a batch in which the answer ended there. Tokens that were cut off count in no sum and in
no mean; the reward and the advantage stay those of the whole answer. An answer that is too short to be cut is left out
if it is a rollout; else the caller sets its turn aside.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from openclaw_rl.shared.errors import TrainerOutOfMemory
from openclaw_rl.shared.objective.parts import part_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe, StepReport, Trainer

log = logging.getLogger(__name__)

MEMORY = "memory"
"""The subject of notes, and the beginning of the reason of turns that are set aside."""

LENGTH = "long prompts"
"""The subject of notes about what `within_limit` leaves out."""

SHORTEST_ANSWER = 16
"""Tokens. An answer is not cut to fewer."""


async def fitting_step(trainer: Trainer, samples: Sequence[Sample], recipe: Recipe) -> tuple[StepReport, str]:
    """The trainer's step on `samples`, cut where they do not fit; and a note about it, "" if all fits as asked. Metrics
    of cut answers: `memory/answers_cut`, `memory/tokens_cut`. Raises `TrainerOutOfMemory` for a turn that cannot be
    cut, and where no sample is to blame.
    """
    fitting = list(samples)
    left_out: list[str] = []
    while True:
        try:
            report = await trainer.step(fitting, recipe)
            break
        except TrainerOutOfMemory as error:
            fitting, lost = _shorter(fitting, error)
            left_out += lost
    lengths = {sample.sample_id: len(sample.response_ids) for sample in samples}
    cut = [sample for sample in fitting if len(sample.response_ids) < lengths[sample.sample_id]]
    if cut:
        lost_tokens = sum(lengths[sample.sample_id] - len(sample.response_ids) for sample in cut)
        metrics = {"memory/answers_cut": float(len(cut)), "memory/tokens_cut": float(lost_tokens)}
        report = msgspec.structs.replace(report, metrics={**report.metrics, **metrics})
    texts = [
        f"{sample.turn_id or sample.sample_id} was trained on the first {len(sample.response_ids)} of its "
        f"{lengths[sample.sample_id]} tokens"
        for sample in cut
    ]
    texts += [f"{name} was left out" for name in left_out]
    tokens = int(report.metrics.get("micro_batch_tokens", recipe.micro_batch_tokens))
    if tokens < recipe.micro_batch_tokens:
        texts.append(f"passes have at most {tokens} tokens (micro_batch_tokens = {recipe.micro_batch_tokens})")
    return report, f"a step did not fit: {'; '.join(texts)}" if texts else ""


def within_limit(samples: Sequence[Sample], longest: int) -> tuple[list[Sample], str]:
    """The samples without hinted prompts that have more than `longest` tokens with the answer, and without rollouts
    that have more themselves; and a note about it, "" if nothing is left out.
    """
    kept: list[Sample] = []
    hints = rollouts = 0
    for sample in samples:
        room = longest - len(sample.response_ids)
        if sample.turn_id is None and len(sample.prompt_ids) > room:
            rollouts += 1
            continue
        hinted = [prompt for prompt in sample.hinted_prompts if len(prompt) <= room]
        hints += len(sample.hinted_prompts) - len(hinted)
        kept.append(msgspec.structs.replace(sample, hinted_prompts=hinted))
    counts = {"hinted prompts": hints, "rollouts": rollouts}
    left_out = ", ".join(f"{name}: {count}" for name, count in counts.items() if count)
    return kept, f"left out, with the answer longer than max_sample_tokens = {longest}: {left_out}" if left_out else ""


def _shorter(samples: Sequence[Sample], error: TrainerOutOfMemory) -> tuple[list[Sample], list[str]]:
    """The samples with half the answer of the one that does not fit, or without it if it is a short rollout; and the id
    of a sample that was left out. Raises `error` where neither can be done.
    """
    shorter: list[Sample] = []
    left_out: list[str] = []
    for sample in samples:
        half = len(sample.response_ids) // 2
        if sample.sample_id != error.sample_id:
            shorter.append(sample)
        elif half >= SHORTEST_ANSWER:
            shorter.append(part_of(sample, 0, half))
            log.warning("%s; trying again with its first %d tokens", str(error), half)
        elif sample.turn_id is None:
            left_out.append(sample.sample_id)
            log.warning("%s; trying again without it", str(error))
        else:
            raise error
    if error.sample_id not in (sample.sample_id for sample in samples):
        raise error
    return shorter, left_out
