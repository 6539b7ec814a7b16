"""Log-probabilities of the answers of samples under the teacher and the frozen base, computed before a term needs them.

Hinted prompts of one sample share all but their end, so a model computes what they share once (see
`trainer_local.models.forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.terms import hints_of, needs_base, needs_old, selects_tokens, terms_of
from openclaw_rl.shared.records import PromptImage, Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.batching import Row, images_under, row, row_of
from openclaw_rl.trainer_local.training.distributions import Distribution, Likeliest, bytes_kept, kept, likeliest

TARGET_BYTES = 2 << 30
"""Bytes of targets held in memory at once. Samples beyond it are taught in further slices, whose targets are computed
again each epoch where they are whole distributions.
"""

Found = TypeVar("Found")

RunModel = Callable[[Sequence[Row], Callable[[Sequence[int], Tensor], None]], None]
"""Puts rows through a model without gradients and calls back with row indices and their answers' logits `[N, V]`."""


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
    rows = [row_of(sample) for sample in asked]
    found: dict[str, Old] = {}

    def collect(indices: Sequence[int], logits: Tensor) -> None:
        parts = losses.log_softmax(logits).split([rows[index].response_length for index in indices])
        for index, part in zip(indices, parts, strict=True):
            likeliest = part.topk(min(needs_old(asked[index], recipe), part.shape[-1]), dim=-1)
            found[asked[index].sample_id] = Old(likeliest.indices, likeliest.values)

    if asked:
        run_policy(rows, collect)
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
        (taught,) = distributions(
            [_hinted(sample, recipe, own)], run_teacher, lambda _, found: likeliest(found, recipe.select_k)
        )
        assert taught is not None, "every sample has a hint"
        tokens.append((taught.ids, taught.log_probs))
    rows = [row_of(sample) for sample in samples]
    found: dict[str, Old] = {}

    def collect(indices: Sequence[int], logits: Tensor) -> None:
        parts = losses.log_softmax(logits).split([rows[index].response_length for index in indices])
        for index, part in zip(indices, parts, strict=True):
            ids, known = (one.to(part.device) for one in tokens[index])
            found[samples[index].sample_id] = Old(ids, part.gather(-1, ids), known)

    if rows:
        run_policy(rows, collect)
    return found


def targets_of(
    samples: Sequence[Sample], recipe: Recipe, old: Mapping[str, Old], run_base: RunModel, run_teacher: RunModel | None
) -> list[LocalTarget | None]:
    """Targets that each sample's terms need, `None` for none. `run_teacher` is `None` where the base is
    the teacher: then both go through it together.
    """
    plain = [
        Question([sample.prompt_ids], sample.response_ids, images=[sample.images], sample_id=sample.sample_id)
        if needs_base(terms_of(sample, recipe))
        else None
        for sample in samples
    ]
    hinted = [_hinted(sample, recipe, old) for sample in samples]

    def of_base(index: int, found: Tensor) -> LocalTarget:
        return LocalTarget(base=found if recipe.custom_loss else kept(found))

    def of_teacher(index: int, found: Tensor) -> LocalTarget:
        return _taught(samples[index], recipe, old.get(samples[index].sample_id), found)

    if run_teacher is None:
        answers = distributions(
            [*plain, *hinted],
            run_base,
            lambda index, found: (of_teacher if index >= len(samples) else of_base)(index % len(samples), found),
        )
        bases, teachers = answers[: len(samples)], answers[len(samples) :]
    else:
        bases, teachers = distributions(plain, run_base, of_base), distributions(hinted, run_teacher, of_teacher)
    return [
        _target(sample, recipe, old.get(sample.sample_id), base, teacher)
        for sample, base, teacher in zip(samples, bases, teachers, strict=True)
    ]


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
    """The part that the recipe needs of the teacher's log-probabilities `[R, V]`."""
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


def distributions(
    questions: Sequence[Question | None], run: RunModel, use: Callable[[int, Tensor], Found]
) -> list[Found | None]:
    """The results of `use` for the log-probabilities `[R, V]` of each question, by the model that `run` runs; `None`
    for none. `use` is called with the index of a question as soon as its log-probabilities are complete: not all of
    them need to be in memory together.

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
    missing = {index: len(question.prompts) for index, question in asked.items()}
    sums: dict[int, Tensor] = {}
    choices: dict[int, _Choice] = {}
    answers: list[Found | None] = [None] * len(questions)

    def complete(index: int) -> Tensor:
        best = choices.pop(index).best if index in choices else torch.log_softmax(sums.pop(index), dim=-1)
        assert best is not None, "a question has at least one prompt"
        return best

    def collect(indices: Sequence[int], logits: Tensor) -> None:
        lengths = [rows[index].response_length for index in indices]
        temperature = _temperature([asked[owners[index][0]].temperature for index in indices], lengths, logits)
        for index, part in zip(indices, losses.log_softmax(logits, temperature).split(lengths), strict=True):
            owner, number = owners[index]
            question = asked[owner]
            if question.own is not None:
                choices.setdefault(owner, _Choice(question.own)).offer(number, part)
            else:
                share = part / len(question.prompts)
                sums[owner] = sums[owner] + share if owner in sums else share
            missing[owner] -= 1
            if not missing[owner]:
                answers[owner] = use(owner, complete(owner))

    if rows:
        run(rows, collect)
    return answers


class _Choice:
    """The distribution of each token under the prompt that overlaps most with the policy's own tokens `[R, k]`."""

    def __init__(self, own: Tensor) -> None:
        self._own = own
        self._overlap = own.new_full((own.shape[0],), -1)
        self._number = own.new_zeros(own.shape[0])
        self.best: Tensor | None = None

    def offer(self, number: int, log_probs: Tensor) -> None:
        """Take the rows of `log_probs` `[R, V]`, given under prompt `number`, that fit better, in whatever order
        prompts come.
        """
        overlap = losses.overlap(self._own, log_probs.topk(self._own.shape[-1], dim=-1).indices)
        better = (overlap > self._overlap) | ((overlap == self._overlap) & (number < self._number))
        self._overlap = torch.where(better, overlap, self._overlap)
        self._number = torch.where(better, number, self._number)
        self.best = log_probs if self.best is None else torch.where(better.unsqueeze(-1), log_probs, self.best)


def _temperature(values: Sequence[float], lengths: Sequence[int], logits: Tensor) -> float | Tensor:
    if len(set(values)) == 1:
        return values[0]
    each = torch.tensor(values, dtype=torch.float32, device=logits.device)
    return each.repeat_interleave(torch.tensor(lengths, device=logits.device))


def whole_size(vocab_size: int) -> int:
    """Bytes of a distribution over the whole vocabulary, in single precision."""
    return 4 * vocab_size


def kept_size(vocab_size: int, recipe: Recipe) -> int:
    """Bytes that the target of an answer's token takes at most for each question, teacher or base."""
    whole = bool(recipe.custom_loss) or (recipe.distillation == "topk" and recipe.topk_from == "student")
    return whole_size(vocab_size) if whole else bytes_kept(vocab_size)


def slices(sizes: Sequence[int]) -> list[list[int]]:
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
