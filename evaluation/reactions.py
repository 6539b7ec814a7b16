"""Labelled reactions: messages that follow an agent's answer, with the score and the hint that a careful reader gives.

The two halves in `evaluation/reactions/` have separate authors, who had not seen the judge's rules. Each label is one
reader's. Rules and prompts may be tuned on `development.jsonl`. `held_out.jsonl` measures them and is never read to
mend them. By accident, its tool results were seen by the author of the rules for tool results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.datasets import json_rows
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.records import NextState, Sampling, Timings, Turn

FOLDER = Path(__file__).parent / "reactions"
DEVELOPMENT, HELD_OUT = FOLDER / "development.jsonl", FOLDER / "held_out.jsonl"

Score = Literal[-1, 0, 1]
Verdict = int | Literal["not understood", "failed"]


class LabelledReaction(msgspec.Struct, frozen=True, kw_only=True):
    """`text` follows `answer`. `score` is 1 if the text shows that the answer was good, -1 if it shows that the answer
    was bad or has to be changed, else 0. `hint` is true if the text says what to do otherwise, `None` if careful
    readers differ. `request` is what the answer replied to, if known.
    """

    answer: str
    text: str
    score: Score
    hint: bool | None = None
    role: Literal["user", "tool"] = "user"
    language: str = ""
    kind: str = ""
    id: str = ""
    request: str = ""

    def turn(self) -> Turn:
        """The answer as a turn of the journal, without tokens."""
        return Turn(
            turn_id=self.id or "reaction",
            session_id="reactions",
            episode=0,
            parent_turn_id=None,
            kind="main",
            kind_reason="reaction",
            messages=[{"role": "user", "content": self.request}] if self.request else [],
            answer={"role": "assistant", "content": self.answer},
            prompt_ids=[],
            response_ids=[],
            logprobs=[],
            sampling=Sampling(),
            versions=(),
            finish_reason="stop",
            status="complete",
            timings=Timings(arrived=0.0, first_token=0.0, finished=0.0),
        )

    def next_state(self) -> NextState:
        """The text as the next state of `turn`."""
        return NextState(turn_id=self.id or "reaction", role=self.role, text=self.text)


def load(path: Path) -> list[LabelledReaction]:
    """The reactions of a JSONL file, or of one JSON list. Raises `ConfigError` naming file and line (or entry)."""
    reactions = [_reaction(row, place) for place, row in json_rows(path)]
    if not reactions:
        raise ConfigError(f"{path} holds no reaction")
    return reactions


def _reaction(row: Any, place: str) -> LabelledReaction:
    try:
        return msgspec.convert(row, LabelledReaction)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{place}: {error}; a reaction has `answer`, `text`, `score` (-1, 0 or 1), and perhaps `hint` (true, false "
            "or null) and `role` (user or tool)"
        ) from error


class Confusion(msgspec.Struct):
    """Counts of labels (-1, 0, 1) against verdicts (-1, 0, 1, "not understood", "failed"), and of hints."""

    counts: dict[tuple[int, Verdict], int] = msgspec.field(default_factory=dict)
    hints: dict[tuple[bool, bool], int] = msgspec.field(default_factory=dict)

    def add(
        self, reaction: LabelledReaction, score: float | None, *, hint: bool | None, understood: bool = True
    ) -> None:
        """Count one verdict; a score between the labels counts as the nearest one. Without a score, `understood` says
        whether the judge has failed or did not understand the text. `hint` is `None` for a judge that gives none.
        """
        verdict: Verdict = ("failed" if understood else "not understood") if score is None else round(score)
        self.counts[reaction.score, verdict] = self.counts.get((reaction.score, verdict), 0) + 1
        if reaction.hint is not None and hint is not None:
            self.hints[reaction.hint, hint] = self.hints.get((reaction.hint, hint), 0) + 1

    def measures(self) -> dict[str, Any]:
        """Shares of all reactions. `accuracy`: verdict and label are equal. `false_negative`: the verdict is -1 and the
        label is not. `false_positive`: the verdict is 1 and the label is not. `not_understood`: the judge says so.
        `failed`: there is no score for another reason. `hint_recall` is the share of wanted hints that were given,
        `hint_precision` the share of given hints that were wanted; `None` without any.
        """
        total = sum(self.counts.values())

        def share(wanted: Sequence[tuple[int, Verdict]]) -> float:
            return round(sum(self.counts.get(cell, 0) for cell in wanted) / max(1, total), 3)

        labels = (-1, 0, 1)
        verdicts: tuple[Verdict, ...] = (*labels, "not understood", "failed")
        given = self.hints.get((True, True), 0)
        wanted = given + self.hints.get((True, False), 0)
        all_given = given + self.hints.get((False, True), 0)
        return {
            "reactions": total,
            "accuracy": share([(label, label) for label in labels]),
            "false_negative": share([(0, -1), (1, -1)]),
            "false_positive": share([(0, 1), (-1, 1)]),
            "not_understood": share([(label, "not understood") for label in labels]),
            "failed": share([(label, "failed") for label in labels]),
            "hint_recall": round(given / wanted, 3) if wanted else None,
            "hint_precision": round(given / all_given, 3) if all_given else None,
            "confusion": {
                str(label): {str(verdict): self.counts.get((label, verdict), 0) for verdict in verdicts}
                for label in labels
            },
        }
