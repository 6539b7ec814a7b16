"""A client's request that goes through LiteLLM to our provider, and what LiteLLM would lose of it. See
`shared.litellm.provider`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import httpx

from openclaw_rl.shared.litellm.deployment import TOLD_PREFIX

CHAT_MODEL = "chat"
"""What the policy is called by the proxy's own process of the dialects."""


class Refusal(NamedTuple):
    """What the proxy said instead of an answer: status, OpenAI's error object, seconds to wait (`None`: nothing
    said)."""

    status: int
    error: Mapping[str, Any]
    retry_after: float | None

    @property
    def message(self) -> str:
        """The words of the error."""
        return str(self.error.get("message") or f"status {self.status}")


class Call:
    """One request on behalf of a client, and what the proxy told beside the answer.

    `url` is the proxy's base URL with `/v1`, `headers` are sent as they are, `extra` are fields of the chat body that
    win over LiteLLM's. `counting` asks for the length of the prompt (`input_tokens`) instead of an answer. `begun` is
    set once the proxy has begun to answer, when `told` holds its headers; then `usage` and `stop_reason` follow.
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
        self.told: dict[str, str] = {}
        self.refusal: Refusal | None = None
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
        """Remember what a response's head says, and how to end it."""
        self.told = {name: value for name, value in response.headers.items() if name.startswith(TOLD_PREFIX)}
        self.begun = response.status_code == 200
        self._closers.append(response.aclose)

    def take(self, body: Mapping[str, Any]) -> None:
        """Remember what a body, or a chunk of it, says beside the answer."""
        self.usage = body.get("usage") or self.usage
        for choice in body.get("choices") or ():
            self.stop_reason = choice.get("stop_reason") or self.stop_reason


CALL: ContextVar[Call | None] = ContextVar("policy_call", default=None)
