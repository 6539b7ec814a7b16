"""The proxy's application in this process, over an engine that says what the test wants: for answers that a real policy
gives too rarely to wait for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from openclaw_rl.proxy.app import create_app
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.engine.protocol import EngineInfo, Priority, Scores, Tokens
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Sampling
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings


class ScriptedEngine:
    """A `shared.engine.protocol.Engine` whose every answer is `says`, token by token; what it scores is never
    likely."""

    def __init__(self, prompter: Prompter, says: str) -> None:
        self._prompter = prompter
        self.says = says
        self.cut = False
        self.scored = 0

    async def generate(
        self,
        prompt_ids: Sequence[int] | bytes,
        sampling: Sampling,
        *,
        images: Sequence[Any] = (),
        version: int | None = None,
        priority: Priority = Priority.CHAT,
        request_id: str | None = None,
        top_logprobs: int = 0,
    ) -> AsyncIterator[Tokens]:
        """The tokens of `says` and the one that ends an answer; without that one if `cut`."""
        ids = self.tokens()
        for token in ids if self.cut else [*ids, self._prompter.stop_ids[0]]:
            yield Tokens([token], [-1.0], 0)
        yield Tokens([], [], 0, finish_reason="length" if self.cut else "stop")

    def tokens(self) -> list[int]:
        """The ids of `says`, as the tokenizer has them."""
        return self._prompter.tokenizer.encode(self.says)

    async def score(
        self,
        prompt_ids: Sequence[int],
        continuation_ids: Sequence[int],
        *,
        version: int | None = None,
        top_k: int = 0,
        priority: Priority = Priority.AUDIT,
        images: Sequence[Any] = (),
    ) -> Scores:
        """Every token is as unlikely as the next. `scored` counts the calls."""
        self.scored += 1
        return Scores([-5.0] * len(continuation_ids), 0)

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Nothing to load."""

    async def info(self) -> EngineInfo:
        """Version 0 and a small context."""
        return EngineInfo(0, (0,), "scripted", 4096, self._prompter.vocab_size)

    async def close(self) -> None:
        """Nothing to close."""


@asynccontextmanager
async def scripted_service(
    policy: Path,
    data: Path,
    says: str,
    *,
    engine: type[ScriptedEngine] = ScriptedEngine,
    outgoing: Outgoing | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[httpx.AsyncClient, ProxyService, ScriptedEngine]]:
    """A client of the application, the service behind it and its engine."""
    settings = Settings(model=str(policy), data=data, api_key="key", **changes)
    prompter = Prompter(policy, outgoing=outgoing)
    scripted = engine(prompter, says)
    service = ProxyService(settings, AsyncJournal(settings.serve.journal_path), scripted, prompter)
    await service.start()
    try:
        transport = httpx.ASGITransport(create_app(service))
        headers = {"authorization": "Bearer key"}
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy", headers=headers) as client:
            yield client, service, scripted
    finally:
        await service.stop()
