"""Learning methods: their signals and rollouts. `shared.objective.batch_loss` has their loss and their advantages.

A new method is one entry here and its terms in `shared.objective`; a custom one is a `Method` named by import path or
file (docs/extending.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import is_hook, resolve
from openclaw_rl.shared.journal.views import Lesson
from openclaw_rl.shared.objective.terms import signal, terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe

MEMORY = 0.9
"""Decay of the running mean of rewards at each version."""


_WEIGHTS: Mapping[str, Callable[[Recipe], float]] = {
    "distill": lambda recipe: recipe.w_opd,
    "binary": lambda recipe: recipe.w_rl,
    "policy": lambda recipe: recipe.w_rl + recipe.w_opd,
    "custom": lambda recipe: 1.0,
    "kl_base": lambda recipe: recipe.kl_base,
    "entropy": lambda recipe: recipe.entropy,
}
"""The weight of each term of the loss that a turn may take part in."""


class Method(msgspec.Struct, frozen=True):
    """`hints`: the teacher's hints on a turn: its own, all remembered ones, or in place of a hint what the person said
    next (`follow-up`), which needs no verdict; `attempts`: whether the teacher sees an accepted answer to the same
    prompt instead, where there is one. `distillation`, `divergence`, `ratio_weighted`, `rewards` and `aggregation` as
    in `shared.trainer.Recipe`; `rollouts`: whether rehearsals and anchors are made.
    """

    name: str
    hints: Literal["none", "own", "remembered", "follow-up"] = "none"
    attempts: bool = False
    distillation: Literal["none", "full", "token", "topk", "select"] = "none"
    divergence: Literal["reverse", "jensen-shannon"] = "reverse"
    ratio_weighted: bool = False
    rewards: Literal["none", "explicit", "all"] = "explicit"
    aggregation: Literal["token", "sample"] = "sample"
    rollouts: bool = False

    @property
    def needs_verdict(self) -> bool:
        """True if a turn that no judge could score teaches nothing."""
        return self.hints != "follow-up"

    def informative(self, sample: Sample) -> bool:
        """True if this sample teaches something by itself."""
        return self._distils(sample) or (bool(taught_reward(sample)) and self.trains_reward(sample))

    def cannot_use(self, sample: Sample) -> str:
        """The reason why the sample's reward, or all of it, is lost to this method; "" if nothing is.

        A reward and an advantage per token need an importance ratio; distributions teach without one. Under a method
        with hints, a sample with neither hint nor explicit reward has nothing to lose.
        """
        if not sample.no_ratio or self._distils(sample):
            return ""
        loses = bool(sample.hint) if self.distillation == "token" else False
        # In a group a reward of 0 is compared with the others too.
        rewarded = sample.reward is not None if sample.group else bool(sample.reward)
        loses = loses or (rewarded and self._may_train(sample)) or self.hints == "none"
        return f"it was {sample.no_ratio}, and method {self.name} learns from it by no other way" if loses else ""

    @property
    def ages(self) -> bool:
        """True if a judge's verdict can become too old to learn from: it trains by an importance ratio."""
        return self.rewards == "all" or self.distillation == "token"

    def advantages(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples of a step (without rollouts), with an `advantage` where it is not the reward; a custom method may
        override this.
        """
        return samples

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe without the terms that are not this method's."""
        return recipe.replace(
            method=self.name,
            distillation=self.distillation,
            divergence=self.divergence,
            ratio_weighted=self.ratio_weighted,
            rewards=self.rewards,
            aggregation=self.aggregation,
            w_opd=recipe.w_opd if self.distillation != "none" else 0.0,
            w_anchor=recipe.w_anchor if self.rollouts else 0.0,
        )

    def corrects(self, sample: Sample, lesson: Sample) -> bool:
        """True if the sample of a person's later word teaches otherwise than the `lesson` of its turn did: by a reward
        that may train, or a hint that the lesson lacked.
        """
        rewarded = sample.reward != lesson.reward and self._may_train(sample)
        return rewarded or sample.hint not in (None, lesson.hint)

    def _distils(self, sample: Sample) -> bool:
        return bool(self.hints != "none" and sample.hint) and not (self.distillation == "token" and sample.no_ratio)

    def trains_reward(self, sample: Sample) -> bool:
        """True if the sample's reward may train: it has a ratio, and this method takes such rewards."""
        return not sample.no_ratio and self._may_train(sample)

    def _may_train(self, sample: Sample) -> bool:
        return self.rewards == "all" or (self.rewards == "explicit" and sample.explicit)


def lessons_of(samples: Sequence[Sample], recipe: Recipe) -> list[Lesson]:
    """The way in which each turn of a step that taught something did so; rollouts have none."""
    found = []
    for sample in samples:
        terms = terms_of(sample, recipe) if sample.origin == "turn" else frozenset()
        if terms:
            weights = {term: _WEIGHTS[term](recipe) for term in sorted(terms)}
            taught = signal(sample, recipe) if terms & {"binary", "policy", "custom"} else None
            found.append(Lesson(sample.sample_id, sample.weight, taught, weights))
    return found


def taught_reward(sample: Sample) -> float:
    """The advantage of a sample, or its reward where nothing has made an advantage of it; 0 without one."""
    return (sample.reward if sample.advantage is None else sample.advantage) or 0.0


METHODS = {
    one.name: one
    for one in (
        # Ours, see docs/methods.md: distillation on hinted turns and rehearsals, an anchor, the reward's term for
        # explicit signals alone.
        Method("rehearse", hints="remembered", distillation="full", aggregation="token", rollouts=True),
        # OpenClaw-RL's Binary RL (arXiv 2603.10165): the judge's score is the advantage of every token.
        Method("binary", rewards="all"),
        # Its on-policy distillation under hindsight hints: an advantage per sampled token, on turns with a hint.
        Method("opd", hints="own", distillation="token"),
        # Its combination of the two: both advantages, weighted, in one policy loss (`BatchLoss.policy_share`).
        Method("combined", hints="own", distillation="token", rewards="all"),
        # Reverse KL over K tokens and a tail, as in SDFT (arXiv 2601.19897).
        Method("topk", hints="own", distillation="topk"),
        # The second OpenClaw-RL paper's hybrid: clipped differences on the policy's likeliest tokens, and the reward.
        Method("topk-select", hints="own", distillation="select", rewards="all"),
        # SDPO (arXiv 2601.20802): Jensen-Shannon divergence to the moving average of the policy, which sees an accepted
        # attempt or the feedback. Rewards only choose the attempts.
        Method(
            "sdpo",
            hints="own",
            attempts=True,
            distillation="topk",
            divergence="jensen-shannon",
            ratio_weighted=True,
            rewards="none",
            aggregation="token",
        ),
        # Self-distillation from user interactions (arXiv 2603.12273): the policy that has read the next message.
        Method("follow-up", hints="follow-up", distillation="token", rewards="none"),
    )
}


def method(name: str, settings: Settings | None = None) -> Method:
    """The method called `name`, or a custom one by import path or file: a `Method`, or a callable that makes one from
    the settings. Raises `ConfigError`.
    """
    if name in METHODS:
        return METHODS[name]
    if not is_hook(name):
        raise ConfigError(f"method = {name!r} is unknown; choose one of: {', '.join(METHODS)}")
    found: object = resolve(name, default="method")
    if not isinstance(found, Method) and callable(found):
        try:
            found = found(settings)
        except ConfigError:
            raise
        except Exception as error:  # user code
            raise ConfigError(f"method = {name!r} raised {type(error).__name__}: {error}") from error
    if not isinstance(found, Method):
        raise ConfigError(f"method = {name!r} is a {type(found).__name__}, not a learner.methods.Method")
    return found


def running_mean(rewards: Sequence[float]) -> float | None:
    """The running mean of the rewards of all steps (oldest first); `None` before the first.

    They come from the journal, so a restart changes nothing.
    """
    running: float | None = None
    for mean in rewards:
        running = mean if running is None else MEMORY * running + (1.0 - MEMORY) * mean
    return running


def subtract_baseline(
    samples: Sequence[Sample],
    kind: Literal["none", "batch", "running"],
    mean_so_far: float | None,
    trains: Callable[[Sample], bool],
) -> list[Sample]:
    """The samples; those whose reward may train (`trains`) get an `advantage` = reward − baseline. Those of a group of
    attempts have theirs from the comparison with each other.

    The baseline is the mean of those rewards in this step (`batch`), or `mean_so_far` (`running`; 0 if `None`). Source:
    REINFORCE with a baseline (Williams 1992).
    """

    def has_baseline(sample: Sample) -> bool:
        return not sample.group and trains(sample)

    rewards = [sample.reward for sample in samples if sample.reward is not None and has_baseline(sample)]
    if kind == "none" or not rewards:
        return list(samples)
    baseline = math.fsum(rewards) / len(rewards) if kind == "batch" else (mean_so_far or 0.0)
    return [
        msgspec.structs.replace(sample, advantage=sample.reward - baseline)
        if sample.reward is not None and has_baseline(sample)
        else sample
        for sample in samples
    ]
