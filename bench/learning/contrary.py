"""A student who changes his mind: he now wants the bold, numbered style of his earlier complaints."""

from __future__ import annotations

from random import Random

from openclaw_rl.evaluation.personas import Reaction
from openclaw_rl.evaluation.student import dislikes

_COMPLAINTS = (
    "Please put it in numbered steps, with the important parts in bold.",
    "I'd rather have a list of steps now, with bold for the result.",
    "Use bold and numbered steps, please.",
    "Can you number the steps? And make the result bold, please.",
    "Plain sentences are hard to follow. I want numbered steps.",
    "Write it with numbered steps and a bold final answer, please.",
    "I need structure: numbered steps and bold print, please.",
    "Not as running text, please. Use numbered steps.",
    "Please format it with bold and with steps.",
)
_THANKS = (
    "Thanks!",
    "Great, thanks.",
    "Perfect, thank you!",
    "Thank you, that's how I like it.",
    "Thanks, that helps.",
)


class Contrary:
    """Reacts as the student with the opposite taste."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"contrary {seed}")

    def react(self, reply: str) -> Reaction:
        """Give thanks for a structured reply and complain about any other."""
        if {"bold", "numbered"} & set(dislikes(reply)):
            return Reaction("thanks", self._random.choice(_THANKS))
        return Reaction("complaint", self._random.choice(_COMPLAINTS))
