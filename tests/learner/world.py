"""A learner with a real journal, a real trainer on a random policy, and a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from openclaw_rl.learner.judge.create import create as create_judge
from openclaw_rl.learner.judge.loop import JudgeLoop
from openclaw_rl.learner.loop import Learner
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.versions import Versions
from openclaw_rl.shared.backends import create_trainer
from openclaw_rl.shared.engine.protocol import EngineInfo, Priority, Scores, Tokens
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import NextState, Sample, Sampling, Turn, VersionSpan
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe, StepReport, Trainer
from tests.learner.things import turn


class ScriptedEngine:
    """Stands for an engine: answers with a few random tokens, and records its calls.

    `down` makes every call fail as an unreachable engine does, `refuses` every load as a broken checkpoint does.
    """

    def __init__(self, model_path: str) -> None:
        self.model_path = model_path
        self.live = 0
        self.loads: list[tuple[int, str, bool]] = []
        self.asked: list[tuple[tuple[int, ...], int | None, Priority]] = []
        self.down = False
        self.refuses = False
        self.digest = ""

    async def generate(
        self, prompt_ids: Sequence[int] | bytes, sampling: Sampling, **options: Any
    ) -> AsyncIterator[Tokens]:
        self._check()
        version = options.get("version")
        self.asked.append((tuple(prompt_ids), version, options["priority"]))
        draw = Random(len(self.asked))
        ids = [draw.randrange(300, 400) for _ in range(min(4, sampling.max_tokens))]
        number = self.live if version is None else version
        yield Tokens(ids=ids[:1], logprobs=[-1.0], version=number)
        spans = [VersionSpan(number, 0, len(ids))]
        rest = [-1.0] * (len(ids) - 1)
        yield Tokens(ids=ids[1:], logprobs=rest, version=number, finish_reason="stop", versions=spans)

    async def score(self, *_: Any, **__: Any) -> Scores:
        raise EngineError("the scripted engine scores nothing", status=501)

    async def load(self, version: int, path: str, *, live: bool) -> None:
        self._check()
        if self.refuses:
            raise EngineError(f"{path} holds weights of other shapes", status=400)
        self.loads.append((version, path, live))
        if live:
            self.live = version

    async def info(self) -> EngineInfo:
        self._check()
        return EngineInfo(self.live, (0, self.live), self.model_path, 4096, 4096, digest=self.digest)

    async def close(self) -> None:
        self.down = True

    def _check(self) -> None:
        if self.down:
            raise EngineError("the engine cannot be reached")


class SteppedJudgeLoop(JudgeLoop):
    """A judge loop that a test drives."""

    async def once(self) -> int:
        """Judge up to `judge_concurrency` waiting turns; returns how many were judged. Raises `JudgeAway` if one cannot
        be judged now.
        """
        working: dict[str, asyncio.Task[bool]] = {}
        settled = await self._begin(working)
        results = await asyncio.gather(*working.values(), return_exceptions=True)
        self._postpone(results)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return settled + sum(result is True for result in results)


@dataclass
class World:
    """A learner and everything about it; `again` is the same data folder after a crash, with fresh processes."""

    settings: Settings
    journal: AsyncJournal
    engine: ScriptedEngine
    prompter: Prompter
    trainer: Trainer
    progress: Progress = field(default_factory=Progress)
    in_flight: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.versions = Versions(self.journal, self.engine, self.trainer, self.settings, self.progress)
        judge = create_judge(self.settings, self.engine, self.prompter)
        self.judge = SteppedJudgeLoop(self.journal, judge, self.settings, self.progress, self.in_flight)
        self.learner = Learner(
            self.journal,
            self.engine,
            self.trainer,
            self.versions,
            self.prompter,
            self.settings,
            self.progress,
            wake=self.judge.judged,
            in_flight=self.in_flight,
        )

    @classmethod
    def open(cls, data: Path, policy: Path, prompter: Prompter, **changes: Any) -> World:
        """A world on a data folder, new or left by another."""
        fields: dict[str, Any] = {
            "data": data,
            "model": str(policy),
            "device": "cpu",
            "batch_size": 4,
            "rehearsals": 3,
            "anchors": 2,
            "epochs": 1,
            "lora_rank": 2,
            "guard_max_kl": 50.0,
            "guard": False,  # the scripted engine scores nothing
        }
        settings = Settings(**(fields | changes))
        journal = AsyncJournal(settings.serve.journal_path)
        trainer = create_trainer(settings) if settings.learning.train else None
        return cls(settings, journal, ScriptedEngine(str(policy)), prompter, trainer)  # type: ignore[arg-type]

    async def says(
        self, number: int, text: str, *, question: str | None = None, role: str = "user", **changes: Any
    ) -> Turn:
        """A recorded turn and what came after it, not yet judged."""
        question = question or f"How much is {number} and 5?"
        messages = [{"role": "user", "content": question}]
        chat = ChatInput(messages=messages, tools=[], tools_json=b"")
        fields: dict[str, Any] = {"messages": messages, "prompt_ids": self.prompter.render(chat).ids()}
        made = turn(number, **(fields | changes))
        await self.journal.record_turn(made)
        if text:
            await self.journal.settle(NextState(turn_id=made.turn_id, role=role, text=text))  # type: ignore[arg-type]
        return made

    async def judge_all(self) -> None:
        """Judge until no turn waits."""
        while await self.judge.once():
            pass

    def spy(self) -> list[Sample]:
        """The samples of the steps to come, as the trainer gets them."""
        taught: list[Sample] = []
        step = self.trainer.step

        async def spied(samples: Sequence[Sample], recipe: Recipe) -> StepReport:
            taught.extend(samples)
            return await step(samples, recipe)

        self.trainer.step = spied  # type: ignore[method-assign]
        return taught

    async def close(self) -> None:
        """End trainer and journal."""
        if self.settings.learning.train:
            await self.trainer.close()
        await self.journal.close()


Worlds = Callable[..., World]
