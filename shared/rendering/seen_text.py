"""How much of a request was never encoded before: what decides whether the event loop may wait for its prompt."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import msgspec

from openclaw_rl.shared.messages.normalize import text_of
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.rendering.tokenizer import PieceTokenizer

_TEXTS = 20_000
_SHORT = 256  # characters; shorter texts are not worth remembering


class Novelty:
    """Remembers texts that were encoded, by their hashes: a collision holds up the event loop once, and makes no prompt
    wrong. Safe to use from several threads.
    """

    def __init__(self, tokenizer: PieceTokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, None] = {}
        self._lock = threading.Lock()

    def of_messages(self, messages: Sequence[Message]) -> int:
        """How many characters of these messages would have to be encoded, about."""
        return sum(self.of_text(text) for text in _texts(messages))

    def of_text(self, text: str | bytes) -> int:
        """How many characters of a text would have to be encoded, about."""
        if len(text) >= _SHORT and hash(text) in self._known:
            return 0
        return self._tokenizer.unknown(text) if isinstance(text, str) else len(text)

    def remember(self, messages: Sequence[Message], *others: str | bytes) -> None:
        """These were encoded."""
        texts: list[str | bytes] = [*_texts(messages), *others]
        hashes = [hash(text) for text in texts if len(text) >= _SHORT]
        with self._lock:
            for number in hashes:
                self._known.pop(number, None)
                self._known[number] = None
            while len(self._known) > _TEXTS:
                del self._known[next(iter(self._known))]


def _texts(messages: Sequence[Message]) -> Iterable[str | bytes]:
    for message in messages:
        yield text_of(message)
        if reasoning := message.get("reasoning"):
            yield reasoning
        for call in message.get("tool_calls") or ():
            yield msgspec.json.encode(call["arguments"])
