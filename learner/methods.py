"""Learning methods: what each learns from and which rollouts it needs. The terms themselves are in `shared.losses`.

A new method is one entry here, its terms in `shared.losses`, and the trainers' objectives.
"""

from __future__ import annotations

import msgspec

from shared.errors import ConfigError
from shared.records import Sample
from shared.trainer import Recipe


class Method(msgspec.Struct, frozen=True):
    """`hints`: turns that drew a hint are distilled; `rollouts`: rehearsals and anchors are made; `rewards`: which
    rewards train.
    """

    name: str
    hints: bool
    rollouts: bool
    rewards: str

    def informative(self, sample: Sample) -> bool:
        """Whether this sample by itself has something to teach."""
        if self.hints and sample.hint:
            return True
        return bool(sample.reward) and not sample.no_ratio and (sample.explicit or self.rewards == "all")

    def cannot_use(self, sample: Sample) -> str:
        """Why the sample's reward, or all of it, is lost to this method, in words; "" where nothing is.

        A reward needs an importance ratio. Where there is none, a hint still teaches; with neither hint nor explicit
        reward a sample of a method with hints has nothing to lose.
        """
        if not sample.no_ratio or (self.hints and (sample.hint or not sample.explicit or not sample.reward)):
            return ""
        return f"it was {sample.no_ratio}, and method {self.name} learns from its reward by no other way"

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe without the terms that are not this method's."""
        changed: Recipe = msgspec.structs.replace(
            recipe,
            method=self.name,
            distill=recipe.distill if self.hints else 0.0,
            anchor=recipe.anchor if self.rollouts else 0.0,
        )
        return changed


METHODS = {
    # Ours, see docs/methods.md: distillation on hinted turns and rehearsals, an anchor, the binary term for explicit
    # signals alone.
    "rehearse": Method("rehearse", hints=True, rollouts=True, rewards="explicit"),
    # OpenClaw-RL's Binary RL (arXiv 2603.10165): the judge's score is the advantage of every token.
    "binary": Method("binary", hints=False, rollouts=False, rewards="all"),
}


def method(name: str) -> Method:
    """The method called `name`; `ConfigError` with the known names otherwise."""
    if name not in METHODS:
        raise ConfigError(f"method = {name!r} is unknown; choose one of: {', '.join(METHODS)}")
    return METHODS[name]
