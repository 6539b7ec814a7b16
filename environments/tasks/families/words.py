"""The words of a task: names of files and folders, and what stands in files. The vocabulary is open, so that a policy
copies them instead of knowing them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from random import Random
from typing import Any

REQUESTS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

_ENGLISH = 0.3
"""Share of English words; the others are made of syllables, some 70,000."""
_ONSETS = "bdfhjklmnprstvwz"
_VOWELS = "aeiou"
_ENDS = ("", "", "", "n", "r", "s", "l", "k", "m", "t")
_NEVER = re.compile("time|site|pipes|nazi|rape|puta|pedo|homo|kike|fuk")
"""Modules of Python, and words that are no words for everyone."""


class TaskWords:
    """Draws the words of one task. No name begins with the letter of another, so that a policy which copies them cannot
    mix them up, and no word is a part of another, so that a search finds one alone.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._letters: set[str] = set()
        self._used: list[str] = []

    def word(self) -> str:
        """A name in small letters."""
        english = self._random.random() < _ENGLISH
        while True:
            word = str(self._random.choice(REQUESTS["nouns"])) if english else self._made_up()
            if word[0] not in self._letters and self._is_apart(word):
                self._letters.add(word[0])
                self._used.append(word)
                return word

    def file(self) -> str:
        """The name of a file."""
        return f"{self.word()}{self._random.choice(REQUESTS['endings'])}"

    def line(self) -> str:
        """A file's text of one line."""
        return f"{self.text()}\n"

    def text(self, words: int = 2) -> str:
        """Words for a file."""
        found: list[str] = []
        while len(found) < words:
            word = self._made_up()
            if self._is_apart(word):
                self._used.append(word)
                found.append(word)
        return " ".join(found)

    def request(self, family: str, **slots: str) -> str:
        """The request of a family in one of its wordings."""
        return str(self._random.choice(REQUESTS["requests"][family])).format(**slots)

    def _is_apart(self, word: str) -> bool:
        return not any(word in used or used in word for used in self._used)

    def _made_up(self) -> str:
        random = self._random
        while True:
            word = "".join(random.choice(_ONSETS) + random.choice(_VOWELS) for _ in range(2)) + random.choice(_ENDS)
            if not _NEVER.search(word):
                return word
