"""Log-probabilities of the answers of samples under the teacher and the frozen base, computed before a term needs them.

Hinted prompts of one sample share all but their end, so a model computes what they share once (see
`trainer_local.models.forward`). Of an answer under several prompts the hidden states are kept until all were seen; then
distributions are computed slice by slice and reduced to what the terms need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.parts import part_of
from openclaw_rl.shared.objective.terms import hints_of, needs_base, needs_old, selects_tokens, terms_of
from openclaw_rl.shared.records import PromptImage, Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.batching import Row, images_under, row, row_of
from openclaw_rl.trainer_local.training.distributions import (
    Distribution,
    Likeliest,
    bytes_kept,
    joined,
    kept,
    likeliest,
    part_of_distribution,
)
from openclaw_rl.trainer_local.training.slices import AnswerStates, Head, RunModel, Slice, gather_slices

TARGET_BYTES = 2 << 30
"""Bytes of targets held in memory at once. Samples beyond it are taught in further slices, whose targets are computed
again each epoch where they are whole distributions.
"""

UseLogProbs = Callable[[Slice, Tensor], "LocalTarget"]
"""Makes the target of a slice of the answer of question `Slice.row` from log-probabilities `[n, V]`."""


@dataclass(frozen=True)
class Question:
    """An answer to be looked at under one or more prompts, at `temperature`; `own` `[R, k]` are the likeliest tokens
    of the policy where each token takes one of the prompts instead of the mean of all. `images` are those of each
    prompt. `sample_id` names the answer's sample.
    """

    prompts: Sequence[Sequence[int]]
    response_ids: Sequence[int]
    temperature: float = 1.0
    own: Tensor | None = None
    images: Sequence[Sequence[PromptImage]] = ()
    sample_id: str = ""


@dataclass(frozen=True)
class LocalTarget:
    """Log-probabilities of an answer of R tokens; `None` where no term asks.

    `base`: the frozen base's on the plain prompt. Of the teacher under the hints: `teacher`, its distribution;
    `sampled` `[R]` at the temperature of the sampling; `known` `[R, k]` at the tokens `ids` `[R, k]`. `old` `[R, k]`:
    the policy's before the step at `ids`; `support` `[R, k]`: where these count, `None` for everywhere.
    """

    base: Distribution | None = None
    teacher: Distribution | None = None
    sampled: Tensor | None = None
    ids: Tensor | None = None
    known: Tensor | None = None
    old: Tensor | None = None
    support: Tensor | None = None

    @property
    def small(self) -> bool:
        """True if it holds no distribution over the whole vocabulary."""
        return not (isinstance(self.base, Tensor) or isinstance(self.teacher, Tensor))

    def part(self, start: int, end: int) -> LocalTarget:
        """That of tokens `start` to `end`."""

        def cut(value: Any) -> Any:
            return None if value is None else part_of_distribution(value, start, end)

        return LocalTarget(**{name: cut(value) for name, value in vars(self).items()})


def joined_targets(parts: Sequence[LocalTarget]) -> LocalTarget:
    """The target of an answer whose slices have the targets `parts`."""

    def join(name: str) -> Any:
        found = [getattr(part, name) for part in parts]
        return None if found[0] is None else joined(found)

    return parts[0] if len(parts) == 1 else LocalTarget(**{one.name: join(one.name) for one in fields(LocalTarget)})


@dataclass(frozen=True)
class Old:
    """The policy before the step at k tokens of each position: `ids` and `log_probs` `[R, k]`. The tokens are its
    likeliest ones, likeliest first, or the teacher's; `known` `[R, k]` are then the teacher's log-probabilities.
    """

    ids: Tensor
    log_probs: Tensor
    known: Tensor | None = None


@contextmanager
def swapped_weights(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Let `parameters` hold `values` (same names and shapes) while the block runs, without copying. No gradient may be
    computed inside.
    """
    own = {name: part.data for name, part in parameters.items()}
    try:
        for name, part in parameters.items():
            part.data = values[name]
        yield
    finally:
        for name, part in parameters.items():
            part.data = own[name]


def moving_average(average: Mapping[str, Tensor], parameters: Mapping[str, Tensor], decay: float) -> dict[str, Tensor]:
    """decay · average + (1 − decay) · parameters, as new tensors (mean teacher, arXiv 1703.01780)."""
    with torch.no_grad():
        return {name: torch.lerp(part.detach(), average[name], decay) for name, part in parameters.items()}


def old_policy(
    samples: Sequence[Sample], recipe: Recipe, run_policy: RunModel, run_teacher: RunModel
) -> Mapping[str, Old]:
    """The policy before a step, by sample id, at the tokens that the recipe needs: its own likeliest ones, or those of
    the teacher (`select_from`).
    """
    asked = [sample for sample in samples if needs_old(sample, recipe)]
    found: dict[str, Old] = {}

    def reduce(one: Slice, logits: Tensor) -> Likeliest:
        return likeliest(losses.log_softmax(logits), needs_old(asked[one.row], recipe))

    for index, parts in gather_slices(run_policy, [row_of(sample) for sample in asked], reduce).items():
        own = joined(parts)
        assert isinstance(own, Likeliest), "the slices are reduced to likeliest tokens"
        found[asked[index].sample_id] = Old(own.ids, own.log_probs)
    if recipe.select_from == "teacher":
        chosen = [sample for sample in samples if selects_tokens(sample, recipe)]
        found |= _at_teachers_tokens(chosen, recipe, found, run_policy, run_teacher)
    return found


def _at_teachers_tokens(
    samples: Sequence[Sample],
    recipe: Recipe,
    own: Mapping[str, Old],
    run_policy: RunModel,
    run_teacher: RunModel,
) -> Mapping[str, Old]:
    """The policy before a step at the teacher's likeliest tokens, by sample id. The teacher is asked about one sample
    at a time, since its distributions over the vocabulary are large.
    """
    tokens: list[tuple[Tensor, Tensor]] = []
    for sample in samples:
        if sample.taught is not None:
            tokens.append(_reported(sample, recipe.select_k))
            continue
        (target,) = distributions(
            [_hinted(sample, recipe, own)],
            run_teacher,
            lambda _, log_probs: LocalTarget(teacher=likeliest(log_probs, recipe.select_k)),
        )
        assert target is not None and isinstance(target.teacher, Likeliest), "every sample has a hint"
        tokens.append((target.teacher.ids, target.teacher.log_probs))

    def at_tokens(one: Slice, logits: Tensor) -> Tensor:
        ids = tokens[one.row][0][one.start : one.end].to(logits.device)
        return losses.log_softmax(logits).gather(-1, ids)

    found: dict[str, Old] = {}
    for index, parts in gather_slices(run_policy, [row_of(sample) for sample in samples], at_tokens).items():
        log_probs = torch.cat(parts)
        ids, known = (one.to(log_probs.device) for one in tokens[index])
        found[samples[index].sample_id] = Old(ids, log_probs, known)
    return found


def targets_of(
    samples: Sequence[Sample],
    recipe: Recipe,
    old: Mapping[str, Old],
    run_base: RunModel,
    run_teacher: RunModel | None,
    *,
    compared: Collection[str] = (),
) -> list[LocalTarget | None]:
    """Targets that each sample's terms need, `None` for none; the base's also for the sample ids `compared`.
    `run_teacher` is `None` where the base is the teacher: then both go through it together.
    """
    plain = [
        Question([sample.prompt_ids], sample.response_ids, images=[sample.images], sample_id=sample.sample_id)
        if needs_base(terms_of(sample, recipe)) or sample.sample_id in compared
        else None
        for sample in samples
    ]
    hinted = [_hinted(sample, recipe, old) for sample in samples]

    def of_base(_: Slice, log_probs: Tensor) -> LocalTarget:
        return LocalTarget(base=log_probs if recipe.custom_loss else kept(log_probs))

    def of_teacher(one: Slice, log_probs: Tensor) -> LocalTarget:
        sample = samples[one.row % len(samples)]
        return _taught(
            part_of(sample, one.start, one.end), recipe, _old_part(old.get(sample.sample_id), one), log_probs
        )

    if run_teacher is None:
        answers = distributions(
            [*plain, *hinted],
            run_base,
            lambda one, log_probs: (of_teacher if one.row >= len(samples) else of_base)(one, log_probs),
        )
        bases, teachers = answers[: len(samples)], answers[len(samples) :]
    else:
        bases, teachers = distributions(plain, run_base, of_base), distributions(hinted, run_teacher, of_teacher)
    return [
        _target(sample, recipe, old.get(sample.sample_id), base, teacher)
        for sample, base, teacher in zip(samples, bases, teachers, strict=True)
    ]


def _old_part(old: Old | None, one: Slice) -> Old | None:
    return None if old is None else Old(old.ids[one.start : one.end], old.log_probs[one.start : one.end])


def _hinted(sample: Sample, recipe: Recipe, old: Mapping[str, Old]) -> Question | None:
    prompts = hints_of(sample, recipe)
    answered = sample.sample_id in old and old[sample.sample_id].known is not None
    if not prompts or answered or sample.taught is not None:
        return None
    own = old[sample.sample_id].ids[:, : recipe.select_k] if recipe.per_token_hints and len(prompts) > 1 else None
    sampling = sample.temperature if recipe.distillation == "token" and not recipe.custom_loss else 1.0
    images = [images_under(sample, prompt) for prompt in prompts]
    return Question(prompts, sample.response_ids, recipe.teacher_temperature * sampling, own, images, sample.sample_id)


def _target(
    sample: Sample, recipe: Recipe, old: Old | None, base: LocalTarget | None, teacher: LocalTarget | None
) -> LocalTarget | None:
    """The knowledge about an answer, together: of the base, and of the teacher, who may have been asked before."""
    if old is not None and old.known is not None:
        teacher = LocalTarget(ids=old.ids, known=old.known, old=old.log_probs)
    elif sample.taught is not None and hints_of(sample, recipe):
        teacher = _of_engine(sample, recipe, old)
    if base is None or teacher is None:
        return base or teacher
    return replace(teacher, base=base.base)


def _taught(sample: Sample, recipe: Recipe, old: Old | None, teacher: Tensor) -> LocalTarget:
    """The part that the recipe needs of the teacher's log-probabilities `[R, V]` of an answer, or of a slice."""
    if recipe.custom_loss:
        return LocalTarget(teacher=teacher)
    if recipe.distillation == "full":
        return LocalTarget(teacher=kept(teacher))
    if recipe.distillation == "token":
        ids = torch.tensor([int(token) for token in sample.response_ids], dtype=torch.long, device=teacher.device)
        return LocalTarget(sampled=losses.sampled_logprobs(teacher, ids))
    if recipe.distillation == "select":
        assert old is not None, "the policy before the step is asked wherever a hint is"
        ids = old.ids[:, : recipe.select_k]
        theirs = teacher.topk(ids.shape[-1], dim=-1).indices
        return LocalTarget(
            ids=ids,
            known=teacher.gather(-1, ids),
            old=old.log_probs[:, : recipe.select_k],
            support=losses.contained(ids, theirs) if recipe.select_from == "overlap" else None,
        )
    return LocalTarget(teacher=teacher if recipe.topk_from == "student" else likeliest(teacher, recipe.topk))


def _of_engine(sample: Sample, recipe: Recipe, old: Old | None) -> LocalTarget:
    """The target by the scores of a teacher behind an engine (`shared.objective.teacher` says for which recipes)."""
    assert sample.taught is not None, "the learner asks before the step"
    if recipe.distillation == "token":
        return LocalTarget(sampled=torch.tensor(list(sample.taught.logprobs), dtype=torch.float32))
    if recipe.distillation == "topk":
        return LocalTarget(teacher=Likeliest(*_reported(sample, recipe.topk)))
    assert old is not None, "the policy before the step is asked wherever a hint is"
    ids = old.ids[:, : recipe.select_k]
    theirs, values = (one.to(ids.device) for one in _reported(sample, recipe.select_k))
    same = ids.unsqueeze(-1) == theirs.unsqueeze(-2)
    known = torch.where(same, values.unsqueeze(-2), 0.0).sum(dim=-1)
    return LocalTarget(ids=ids, known=known, old=old.log_probs[:, : recipe.select_k], support=same.any(dim=-1))


def _reported(sample: Sample, count: int) -> tuple[Tensor, Tensor]:
    """The `count` likeliest tokens `[R, k]` that a teacher's engine reported, and their log-probabilities."""
    assert sample.taught is not None, "the learner asks before the step"
    width = min(count, *(len(line) for line in sample.taught.top))
    ids = torch.tensor([[token for _, token in line[:width]] for line in sample.taught.top], dtype=torch.long)
    values = [[value for value, _ in line[:width]] for line in sample.taught.top]
    return ids, torch.tensor(values, dtype=torch.float32)


def distributions(questions: Sequence[Question | None], run: RunModel, use: UseLogProbs) -> list[LocalTarget | None]:
    """The targets that `use` makes of each question, by the model that `run` runs; `None` for none. A question is
    answered, slice by slice, as soon as its answer was seen under all its prompts.

    Several prompts make the normalised geometric mean (`losses.ensemble_target`), or with `own` each token takes the
    prompt under which the model's likeliest tokens are most like those (the first of equals). The temperature divides
    the logits.
    """
    rows: list[Row] = []
    owners: list[tuple[int, int]] = []
    asked = {index: question for index, question in enumerate(questions) if question is not None}
    for index, question in asked.items():
        for number, prompt in enumerate(question.prompts):
            images = question.images[number] if question.images else ()
            rows.append(row(prompt, question.response_ids, images, question.sample_id))
            owners.append((index, number))
    states: dict[int, dict[int, Tensor]] = {index: {} for index in asked}
    answers: list[LocalTarget | None] = [None] * len(questions)

    def collect(seen: AnswerStates) -> None:
        for index, found in seen.by_row():
            owner, number = owners[index]
            states[owner][number] = found
            if len(states[owner]) == len(asked[owner].prompts):
                answers[owner] = complete(owner, seen.head, seen.most)

    def complete(owner: int, head: Head, most: int) -> LocalTarget:
        under = [part for _, part in sorted(states.pop(owner).items())]
        each, tokens = max(1, most // len(under)), len(under[0])
        slices = [Slice(owner, start, min(tokens, start + each)) for start in range(0, tokens, each)]
        return joined_targets([use(one, _log_probs(asked[owner], one, under, head)) for one in slices])

    if rows:
        run(rows, collect)
    return answers


def _log_probs(question: Question, one: Slice, states: Sequence[Tensor], head: Head) -> Tensor:
    """Log-probabilities `[n, V]` of a slice of an answer from its hidden states `[R, d]` under each prompt."""
    logits = head(torch.cat([part[one.start : one.end] for part in states]))
    log_probs = losses.log_softmax(logits, question.temperature).unflatten(0, (len(states), -1))
    if question.own is not None:
        return _best(question.own[one.start : one.end], log_probs)
    return log_probs[0] if len(states) == 1 else losses.ensemble_target(log_probs)


def _best(own: Tensor, log_probs: Tensor) -> Tensor:
    """The distribution `[n, V]` of each token under the prompt, of those of `log_probs` `[H, n, V]`, whose likeliest
    tokens overlap most with the policy's own `[n, k]`.
    """
    overlap = torch.stack([losses.overlap(own, one.topk(own.shape[-1], dim=-1).indices) for one in log_probs])
    return log_probs[overlap.argmax(dim=0), torch.arange(len(own), device=own.device)]


def kept_size(vocab_size: int, recipe: Recipe) -> int:
    """Bytes that the target of an answer's token takes at most for each question, teacher or base."""
    whole = bool(recipe.custom_loss) or (recipe.distillation == "topk" and recipe.topk_from == "student")
    return 4 * vocab_size if whole else bytes_kept(vocab_size)


def runs_within_budget(sizes: Sequence[int]) -> list[list[int]]:
    """Indices in runs whose `sizes`, in bytes, are at most `TARGET_BYTES` together; one alone may exceed it."""
    runs: list[list[int]] = [[]]
    total = 0
    for index, size in enumerate(sizes):
        if runs[-1] and total + size > TARGET_BYTES:
            runs.append([])
            total = 0
        runs[-1].append(index)
        total += size
    return runs
