"""Logprobs of the answers of samples under the teacher, the base and the policy before the step, asked of scorers.

A provider reports the logprob of the sampled token, those of the likeliest tokens at a position, and those of tokens
that it is asked about; never the whole distribution. So distributions are compared over K tokens and a tail, with K as
many as the recipe wants (`topk`) and the provider reports:

- *Whose tokens.* A reverse KL weighs tokens by what the policy makes of them, so under `full` and for `kl_base` they
  are the sampled token, then by rank the policy's before the step and the teacher's (of several hints those that each
  lists) or the base's. `topk` takes the teacher's or, with `topk_from = "student"`, the policy's alone, as published;
  `select` those that `select_from` names;
  the anchor, a forward KL, the base's; the entropy the policy's. The policy's stay those before the step in every pass.
- *Several hints.* The target is the normalised geometric mean. At the K tokens it is exact but for its normaliser: the
  tail of the mean is not known, only bounded by the geometric mean of the tails (Hölder's inequality:
  Σ_v Π_h p_h(v)^(1/H) ≤ Π_h (Σ_v p_h(v))^(1/H)), and that bound is taken for it. With one hint, or K the whole
  vocabulary, nothing is lost. `topk`'s candidates are the union of the lists under each hint; where a hint does not
  list one, its last listed logprob stands in for the ranking alone: the logprobs used are all asked for.
- *`per_token_hints`* takes one hint for each token, so its target is exact.
- *An advantage per sampled token* needs the logprob of that token alone: exact with one hint, which is what `opd` and
  `combined` have. With several and no mean by token, the K tokens and the tail make the normaliser; where a provider
  reports no likeliest tokens, the sampled token and a tail do.
- *Imitation*, a forward KL, compares the teacher's likeliest tokens. Where no distributions are compared it learns from
  the answer's tokens alone, and no teacher is asked.
- *A teacher's temperature* below 1 raises the K + 1 shares to its inverse; the tail's is an upper bound again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.images import shown_again
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.early_stop import stops_early
from openclaw_rl.shared.objective.metrics import measured
from openclaw_rl.shared.objective.terms import hints_of, needs_base, needs_old
from openclaw_rl.shared.records import PromptImage, Sample, TeacherScores
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.provider import Scored, ScoreRequest
from openclaw_rl.trainer_cloud.training.scorer import Scorer

ABSENT = -1e4
"""The logprob of a token that is not known and does not count."""


POLICY = frozenset({"binary", "policy"})
"""The terms that the provider's own losses compute; the others are sent as weights of a cross entropy."""


@dataclass(frozen=True)
class CloudTarget:
    """Log-probabilities of an answer of R tokens; `None` where no term asks.

    Of the teacher under the hints: `sampled` `[R]` at the sampled tokens; `taught` `[R, K + 1]` at the tokens `ids`
    `[R, K]` and their tail, and `untaught` `[R, K + 1]` the base's there on the plain prompt; `support` `[R, K]` where
    the tokens count, `None` for everywhere. `base` `[R, K + 1]`: the base's on the plain prompt at `plain_ids` `[R, K]`
    and their tail.
    """

    sampled: Tensor | None = None
    ids: NDArray[np.int64] | None = None
    taught: Tensor | None = None
    untaught: Tensor | None = None
    plain_ids: NDArray[np.int64] | None = None
    base: Tensor | None = None
    support: Tensor | None = None


@dataclass(frozen=True)
class View:
    """An answer as one set of weights sees it after one prompt: `sampled` `[R]` logprobs; `values` `[R, K]` of the
    likeliest tokens `ids` `[R, K]`, best first; `chosen` `[R, C]` of the tokens `given` `[R, C]` that were asked about.
    """

    sampled: NDArray[np.float32]
    ids: NDArray[np.int64]
    values: NDArray[np.float32]
    given: NDArray[np.int64]
    chosen: NDArray[np.float32]

    def at(self, ids: NDArray[np.int64], answer: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The logprobs at `ids` `[R, C]`, and where one is known; `answer` `[R]` are the sampled tokens."""
        own = ids == answer[:, None]
        values, known = np.where(own, self.sampled[:, None], 0.0), own
        for listed, logprobs in ((self.ids, self.values), (self.given, self.chosen)):
            if not listed.shape[1]:
                continue
            same = listed[:, None, :] == ids[:, :, None]
            there = same.any(axis=-1) & ~known
            values = np.where(there, np.take_along_axis(logprobs, same.argmax(axis=-1), axis=1), values)
            known = known | there
        return values.astype(np.float32), known


class TargetQueries:
    """Asks about the answers of one batch, on a bill. `None` for teacher or policy is the base."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        teacher: Scorer | None,
        base: Scorer,
        live: Scorer | None,
        top_logprobs: int,
        bill: Bill,
    ) -> None:
        self._recipe = recipe
        self._teacher = teacher or base
        self._base = base
        self._live = live or base
        self._count = min(recipe.topk, top_logprobs)
        self._top_logprobs = top_logprobs
        self._bill = bill

    async def targets(self, samples: Sequence[Sample], terms: Sequence[frozenset[str]]) -> list[CloudTarget]:
        """For each sample what its `terms` need."""
        near = measured(samples) if stops_early(self._recipe) else 0
        return await gather(
            *(
                self._target(sample, named, index < near)
                for index, (sample, named) in enumerate(zip(samples, terms, strict=True))
            )
        )

    async def _target(self, sample: Sample, terms: frozenset[str], near: bool) -> CloudTarget:
        recipe = target_recipe(terms, self._recipe)
        hints = hints_of(sample, recipe)
        own = await self._own(sample, terms)
        taught = await self._taught(sample, recipe, hints, own) if hints else CloudTarget()
        untaught = None
        if near and taught.ids is not None:
            seen = await self._view(self._base, sample.prompt_ids, sample, chosen=taught.ids)
            untaught = losses.with_tail(_tensor(seen.chosen))
        plain_ids, base = await self._plain(sample, terms, own)
        return replace(taught, untaught=untaught, plain_ids=plain_ids, base=base)

    async def _own(self, sample: Sample, terms: frozenset[str]) -> NDArray[np.int64]:
        """The policy's likeliest tokens before the step `[R, K]`, as many as anything asks for."""
        count = own_tokens(sample, terms, self._recipe)
        if not count:
            return np.zeros((len(sample.response_ids), 0), dtype=np.int64)
        count = min(count, self._top_logprobs)
        return (await self._view(self._live, sample.prompt_ids, sample, top_logprobs=count)).ids

    async def _plain(
        self, sample: Sample, terms: frozenset[str], own: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64] | None, Tensor | None]:
        answer, own = _answer(sample), own[:, : self._count]
        if not needs_base(terms):
            return (_among(own, answer) if "entropy" in terms else None), None
        asked = None if "anchor" in terms else own
        seen = await self._view(self._base, sample.prompt_ids, sample, top_logprobs=self._count, chosen=asked)
        ids = _among(seen.ids, answer) if asked is None else await asyncio.to_thread(_both, own, [seen], answer)
        return ids, losses.with_tail(_tensor(seen.at(ids, answer)[0]))

    async def _taught(
        self, sample: Sample, recipe: Recipe, hints: Sequence[Sequence[int]], own: NDArray[np.int64]
    ) -> CloudTarget:
        answer = _answer(sample)
        picks = recipe.per_token_hints and len(hints) > 1
        token = recipe.distillation == "token"
        exact = token and recipe.teacher_temperature == 1 and (picks or len(hints) == 1)
        given = self._given(recipe, own)
        selected = min(recipe.select_k, self._top_logprobs)
        count = selected if recipe.distillation == "select" else self._count
        top = 0 if exact or (given is not None and recipe.distillation != "full") else count
        common = recipe.distillation == "select" and recipe.select_from == "overlap"
        top = max(top, selected) if picks or common else top
        if sample.taught is None:
            views = await gather(
                *(self._view(self._teacher, hint, sample, top_logprobs=top, chosen=given) for hint in hints)
            )
        else:
            views = [_of_engine(sample, sample.taught)]
        if picks:
            views = [_picked(views, own[:, : recipe.select_k])]
        if exact:
            return CloudTarget(sampled=_tensor(views[0].sampled))
        if given is not None:
            ids = given if recipe.distillation != "full" else await asyncio.to_thread(_both, given, views, answer)
            taught = await asyncio.to_thread(self._mean, views, ids, answer)
            theirs = torch.from_numpy(_likeliest(views, selected)) if common else None
            support = None if theirs is None else losses.contained(torch.from_numpy(ids), theirs)
            return CloudTarget(ids=ids, taught=taught, support=support)
        ids = await asyncio.to_thread(_likeliest, views, count)
        ids = _among(ids, answer) if token else ids
        if not all(view.at(ids, answer)[1].all() for view in views):
            views = await gather(*(self._view(self._teacher, hint, sample, chosen=ids) for hint in hints))
        taught = await asyncio.to_thread(self._mean, views, ids, answer)
        if not token:
            return CloudTarget(ids=ids, taught=taught)
        place = torch.from_numpy((ids == answer[:, None]).argmax(axis=-1))
        return CloudTarget(sampled=losses.sampled_logprobs(taught, place))

    def _given(self, recipe: Recipe, own: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The tokens of the policy before the step that the teacher is asked about."""
        if recipe.distillation == "select":
            return None if recipe.select_from == "teacher" else own[:, : recipe.select_k]
        return own[:, : self._count] if _student(recipe) else None

    def _mean(self, views: Sequence[View], ids: NDArray[np.int64], answer: NDArray[np.int64]) -> Tensor:
        """The teacher's `[R, K + 1]` at `ids` `[R, K]`, and their tail. Every view knows them, except that of a teacher
        behind an engine under `select_from = "overlap"`, where the others do not count.
        """
        known = [view.at(ids, answer) for view in views]
        bins = torch.stack([losses.with_tail(_tensor(np.where(there, values, ABSENT))) for values, there in known])
        return losses.ensemble_target(bins / self._recipe.teacher_temperature)

    async def _view(
        self,
        scorer: Scorer,
        prompt: Sequence[int],
        sample: Sample,
        *,
        top_logprobs: int = 0,
        chosen: NDArray[np.int64] | None = None,
    ) -> View:
        text = [int(token) for part in (prompt, sample.response_ids) for token in part]
        asked = ScoreRequest(text, len(prompt), top_logprobs, chosen, images_under(sample, prompt))
        scored = await scorer.score(asked, self._bill)
        return await asyncio.to_thread(_read, scored, sample, top_logprobs, chosen)


class TokenPlan(msgspec.Struct, frozen=True):
    """Tokens of a step of `updates` optimizer steps: `scored` for targets at most, `forward` before the first and after
    each, `trained`. All 0 where nothing trains.
    """

    scored: int = 0
    forward: int = 0
    trained: int = 0
    updates: int = 0

    @classmethod
    def for_step(
        cls, samples: Sequence[Sample], terms: Sequence[frozenset[str]], recipe: Recipe, updates: int
    ) -> TokenPlan:
        """The tokens of a step of up to `updates` over `samples`, which count in `terms`."""
        near = measured(samples) if stops_early(recipe) else 0
        scored = forward = trained = 0
        for index, (sample, named) in enumerate(zip(samples, terms, strict=True)):
            places = len(sample.prompt_ids) + len(sample.response_ids) - 1
            forward += places
            trained += places * (bool(named & POLICY) + bool(named - POLICY))
            scored += _scored(sample, named, recipe, index < near)
        return cls(scored, forward * (updates + 1), trained * updates, updates) if samples else cls()


def _scored(sample: Sample, terms: frozenset[str], recipe: Recipe, near: bool) -> int:
    """Tokens that are sent for one sample. A text is sent twice for likeliest and for chosen tokens: to a sampler, and
    in a forward pass.
    """
    length = len(sample.response_ids)
    recipe = target_recipe(terms, recipe)
    hints = hints_of(sample, recipe)
    picks = recipe.per_token_hints and len(hints) > 1
    # Where the teacher's tokens are compared, under several hints they are known after a first look, and asked about in
    # a second.
    source = {"token": "teacher", "topk": recipe.topk_from, "select": recipe.select_from}
    theirs = source.get(recipe.distillation) == "teacher"
    looks = 2 if theirs and len(hints) > 1 and not recipe.per_token_hints else 1
    # The policy's tokens are chosen, and the teacher's likeliest are wanted too.
    common = recipe.distillation == "select" and recipe.select_from == "overlap"
    looks = 2 if not theirs and (recipe.distillation == "full" or common or picks) else looks
    base = needs_base(terms) * (1 if "anchor" in terms else 2)
    plain = bool(own_tokens(sample, terms, recipe)) + base + (near and bool(hints))
    asked = hints if sample.taught is None else ()
    return plain * (len(sample.prompt_ids) + length) + looks * sum(len(hint) + length for hint in asked)


def images_under(sample: Sample, prompt: Sequence[int]) -> Sequence[PromptImage]:
    """The images of a sample at their places in one of its prompts. Raises `TrainerError`."""
    try:
        return shown_again(sample.images, sample.prompt_ids, prompt)
    except ValueError as error:
        raise TrainerError(f"sample {sample.sample_id}: a hinted prompt cannot be trained on: {error}") from error


def target_recipe(terms: frozenset[str], recipe: Recipe) -> Recipe:
    """The recipe that describes the teacher's targets of a sample with these `terms`."""
    if "imitate" not in terms:
        return recipe
    compared = recipe.distillation in ("full", "topk")
    return recipe.replace(distillation="topk" if compared else "none", topk_from="teacher")


def own_tokens(sample: Sample, terms: frozenset[str], recipe: Recipe) -> int:
    """The number of the policy's likeliest tokens before the step that a term asks for at each position."""
    recipe = target_recipe(terms, recipe)
    compared = not terms.isdisjoint(("kl_base", "entropy")) or ("distill" in terms and _student(recipe))
    return max(needs_old(sample, recipe), recipe.topk if compared else 0)


def _student(recipe: Recipe) -> bool:
    """True if K of the policy's tokens are distilled."""
    return recipe.distillation == "full" or (recipe.distillation == "topk" and recipe.topk_from == "student")


def _read(scored: Scored, sample: Sample, top_logprobs: int, chosen: NDArray[np.int64] | None) -> View:
    """Raises `TrainerError` where something is missing of what was asked for."""
    count = len(sample.response_ids)
    width = min((len(line) for line in scored.top_logprobs), default=0) if top_logprobs else 0
    complete = len(scored.logprobs) == count and (not top_logprobs or (width > 0 and len(scored.top_logprobs) == count))
    if not complete or (chosen is not None and (scored.chosen is None or scored.chosen.shape != chosen.shape)):
        raise TrainerError(
            f"the provider scored only a part of the answer of {sample.sample_id} ({count} tokens): no step was made"
        )
    width = min(width, top_logprobs)
    lines = [line[:width] for line in scored.top_logprobs] if width else [()] * count
    nothing = np.zeros((count, 0), dtype=np.int64)
    view = View(
        np.array(scored.logprobs, dtype=np.float32),
        np.array([[token for _, token in line] for line in lines], dtype=np.int64).reshape(count, width),
        np.array([[value for value, _ in line] for line in lines], dtype=np.float32).reshape(count, width),
        nothing if chosen is None else chosen,
        np.asarray(nothing if scored.chosen is None else scored.chosen, dtype=np.float32),
    )
    if not all(np.isfinite(part).all() for part in (view.sampled, view.values, view.chosen)):
        raise TrainerError(f"the provider gave logprobs of {sample.sample_id} that are not finite: no step was made")
    return view


def _of_engine(sample: Sample, taught: TeacherScores) -> View:
    """The answer as a teacher behind an engine sees it under the hinted prompt."""
    count = len(sample.response_ids)
    width = min((len(line) for line in taught.top), default=0)
    lines = [line[:width] for line in taught.top] if width else [()] * count
    nothing = np.zeros((count, 0), dtype=np.int64)
    return View(
        np.array(taught.logprobs, dtype=np.float32),
        np.array([[token for _, token in line] for line in lines], dtype=np.int64).reshape(count, width),
        np.array([[value for value, _ in line] for line in lines], dtype=np.float32).reshape(count, width),
        nothing,
        nothing.astype(np.float32),
    )


def _likeliest(views: Sequence[View], count: int) -> NDArray[np.int64]:
    """The `count` likeliest tokens `[R, K]` of the geometric mean of views, among those they list; best first.
    Without likeliest tokens none.
    """
    if len(views) == 1 or not count:
        return views[0].ids[:, :count]
    candidates = np.sort(np.concatenate([view.ids for view in views], axis=1), axis=1)
    scores = np.zeros(candidates.shape, dtype=np.float64)
    nowhere = np.full(candidates.shape[0], -1, dtype=np.int64)
    for view in views:
        values, known = view.at(candidates, nowhere)
        scores += np.where(known, values, view.values[:, -1:])
    scores[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = -np.inf
    width = min(count, *(view.ids.shape[1] for view in views))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(candidates, order, axis=1)


def _among(ids: NDArray[np.int64], answer: NDArray[np.int64]) -> NDArray[np.int64]:
    """`ids` `[R, K]` with the sampled token of each row among them, in the last place where it was not."""
    if not ids.shape[1]:
        return answer[:, None]
    found = ids.copy()
    absent = ~(ids == answer[:, None]).any(axis=1)
    found[absent, -1] = answer[absent]
    return found


def _both(own: NDArray[np.int64], views: Sequence[View], answer: NDArray[np.int64]) -> NDArray[np.int64]:
    """As many tokens `[R, K]` as `own` has: the sampled one, then by rank those of `own` and the likeliest of the
    geometric mean of `views`, among those that every view knows.
    """
    listed = views[0].ids
    known = [view.at(listed, answer) for view in views]
    scores = np.where(
        np.logical_and.reduce([there for _, there in known]), np.sum([values for values, _ in known], axis=0), -np.inf
    )
    order = np.argsort(-scores, axis=1, kind="stable")
    theirs = np.where(
        np.isfinite(np.take_along_axis(scores, order, axis=1)),
        np.take_along_axis(listed, order, axis=1),
        answer[:, None],
    )
    width = min(own.shape[1], theirs.shape[1])
    ranked = np.stack([own[:, :width], theirs[:, :width]], axis=2).reshape(len(answer), 2 * width)
    ids = np.concatenate([answer[:, None], ranked, own[:, width:]], axis=1)
    earlier = np.tril(np.ones((ids.shape[1], ids.shape[1]), dtype=bool), k=-1)
    repeated = ((ids[:, :, None] == ids[:, None, :]) & earlier).any(axis=-1)
    first = np.argsort(repeated, axis=1, kind="stable")[:, : own.shape[1]]
    return np.take_along_axis(ids, first, axis=1)


def _picked(views: Sequence[View], own: NDArray[np.int64]) -> View:
    """Each token's view whose likeliest tokens have most in common with `own` `[R, k]`, the first of equals."""
    width = min(own.shape[1], *(view.ids.shape[1] for view in views))
    mine = torch.from_numpy(own[:, :width].copy())
    overlaps = torch.stack([losses.overlap(mine, torch.from_numpy(view.ids[:, :width].copy())) for view in views])
    best = overlaps.numpy().argmax(axis=0)
    places = np.arange(len(best))
    shared = min(view.ids.shape[1] for view in views)
    return View(
        np.stack([view.sampled for view in views])[best, places],
        np.stack([view.ids[:, :shared] for view in views])[best, places],
        np.stack([view.values[:, :shared] for view in views])[best, places],
        views[0].given,
        np.stack([view.chosen for view in views])[best, places],
    )


def _answer(sample: Sample) -> NDArray[np.int64]:
    return np.array([int(token) for token in sample.response_ids], dtype=np.int64)


def _tensor(values: NDArray[np.float32]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
