"""Equality of messages.

Clients rewrite what they echo: new tool-call ids, other key order and spacing in arguments, `1.0` as `1`, `null` for an
empty text, extra fields. None of that makes a different conversation, so none of it enters a key. Reasoning does not
either: most clients drop it.
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.messages.images import comparable
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.text_reading import reads_text

_MAX_DEPTH = 64
_MAX_EXACT = 2**53  # beyond it JavaScript clients cannot tell two integers apart
_SPACE = b" \t\n\r\v\f"
_UNIQUE = 20
"""Letters and digits of a tool call's id from which on no other call has it."""
_REASONING_TAG = re.compile(r"<(/?)(?:[a-z]+:)?(?:think(?:ing)?|thought|reasoning)\b[^<>]*>", re.IGNORECASE)


def calls_json(messages: Sequence[Message]) -> bytes:
    """The tool calls of messages to the letter, for comparing them: to Python `True` is `1`, and order is nothing."""
    return msgspec.json.encode([message["tool_calls"] for message in messages if "tool_calls" in message])


@reads_text()
def parse_arguments(text: str) -> dict[str, Any] | str:
    """Tool-call arguments as an object, or the very text where it is no JSON object (or one nested deeper than 64); ""
    is an empty object."""
    if not text.strip():
        return {}
    value = _decode(text)
    return value if isinstance(value, dict) and not too_deep(value) else text


def arguments_text(call: Mapping[str, Any]) -> str:
    """The arguments of a canonical call as text, the inverse of `parse_arguments`."""
    arguments = call["arguments"]
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def too_deep(value: Any, levels: int = _MAX_DEPTH) -> bool:
    """True if a decoded JSON value nests deeper than `levels`, which no client means and recursive code cannot
    follow."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(too_deep(item, levels - 1) for item in items if isinstance(item, dict | list))


def message_key(message: Message) -> bytes:
    """16 bytes that are equal exactly for messages with the same role, text and tool calls (name and parsed arguments).

    An assistant's text is compared without reasoning that is written in it, closed or not, and without the white space
    around it: clients take both away. Takes a canonical message.
    """
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = [comparable(part) for part in content]
    elif message["role"] == "assistant":
        content = without_reasoning(content).strip()
    calls = [[call["name"], _comparable(_read(call["arguments"]))] for call in message.get("tool_calls") or ()]
    payload = msgspec.json.encode([message["role"], _comparable(content), calls], order="sorted")
    return hashlib.blake2b(payload, digest_size=16).digest()


def call_key(call: Mapping[str, Any]) -> bytes:
    """16 bytes that are equal exactly for tool calls with the same name and parsed arguments."""
    payload = msgspec.json.encode([call["name"], _comparable(_read(call["arguments"]))], order="sorted")
    return hashlib.blake2b(payload, digest_size=16).digest()


@reads_text()
def squeezed(text: str) -> bytes:
    """The text without its white space."""
    return text.strip().encode(errors="surrogatepass").translate(None, _SPACE)


@reads_text()
def letters(text: str) -> str:
    """The letters and digits of a text, in one form of Unicode and without the escapes of HTML."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", html.unescape(text))))


def characters(data: bytes) -> int:
    """The number of characters in what `squeezed` gives."""
    return len(data.decode(errors="surrogatepass"))


def call_mark(identity: str) -> bytes:
    """16 bytes for the id of a tool call, the same after a client took characters out of it that are no letters or
    digits; empty for an id that is too short to be the only one in the world.
    """
    plain = "".join(filter(str.isalnum, identity)).lower()
    return hashlib.blake2b(plain.encode(), digest_size=16, person=b"call").digest() if len(plain) >= _UNIQUE else b""


@reads_text()
def text_mark(text: str) -> bytes:
    """16 bytes for an answer's text without reasoning and white space; empty for an empty one."""
    words = squeezed(without_reasoning(text))
    return hashlib.blake2b(words, digest_size=16, person=b"text").digest() if words else b""


def answer_marks(answer: Message) -> list[bytes]:
    """The marks by which an answer is known again wherever it stands: of its text and of its calls' ids."""
    content = answer.get("content") or ""
    marks = [text_mark(content)] if isinstance(content, str) else []
    marks += [call_mark(call["id"]) for call in answer.get("tool_calls") or ()]
    return [mark for mark in dict.fromkeys(marks) if mark]


@reads_text()
def without_reasoning(text: str) -> str:
    """An assistant's text without what stands between reasoning tags, and without tags that nothing closes or opens:
    clients take them out of what they echo, some of them or all. Where a block is open at the end although something in
    it was closed, OpenClaw keeps nothing of it.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    position = depth = 0
    opened = 0  # how much was kept when the block began
    closed = False  # whether something was closed in it
    for tag in _REASONING_TAG.finditer(text):
        kept.append(text[position : tag.start()])
        position = tag.end()
        if not tag[1]:
            opened, closed = (len(kept), False) if depth == 0 else (opened, closed)
            depth += 1
        elif depth:
            depth -= 1
            closed = True
            if depth == 0:
                del kept[opened:]
    return "".join(kept[:opened] if depth and closed else (*kept, text[position:]))


def _read(arguments: Any) -> Any:
    """Arguments that are no object, but JSON all the same, as what they say: a client may change their spacing."""
    if not isinstance(arguments, str):
        return arguments
    value = _decode(arguments)
    return arguments if too_deep(value) else ["json", value] if value is not arguments else ["text", value]


def _decode(text: str) -> Any:
    """The decoded JSON, or the very `text` where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def _comparable(value: Any) -> Any:
    """The value with numbers as a JavaScript client would give them back."""
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, int) and abs(value) > _MAX_EXACT:
        try:
            return int(float(value))
        except OverflowError:
            return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
