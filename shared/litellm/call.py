"""A client's request through LiteLLM to our provider, and the parts of the answer that LiteLLM would lose."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import httpx

from .callback import HEADER_PREFIX

CHAT_MODEL = "chat"
"""The policy's name in requests of our dialect process."""


class CallRefusal(NamedTuple):
    """The proxy's error: status, OpenAI's error object, and seconds to wait (`None`: not stated)."""

    status: int
    error: Mapping[str, Any]
    retry_after: float | None

    @property
    def message(self) -> str:
        """The error's message, or its status."""
        return str(self.error.get("message") or f"status {self.status}")


class LiteLLMCall:
    """One request on behalf of a client, and what the proxy sent besides the answer.

    `url` is the proxy's base URL with `/v1`, `headers` are sent as they are, `extra` are fields of the chat body that
    win over LiteLLM's. `counting` asks for the length of the prompt (`input_tokens`) instead of an answer. `begun` is
    set once the proxy has begun to answer; from then on `response_headers` holds its headers, and `usage` and
    `stop_reason` follow.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        extra: Mapping[str, Any] | None = None,
        *,
        counting: bool = False,
    ) -> None:
        self.url = url
        self.headers = headers
        self.extra = extra or {}
        self.counting = counting
        self.begun = False
        self.response_headers: dict[str, str] = {}
        self.refusal: CallRefusal | None = None
        self.input_tokens = 0
        self.usage: dict[str, Any] = {}
        self.stop_reason: str | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []

    async def close(self) -> None:
        """Close the connections to the proxy: an answer that is still being sampled ends there."""
        while self._closers:
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                await self._closers.pop()()

    def opened(self, response: httpx.Response) -> None:
        """Keep a response's headers, and how to close it."""
        self.response_headers = {
            name: value for name, value in response.headers.items() if name.startswith(HEADER_PREFIX)
        }
        self.begun = response.status_code == 200
        self._closers.append(response.aclose)

    def take(self, body: Mapping[str, Any]) -> None:
        """Keep usage and stop reason of a body, or of a chunk of it."""
        self.usage = body.get("usage") or self.usage
        for choice in body.get("choices") or ():
            self.stop_reason = choice.get("stop_reason") or self.stop_reason


CALL: ContextVar[LiteLLMCall | None] = ContextVar("policy_call", default=None)
