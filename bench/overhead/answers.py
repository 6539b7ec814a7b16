"""The answer of the synthetic engine in both of its wire formats, one chunk of bytes per token.

It has `TOKENS` tokens of the shipped tokenizer, all of them words, so that a lost or changed token is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from openclaw_rl.shared.rendering.vocabulary import Vocab, load_tokenizer
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY

TOKENS = 100
MODEL = "policy"
_IDENTITY = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Script:
    """The answer's text, ids, and HTTP chunks of `POST /generate` (`native`) and `POST /v1/chat/completions` (`chat`):
    one per token, the last with the end of the stream.
    """

    text: str
    ids: tuple[int, ...]
    native: tuple[bytes, ...]
    chat: tuple[bytes, ...]


def script() -> Script:
    """Build the answer; it is always the same."""
    vocab = Vocab(load_tokenizer(EMBEDDED_POLICY))
    words = [
        number
        for number, text in enumerate(vocab.text_of)
        if text and text.startswith(" ") and len(text) > 3 and text[1:].isalpha() and text.isascii()
    ]
    ids = Random(7).sample(words, TOKENS)
    texts = [vocab.text_of[number] or "" for number in ids]
    return Script(
        text="".join(texts),
        ids=tuple(ids),
        native=tuple(map(_chunk, _native(ids))),
        chat=tuple(map(_chunk, _chat(texts))),
    )


def _native(ids: list[int]) -> list[bytes]:
    """Events as the embedded engine writes them, one token each."""
    events = []
    for count, number in enumerate(ids, 1):
        last = count == len(ids)
        meta: dict[str, Any] = {
            "id": _IDENTITY,
            "finish_reason": {"type": "length", "length": len(ids)} if last else None,
            "prompt_tokens": 1,
            "completion_tokens": count,
            "cached_tokens": 0,
            "weight_version": "0",
            "output_token_logprobs": [(-round(0.01 + (number % 997) / 499, 6), number, None)],
        }
        if last:
            meta["weight_versions"] = [{"version": "0", "start": 0, "end": len(ids)}]
            meta["e2e_latency"] = 0.3
        events.append(_event({"text": "", "output_ids": [number], "meta_info": meta}))
    return [*events[:-1], events[-1] + b"data: [DONE]\n\n"]


def _chat(texts: list[str]) -> list[bytes]:
    """Events as an OpenAI-style server writes them."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event(_head() | {"choices": [choice]})

    first, *others = texts
    usage = {"prompt_tokens": 1, "completion_tokens": len(texts), "total_tokens": len(texts) + 1}
    events = [chunk({"role": "assistant", "content": ""}) + chunk({"content": first})]
    events += [chunk({"content": text}) for text in others]
    end = chunk({}, "length") + _event(_head() | {"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    return [*events[:-1], events[-1] + end]


def _head() -> dict[str, Any]:
    return {"id": f"chatcmpl-{_IDENTITY}", "object": "chat.completion.chunk", "created": 1, "model": MODEL}


def _event(content: Any) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


def _chunk(data: bytes) -> bytes:
    """One chunk of HTTP/1.1's chunked transfer encoding (RFC 9112, 7.1)."""
    return b"%x\r\n%s\r\n" % (len(data), data)
