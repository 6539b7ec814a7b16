"""A chat request from LiteLLM's arguments, and LiteLLM's objects from our proxy's response."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import msgspec

from .call import CALL, CallRefusal, LiteLLMCall
from .callback import LIVE, PROVIDER, deployment, remember_headers, session_fields

CHAT_PATH = "/chat/completions"
COUNT_PATH = "/chat/completions/input_tokens"
CONNECT_SECONDS = 10.0
DEFAULT_TIMEOUT = 600.0

_PRIVATE = ("thinking_blocks", "provider_specific_fields", "cache_control")
_NOT_OURS = frozenset(
    (
        "extra_headers", "metadata", "max_retries", "stream", "stream_options", "thinking", "reasoning_summary",
        "context_management", "service_tier", "web_search_options", "extra_body", "allowed_openai_params",
    )
)  # fmt: skip


class ProxyRefused(Exception):
    """The proxy answered with an error, or could not be reached."""

    def __init__(self, refusal: CallRefusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Request:
    """One chat request: built from LiteLLM's arguments, it turns our JSON into LiteLLM's objects."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        content: Mapping[str, Any],
        timeout: httpx.Timeout,
        call: LiteLLMCall | None,
        blank: Any,
    ) -> None:
        self._url = url
        self._headers = {name.encode(): value.encode() for name, value in headers.items()}
        self.timeout = timeout
        self.call = call
        self._content = content
        self._blank = blank
        self._pending: list[dict[str, Any]] = []

    @classmethod
    def from_litellm(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        """From the arguments of a `CustomLLM` method. Raises `ValueError` if no URL of the proxy is set."""
        assert not args, "LiteLLM calls its providers with keywords"
        call = CALL.get()
        parameters = {
            name: value
            for name, value in (kwargs.get("optional_params") or {}).items()
            if value is not None and name not in _NOT_OURS
        }
        content = {"model": kwargs["model"], "messages": [_plain(one) for one in kwargs["messages"]], **parameters}
        if call is not None:
            url, headers = call.url, dict(call.headers)
            del content["model"]  # the client's model, if any, is in `extra`
            if "tools" in content:
                content["tools"] = [_ordered(tool) for tool in content["tools"]]
            content |= call.extra
        else:
            url, headers = deployment(kwargs)
            content |= session_fields(kwargs)
            if content["model"] == LIVE:
                del content["model"]
        path = COUNT_PATH if call is not None and call.counting else CHAT_PATH
        seconds = kwargs.get("timeout")
        timeout = seconds if isinstance(seconds, httpx.Timeout) else httpx.Timeout(seconds or DEFAULT_TIMEOUT)
        if call is not None:  # the proxy limits how long an answer may take
            timeout = httpx.Timeout(None, connect=CONNECT_SECONDS)
        headers["content-type"] = "application/json"
        return cls(url.rstrip("/") + path, headers, content, timeout, call, kwargs.get("model_response"))

    def sent(self, *, stream: bool) -> dict[str, Any]:
        """Arguments of httpx: the address, the headers and the JSON of the chat request."""
        streams = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        content = json.dumps({**self._content, **streams}).encode()
        return {"url": self._url, "headers": self._headers, "content": content}

    @contextlib.contextmanager
    def litellm_errors(self) -> Iterator[None]:
        """Raise failures as LiteLLM's exceptions, which it passes on unchanged, and keep the original in the call."""
        try:
            yield
        except ProxyRefused as error:
            refusal = error.refusal
        except httpx.TimeoutException as error:
            refusal = CallRefusal(504, _error(f"no answer from {self._url}: {error!r}", "timeout"), None)
        except httpx.HTTPError as error:
            refusal = CallRefusal(502, _error(f"{self._url} broke off: {error!r}", "engine_error"), 1.0)
        else:
            return
        if self.call is not None:
            self.call.refusal = refusal
        raise _exception(refusal, self._url, str(self._content.get("model", "")))

    def check(self, response: httpx.Response) -> None:
        """Keep a response's headers. Raises `ProxyRefused` unless it begins an answer."""
        if self.call is not None:
            self.call.opened(response)
        else:
            remember_headers(response)
        if response.status_code != 200:
            raise ProxyRefused(_refusal(response))

    def answer(self, response: httpx.Response) -> Any:
        """LiteLLM's `ModelResponse` of an answer in one piece. Raises `ProxyRefused`."""
        self.check(response)
        body = response.json()
        library = importlib.import_module("litellm")
        if self.call is not None and self.call.counting:
            self.call.input_tokens = body["input_tokens"]
            body = _COUNTED
        if self.call is not None:
            self.call.take(body)
        made = library.ModelResponse(**body)
        blank = self._blank
        if blank is not None:  # LiteLLM keeps private data on the object that it gave us
            made._hidden_params = getattr(blank, "_hidden_params", {})
        return made

    def chunks(self, line: str) -> Iterator[Any]:
        """LiteLLM's stream chunks of one line, without empty ones: they would open empty blocks. Raises `ProxyRefused`
        where the stream breaks off with an error.
        """
        if not line.startswith("data:"):
            return
        data = line[5:].strip()
        if data == "[DONE]":
            return
        body = json.loads(data)
        if "error" in body:
            raise ProxyRefused(CallRefusal(_STATUS.get(body["error"].get("code"), 502), body["error"], None))
        choices = body.get("choices") or []
        if self.call is None:
            yield from self._ordered_end(body)
            return
        self.call.take(body)
        if body.get("usage") or not all(_silent(choice) for choice in choices):
            yield _chunk(body)

    def _ordered_end(self, body: dict[str, Any]) -> Iterator[Any]:
        """Hold the finish reason back until the usage has come: LiteLLM reads no further than the finish reason and
        would then count tokens with another tokenizer.
        """
        choices = body.get("choices") or []
        if body.get("usage"):
            yield _chunk({**body, "choices": [_NO_DELTA]})
            yield from map(_chunk, self._pending)
        elif any(choice.get("finish_reason") for choice in choices):
            self._pending.append(body)
        elif not all(_silent(choice) for choice in choices):
            yield _chunk(body)


_STATUS = {"timeout": 504, "engine_unavailable": 503, "insufficient_storage": 507}  # of errors that end a stream
_COUNTED = {
    "id": "count",
    "object": "chat.completion",
    "created": 0,
    "model": "count",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
}


_NO_DELTA: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": None}


def _chunk(body: Mapping[str, Any]) -> Any:
    return importlib.import_module("litellm.types.utils").ModelResponseStream(**body)


def _silent(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    says = delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")
    return not says and choice.get("finish_reason") is None and not choice.get("logprobs")


def _plain(message: Any) -> dict[str, Any]:
    """A message as JSON: LiteLLM mixes dicts with its own objects, and adds private fields that no proxy takes."""
    fields: dict[str, Any] = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    return {name: value for name, value in fields.items() if name not in _PRIVATE}


def _ordered(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as clients of the chat route write it: templates show its JSON to the policy, which should not depend on
    the dialect.
    """
    function = tool.get("function") or {}
    fields = {name: function[name] for name in ("name", "description", "parameters") if function.get(name) is not None}
    if function.get("strict"):
        fields["strict"] = True
    return {"type": tool.get("type", "function"), "function": fields}


def _refusal(response: httpx.Response) -> CallRefusal:
    try:
        error = msgspec.json.decode(response.content)["error"]
        assert isinstance(error, dict)
    except (msgspec.DecodeError, KeyError, TypeError, AssertionError):
        error = _error(response.text[:500] or f"status {response.status_code}", None)
    wait = response.headers.get("retry-after", "")
    return CallRefusal(response.status_code, error, float(wait) if wait.isdigit() else None)


def _error(message: str, code: str | None) -> dict[str, Any]:
    return {"message": message, "type": "server_error", "param": None, "code": code}


def _exception(refusal: CallRefusal, url: str, model: str) -> Exception:
    """LiteLLM's exception for this status; its own mapping would make everything a 500."""
    library = importlib.import_module("litellm")
    names = {
        400: "BadRequestError",
        401: "AuthenticationError",
        404: "NotFoundError",
        429: "RateLimitError",
        503: "ServiceUnavailableError",
    }
    name = names.get(refusal.status, "")
    if refusal.error.get("code") == "context_length_exceeded":
        name = "ContextWindowExceededError"
    wait = {} if refusal.retry_after is None else {"retry-after": str(int(refusal.retry_after))}
    response = httpx.Response(refusal.status, headers=wait, request=httpx.Request("POST", url))
    arguments: dict[str, Any] = {"message": refusal.message, "model": model, "llm_provider": PROVIDER}
    made: Exception
    if name:
        made = getattr(library, name)(**arguments, response=response)
    else:
        made = library.APIError(status_code=refusal.status, **arguments)
    return made
