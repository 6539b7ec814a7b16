"""Long histories are written once: a request's history begins with that of the request before it.

Of a history that has grown long, the ids up to some message of a person are kept, and found again by its first message.
They are used where all those messages, and that person's, are the same. As with heads, it is not assumed that a history
may be cut there: for two continuations (all that follows now, and nothing but the person's message) the two parts are
compared with the whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from openclaw_rl.shared.cache import SharedCache
from openclaw_rl.shared.messages.equality import calls_json
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.rendering.writers import Writer

GROWN = 64
"""Messages after a kept beginning, from which on a longer one is kept."""
_LEFT = 8
"""Messages that are not cut off at the end: a client may change them (a retry, an edit, a floating message)."""
_MESSAGE_BYTES = 400  # weight of a message without its text

_Key = tuple[bool, str]


class _Beginning(msgspec.Struct, frozen=True):
    """The `ids` of all but the last of `messages`; no messages where the history cannot be cut. `calls` are the tool
    calls in them as JSON: to Python `True` is `1`, and an object in another order the same.
    """

    messages: list[Message]
    calls: bytes
    ids: array[int]
    size: int


class Histories:
    """Writes histories without their system prompt, and keeps at most `capacity` bytes of their beginnings. Safe to use
    from several threads.
    """

    def __init__(self, writer: Writer, *, capacity: int) -> None:
        self._writer = writer
        self._kept = SharedCache[_Key, _Beginning](capacity, lambda beginning: beginning.size)

    def written(self, messages: Sequence[Message], *, thinking: bool) -> int:
        """The number of messages of a history that are kept."""
        found = self._find(messages, thinking)
        return len(found.messages) - 1 if found and found.messages else 0

    def ids(self, messages: Sequence[Message], *, thinking: bool) -> array[int]:
        """The ids of a history, up to where the answer begins. Raises `BadRequest`."""
        found = self._find(messages, thinking)
        start, before = (len(found.messages) - 1, found.ids) if found and found.messages else (0, array("I"))
        rest = messages[start:]
        written = self._writer.ids(rest, [], thinking=thinking)
        if len(rest) >= GROWN and self._writer.cuttable and (found is None or found.messages):
            place = _place(rest)
            if place:
                first = self._first(rest, place, written, thinking)
                kept = [] if first is None else list(messages[: start + place + 1])
                self._keep((thinking, messages[0]["content"]), kept, array("I") if first is None else before + first)
        return before + written

    def _first(self, messages: Sequence[Message], place: int, written: array[int], thinking: bool) -> array[int] | None:
        """The ids before the message at `place` of a history that was `written`; `None` if it cannot be cut there."""
        rest = self._writer.ids(messages[place:], [], thinking=thinking)
        first = written[: len(written) - len(rest)]
        if first + rest != written:
            return None
        short = self._writer.ids(messages[: place + 1], [], thinking=thinking)
        return first if first + self._writer.ids([messages[place]], [], thinking=thinking) == short else None

    def _find(self, messages: Sequence[Message], thinking: bool) -> _Beginning | None:
        text = messages[0]["content"] if messages else None
        if len(messages) < GROWN - _LEFT or not isinstance(text, str):
            return None
        found = self._kept.get((thinking, text))
        if found is None:
            return None
        same = messages[: len(found.messages)]
        return found if found.messages == same and found.calls == calls_json(same) else None

    def _keep(self, key: _Key, messages: list[Message], ids: array[int]) -> None:
        calls = calls_json(messages)
        size = _MESSAGE_BYTES + 2 * len(key[1]) + 4 * len(calls) + len(ids) * ids.itemsize
        size += sum(_MESSAGE_BYTES + 2 * len(message["content"]) for message in messages)
        self._kept.put(key, _Beginning(messages, calls, ids, size))


def _place(messages: Sequence[Message]) -> int:
    """The last place, some way from the end, where a person speaks after an answer; 0 if there is none, or images."""
    if not all(isinstance(message["content"], str) for message in messages):
        return 0
    for index in range(len(messages) - _LEFT, 0, -1):
        message = messages[index]
        spoken = message["role"] == "user" and not message["content"].lstrip().startswith("<")
        if spoken and messages[index - 1]["role"] == "assistant":
            return index
    return 0
