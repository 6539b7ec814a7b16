"""The interface to cloud providers, in terms common to all: weights that can be sampled from, and a LoRA
in training.

`trainer_cloud.tinker.provider` and `trainer_cloud.fireworks.provider` implement it over their libraries, which import
late and heavily. Everything above it (`engine`, `trainer`) knows no provider. All methods are coroutines of one event
loop; a future that a library gives is awaited inside them, so that no error is left behind. All of them raise
`CloudError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.records import PromptImage
from openclaw_rl.trainer_cloud.pointer import Pointer

Trouble = Literal["key", "billing", "model", "gone", "limit", "budget", "away", "refused"]
"""`key`: missing, wrong or expired; `billing`: the account is exhausted; `model`: the base model is not offered;
`gone`: weights or a state that were kept at a path are not there any more; `limit`: too many requests; `budget`: our
own daily limit; `away`: unreachable, failing or silent; `refused`: the request itself is wrong.
"""

POLICY_LOSSES = ("ppo", "cispo", "importance_sampling")
"""Losses over sampled tokens; distributions are compared by `cross_entropy`."""


class CloudError(OpenClawRLError):
    """A provider did not do what was asked. The message says what happened and what to do; `trouble` of which kind it
    is, `retry_after` the seconds that it asked to wait. `undone`: it is certain that the request was not taken: nothing
    was changed there, and there is nothing to pay.
    """

    def __init__(
        self, message: str, trouble: Trouble, *, retry_after: float | None = None, undone: bool = False
    ) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.retry_after = retry_after
        self.undone = undone

    @property
    def passes(self) -> bool:
        """True if waiting alone may help."""
        return self.trouble in ("limit", "away", "budget")


class Offer(msgspec.Struct, frozen=True):
    """A provider's model names, and the context length of the configured one in tokens (0: it does not say)."""

    models: Sequence[str]
    context_length: int = 0


class Sampled(msgspec.Struct, frozen=True):
    """One answer: token ids with the end token where there is one, their logprobs at temperature 1 before any filter,
    and why it ended. `cached` tokens of the prompt were billed as found in the service's cache.
    """

    ids: Sequence[int]
    logprobs: Sequence[float]
    finish: Literal["stop", "length"]
    top_logprobs: Sequence[Sequence[tuple[float, int]]] = ()
    cached: int = 0


class Scored(msgspec.Struct, frozen=True):
    """Of each token from `start` on: its logprob at temperature 1; `top_logprobs` the `(logprob, id)` of the likeliest
    ones in its place, best first; `chosen` `[tokens, K]` the logprobs of the ids that were asked about. `cached` tokens
    of the text were billed as found in the service's cache.
    """

    logprobs: Sequence[float]
    top_logprobs: Sequence[Sequence[tuple[float, int]]] = ()
    chosen: NDArray[np.float32] | None = None
    cached: int = 0


class ScoreRequest(msgspec.Struct, frozen=True):
    """A text whose tokens `ids[start:]` are to be scored, each after what stands before it; `start` is at least 1.
    `top_logprobs` likeliest tokens are reported in the place of each, and `chosen` `[len(ids) - start, K]` are further
    ids to score there. `images` stand in `ids`, as in a `Datum`.
    """

    ids: Sequence[int]
    start: int
    top_logprobs: int = 0
    chosen: NDArray[np.int64] | None = None
    images: Sequence[PromptImage] = ()


class Sampler(Protocol):
    """One set of weights that can be sampled from, for as long as it is held."""

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, top_logprobs: int = 0, images: Sequence[PromptImage] = ()
    ) -> Sampled:
        """One answer to a prompt with `images`. Cancelling ends the work there."""
        ...

    async def score(self, asked: ScoreRequest) -> Scored:
        """Logprobs of the tokens of a text."""
        ...


class Datum(msgspec.Struct, frozen=True):
    """One sequence for a trainer. Token t of `targets` is scored after `ids[: t + 1]`: ids are a text less its last
    token, targets the text less its first, `[T]`, or `[T, K]` with K candidates in each place (int64). The others are
    float32 of the same shape: `weights` of the cross entropy, or `logprobs` (of the sampling) and `advantages`; 0 in
    them masks a place. The places before `lead` do not count, and need not be sent or scored. `images` stand in `ids`,
    where a placeholder stands for every token that the model computes for them.
    """

    ids: Sequence[int]
    targets: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None
    logprobs: NDArray[np.float32] | None = None
    advantages: NDArray[np.float32] | None = None
    lead: int = 0
    images: Sequence[PromptImage] = ()


class Pass(msgspec.Struct, frozen=True):
    """Gradients of a loss (`cross_entropy`, or one of `POLICY_LOSSES`), summed over all places of all data. `config`:
    for `ppo` and `cispo` `clip_low_threshold` and `clip_high_threshold`, bounds of the ratio.
    """

    loss: str
    data: Sequence[Datum]
    config: Mapping[str, float] = {}


class Adam(msgspec.Struct, frozen=True):
    """Parameters of an optimizer step; `clip_grad` is the largest gradient norm."""

    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip_grad: float


class Updated(msgspec.Struct, frozen=True):
    """The answer to an update: what the provider reports about the optimizer step (`gradient/norm`, if it does), and
    logprobs of targets: `before` the step, of each pass for each datum, where the provider reports them, and `after` it
    of the data that were asked about.
    """

    metrics: Mapping[str, float]
    before: Sequence[Sequence[NDArray[np.float32]]] = ()
    after: Sequence[NDArray[np.float32]] = ()


class Training(Protocol):
    """One LoRA in training. Calls come one after the other. After a `CloudError` without `undone` its state is
    not known: it is thrown away, and training continues from the last saved state.
    """

    async def forward(self, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        """The logprobs of each datum's targets, `[T]` or `[T, K]`, without gradients."""
        ...

    async def update(self, passes: Sequence[Pass], adam: Adam, *, after: Sequence[Datum] = ()) -> Updated:
        """Add up the gradients of the passes, make one optimizer step, and a forward pass over `after` with the new
        weights, all submitted together.
        """
        ...

    async def save_state(self, name: str) -> str:
        """Keep weights and optimizer under a name; where they are."""
        ...

    async def save_sampler(self, name: str) -> str:
        """Keep the weights to be sampled from; where they are."""
        ...

    async def close(self) -> None:
        """Let go of it. Never raises."""
        ...


class Provider(Protocol):
    """An account with a provider, and one base model."""

    name: str
    several_versions: bool
    """True if several sets of weights can be sampled from side by side."""
    sees: bool
    """True if prompts may hold images, where the model sees."""
    scores_texts: bool
    """True if a sampler is to score the tokens of a text: it costs less than a forward pass."""
    most_top_logprobs: int
    """A bound on the likeliest tokens that samplers report at each position; 0: none are reported."""

    async def offer(self) -> Offer:
        """Ask it at once, without retries: whether it can be reached, the key is good, and the model is there."""
        ...

    async def sampler(self, path: str) -> Sampler:
        """The weights that `Training.save_sampler` kept at `path`; "" is the base model."""
        ...

    async def train(self, *, rank: int, seed: int) -> Training:
        """A new LoRA on the base model."""
        ...

    async def base(self, *, rank: int) -> Training:
        """The base model, for forward passes alone. `rank` is that of the LoRAs in training."""
        ...

    async def resume(self, path: str, *, rank: int) -> Training:
        """A LoRA that continues from `Training.save_state`, optimizer included."""
        ...

    async def delete(self, path: str) -> None:
        """Remove what `save_state` or `save_sampler` kept; nothing happens if it is gone."""
        ...

    async def download(self, found: Pointer, folder: str) -> None:
        """Write a version's weights into a folder as a PEFT adapter."""
        ...

    async def close(self) -> None:
        """Release connections, and what was started for us and costs money. Never raises."""
        ...
