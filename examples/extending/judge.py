"""A judge of your own: `judge = "./examples/extending/judge.py"`.

It checks whether people who ask for short answers get them, by the word "short" alone.
"""

from __future__ import annotations

from openclaw_rl.shared.records import Judgement, NextState, Turn, Vote
from openclaw_rl.shared.settings.settings import Settings


class Judge:
    """Instantiated once, with the settings; `judge` is called for every turn with a next state."""

    def __init__(self, settings: Settings) -> None:
        self.longest = 40

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """A score in [−1, +1] (`None`: no verdict), and for a correction also a hint for the teacher."""
        if "short" not in next_state.text.lower():
            return Judgement(turn_id=turn.turn_id, score=1.0, votes=[Vote(text="no complaint", score=1.0)])
        hint = f"Answer in fewer than {self.longest} characters."
        vote = Vote(text=f"asked for less than {len(str(turn.answer['content']))} characters", score=-1.0, hint=hint)
        return Judgement(turn_id=turn.turn_id, score=-1.0, hint=hint, votes=[vote], reason=vote.text)

    async def close(self) -> None:
        """Optional: release connections and memory."""
