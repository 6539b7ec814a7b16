"""Ask any model that LiteLLM knows; LiteLLM takes seconds to import, and is imported at the first question.

If the provider cannot be reached (`_AWAY`, 5xx, no connection, a time-out) or does not know the model, the vote has not
failed: `JudgeAway` has the provider's words.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

from openclaw_rl.learner.judge.protocol import Said
from openclaw_rl.shared.errors import ConfigError, JudgeAway, JudgeError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.litellm.library import litellm
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.settings.judge_spec import choose_judge
from openclaw_rl.shared.settings.model_reference import ModelReference
from openclaw_rl.shared.settings.settings import Settings

_AWAY = frozenset([401, 402, 403, 404, 408, 429])
_NO_MODEL = ("LLM Provider NOT provided", "model_not_found")  # what some say with a 400


class LiteLLMAsker:
    """Asks a LiteLLM model. Raises `ConfigError` if LiteLLM, or the library of `cloud_redact`, is not installed."""

    def __init__(self, name: str, settings: Settings, *, api_base: str, api_key: str) -> None:
        if importlib.util.find_spec("litellm") is None:
            raise ConfigError(f"{name!r} as a judge needs LiteLLM: {install_command('judge')}, or use judge = rules")
        self.name = name
        self._settings = settings
        self._api_base = api_base
        self._api_key = api_key
        self._outgoing = Outgoing.to_model(settings, name, api_base)

    async def ask(self, question: str) -> Said:
        """One completion. LiteLLM's own retries are off: a vote has its own."""
        library = await self.load()
        settings = self._settings
        if self._outgoing is not None:
            question = await asyncio.to_thread(self._outgoing.text, question)
        try:
            async with asyncio.timeout(settings.judge.timeout):
                response = await library.acompletion(
                    model=self.name,
                    messages=[{"role": "user", "content": question}],
                    temperature=settings.judge.temperature,
                    timeout=settings.judge.timeout,
                    num_retries=0,
                    api_base=self._api_base or None,
                    api_key=self._api_key or None,
                )
            choice = response.choices[0]
            text, thoughts = choice.message.content, getattr(choice.message, "reasoning_content", None)
        except TimeoutError as error:
            raise self._away(f"no answer within {settings.judge.timeout:g} s (judge_timeout)") from error
        except Exception as error:  # LiteLLM passes on what its providers raise; one vote must not end the loop
            reason = f"{type(error).__name__}: {str(error)[:500]}"
            if is_unavailable(error):
                raise self._away(reason) from error
            raise JudgeError(reason) from error
        cut = "it was cut off by the provider's token limit" if choice.finish_reason == "length" else ""
        return Said(str(text or ""), str(thoughts or ""), cut)

    async def close(self) -> None:
        """Nothing to release: LiteLLM keeps its own clients."""

    def _away(self, why: str) -> JudgeAway:
        return JudgeAway(f"{self.name} waits for its provider: {why}")

    async def load(self) -> Any:
        """LiteLLM itself, imported once, in a thread."""
        return await asyncio.to_thread(litellm)


def is_unavailable(error: Exception) -> bool:
    """True if the provider or its model cannot be reached; False if it refused this question. A failed connection has
    the status 500 in LiteLLM.
    """
    status = getattr(error, "status_code", None)
    if isinstance(error, OSError) or any(words in str(error) for words in _NO_MODEL):
        return True
    return isinstance(status, int) and (status in _AWAY or status >= 500)


def asker_of(model: ModelReference, settings: Settings) -> LiteLLMAsker:
    """The asker for the judge or the hint model. A hint model without a key takes the judge's where both are at one
    address of one provider (what stands before the first slash of their names).
    """
    key = settings.cloud.key_of(model.setting.removesuffix("_model"))
    if not key and model.setting == "hint_model":
        judge, _ = choose_judge(settings)
        if (judge.url, judge.name.partition("/")[0]) == (model.url, model.name.partition("/")[0]):
            key = settings.cloud.key_of("judge")
    return LiteLLMAsker(model.name, settings, api_base=model.url, api_key=key)
