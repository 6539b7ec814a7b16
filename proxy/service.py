"""The parts of one proxy process, made once and shared by its routes."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress

from openclaw_rl.proxy.chat.fallback_answer import FallbackAnswer
from openclaw_rl.proxy.chat.fallback_models import AnswerPlan, OtherModels
from openclaw_rl.proxy.chat.policy_answer import PolicyAnswer
from openclaw_rl.proxy.chat.prompt import PromptRenderer
from openclaw_rl.proxy.chat.request import RenderedRequest, RequestParser
from openclaw_rl.proxy.chat.tool_choice import ToolChooser
from openclaw_rl.proxy.chat.turn import ChatTurn
from openclaw_rl.proxy.conversation.placement import Conversations
from openclaw_rl.proxy.conversation.recorder import SLOW_WRITE_SECONDS, Recorder
from openclaw_rl.proxy.conversation.sessions import SessionKeeper, SessionLimit
from openclaw_rl.proxy.dialects.process import AdapterProcess
from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.proxy.engine.versions import ServedVersions
from openclaw_rl.proxy.engine.watch import AWAY_SECONDS, EngineWatch
from openclaw_rl.proxy.http import limits
from openclaw_rl.proxy.http.events import EventFeed
from openclaw_rl.proxy.http.limits import KeyLimits
from openclaw_rl.proxy.http.stream import Pulse
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.backends import is_sglang
from openclaw_rl.shared.engine.answers import STALL_SECONDS
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import ConfigError, JournalError, RequestError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.loop_lag import watch_lag
from openclaw_rl.shared.memory import return_freed_memory
from openclaw_rl.shared.records import now
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0


class ProxyService:
    """`answering`: chat requests in progress. `journal_error`: why the last heartbeat was not written, or "". `judge`:
    the judge of the turns, with the reason for `judge = auto`.
    """

    def __init__(self, settings: Settings, journal: AsyncJournal, engine: Engine, prompter: Prompter) -> None:
        self.settings = settings
        self.journal = journal
        self.engine = engine
        self.prompter = prompter
        self.metrics = Metrics()
        serve = settings.serve
        self.names = ModelNames(serve.model_name, serve.model_aliases, strict=serve.strict_model_names)
        self.watch = EngineWatch(
            engine,
            settings.engine.context_length,
            model_context_length=prompter.context_length,
            model_blind=prompter.blind,
            # SGLang answers nothing while it takes new weights, and its answers wait as long.
            silent_seconds=STALL_SECONDS if is_sglang(settings) else AWAY_SECONDS,
        )
        self.versions = ServedVersions(engine, self.watch, journal, self.names)

        self.conversations = Conversations(journal, retry_window=settings.serve.request_timeout)
        self.recorder = Recorder(
            journal,
            self.conversations,
            self.metrics,
            serve.model_name,
            required=not serve.serve_without_journal,
        )
        idle = settings.serve.session_idle_seconds
        self.session_limit = SessionLimit(journal, settings.serve.max_sessions, idle, settings.serve.request_timeout)
        self.sessions = SessionKeeper(journal, self.conversations, self.recorder, self.session_limit, idle)

        self.dialects = AdapterProcess()
        self.others = OtherModels(settings, self.dialects, self.watch)
        self.judge = _judge(settings)
        self.parser = RequestParser(
            *(settings, self.names, self.watch, self.conversations.chains, journal.open_attempt),
            temperature=prompter.temperature,
        )
        self.renderer = PromptRenderer(prompter, self.watch, self.conversations)
        self.tools = ToolChooser(engine, prompter, self.renderer)

        self.pulse = Pulse(self.watch, limits.CLIENT_SECONDS)
        self.limits = KeyLimits(settings.serve.key_concurrency)
        self.metrics.waiting.set_function(lambda: self.limits.waiting + self.dialects.limit.waiting)
        self.events = EventFeed(journal)
        self.journal_error = ""
        self.answering: set[asyncio.Task[None]] = set()
        self.started = now()
        self._tasks: list[asyncio.Task[None]] = []

    def turn(self, request: RenderedRequest, plan: AnswerPlan) -> ChatTurn:
        """The answer to a request, not begun."""
        policy = PolicyAnswer(request, engine=self.engine, prompter=self.prompter, metrics=self.metrics)
        alone = plan == AnswerPlan()
        fallback = None if alone else FallbackAnswer(request, policy, plan, self.watch, self.metrics)
        return ChatTurn(request, policy, fallback, recorder=self.recorder, metrics=self.metrics)

    async def start(self) -> None:
        """Begin the background work."""
        for name, work in (
            ("engine watch", self.watch.run()),
            ("pulse", self.pulse.run()),
            ("idle episodes", self.sessions.run()),
            ("erasing", self.sessions.erase()),
            ("retention", self.sessions.retain(self.settings.serve.keep_days)),
            ("heartbeat", self._heartbeats()),
            ("loop lag", watch_lag(self.metrics.loop_lag.observe)),
            ("memory", return_freed_memory()),
        ):
            self._tasks.append(asyncio.create_task(work, name=name))
        if self.others:
            self._tasks.append(asyncio.create_task(self._start_adapter(), name="adapter"))

    async def stop(self) -> None:
        """Let answers in progress be recorded, end the background work, close journal and engine client."""
        if self.answering:
            await asyncio.wait(self.answering, timeout=3.0)
        await self.events.close()
        await self.dialects.stop()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.engine.close()
        await self.journal.close()

    async def _start_adapter(self) -> None:
        """Begin the adapter process at once: it takes seconds to load, which a fallback cannot wait for."""
        try:
            await self.dialects.ready()
        except RequestError as error:
            log.warning("side_model and fallback_model cannot be asked yet: %s", error.message)

    async def _heartbeats(self) -> None:
        while True:
            status = {
                "active": len(self.answering),
                "engine": self.watch.error or "ok",
                "journal": self.recorder.trouble or "ok",
            }
            try:
                written = asyncio.ensure_future(self.journal.heartbeat("proxy", os.getpid(), status))
                if not (await asyncio.wait({written}, timeout=SLOW_WRITE_SECONDS))[0]:
                    self.journal_error = f"a write has waited for {SLOW_WRITE_SECONDS:g} s: another process holds it"
                    self.recorder.skip(self.journal_error)
                await written
                self.journal_error = ""
                self.recorder.resume()
            except JournalError as error:
                self.journal_error = self.recorder.trouble = str(error)
                self.recorder.skip(self.journal_error)
            await asyncio.sleep(HEARTBEAT_SECONDS)


def _judge(settings: Settings) -> str:
    """The judge, or why there is none: only the learner needs it."""
    try:
        return JudgeModels.from_settings(settings).judge_title
    except ConfigError as error:
        return str(error)
