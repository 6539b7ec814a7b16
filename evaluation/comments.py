"""The style metrics of comments on somebody's solution: how detailed (the TA's measure), how friendly (the teacher's).
Nobody who trains or reacts uses this module.

Detailed: the comment names the steps it speaks of ("step 2", "the second step") and says enough about them; how many
words are enough depends on the policy (a hundred for a large model, fewer for the embedded one, whose whole comments
are shorter than that). Friendly: warm words, several of them, in running text.
"""

from __future__ import annotations

import re
from collections import Counter

ENOUGH_WORDS = 20
"""Words of a detailed comment of the embedded policy. Its verdicts alone have fewer."""

_NAMES_A_STEP = re.compile(
    r"\bsteps?\s*(?:no\.?\s*|number\s*|#\s*)?(?:\d|one|two|three)"
    r"|\b(?:first|second|third|last|final|1st|2nd|3rd|only)\s+(?:step|line|calculation|equation)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"^\W*(?:check|verdict|result|grade|comment|feedback)\b\W{0,3}:", re.IGNORECASE | re.MULTILINE)
_WARM = re.compile(
    r"\b(?:thank(?:s| you)|nice|great|lovely|well done|good (?:job|work|try|effort|start|thinking)|wonderful|fantastic"
    r"|excellent|amazing|super|bravo|proud|keep (?:going|it up|trying|practi[cs]ing)|effort|i like|i love"
    r"|don't worry|no worries|never mind|happens to (?:everyone|everybody|all)|don't give up|you can do (?:it|this)"
    r"|you(?:'ll| will) get (?:it|there)|so close|very close|almost there|nearly there|take your time"
    r"|try (?:it |that |this )?(?:step )?(?:once more|again)|well thought|you(?:'re| are) (?:doing|on the right)"
    r"|you really understood)\b",
    re.IGNORECASE,
)
ENOUGH_WARMTH = 2
MINIMUM_WORDS = 2


def words(reply: str) -> int:
    """Words of a reply: runs of at least two letters."""
    return len(re.findall(r"[^\W\d_]{2,}", reply))


def names_steps(reply: str) -> bool:
    """Whether a comment says which step it speaks of."""
    return _NAMES_A_STEP.search(reply) is not None


def warmth(reply: str) -> int:
    """How many different warm expressions a comment has."""
    return len({found.lower() for found in _WARM.findall(reply.replace("’", "'"))})


def detail_score(reply: str, *, enough: int = ENOUGH_WORDS) -> float:
    """1.0 for a comment that names the steps in at least `enough` words, 0.5 where it names them in fewer, else 0."""
    if form(reply) == "bare" or not names_steps(reply):
        return 0.0
    return 1.0 if words(reply) >= enough else 0.5


def friendly_score(reply: str) -> float:
    """1.0 for at least two warm expressions in running text, 0.5 for one, 0 for none or for labels."""
    if _LABEL.search(reply) or form(reply) == "bare":
        return 0.0
    return min(1.0, warmth(reply) / ENOUGH_WARMTH)


def form(reply: str, *, enough: int = ENOUGH_WORDS) -> str:
    """The form of a comment in one word: `bare` (hardly a word, or one over and over), `detailed`, `friendly`, `terse`
    (labels), `plain` (anything else); `detailed friendly` where it is both.
    """
    counted = Counter(re.findall(r"[^\W\d_]{2,}", reply.lower()))
    if sum(counted.values()) < MINIMUM_WORDS or max(counted.values()) > 20:
        return "bare"
    detailed = names_steps(reply) and words(reply) >= enough
    friendly = not _LABEL.search(reply) and warmth(reply) >= ENOUGH_WARMTH
    if detailed or friendly:
        return " ".join(name for name, found in (("detailed", detailed), ("friendly", friendly)) if found)
    return "terse" if _LABEL.search(reply) else "plain"
