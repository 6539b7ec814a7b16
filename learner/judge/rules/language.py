"""Recognition of messages that are not in English, the language of the rules.

Uses py3langid, a naive Bayes classifier over byte n-grams (Lui and Baldwin, ACL 2012), among widely written languages.
It is rarely sure of one to three words: those are looked up in `words.toml`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable

from openclaw_rl.learner.judge.rules.form import WORDS, words
from openclaw_rl.shared.text_reading import reads_text

LANGUAGES = [
    *("en", "de", "fr", "es", "pt", "it", "nl", "sv", "da", "no", "fi", "pl", "cs", "hu", "ro", "bg"),
    *("ru", "uk", "el", "tr", "ar", "he", "fa", "hi", "bn", "ur", "zh", "ja", "ko", "vi", "th", "id"),
    "zxx",  # no language
]
"""Fewer languages make the classifier surer of short messages."""
ENGLISH = 0.05
"""Highest probability of English, or of no language, in a foreign message."""
CERTAIN = 0.5
"""Lowest probability of its language. A single word is often in several, so it reaches less."""
LIKELY = 0.3
"""Lowest probability of English in a short message with an unknown word that is read. It is twice any other's too."""
SHORT = 3
"""Most words of a message whose words are looked up."""
_READ = 2_000  # characters; more of them change nothing
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)

_LISTS = ("filler", "answer_and_steps", "circumstance", "common", "names")
_OTHERS = (*_LISTS, "borrowed", "spelled_out")
_KNOWN = frozenset(word for table in _LISTS for word in WORDS[table].split()) | WORDS["spelled_out"].keys()
_PATTERNS = re.compile("|".join(words(table) for table, text in WORDS.items() if table not in _OTHERS))
_ENDINGS = (
    *(("s", ""), ("ies", "y"), ("ied", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("ly", "")),
    ("'s", ""),
)
_STEM = 3  # letters at least
_DRAWN = re.compile(r"(\w)\1{2,}")
_SYMBOLS = re.compile(r"[\d_/\\@=<>(){}\[\]$#+*&|~^%]|\w[.:]\w|[a-z][A-Z]|^[-.]\w|^--\w")
"""What numbers, paths, file names, identifiers and options contain."""
_EDGES = re.compile(r"^[^\w/@$#<{.-]+|[^\w/>}+#]+$")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


@reads_text()
def is_foreign(text: str) -> bool:
    """True if the words of a message, without code and links, are certainly not English. False without words.

    A message with letters, but without a Latin one, is foreign whatever the classifier says.
    """
    said = _without_code(text)
    letters = [letter for letter in said if letter.isalpha()]
    if not any(map(_is_latin, letters)):
        return bool(letters)
    english, other = _probabilities(said)
    return english <= ENGLISH and other >= CERTAIN


@reads_text(lambda read, text: (read(text), read("no", answer=text)))
def is_unknown(text: str, *, answer: str = "") -> bool:
    """True for one to three words of which one is no known English word.

    Numbers, code and file names count as known, and all words if the classifier finds English likely. So do words of
    `answer`, and capitalised words as names: behind another word, in a message of capitalised words, or alone where the
    answer ends in a question. After a foreign answer none of this but numbers and code counts.
    """
    tokens = [_EDGES.sub("", token) for token in _without_code(text).split()]
    said = [word for token in tokens if not _SYMBOLS.search(token) for word in _WORD.findall(token)]
    if len(said) > SHORT or all(map(_is_english, said)):
        return False
    if is_foreign(answer):
        return True
    english, other = _probabilities(" ".join(said))
    if english >= LIKELY and english >= 2 * other:
        return False
    answered = _WORD.findall(answer.lower())
    unknown = [word for word in said if not _is_english(word) and word.lower() not in answered]
    if not all(word.istitle() and _is_latin(word[0]) for word in unknown):
        return True
    names = all(map(str.istitle, said)) and (len(said) > 1 or answer.rstrip().endswith("?"))
    return said[0] in unknown and not names


def _is_latin(letter: str) -> bool:
    return unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "").startswith("LATIN")


def _is_english(word: str) -> bool:
    """Whether a word is in a table, or is a word of a table with an ending or drawn-out letters ("yesss")."""
    word = word.lower()
    forms = [word, _DRAWN.sub(r"\1", word)]
    forms += [
        word.removesuffix(ending) + base
        for ending, base in _ENDINGS
        if word.endswith(ending) and len(word) >= _STEM + len(ending)
    ]
    return any(form in _KNOWN or _PATTERNS.fullmatch(form) for form in forms)


def _probabilities(said: str) -> tuple[float, float]:
    """The classifier's probability of English or no language, and that of the likeliest other language."""
    of = dict(_classifier()(said))
    return of.pop("en") + of.pop("zxx"), max(of.values())


def _without_code(text: str) -> str:
    return _CODE.sub(" ", text)[:_READ].strip()


@functools.cache
def _classifier() -> Callable[[str], list[tuple[str, float]]]:
    """Load the model (4 MB) with the first message that is no wish in English."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(LANGUAGES)
    rank: Callable[[str], list[tuple[str, float]]] = identifier.rank
    return rank
