"""Everything one proxy process holds, made once and shared by its routes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from proxy.chat import ChatTurn
from proxy.conversation import Conversations
from proxy.dialects.route import Dialects
from proxy.engine_watch import EngineWatch
from proxy.incoming import Incoming, Reader
from proxy.limits import KeyLimits
from proxy.metrics import Metrics
from proxy.model_names import ModelNames
from proxy.other_model import OtherModel, OtherModels
from proxy.recorder import Recorder
from proxy.routed import RoutedTurn
from proxy.session_limit import SessionLimit
from proxy.sessions import SessionKeeper
from proxy.stream import Pulse
from proxy.tool_choice import ToolChooser
from proxy.versions import Versions
from shared.engine import Engine
from shared.errors import JournalError, RequestError
from shared.journal import AsyncJournal
from shared.records import now
from shared.rendering import Prompter
from shared.settings import Settings

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
