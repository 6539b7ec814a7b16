"""Users who react to the policy's replies and score first replies: built-in personas, or a language model that plays
one.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import stamina

from openclaw_rl.evaluation.personas import NAMES, Persona, Reaction
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.litellm.library import litellm

Said = TypeVar("Said")
PROMPTS = Path(__file__).with_name("prompts")
SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)
SATISFIED = 0.75
"""The least score of a first reply that satisfies."""

TIMEOUT = 120.0
TRIES = 3
PAUSE = 1.0


class UserError(OpenClawRLError):
    """A simulated user gave no reaction or no score; this is a failure and never a neutral one."""


class User(Protocol):
    """A simulated user. Both raise `UserError`."""

    async def react(self, question: str, reply: str, *, attempt: int) -> Reaction:
        """Their reaction to a reply to `question`; `attempt` counts the replies to one task from 1."""
        ...

    async def score(self, question: str, reply: str) -> float:
        """This person's liking of a first reply, 0 to 1."""
        ...


class BuiltInUser:
    """A persona's reactions and measures: no model, the same each time."""

    def __init__(self, persona: Persona) -> None:
        self._persona = persona

    async def react(self, question: str, reply: str, *, attempt: int) -> Reaction:
        return self._persona.react(reply, attempt=attempt)

    async def score(self, question: str, reply: str) -> float:
        return self._persona.score(reply)


class ModelUser:
    """A language model, by its LiteLLM name, that plays a persona. The prompts are files: one for each persona, one for
    reacting and one for scoring, so that the score is given by a request that knows nothing of the reaction.
    """

    def __init__(
        self, model: str, persona: str, *, api_base: str = "", api_key: str = "", concurrency: int = 4
    ) -> None:
        if importlib.util.find_spec("litellm") is None:
            raise ConfigError(f"{model!r} as the user needs LiteLLM: {install_command('judge')}")
        if persona not in NAMES:
            raise ConfigError(f"there is no persona {persona!r}; choose from {', '.join(NAMES)}")
        self.model = model
        self._persona = persona
        self._where = {"api_base": api_base or None, "api_key": api_key or None}
        self._gate = asyncio.Semaphore(concurrency)

    async def react(self, question: str, reply: str, *, attempt: int) -> Reaction:
        """The model's next message, and whether it is content."""
        return await self._asked("react", read_reaction, question=question, reply=reply, attempt=str(attempt))

    async def score(self, question: str, reply: str) -> float:
        """The model's score, one of `SCORES`."""
        return await self._asked("score", read_score, question=question, reply=reply)

    async def _asked(self, kind: str, read: Callable[[str], Said], **slots: str) -> Said:
        slots["persona"] = _prompt(self._persona)
        filled = re.sub(r"\{(\w+)\}", lambda slot: slots.get(slot[1], slot[0]), _prompt(kind))
        retry = stamina.AsyncRetryingCaller(attempts=TRIES, timeout=None, wait_initial=PAUSE, wait_jitter=PAUSE)
        try:
            return await retry(UserError, self._ask, filled, read)
        except UserError as error:
            raise UserError(f"the user {self.model} failed {TRIES} times: {error}") from error

    async def _ask(self, question: str, read: Callable[[str], Said]) -> Said:
        try:
            async with self._gate, asyncio.timeout(TIMEOUT):
                library = await asyncio.to_thread(litellm)
                response = await library.acompletion(
                    model=self.model,
                    messages=[{"role": "user", "content": question}],
                    timeout=TIMEOUT,
                    num_retries=0,
                    **self._where,
                )
        except TimeoutError as error:
            raise UserError(f"no answer within {TIMEOUT:g} s") from error
        except Exception as error:  # LiteLLM passes on what its providers raise
            raise UserError(f"{type(error).__name__}: {str(error)[:300]}") from error
        return read(response.choices[0].message.content or "")


def read_reaction(answer: str) -> Reaction:
    """The last JSON object of an answer: `{"satisfied": true, "message": "…"}`. Raises `UserError`."""
    for found in reversed(re.findall(r"\{[^{}]*\}", answer, re.DOTALL)):
        try:
            said = json.loads(found, strict=False)
        except ValueError:
            continue
        message = said.get("message")
        if isinstance(said.get("satisfied"), bool) and isinstance(message, str) and message.strip():
            return Reaction("thanks" if said["satisfied"] else "complaint", message.strip())
    raise UserError(f"no reaction in the user's answer: {answer[:200]!r}")


def read_score(answer: str) -> float:
    """The last `\\boxed{…}` of an answer, which is one of `SCORES`. Raises `UserError`."""
    found = re.findall(r"\\boxed\{\s*([0-9.]+)\s*\}", answer)
    try:
        score = float(found[-1])
    except (IndexError, ValueError):
        raise UserError(f"no score in the user's answer: {answer[:200]!r}") from None
    if score not in SCORES:
        raise UserError(f"the user's score is {score:g}; it has to be one of {', '.join(f'{s:g}' for s in SCORES)}")
    return score


@functools.cache
def _prompt(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8").strip()
