"""Messages that the rules do not read, since they are not in English."""

from __future__ import annotations

import pytest

from openclaw_rl.learner.judge.rules.language import is_foreign
from openclaw_rl.learner.judge.rules.rules import NOT_READ, RuleJudge, read_message
from openclaw_rl.learner.judge.signals import by_feedback, defect
from openclaw_rl.shared.records import Feedback, NextState
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn as make_turn

FOREIGN = [
    "Das ist leider nicht, was ich wollte.",
    "Bitte ohne Aufzählungen antworten",
    "c'est beaucoup trop compliqué pour moi",
    "¿Puedes hacerlo más corto?",
    "Não era isso que eu pedi",
    "non ho capito niente di questa risposta",
    "太长了，请简短一点。",
    "もっと短くしてください",
    "Это именно то, что я искал",
    "Bu cevap yanlış, tekrar dene",
]
READ = [
    "ok",
    "Berlin",
    "Use Python 3.12",
    "git push origin main",
    "And what about the second file?",
    "👀",
    "12 + 30",
    "",
    "`für alle Fälle nicht mehr als das`",
    "```\nprint('das ist falsch und das auch')\n```",
    "https://example.org/das-ist-eine-lange-deutsche-adresse",
]


@pytest.mark.parametrize("message", FOREIGN)
def test_a_foreign_message_has_no_score(message: str) -> None:
    assert is_foreign(message)
    reading = read_message(message, answer="42")
    assert (reading.score, reading.hint, reading.reason) == (None, None, NOT_READ)


@pytest.mark.parametrize("message", READ)
def test_a_message_that_may_be_english_is_read(message: str) -> None:
    assert not is_foreign(message)
    assert read_message(message, answer="42").score is not None


@pytest.mark.parametrize(
    ("message", "score"), [("👍 genau so wollte ich das haben", 1.0), ("👎 das war leider nichts", -1.0)]
)
def test_a_thumb_counts_in_every_language(message: str, score: float) -> None:
    assert read_message(message).score == score


async def test_a_foreign_turn_is_set_aside_with_the_reason() -> None:
    turn = make_turn(1)
    state = NextState(turn_id=turn.turn_id, role="user", text=FOREIGN[0])
    judgement = await RuleJudge().judge(turn, state)
    assert judgement.score is None and [vote.failure for vote in judgement.votes] == [NOT_READ]
    assert defect(turn, judgement, Settings(), live=0) == NOT_READ


async def test_tool_results_are_read_in_every_language() -> None:
    turn = make_turn(1)
    judged = await RuleJudge().judge(turn, NextState(turn_id=turn.turn_id, role="tool", text="Datei wurde gespeichert"))
    assert judged.score == 1.0


def test_a_foreign_comment_alone_is_no_blame() -> None:
    turn = make_turn(1)
    judged = by_feedback(
        turn, [Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=None, text=FOREIGN[8])]
    )
    assert judged is not None and (judged.score, judged.hint) == (None, None)


def test_a_foreign_comment_with_a_thumb_down_is_the_wish() -> None:
    turn = make_turn(1)
    judged = by_feedback(
        turn, [Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=-1.0, text=FOREIGN[1])]
    )
    assert judged is not None and (judged.score, judged.hint) == (-1.0, FOREIGN[1])
