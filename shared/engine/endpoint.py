"""Requests to one engine, sent again while it cannot be reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from openclaw_rl.shared.engine.http_client import Broken, HttpClient, Reply, authorized_as, without_secret
from openclaw_rl.shared.errors import EngineError

INFO_SECONDS = 10.0
"""Time limit for answers that need no work."""
MAX_ATTEMPTS = 5
"""Attempts at a request whose answer breaks off before its first token."""


class EngineCommandResult(msgspec.Struct):
    """SGLang's answer to a change of weights or adapters; for adapters the reason is in `error_message`."""

    success: bool = True
    message: str = ""
    error_message: str | None = None


class EngineEndpoint:
    """The engine at `url`; `patience` is how many seconds it may be out of reach. Methods raise `EngineError`."""

    def __init__(self, url: str, patience: float) -> None:
        self.url = without_secret(url.rstrip("/"))
        self.patience = patience
        self._full_url = url.rstrip("/")
        self._http = HttpClient(self._full_url)

    def neighbour(self, url: str) -> EngineEndpoint:
        """The engine at another URL, which takes the same authorization."""
        return EngineEndpoint(authorized_as(url, self._full_url), self.patience)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)

    async def open(self, path: str, body: bytes, deadline: float) -> Reply:
        """Send a POST, repeatedly while the engine cannot be reached; returns once the answer's status is known."""
        give_up = min(deadline, time.monotonic() + self.patience)
        pause = 0.05
        while True:
            reply = None
            try:
                reply = await self._http.send("POST", path, body)
                reply.expire(deadline - time.monotonic())
                await reply.head()
                return reply
            except OSError as error:
                if reply is not None:
                    reply.close()
                if time.monotonic() + pause > give_up:
                    reason = str(error) or "no answer in time"
                    raise EngineError(f"the engine at {self.url} cannot be reached: {reason}") from error
            except BaseException:
                if reply is not None:
                    reply.close()
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    async def post(self, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Status and body of an answer. Sent again if the answer breaks off, so use it for idempotent routes only."""
        deadline = time.monotonic() + seconds
        for attempt in range(1, MAX_ATTEMPTS + 1):
            reply = await self.open(path, body, deadline)
            try:
                return reply.status, await reply.body()
            except TimeoutError as error:
                raise EngineError(f"the engine at {self.url} did not answer {path} in time") from error
            except OSError as error:
                if attempt == MAX_ATTEMPTS:
                    raise EngineError(f"the engine at {self.url} breaks off its answers to {path}: {error}") from error
            finally:
                reply.close()
        raise AssertionError("unreachable")

    async def command(self, path: str, fields: Mapping[str, Any], seconds: float = INFO_SECONDS) -> None:
        """Have something done. Raises `EngineError` with the engine's reason unless it reports success."""
        status, raw = await self.post(path, msgspec.json.encode(fields), seconds)
        result = decode_or_none(raw, EngineCommandResult) or EngineCommandResult()
        if status != 200 or not result.success:
            reason = result.message or result.error_message or error_message(raw)
            raise EngineError(f"the engine at {self.url} refused {path}: {reason}", status=status)

    async def get(self, path: str, seconds: float = INFO_SECONDS) -> dict[str, Any]:
        """A JSON object. Does not wait for an engine that is down."""
        try:
            try:
                status, raw = await self._get_once(path, seconds)
            except Broken:  # the server may have closed a kept connection just when it was used again
                status, raw = await self._get_once(path, seconds)
        except OSError as error:
            reason = str(error) or type(error).__name__
            raise EngineError(f"the engine at {self.url} cannot be reached: {reason}") from error
        facts = decode_or_none(raw, dict[str, Any])
        if status != 200 or facts is None:
            reason = f": {error_message(raw)}" if status in (401, 503) and raw else ""
            raise EngineError(f"the engine at {self.url} answered {path} with status {status}{reason}", status=status)
        return dict(facts)

    async def _get_once(self, path: str, seconds: float) -> tuple[int, bytes]:
        """Status and body. Raises `OSError`."""
        reply = await self._http.send("GET", path)
        try:
            reply.expire(seconds)
            return await reply.head(), await reply.body()
        finally:
            reply.close()

    def close(self) -> None:
        """Release connections; requests in flight end."""
        self._http.close()


def decode_or_none(raw: bytes, kind: type[Any]) -> Any:
    """JSON as `kind`, `None` if it is something else."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def error_message(raw: bytes) -> str:
    """The text of an error body of any shape."""
    body = decode_or_none(raw, dict[str, Any])
    if body is not None:
        error = body.get("error", body)
        text = error.get("message") if isinstance(error, dict) else error
        if text:
            return str(text)
    return raw[:500].decode(errors="replace") or "an empty answer"
