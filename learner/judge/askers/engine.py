"""Ask a model behind the `Engine` protocol: the served base, or the judge's engine.

If the engine cannot be reached, is too busy with chat, or lacks the version, the vote has not failed: `JudgeAway` lets
the turn wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from openclaw_rl.learner.judge.protocol import Said
from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import BadRequest, ConfigError, EngineError, JudgeAway, JudgeError
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sampling
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings

_AWAY = frozenset([401, 403, 404, 408, 429])
_LEAST_ROOM = 16  # tokens below which an answer cannot hold a verdict


class LazyPrompter:
    """Makes a prompter in a thread when it is first needed."""

    def __init__(self, make: Callable[[], Awaitable[Prompter]]) -> None:
        self._make = make
        self._made: Prompter | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> Prompter:
        """The prompter. Raises `ConfigError` for a model without a usable template."""
        async with self._lock:
            if self._made is None:
                self._made = await self._make()
        return self._made

    @classmethod
    def folder(cls, folder: str, engine: Engine) -> LazyPrompter:
        """The prompter of a model folder; if `folder` is "", of the folder that the engine names."""

        async def make() -> Prompter:
            found = folder or (await engine.info()).model_path
            if not Path(found).is_dir():
                raise ConfigError(
                    f"the engine's model {found!r} is no folder here, and its tokenizer is needed: "
                    "set judge = engine:FOLDER@URL"
                )
            return await asyncio.to_thread(Prompter, found)

        return cls(make)


@dataclass(eq=False)
class EngineAsker:
    """Asks an engine. `version` answers (`None`: the live one); `own` closes the engine with the asker; `outgoing`
    redacts questions.
    """

    name: str
    engine: Engine
    prompter: LazyPrompter
    settings: Settings
    _: KW_ONLY
    version: int | None
    own: bool
    outgoing: Outgoing | None = None

    async def ask(self, question: str) -> Said:
        """One sampled answer, at a lower priority than chat."""
        seconds = self.settings.judge.timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._sample(question)
        except TimeoutError as error:
            raise self._away(f"no answer within {seconds:g} s (judge_timeout)") from error
        except EngineError as error:
            if error.status is None or error.status in _AWAY or error.status >= 500:
                raise self._away(str(error)) from error
            raise JudgeError(str(error)) from error
        except ConfigError as error:
            raise self._away(str(error)) from error
        except BadRequest as error:
            raise JudgeError(str(error)) from error

    async def close(self) -> None:
        if self.own:
            await self.engine.close()

    async def _sample(self, question: str) -> Said:
        prompter = await self.prompter.get()
        if self.outgoing is not None:
            question = await asyncio.to_thread(self.outgoing.text, question)
        chat = ChatInput(messages=[{"role": "user", "content": question}])
        prompt = await prompter.render_async(chat)
        limit = self.settings.judge.max_tokens
        room = prompter.context_length - prompt.length if prompter.context_length else limit
        if room < _LEAST_ROOM:
            raise JudgeError(f"the question has {prompt.length} tokens, and the model reads {prompter.context_length}")
        sampling = Sampling(
            temperature=self.settings.judge.temperature,
            max_tokens=min(limit, room),
            stop=prompter.text_stops,
            stop_ids=prompter.own_stop_ids,
        )
        parser = prompter.parser(prompt, chat)
        tokens = await whole_answer(self.engine, prompt.ids(), sampling, version=self.version, priority=Priority.JUDGE)
        parser.feed_many(tokens.ids)
        finish = tokens.finish_reason or "stop"
        _, answer = parser.finish(finish)
        cut = f"it was cut off after {sampling.max_tokens} tokens, see judge_max_tokens" if finish == "length" else ""
        return Said(answer.content, answer.reasoning, cut)

    def _away(self, why: str) -> JudgeAway:
        return JudgeAway(f"the judge {self.name} waits for its engine: {why}")
