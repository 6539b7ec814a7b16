"""Long histories are read once: that of a request begins with that of the request before it.

Of a history that has grown long, the chain of all but its last messages is kept, and found again by what its first user
says. It is gone on from where all those messages are the same, so a chain never depends on what was kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.shared.messages.equality import calls_json
from openclaw_rl.shared.messages.normalize import text_of
from openclaw_rl.shared.records import Message

LONG = 64
"""Messages of which a history is worth keeping."""
GROWN = 16
"""Messages that have to be new for a longer beginning to be kept."""
LEFT = 8
"""Messages that are not kept at the end: a client may change them (a retry, an edit, a floating message)."""
MANY = 1000
"""New messages that are read in a thread: so many take some milliseconds."""
_BYTES = 4 << 20
_MESSAGE_BYTES = 1000  # what a message and its step weigh beside the text


class _Beginning(msgspec.Struct, frozen=True):
    """The `chain` of `messages`. `calls` are the tool calls in them as JSON: to Python `True` is `1`."""

    messages: list[Message]
    calls: bytes
    chain: Chain
    size: int

    def of(self, messages: Sequence[Message]) -> bool:
        """Whether a history begins with it."""
        same = messages[: len(self.messages)]
        return self.messages == same and self.calls == calls_json(same)


class Chains:
    """Makes the chains of requests, and keeps at most `capacity` bytes of their beginnings: `size` of them now. Belongs
    to one event loop.
    """

    def __init__(self, capacity: int = _BYTES) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[str, _Beginning] = OrderedDict()
        self.size = 0

    async def of(self, messages: Sequence[Message]) -> Chain:
        """The chain of a request's canonical messages."""
        if len(messages) < LONG:
            return Chain(messages)
        name = next((text_of(message) for message in messages if message["role"] == "user"), "")
        beginning = self._kept.get(name)
        if beginning is not None and not beginning.of(messages):
            beginning = None
        before, start = (beginning.chain, len(beginning.messages)) if beginning else (None, 0)
        end = len(messages) - LEFT
        if end - start >= GROWN:
            more = messages[start:end]
            before = await asyncio.to_thread(Chain, more, before) if len(more) > MANY else Chain(more, before)
            self._keep(name, beginning, more, before)
            start = end
        elif beginning is not None:
            self._kept.move_to_end(name)
        return Chain(messages[start:], before)

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
        self.size = 0

    def _keep(self, name: str, beginning: _Beginning | None, more: Sequence[Message], chain: Chain) -> None:
        """Keep the `chain` of a beginning and the messages after it, in the place of any other of this name."""
        messages = [*beginning.messages, *more] if beginning else [*more]
        calls = calls_json(messages)
        size = 2 * len(name) + 4 * len(calls)
        size += sum(_MESSAGE_BYTES + 2 * len(step.text) for step in chain.steps)
        replaced = self._kept.pop(name, None)
        self.size += size - (replaced.size if replaced else 0)
        self._kept[name] = _Beginning(messages, calls, chain, size)
        while self.size > self._capacity:
            self.size -= self._kept.popitem(last=False)[1].size
