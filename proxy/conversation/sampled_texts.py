"""Recognizes an answer of the policy that comes back in the user's role: in a team, agents hear each other as users."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.equality import characters, squeezed

_SHORTEST = 20
"""Characters without white space; a person may type a shorter answer too."""
_NAME = 80
"""Characters of a first line, or before a colon, that may name the agent who speaks."""
_ELEMENT = re.compile(r"<([\w-]{1,40})>(.*)</\1>", re.DOTALL)
_SIGNED = re.compile(r"\n\s*(?:--|—) ?[^\n]{1,80}\Z")


async def was_sampled(text: str, journal: AsyncJournal) -> bool:
    """True if a user's text is an answer that was sampled here, perhaps behind the name of the agent who gave it, and
    of whatever owner: agents of a team may each have a key. Raises `JournalError`.
    """
    texts = [one for one in _readings(text) if characters(squeezed(one)) >= _SHORTEST]
    return bool(texts) and await journal.was_sampled(texts)


def _readings(text: str) -> Iterator[str]:
    text = text.strip()
    yield text
    if (element := _ELEMENT.fullmatch(text)) is not None:
        yield element[2].strip()
    if (signed := _SIGNED.search(text, max(0, len(text) - 2 * _NAME))) is not None:
        yield text[: signed.start()].strip()
    lines = text.splitlines()
    if all(line.startswith(">") for line in lines):
        yield "\n".join(line.removeprefix(">") for line in lines).strip()
    for mark in ("\n", ":", "]"):
        name, found, rest = text.partition(mark)
        if found and len(name) <= _NAME and rest.strip():
            yield rest.strip()
