"""A chat client as ordinary programs have one: httpx, the OpenAI wire, back-off and another try when the service is
away for a moment.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import httpx
import stamina

from openclaw_rl.shared.errors import OpenClawRLError

Message = dict[str, Any]

COMPLETIONS = "/v1/chat/completions"
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 3.0


class ChatError(OpenClawRLError):
    """The service refused a request or could not be reached; `status` is the HTTP status, `None` when no answer
    came, and `code` the error's machine-readable word, "" without one.
    """

    def __init__(self, message: str, *, status: int | None = None, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class CutOff(ChatError):
    """An answer that began and did not come to its end."""


@dataclass(frozen=True)
class ChatReply:
    """One answer. `turn_id`, `session_id`, `kind` and `reason` are what the service's headers say, empty where it says
    nothing. `message` is the answer as it is on the wire, to be sent back in the next request, and `tool_calls` are
    its calls; both of an answer that was not streamed.
    """

    text: str
    finish_reason: str
    turn_id: str = ""
    session_id: str = ""
    kind: str = ""
    reason: str = ""
    message: Message = field(default_factory=dict)

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        """The calls of `message`."""
        return tuple(self.message.get("tool_calls") or ())


@dataclass(frozen=True)
class StreamDelta:
    """A piece of a streamed answer and when it arrived (`time.perf_counter`); the first one carries the headers, the
    last the reason.
    """

    text: str
    time: float
    headers: Mapping[str, str]
    finish_reason: str | None = None


class ChatClient:
    """Talks to one base URL, with or without `/v1` at its end. Use as an async context manager.

    `patience`: seconds during which failed connections, 429 and 5xx are tried again, 0 for not at all; the history is
    sent again as it is. `timeout`: seconds without a byte after which an answer counts as lost.
    """

    def __init__(
        self, url: str, key: str, *, model: str = "policy", patience: float = 90.0, timeout: float = 120.0
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        self.patience = patience
        self.retries = 0
        self._retry = stamina.AsyncRetryingCaller(
            attempts=None if patience else 1,
            timeout=patience or None,
            wait_initial=FIRST_PAUSE,
            wait_max=LONGEST_PAUSE,
            wait_jitter=FIRST_PAUSE,
        ).on(self._passing)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(timeout, connect=10.0),
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
            trust_env=False,
            verify=not self.url.startswith("http://"),  # each client would load the certificates
        )

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ChatReply:
        """One answer, streamed or not; further `options` go into the body (`max_tokens`, `temperature`, `tools`…).

        Raises `ChatError` (or `CutOff`) when the service refuses, or has not answered within `patience`.
        """
        answer = self._streamed if stream else self._whole
        return await self._retry(answer, messages, headers or {}, options)

    async def stream(
        self, messages: Sequence[Message], *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncIterator[StreamDelta]:
        """One streamed answer, piece by piece, tried once. Raises `ChatError` before the first piece, `CutOff` after
        it.
        """
        body = {"model": self.model, "messages": list(messages), "stream": True, **options}
        begun = False
        try:
            async with self._http.stream("POST", COMPLETIONS, json=body, headers=dict(headers or {})) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _refused(response)
                begun = True
                async for delta in _deltas(response):
                    yield delta
        except httpx.HTTPError as error:
            if begun:
                raise CutOff(f"the answer of {self.url} broke off: {error!r}") from error
            raise ChatError(f"{self.url} cannot be reached: {error!r}") from error

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON of a control route, tried again within `patience`."""
        return (await self._retry(self._send, "GET", path, params=query)).json()

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """POST JSON to a control route, tried again within `patience`; the JSON of the answer."""
        return (await self._retry(self._send, "POST", path, json=dict(body or {}))).json()

    def _passing(self, error: Exception) -> bool:
        passing = isinstance(error, ChatError) and (error.status is None or error.status in RETRIED_STATUSES)
        self.retries += passing
        return passing

    async def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise ChatError(f"{self.url}{path} cannot be reached: {error!r}") from error
        if response.status_code != 200:
            raise _refused(response)
        return response

    async def _whole(
        self, messages: Sequence[Message], headers: Mapping[str, str], options: Mapping[str, Any]
    ) -> ChatReply:
        body = {"model": self.model, "messages": list(messages), **options}
        response = await self._send("POST", COMPLETIONS, json=body, headers=dict(headers))
        choice = response.json()["choices"][0]
        message = choice["message"]
        reply = _reply(message.get("content") or "", choice["finish_reason"], response.headers)
        return replace(reply, message=message)

    async def _streamed(
        self, messages: Sequence[Message], headers: Mapping[str, str], options: Mapping[str, Any]
    ) -> ChatReply:
        text: list[str] = []
        finish_reason = ""
        answered: Mapping[str, str] = {}
        async for delta in self.stream(messages, headers=headers, **options):
            text.append(delta.text)
            answered = delta.headers
            finish_reason = delta.finish_reason or finish_reason
        return _reply("".join(text), finish_reason, answered)


async def _deltas(response: httpx.Response) -> AsyncIterator[StreamDelta]:
    """The content of a server-sent event stream that has to end with a finish reason and `[DONE]`."""
    finish_reason = None
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            if finish_reason is None:
                raise CutOff("the stream ended without a finish reason")
            return
        event = json.loads(data)
        if "error" in event:
            raise CutOff(f"the stream ended with an error: {event['error'].get('message')}")
        for choice in event.get("choices", ()):
            finish_reason = choice.get("finish_reason") or finish_reason
            text = choice.get("delta", {}).get("content") or ""
            yield StreamDelta(text, time.perf_counter(), response.headers, choice.get("finish_reason"))
    raise CutOff("the stream ended without [DONE]")


def _reply(text: str, finish_reason: str, headers: Mapping[str, str]) -> ChatReply:
    return ChatReply(
        text=text,
        finish_reason=finish_reason,
        turn_id=headers.get("x-openclaw-rl-turn", ""),
        session_id=unquote(headers.get("x-openclaw-rl-session", "")),
        kind=headers.get("x-openclaw-rl-kind", ""),
        reason=headers.get("x-openclaw-rl-reason", ""),
    )


def _refused(response: httpx.Response) -> ChatError:
    try:
        code = response.json()["error"]["code"] or ""
    except (ValueError, LookupError, TypeError):  # another program's answer
        code = ""
    return ChatError(
        f"{response.request.method} {response.request.url.path} was answered with "
        f"{response.status_code}: {response.text[:300]}",
        status=response.status_code,
        code=str(code),
    )
