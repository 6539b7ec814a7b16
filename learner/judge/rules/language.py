"""Recognition of messages that are not in English, the language of the rules.

Uses py3langid, a naive Bayes classifier over byte n-grams (Lui and Baldwin, ACL 2012), among widely written languages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

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
_READ = 2_000  # characters; more of them change nothing
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)


def is_foreign(text: str) -> bool:
    """True if the words of a message, without code and links, are certainly not English. False without words."""
    words = _CODE.sub(" ", text)[:_READ].strip()
    if not any(map(str.isalpha, words)):
        return False
    probabilities = dict(_classifier()(words))
    english = probabilities["en"] + probabilities["zxx"]
    return english <= ENGLISH and max(probabilities.values()) >= CERTAIN


@functools.cache
def _classifier() -> Callable[[str], list[tuple[str, float]]]:
    """Load the model (4 MB) with the first message in which the rules find nothing."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(LANGUAGES)
    rank: Callable[[str], list[tuple[str, float]]] = identifier.rank
    return rank
