"""Rollouts and answers by the user's own code: how it is found, called and checked (docs/extending.md).

    async def rollout(context: RolloutContext) -> Sequence[Sample]
    async def generate(prompt_ids, sampling, *, engine, version) -> Tokens | (ids, logprobs) | None

The status reports code that fails or returns untrainable results, and the step continues without it. If the engine is
away, the step is tried again instead.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import operator
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from openclaw_rl.shared.engine.protocol import Engine, Priority, Tokens
from openclaw_rl.shared.errors import ConfigError, ContextLengthExceeded, EngineError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.records import PromptImage, Sample, Sampling, VersionSpan
from openclaw_rl.shared.settings.settings import Settings

_T = TypeVar("_T")

Hook = Callable[..., Awaitable[Any]]

ROLLOUT, GENERATE = "custom_rollout", "custom_generate"
_RECORDED = (
    "No function needs to collect conversations: they are recorded while they are served (docs/extending.md, Rollout)"
)


class HookFailed(Exception):
    """A hook raised, took too long, or gave something that is no rollout; the message says which and why."""


def load(settings: Settings, setting: str) -> Hook | None:
    """The hook that a setting (`custom_rollout`, `custom_generate`) names, `None` if it names none. Raises
    `ConfigError` where it is not there or no async function.
    """
    path: str = settings.value(setting)
    if not path:
        return None
    try:
        hook = resolve(path, default=setting.removeprefix("custom_"))
    except ConfigError as error:
        raise ConfigError(f"{error}. {_RECORDED}" if setting == ROLLOUT else str(error)) from error
    if not inspect.iscoroutinefunction(hook) and not inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
        raise ConfigError(f"{setting} = {path!r} is no async function; write it as `async def` (docs/extending.md)")
    if setting == ROLLOUT:
        signature = inspect.signature(hook)
        try:
            signature.bind(None)
        except TypeError as error:
            asked = ", ".join(signature.parameters) or "nothing"
            problem = f"{setting} = {path!r} asks for {asked}, and a rollout gets one argument, `context`"
            raise ConfigError(f"{problem}. {_RECORDED}") from error
    return hook


async def whole_answer(
    engine: Engine,
    prompt_ids: Sequence[int],
    sampling: Sampling,
    *,
    version: int | None = None,
    priority: Priority = Priority.REHEARSAL,
    images: Sequence[PromptImage] = (),
) -> Tokens:
    """One whole answer of the engine, by default behind chat and judge; `version` `None` is the live one, 0 the base.
    Raises `EngineError`.
    """
    ids: list[int] = []
    logprobs: list[float] = []
    last = Tokens(ids=(), logprobs=(), version=version or 0)
    stream: Any = engine.generate(list(prompt_ids), sampling, images=images, version=version, priority=priority)
    async with aclosing(stream):
        async for tokens in stream:
            ids.extend(tokens.ids)
            logprobs.extend(tokens.logprobs)
            last = tokens
    return msgspec.structs.replace(last, ids=ids, logprobs=logprobs)


async def called(setting: str, call: Awaitable[_T], engine: Engine, settings: Settings) -> _T:
    """The result of a hook. Raises `HookFailed`; `EngineError` only while the engine itself is away."""
    name, seconds = f"{setting} {settings.value(setting)}", settings.serve.request_timeout
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise HookFailed(f"{name} took longer than {seconds:g} s (request_timeout)") from error
    except ContextLengthExceeded:
        raise
    except Exception as error:  # the user's code
        if isinstance(error, EngineError):
            await engine.info()  # raises where the engine is away
        raise HookFailed(f"{name} raised {type(error).__name__}: {error}") from error


def checked_answer(given: Any, vocab_size: int, version: int) -> Tokens | None:
    """An answer that a hook gave: ids and their logprobs under what they were sampled from, with `versions`. `None` for
    none; `version` counts where it does not say which. Raises `HookFailed`.
    """
    if given is None:
        return None
    if not isinstance(given, Tokens):
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise HookFailed(f"it gave a {type(given).__name__}, not Tokens, (ids, logprobs) or None")
        given = Tokens(ids=given[0], logprobs=given[1], version=version, finish_reason="stop")
    ids = _ids(given.ids, vocab_size, "response")
    logprobs = _logprobs(given.logprobs, len(ids))
    versions = given.versions or [VersionSpan(given.version, 0, len(ids))]
    answer: Tokens = msgspec.structs.replace(given, ids=ids, logprobs=logprobs, versions=versions)
    return answer


def checked_samples(given: Any, vocab_size: int, longest: int, taken: Iterable[str]) -> tuple[list[Sample], list[str]]:
    """The samples of a hook that can be trained on, and what is wrong with the others. `taken` are the ids of the
    batch's own samples, `longest` is in tokens. Raises `HookFailed` where it gave no samples at all.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise HookFailed(f"it gave a {type(given).__name__}, not a list of shared.records.Sample")
    good: list[Sample] = []
    wrong: list[str] = []
    known = set(taken)
    for number, sample in enumerate(given, start=1):
        try:
            made = _sample(sample, vocab_size, longest)
            if made.sample_id in known:
                raise HookFailed(f"another one has its sample_id {made.sample_id!r}")
            known.add(made.sample_id)
            good.append(made)
        except HookFailed as error:
            wrong.append(f"sample {number} of {len(given)}: {error}")
    return good, wrong


def _sample(sample: Any, vocab_size: int, longest: int) -> Sample:
    if not isinstance(sample, Sample):
        raise HookFailed(f"it is a {type(sample).__name__}, not a shared.records.Sample")
    if sample.origin not in ("rehearsal", "anchor"):
        raise HookFailed(f"its origin is {sample.origin!r}; a turn trains once, with its own batch")
    prompt = _ids(sample.prompt_ids, vocab_size, "prompt")
    response = _ids(sample.response_ids, vocab_size, "response")
    if len(prompt) + len(response) > longest:
        raise HookFailed(f"it has {len(prompt) + len(response)} tokens, more than max_sample_tokens = {longest}")
    for name, low, high in (("reward", -1.0, 1.0), ("advantage", -math.inf, math.inf), ("weight", 0.0, math.inf)):
        value = getattr(sample, name)
        if value is None and name != "weight":
            continue
        if not isinstance(value, int | float) or not math.isfinite(value) or not low <= value <= high:
            raise HookFailed(f"its {name} is {value!r}")
    if not isinstance(sample.temperature, int | float) or not 0 < sample.temperature < math.inf:
        raise HookFailed(f"its temperature is {sample.temperature!r}; an answer without one needs no_ratio and 1.0")
    for image in sample.images:
        if not isinstance(image, PromptImage) or not 0 <= image.start < image.end <= len(prompt):
            raise HookFailed("an image of it is no shared.records.PromptImage at a place in its prompt")
    return msgspec.structs.replace(
        sample,
        turn_id=None,
        prompt_ids=prompt,
        response_ids=response,
        logprobs=_logprobs(sample.logprobs, len(response)),
        hinted_prompts=[_ids(one, vocab_size, "hinted prompt") for one in sample.hinted_prompts],
    )


def _ids(given: Any, vocab_size: int, what: str) -> list[int]:
    try:
        ids = [operator.index(token) for token in given]
    except TypeError as error:
        raise HookFailed(f"its {what} ids are no integers: {error}") from error
    if not ids:
        raise HookFailed(f"its {what} is empty")
    if min(ids) < 0 or max(ids) >= vocab_size:
        raise HookFailed(f"its {what} has an id outside the vocabulary of {vocab_size}")
    return ids


def _logprobs(given: Any, count: int) -> list[float]:
    try:
        logprobs = [float(value) for value in given]
    except (TypeError, ValueError) as error:
        raise HookFailed(f"its logprobs are no numbers: {error}") from error
    if len(logprobs) != count:
        raise HookFailed(f"it has {len(logprobs)} logprobs for {count} tokens")
    if not all(math.isfinite(value) and value <= 1e-3 for value in logprobs):
        raise HookFailed("a logprob of it is no finite number up to 0")
    return logprobs
