"""Server-sent events of a chat completion, as bytes (platform.openai.com, streaming chat completions)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.errors import RequestError
from openclaw_rl.shared.messages.answer import Delta

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

_encode = msgspec.json.Encoder().encode
_CONTENT_END = b'},"logprobs":null,"finish_reason":null}]}\n\n'


class ChunkWriter:
    """Writes the chunks of the answer at `index`; `fingerprint` names the version of the policy."""

    __slots__ = ("_begin", "_choice", "_content", "_with_usage")

    def __init__(
        self, identity: str, model: str, created: int, fingerprint: str, *, with_usage: bool, index: int = 0
    ) -> None:
        self._begin = (
            b'data: {"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,'
            b'"system_fingerprint":%s,"choices":[' % (_encode(identity), created, _encode(model), _encode(fingerprint))
        )
        self._choice = self._begin + b'{"index":%d,"delta":' % index
        self._content = self._choice + b'{"content":'
        self._with_usage = with_usage

    def role(self) -> bytes:
        """The first chunk, with the role."""
        return self._chunk(b'{"role":"assistant","content":""}')

    def deltas(self, deltas: Sequence[Delta], logprobs: Sequence[Mapping[str, Any]] | None = None) -> bytes:
        """One chunk per delta, those of one kind in a row as one; `logprobs` go with the last."""
        if len(deltas) == 1 and not logprobs and deltas[0].kind == "content":  # nearly every event of a stream
            return self._content + _encode(deltas[0].text) + _CONTENT_END
        merged = merge(deltas) if len(deltas) > 1 else deltas
        chunks = [self._chunk(_delta(delta)) for delta in merged[:-1]]
        chunks.append(self._chunk(_delta(merged[-1]) if merged else b"{}", logprobs))
        return b"".join(chunks)

    def end(
        self, reason: str, logprobs: Sequence[Mapping[str, Any]] | None = None, stop_matched: str | None = None
    ) -> bytes:
        """The chunk that ends one answer: its finish reason, and the stop string that matched, if any."""
        return self._chunk(b"{}", logprobs, reason, stop_matched)

    def close(self, usage: Mapping[str, Any]) -> bytes:
        """The usage, if it was asked for, and the mark of the end, after the end of all answers."""
        chunk = self._begin + b'],"usage":' + _encode(usage) + b"}\n\n" if self._with_usage else b""
        return chunk + DONE

    def _chunk(
        self,
        delta: bytes,
        logprobs: Sequence[Mapping[str, Any]] | None = None,
        reason: str | None = None,
        stop_matched: str | None = None,
    ) -> bytes:
        written = _encode({"content": logprobs}) if logprobs else b"null"
        end = _encode(reason) + (b"" if stop_matched is None else b',"stop_reason":' + _encode(stop_matched))
        return self._choice + delta + b',"logprobs":' + written + b',"finish_reason":' + end + b"}]}\n\n"


def error_event(error: RequestError) -> bytes:
    """The event that ends a stream which failed; no `[DONE]` follows it."""
    return b"data: " + _encode(error.body()) + b"\n\n"


def merge(deltas: Sequence[Delta]) -> list[Delta]:
    """The deltas with neighbours of one kind (and one call) joined."""
    merged: list[Delta] = []
    for delta in deltas:
        last = merged[-1] if merged else None
        if last is not None and last.kind == delta.kind != "call_start" and last.index == delta.index:
            merged[-1] = msgspec.structs.replace(last, text=last.text + delta.text)
        else:
            merged.append(delta)
    return merged


def _delta(delta: Delta) -> bytes:
    if delta.kind == "content":
        return b'{"content":' + _encode(delta.text) + b"}"
    if delta.kind == "reasoning":
        return b'{"reasoning_content":' + _encode(delta.text) + b"}"
    if delta.kind == "call_arguments":
        return b'{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}' % (delta.index, _encode(delta.text))
    return b'{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}' % (
        delta.index,
        _encode(delta.call_id),
        _encode(delta.name),
    )
