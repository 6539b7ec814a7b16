"""Recognizes an answer of the policy that comes back in the user's role: in a team, agents hear each other as users."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cachetools import LRUCache

from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.equality import without_reasoning

_SHORTEST = 20
"""Characters without white space; a person may type a shorter answer too."""
_NAME = 80
"""Characters of a first line, or before a colon, that may name the agent who speaks."""
_REMEMBERED = 10_000


class SampledTexts:
    """Recent answers in memory, without white space and reasoning; all others in the journal, to the letter."""

    def __init__(self, journal: AsyncJournal) -> None:
        self._journal = journal
        self._recent: LRUCache[bytes, None] = LRUCache(_REMEMBERED)

    def add(self, answer: str) -> None:
        """Remember an answer."""
        text = _squeezed(without_reasoning(answer))
        if len(text) >= _SHORTEST:
            self._recent[_digest(text)] = None

    async def holds(self, text: str) -> bool:
        """True if a user's text is an answer that was sampled here, perhaps behind the name of the agent who gave it.
        Raises `JournalError`.
        """
        texts = [one for one in _readings(text) if len(_squeezed(one)) >= _SHORTEST]
        if not texts or any(_digest(_squeezed(one)) in self._recent for one in texts):
            return bool(texts)
        return await self._journal.was_sampled(texts)


def _readings(text: str) -> Iterator[str]:
    text = text.strip()
    yield text
    for mark in ("\n", ":"):
        name, found, rest = text.partition(mark)
        if found and len(name) <= _NAME and rest.strip():
            yield rest.strip()


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
