"""Define a judge: `judge = "./examples/extending/judge.py"`.

This one rewards short answers for users who ask for them: it looks only for the word "short".
"""

from __future__ import annotations

from openclaw_rl.shared.records import Judgement, NextState, Turn, Vote
from openclaw_rl.shared.settings.settings import Settings


class Judge:
    """Created once, from the settings; `judge` is called for every turn with a next message."""

    def __init__(self, settings: Settings) -> None:
        self.longest = 40

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """Return a score in [−1, +1] (`None`: no verdict) and, to correct something, a hint for the teacher."""
        if "short" not in next_state.text.lower():
            return Judgement(turn_id=turn.turn_id, score=1.0, votes=[Vote(text="no complaint", score=1.0)])
        hint = f"Answer in fewer than {self.longest} characters."
        vote = Vote(text=f"asked for less than {len(str(turn.answer['content']))} characters", score=-1.0, hint=hint)
        return Judgement(turn_id=turn.turn_id, score=-1.0, hint=hint, votes=[vote], reason=vote.text)

    async def close(self) -> None:
        """Release resources (optional)."""
