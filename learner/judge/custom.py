"""Custom judges: a class with `async judge(turn, next_state)`, or OpenClaw-RL's reward contract
`get_reward_model(config) -> obj` with `obj.score(prompt, response, next_state) -> float in [0, 1]`. Also a class made
from its model's path, and `compute_reward` in place of `score`.

An exception or an invalid value is a failed vote with its reason.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.learner.judge.prompt import fingerprint, spoken, transcript
from openclaw_rl.learner.judge.selection import NONE
from openclaw_rl.shared.errors import ConfigError, JournalError, JudgeAway, JudgeError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.records import Judgement, NextState, Turn, Vote
from openclaw_rl.shared.settings.hook_config import HookConfig
from openclaw_rl.shared.settings.model_reference import ModelReference
from openclaw_rl.shared.settings.settings import Settings

REWARD = "get_reward_model"
REWARD_CLASS = "CustomRewardModel"
_PATHS = ("model_path", "checkpoint_path")
"""Arguments by which a reward model takes the path of its model."""


def create(settings: Settings, model: ModelReference) -> CustomJudge:
    """The judge that `judge` names by its path, or the one of `custom_reward`, an object with `judge`, `score` or
    `compute_reward`. Raises `ConfigError`.
    """
    setting, path, reward = model.setting, model.name, model.setting == "custom_reward"
    factory = _reward_factory(path) if reward else resolve(path, default="Judge")
    try:
        made = _reward_model(factory, HookConfig(settings.flat())) if reward else factory(settings)
    except ConfigError:
        raise
    except Exception as error:  # user code; its message says where
        raise ConfigError(f"{setting} = {path!r} cannot be made: {type(error).__name__}: {error}") from error
    judges = callable(getattr(made, "judge", None))
    scores = [method for name in ("score", "compute_reward") if callable(method := getattr(made, name, None))]
    if reward and not judges and scores:
        made = _Scorer(made, scores[0])
    elif not judges:
        lacks = "neither `judge` nor `score` nor `compute_reward`" if reward else "no method `judge`"
        raise ConfigError(f"{setting} = {path!r} makes a {type(made).__name__}, which has {lacks}")
    return CustomJudge(made, path, settings)


def _reward_factory(path: str) -> Callable[..., Any]:
    try:
        return resolve(path, default=REWARD)
    except ConfigError as missing:
        if ":" in path:
            raise
        try:
            return resolve(path, default=REWARD_CLASS)
        except ConfigError:
            raise ConfigError(f"{missing}; a class of yours is named as {path}:CLASS") from None


def _reward_model(factory: Callable[..., Any], config: HookConfig) -> Any:
    """The object that a function or a class makes from the settings, or from the path of its model if it takes one."""
    first = next(iter(inspect.signature(factory).parameters), "") if inspect.isclass(factory) else ""
    return factory(config["prm_model_path"] if first in _PATHS else config)


class CustomJudge:
    """Calls the user's object, and completes its judgement."""

    def __init__(self, made: Any, path: str, settings: Settings) -> None:
        self.made = made
        self.name = path
        self._seconds = settings.judge.timeout
        self._version = _version(path)

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The object's judgement, or a failed vote. Raises `JudgeAway` if the object does."""
        try:
            async with asyncio.timeout(self._seconds):
                said = self.made.judge(turn, next_state)
                judged = await said if inspect.isawaitable(said) else said
            return self._checked(judged, turn)
        except TimeoutError:
            failure = f"no judgement within {self._seconds:g} s"
        except (JudgeAway, JournalError):
            raise
        except Exception as error:  # user code: one turn must not end the loop
            failure = str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}"
        reason = f"1 of 1 votes failed: {failure}"
        return self._filled(Judgement(turn_id=turn.turn_id, score=None, votes=[Vote(failure=failure)], reason=reason))

    async def close(self) -> None:
        """Let the object release what it holds, if it has a `close`."""
        close = getattr(self.made, "close", None)
        if callable(close):
            closed = close()
            if inspect.isawaitable(closed):
                await closed

    def _checked(self, judged: Any, turn: Turn) -> Judgement:
        if not isinstance(judged, Judgement):
            raise JudgeError(f"it gave a {type(judged).__name__}, not a shared.records.Judgement")
        if judged.score is not None and not -1.0 <= judged.score <= 1.0:  # also without nan
            raise JudgeError(f"its score is {judged.score!r}, outside [-1, 1]")
        return self._filled(msgspec.structs.replace(judged, turn_id=turn.turn_id))

    def _filled(self, judged: Judgement) -> Judgement:
        votes = list(judged.votes) or [Vote(text=judged.reason, score=judged.score, hint=judged.hint)]
        return msgspec.structs.replace(
            judged,
            votes=votes,
            judge=judged.judge or self.name,
            prompt_version=judged.prompt_version or self._version,
            selection=judged.selection or ("own" if judged.hint else NONE),
            reason=judged.reason or ("no verdict" if judged.score is None else f"scored {judged.score:+g}"),
        )


class _Scorer:
    """OpenClaw-RL's reward object as a judge: its number, in [0, 1], is mapped to [−1, +1]."""

    def __init__(self, made: Any, score: Callable[[str, str, str], Any]) -> None:
        self._score = score
        self.close: Callable[[], Awaitable[None] | None] | None = getattr(made, "close", None)

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """One vote. `score` may block, so it runs in a thread; it may be a coroutine function too."""
        words = transcript(turn.messages), spoken(turn.answer), next_state.text
        value = await asyncio.to_thread(self._score, *words)
        if inspect.isawaitable(value):
            value = await value
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise JudgeError(f"its score is {value!r}, no number") from error
        if not (math.isfinite(number) and 0.0 <= number <= 1.0):
            raise JudgeError(f"its score is {number!r}, outside [0, 1]")
        score = 2.0 * number - 1.0
        reason = f"{number:g} of [0, 1]"
        return Judgement(turn_id=turn.turn_id, score=score, votes=[Vote(text=reason, score=score)], reason=reason)


def _version(path: str) -> str:
    """The hook's name instead of a prompt's version, with a hash of its file if it is one."""
    name, _, attribute = path.partition(":")
    if not name.endswith(".py"):
        return path
    file = Path(name).expanduser()
    shown = f"{file.name}:{attribute}" if attribute else file.name
    return fingerprint(shown, file.read_bytes())
