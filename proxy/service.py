"""Everything one proxy process holds, made once and shared by its routes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from openclaw_rl.proxy.chat.fallback_models import OtherModel, OtherModels
from openclaw_rl.proxy.chat.fallback_turn import RoutedTurn
from openclaw_rl.proxy.chat.request import Incoming, Reader
from openclaw_rl.proxy.chat.tool_choice import ToolChooser
from openclaw_rl.proxy.chat.turn import ChatTurn
from openclaw_rl.proxy.conversation.placement import Conversations
from openclaw_rl.proxy.conversation.recorder import Recorder
from openclaw_rl.proxy.conversation.session_limit import SessionLimit
from openclaw_rl.proxy.conversation.sessions import SessionKeeper
from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.proxy.engine.versions import Versions
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.proxy.http.limits import KeyLimits
from openclaw_rl.proxy.http.stream import Pulse
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.proxy.routes.dialects import Dialects
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import JournalError, RequestError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import now
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0


class Service:
    """The parts and their background tasks.

    `answering` holds the chat requests in progress; `journal_error` is why the last heartbeat could not be written (""
    if it could).
    """

    def __init__(self, settings: Settings, journal: AsyncJournal, engine: Engine, prompter: Prompter) -> None:
        self.settings = settings
        self.journal = journal
        self.engine = engine
        self.prompter = prompter
        self.metrics = Metrics()
        self.conversations = Conversations(journal, retry_window=settings.request_timeout)
        self.recorder = Recorder(journal, self.conversations, self.metrics, settings.model_name)
        idle = settings.session_idle_seconds
        self.session_limit = SessionLimit(journal, settings.max_sessions, idle, settings.request_timeout)
        self.sessions = SessionKeeper(journal, self.conversations, self.recorder, self.session_limit, idle)
        self.watch = EngineWatch(engine, settings.context_length)
        self.dialects = Dialects(settings.dialect_concurrency, settings.queue_seconds, settings.queue_length)
        self.others = OtherModels(settings, self.dialects.process, self.watch, self.metrics)
        self.names = ModelNames.of(settings)
        self.reader = Reader(settings, self.names, prompter, self.conversations, self.watch, self.others)
        self.tools = ToolChooser(engine, prompter, self.reader)
        self.pulse = Pulse(self.watch, settings.slow_client_seconds)
        self.limits = KeyLimits(settings.key_concurrency, settings.queue_seconds, settings.queue_length)
        self.metrics.waiting.set_function(lambda: self.limits.waiting + self.dialects.limit.waiting)
        self.versions = Versions(engine, self.watch, journal, self.names)
        self.journal_error = ""
        self.answering: set[asyncio.Task[None]] = set()
        self.started = now()
        self._tasks: list[asyncio.Task[None]] = []

    def turn(self, incoming: Incoming, order: Sequence[OtherModel | None] = (None,)) -> ChatTurn:
        """The answer to a request, not begun. `order` says who is asked for it, as `OtherModels.order` does."""
        parts: dict[str, Any] = {
            "engine": self.engine,
            "prompter": self.prompter,
            "recorder": self.recorder,
            "metrics": self.metrics,
        }
        if tuple(order) == (None,):
            return ChatTurn(incoming, **parts)
        return RoutedTurn(incoming, order=order, others=self.others, watch=self.watch, **parts)

    async def start(self) -> None:
        """Begin the background work. Returns after the engine was asked once, whatever it said."""
        for name, work in (
            ("engine watch", self.watch.run()),
            ("pulse", self.pulse.run()),
            ("idle episodes", self.sessions.run()),
            ("heartbeat", self._heartbeats()),
        ):
            self._tasks.append(asyncio.create_task(work, name=name))
        if self.others.any:
            self._tasks.append(asyncio.create_task(self._warm(), name="adapter"))

    async def stop(self) -> None:
        """Let answers in progress be recorded, end the background work, close journal and engine client."""
        if self.answering:
            await asyncio.wait(self.answering, timeout=3.0)
        await self.dialects.process.stop()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.engine.close()
        await self.journal.close()

    async def _warm(self) -> None:
        """Begin the adapter process before anybody needs it: a fallback that takes seconds to load is none."""
        try:
            await self.dialects.process.connections()
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
                await self.journal.heartbeat("proxy", os.getpid(), status)
                self.journal_error = ""
            except JournalError as error:
                self.journal_error = self.recorder.trouble = str(error)
            await asyncio.sleep(HEARTBEAT_SECONDS)
