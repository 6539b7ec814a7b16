"""Long histories are read once: the chain of a request extends that of the request before it.

The chain of all but the last messages of a long history is kept, and found again by what its first user says. It is
extended where all those messages are the same, so a chain never depends on what was kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from cachetools import LRUCache

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.shared.messages.equality import calls_json
from openclaw_rl.shared.messages.normalize import text_of
from openclaw_rl.shared.records import Message

LONG = 64
"""Messages from which on a history is worth keeping."""
GROWN = 16
"""Messages that have to be new for a longer beginning to be kept."""
LEFT = 8
"""Messages that are not kept at the end: a client may change them (a retry, an edit, a floating message)."""
MANY = 1000
"""New messages that are read in a thread: so many take some milliseconds."""
_BYTES = 4 << 20
_MESSAGE_BYTES = 1000  # weight of a message and its step, without the text


class _KeptChain(msgspec.Struct, frozen=True):
    """The `chain` of `messages`. `calls` are the tool calls in them as JSON: to Python `True` is `1`."""

    messages: list[Message]
    calls: bytes
    chain: Chain
    size: int

    def begins(self, messages: Sequence[Message]) -> bool:
        """True if a history begins with these messages."""
        same = messages[: len(self.messages)]
        return self.messages == same and self.calls == calls_json(same)


class Chains:
    """Makes the chains of requests, and keeps at most `capacity` bytes of their beginnings. Belongs to one event
    loop.
    """

    def __init__(self, capacity: int = _BYTES) -> None:
        self._kept: LRUCache[str, _KeptChain] = LRUCache(capacity, getsizeof=lambda kept: kept.size)

    @property
    def size(self) -> int:
        """Bytes that are kept now."""
        return int(self._kept.currsize)

    async def chain_of(self, messages: Sequence[Message]) -> Chain:
        """The chain of a request's canonical messages."""
        if len(messages) < LONG:
            return Chain(messages)
        name = next((text_of(message) for message in messages if message["role"] == "user"), "")
        kept = self._kept.get(name)
        if kept is not None and not kept.begins(messages):
            kept = None
        before, start = (kept.chain, len(kept.messages)) if kept else (None, 0)
        end = len(messages) - LEFT
        if end - start >= GROWN:
            more = messages[start:end]
            before = await asyncio.to_thread(Chain, more, before) if len(more) > MANY else Chain(more, before)
            self._keep(name, [*kept.messages, *more] if kept else [*more], before)
            start = end
        return Chain(messages[start:], before)

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()

    def _keep(self, name: str, messages: list[Message], chain: Chain) -> None:
        """Keep the chain of a beginning in place of any other of this name."""
        calls = calls_json(messages)
        size = 2 * len(name) + 4 * len(calls)
        size += sum(_MESSAGE_BYTES + 2 * len(step.text) for step in chain.steps)
        self._kept.pop(name, None)
        if size <= self._kept.maxsize:
            self._kept[name] = _KeptChain(messages, calls, chain, size)
