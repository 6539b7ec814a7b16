"""One tool call as a JSON object, `{"name": ..., "arguments": {...}}`, read while it is being written.

As long as a call keeps to the usual order (name, then an object of arguments) its arguments can be passed on as they
come. Everything else (arguments first, arguments as a JSON string, extra fields) is read as a whole when the call is
closed.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import msgspec

_BEGINNING = '{"name":"'
_USUAL_START_LENGTH = 400  # characters after which a call that has not begun in the usual order is not going to
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'["\\]')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class CallText:
    """The text between the call markers as far as it was read. `name` is None until the call is recognised, `complete`
    says that its arguments ended.
    """

    __slots__ = ("_arguments", "_parts", "complete", "name")

    def __init__(self) -> None:
        self.name: str | None = None
        self.complete = False
        self._parts: list[str] = []
        self._arguments: list[str] = []

    def source(self) -> str:
        """All the text that was read."""
        return "".join(self._parts)

    def arguments(self) -> str:
        """All of the arguments that were certain so far."""
        return "".join(self._arguments)


class CallReader(CallText):
    """Takes the text between the call markers; `key` is what the call's arguments are called in it. `rest` is what came
    after them.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "_key", "_start", "rest")

    def __init__(self, key: str = "arguments") -> None:
        super().__init__()
        self.rest = ""
        self._key = key
        self._start = ""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def push(self, text: str) -> str:
        """Reads on. Returns the arguments that became certain ("" for none); `name` may have become known meanwhile."""
        self._parts.append(text)
        if self.complete:
            self.rest += text
            return ""
        if self.name is not None:
            return self._scan(text)
        if len(self._start) > _USUAL_START_LENGTH:
            return ""
        self._start += text
        start = _usual_start(self._key).match(self._start)
        name = _decode(start[1]) if start else None
        if start is None or not isinstance(name, str):
            return ""
        self.name = name
        return self._scan(self._start[start.end() :])

    def close(self) -> str:
        """Reads a call that is not recognised yet as a whole. Returns the arguments that became certain; sets `name` if
        it is a call."""
        if self.name is not None:
            return ""
        call = _decode(self.source())
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str) or not name:
            return ""
        arguments = call.get(self._key)
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        self.name = name
        self.complete = True
        self._arguments.append(arguments)
        return arguments

    def may_begin(self) -> bool:
        """True if the text so far can still become a call in the usual order."""
        start = "".join(self._start.split())
        return _BEGINNING.startswith(start) or start.startswith(_BEGINNING)

    def in_string(self) -> bool:
        """True if the text so far ends inside a JSON string, which holds no line break."""
        text = self.source()
        if self.complete or text.endswith("\n"):
            return False
        return self._in_string if self.name is not None else '"' in _STRING.sub("", text)

    def broken(self) -> bool:
        """True if the call was recognised, but is no JSON, or what was passed on as its arguments is none."""
        if self.name is None:
            return False
        return not self.complete or any(_decode(text) is _NOTHING for text in (self.arguments(), self.source()))

    def _scan(self, text: str) -> str:
        """The part of `text` that belongs to the arguments; sets `complete` at their last brace."""
        position = 0
        while True:
            if self._escaped:
                if position >= len(text):
                    break
                position += 1
                self._escaped = False
            found = (_STRING_END if self._in_string else _STRUCTURE).search(text, position)
            if found is None:
                break
            character = found[0]
            position = found.end()
            if character == "\\":
                self._escaped = True
            elif character == '"':
                self._in_string = not self._in_string
            elif character in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    self.complete = True
                    self.rest = text[position:]
                    text = text[:position]
                    break
        self._arguments.append(text)
        return text


class ArgumentsReader(CallText):
    """Takes the arguments of a call whose name stands elsewhere."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def push(self, text: str) -> str:
        """Reads on. Returns the arguments that became certain."""
        self._parts.append(text)
        self._arguments.append(text)
        return text

    def close(self) -> str:
        """The call is over. Returns the arguments of one that has none."""
        self.complete = True
        return "" if self.arguments().strip() else self.push("{}")

    def broken(self) -> bool:
        """True if the arguments are no JSON."""
        return _decode(self.arguments()) is _NOTHING


_NOTHING = object()


@cache
def _usual_start(key: str) -> re.Pattern[str]:
    return re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"' + re.escape(key) + r'"\s*:\s*(?=\{)')


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _NOTHING
