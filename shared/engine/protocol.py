"""The `Engine` protocol: tokens in, tokens out. Nothing that was sampled is ever tokenized again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from openclaw_rl.shared.records import PromptImage as PromptImage
from openclaw_rl.shared.records import Sampling, VersionSpan


class Priority(IntEnum):
    """The order of requests when the engine is busy: lower numbers wait for none of the higher ones."""

    CHAT = 0
    JUDGE = 1
    REHEARSAL = 2
    AUDIT = 3


class Tokens(msgspec.Struct, frozen=True):
    """Newly sampled tokens of one answer, in order. `ids` and `logprobs` have the same length (it may be 0 in the last
    event).

    `version` is the policy version that sampled them. `finish_reason` (`stop`, `length`, `abort`) is set in the last
    event only, which then carries `versions`, the spans over the whole answer. `prompt_tokens` and `cached_tokens`
    count prompt tokens, the latter those whose KV was reused. `top_logprobs`, where asked for, holds per token the
    `(logprob, id)` pairs, best first. `forced`: the answer was given to the engine, which sampled nothing; it is
    never trained on. `unscaled`: it was sampled at another temperature than 1, and the logprobs are those at 1.
    """

    ids: Sequence[int]
    logprobs: Sequence[float]
    version: int
    finish_reason: str | None = None
    versions: Sequence[VersionSpan] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    top_logprobs: Sequence[Sequence[tuple[float, int]]] = ()
    forced: bool = False
    unscaled: bool = False


class Scores(msgspec.Struct, frozen=True):
    """Logprobs of a given continuation, one per token; `top` holds per position `(logprob, id)` pairs at temperature 1,
    best first, when `top_k` > 0. `slack`, where not empty, says by how much each logprob may be off because the engine
    cannot tell it exactly.
    """

    logprobs: Sequence[float]
    version: int
    top: Sequence[Sequence[tuple[float, int]]] = ()
    slack: Sequence[float] = ()


class EngineInfo(msgspec.Struct, frozen=True):
    """A description of the engine: live version, versions it can sample, and the model's limits in tokens.

    `constrains` says whether it can hold an answer to a JSON schema, `sees` whether it takes images, `several_versions`
    whether it holds other versions next to the live one (`beside` in JSON), `scales` whether it reports
    logprobs at the sampling temperature. `trouble` is what keeps it from answering though it runs (its provider is
    away, say); "" when all is well. `transfer` is how new weights reach it, where that is not simply a folder that it
    loads. `live` is −1 where it is not known: a change of weights broke off. `digest` is that of the live version's
    files as the engine loaded them (`checkpoints.folder_digest`), where it reads them itself; "" for the base.
    """

    live: int
    versions: tuple[int, ...]
    model_path: str = ""
    context_length: int = 0
    vocab_size: int = 0
    constrains: bool = False
    sees: bool = False
    several_versions: bool = msgspec.field(default=True, name="beside")
    scales: bool = True
    trouble: str = ""
    transfer: str = ""
    digest: str = ""


class Engine(Protocol):
    """A policy server. `version=None` means the live one; 0 is the base; any other number a version that was published
    or is a candidate.

    Raises `shared.errors.EngineError` (and `ContextLengthExceeded`) before the first token or in the middle of a
    stream.
    """

    def generate(
        self,
        prompt_ids: Sequence[int] | bytes,
        sampling: Sampling,
        *,
        images: Sequence[PromptImage] = (),
        version: int | None = None,
        priority: Priority = Priority.CHAT,
        request_id: str | None = None,
        top_logprobs: int = 0,
    ) -> AsyncIterator[Tokens]:
        """Sample one answer, token by token. `prompt_ids` may be the JSON array of the ids as bytes (spares the hot
        path an encode), not where there are `images`, which come in the order of their places.

        Closing the iterator (`aclose`) aborts the engine's work on it.
        """
        ...

    async def score(
        self,
        prompt_ids: Sequence[int],
        continuation_ids: Sequence[int],
        *,
        version: int | None = None,
        top_k: int = 0,
        priority: Priority = Priority.AUDIT,
        temperature: float = 1.0,
        fresh: bool = False,
        images: Sequence[PromptImage] = (),
    ) -> Scores:
        """Logprobs of `continuation_ids` after `prompt_ids`, at a temperature above 0. `fresh` computes everything,
        without what was kept of earlier requests.

        Raises `EngineError` with status 404 for a version that the engine has not, 501 for a temperature that it cannot
        score at.
        """
        ...

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Make a checkpoint folder known as `version`, next to the versions already there; with `live` new requests use
        it.

        Idempotent: loading the same number from the same path again only changes which one is live.
        """
        ...

    async def info(self) -> EngineInfo:
        """The engine's description of itself right now."""
        ...

    async def close(self) -> None:
        """Release connections; requests in flight through this client end."""
        ...
