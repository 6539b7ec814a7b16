"""In the adapter process: another LiteLLM model's answer to a chat request, as lines of JSON.

A line holds a piece of the answer (`content`, `reasoning`, `call`), its end (`finish`, with `usage` where it is known),
or why there is none (`error`). Keys come with the request, over a private socket, and are removed from errors.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Send

from openclaw_rl.proxy.dialects.dialect import plain
from openclaw_rl.proxy.dialects.headers import ROUTED_HEADER

_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_LEAST_SECRET = 6


async def answer_by_other(library: Any, request: Mapping[str, Any], send: Send) -> None:
    """Answer; always with status 200 and a last line for the outcome. Raises `OSError` if the connection broke."""
    headers = [(b"content-type", b"application/x-ndjson")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async with aclosing(_events(library, request)) as events:
            async for event in events:
                await _write(event, send)
    except OSError:
        raise
    except Exception as error:  # of any kind, from the provider's client
        await _write({"error": without_keys(f"{type(error).__name__}: {error}", request.get("api_key"))}, send)
    await send({"type": "http.response.body", "body": b""})


def without_keys(text: str, key: Any = None) -> str:
    """The text of an error without the key of the request and those in this process's environment."""
    secrets = {value for name, value in os.environ.items() if name.endswith(_SECRET_NAMES)}
    for secret in sorted({*secrets, str(key or "")}, key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, "(key)")
    return text


async def _write(event: Mapping[str, Any], send: Send) -> None:
    await send({"type": "http.response.body", "body": msgspec.json.encode(event) + b"\n", "more_body": True})


async def _events(library: Any, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    body: dict[str, Any] = {"model": request["model"], **request["body"]}
    if request.get("api_base"):
        body |= {"api_base": request["api_base"], "extra_headers": {ROUTED_HEADER: "true"}}
    if request.get("api_key"):
        body["api_key"] = request["api_key"]
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    result = await library.acompletion(**body, timeout=request["timeout"], max_retries=0, drop_params=True)
    # Without a finish reason a stream broke off; a whole answer is complete.
    finish, usage, answered = "" if body["stream"] else "stop", None, False
    try:
        async for chunk in result if body["stream"] else _whole(result):
            part = plain(chunk)
            usage = part.get("usage") or usage
            for choice in part.get("choices") or ():
                for event in _pieces(choice.get("delta") or choice.get("message") or {}):
                    answered = True
                    yield event
                finish = choice.get("finish_reason") or finish
    finally:
        close = getattr(result, "aclose", None)
        if close is not None:
            await close()
    if not finish:
        raise EOFError("the stream ended before the answer did")
    if finish == "stop" and not answered:  # LiteLLM makes this of every stream without an answer, like an error page
        raise EOFError("its answer was empty")
    yield {"finish": finish, "usage": usage}


async def _whole(answer: Any) -> AsyncGenerator[Any, None]:
    """An answer in one piece as a stream of one."""
    yield answer


def _pieces(delta: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields = {"reasoning": "reasoning_content", "content": "content"}
    pieces: list[dict[str, Any]] = [{name: delta[field]} for name, field in fields.items() if delta.get(field)]
    for index, call in enumerate(delta.get("tool_calls") or ()):
        function = call.get("function") or {}
        pieces.append(
            {
                "call": call.get("index", index),
                "id": call.get("id") or "",
                "name": function.get("name") or "",
                "arguments": function.get("arguments") or "",
            }
        )
    return pieces
