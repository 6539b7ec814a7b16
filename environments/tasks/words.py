"""An open vocabulary: words of a lexicon, words made of syllables, and jumbles of letters. A policy that has a few
dozen words learns them by heart instead of copying.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random

LEXICON: list[str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["lexicon"]
_ONSETS = (*"bcdfghklmnprstvwz", "br", "dr", "gr", "kl", "pl", "st", "tr")
_VOWELS = "aeiou"
_CODAS = ("", "", "", *"klmnrst")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def draw_word(random: Random) -> str:
    """A word of three to eight letters."""
    source = random.random()
    if source < 0.4:
        return random.choice(LEXICON)
    if source < 0.85:
        syllables = (
            random.choice(_ONSETS) + random.choice(_VOWELS) + random.choice(_CODAS) for _ in range(random.randint(2, 3))
        )
        return "".join(syllables)[:8]
    return "".join(random.choices(_LETTERS, k=random.randint(3, 5)))


def draw_words(random: Random, count: int) -> list[str]:
    """Different words, none a part of another: a search for one finds it alone."""
    words: list[str] = []
    while len(words) < count:
        word = draw_word(random)
        if not any(word in other or other in word for other in words):
            words.append(word)
    return words
