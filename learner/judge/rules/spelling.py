"""How people spell when they chat, spelled out, so that the other rules need to know one spelling only.

Works on lower-cased text. Only what cannot be another English word is touched; a hint keeps the user's own spelling.
"""

from __future__ import annotations

import re

_SHORT = {
    "u": "you", "ya": "you", "ur": "your", "yr": "your", "youre": "you're", "youve": "you've", "pls": "please",
    "plz": "please", "plez": "please", "thanx": "thanks", "thnx": "thanks", "im": "i'm", "ive": "i've",
    "dont": "don't", "doesnt": "doesn't", "didnt": "didn't", "isnt": "isn't", "wasnt": "wasn't", "arent": "aren't",
    "werent": "weren't", "cant": "can't", "couldnt": "couldn't", "wouldnt": "wouldn't", "shouldnt": "shouldn't",
    "wont": "won't", "havent": "haven't", "hasnt": "hasn't", "thats": "that's", "whats": "what's",
    "theres": "there's", "wanna": "want to", "gonna": "going to", "gotta": "got to", "gimme": "give me",
    "lemme": "let me", "w/o": "without", "abt": "about", "b4": "before", "bc": "because", "cuz": "because",
    "coz": "because", "kinda": "kind of", "sorta": "sort of", "msg": "message", "msgs": "messages", "ppl": "people",
    "rly": "really", "srsly": "seriously", "smth": "something", "tho": "though",
}  # fmt: skip
_SHORT_WORD = re.compile(r"(?<![\w'/.-])(?:" + "|".join(map(re.escape, _SHORT)) + r")(?![\w'/-])")
_ARE = re.compile(r"(?<![\w'-])r(?= (?:you|u)\b)|(?<=\bu )r\b|(?<=\byou )r\b")
_DRAWN = re.compile(r"[a-z]*([a-z])\1{2,}[a-z]*")
_DOUBLED = frozenset(["good", "too", "boo", "cool", "all", "well", "call", "tell", "sweet", "see", "need", "speed"])


def spelled_out(words: str) -> str:
    """The words with "u", "pls", "dont" and the like spelled out, and drawn-out letters ("nooo") shortened."""
    words = _ARE.sub("are", words)
    words = _SHORT_WORD.sub(lambda found: _SHORT[found[0]], words)
    return _DRAWN.sub(_shortened, words)


def _shortened(found: re.Match[str]) -> str:
    word = found[0]
    if word.startswith("www"):
        return word
    doubled = re.sub(r"([a-z])\1{2,}", r"\1\1", word)
    return doubled if doubled in _DOUBLED else re.sub(r"([a-z])\1{2,}", r"\1", word)
