"""The cases and their numbers of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from bench.overhead.prompts import KINDS, TURNS

ARMS = ("direct", "relay", "proxy", "litellm")
PACES = {"burst": 0.0, "3ms": 0.003}
CLIENTS = (1, 32, 128)
_REQUESTS = {
    ("burst", 1): 240,
    ("burst", 32): 768,
    ("burst", 128): 768,
    ("3ms", 1): 48,
    ("3ms", 32): 384,
    ("3ms", 128): 768,
}
_COLD = 3  # new text costs many times as much as known text: send a third of the requests
_LITELLM = 6  # LiteLLM costs so much more than the others that a sixth of the requests suffices
_ROUNDS = 4


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    prompt: str
    pace: str
    clients: int

    def rounds(self, scale: float) -> int:
        """Number of rounds of the arms."""
        return max(1, round(_ROUNDS * min(1.0, scale)))

    def takes_part(self, arm: str, turn: int) -> bool:
        """True if an arm takes part in a round; with many clients LiteLLM does only once, because it is slow."""
        return arm != "litellm" or turn == 0 or self.clients == 1

    def sessions(self, arm: str, scale: float) -> int:
        """Sessions per round for an arm; at least one per client."""
        wanted = _REQUESTS.get((self.pace, self.clients), 8 * self.clients) * scale
        if self.prompt in ("openclaw-similar", "openclaw-cold"):
            wanted /= _COLD
        if arm == "litellm":
            wanted /= _LITELLM
        turns = TURNS if self.prompt == "openclaw" else 1
        return max(self.clients, round(wanted / turns / self.rounds(scale)))


def cases(
    prompts: Sequence[str] = KINDS, paces: Sequence[str] = tuple(PACES), clients: Sequence[int] = CLIENTS
) -> list[Case]:
    """All combinations."""
    return [Case(*values) for values in product(prompts, paces, clients)]
