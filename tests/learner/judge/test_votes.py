from __future__ import annotations

import pytest

from openclaw_rl.learner.judge.protocol import Said
from openclaw_rl.learner.judge.votes import describe, majority, read_hint, read_score
from openclaw_rl.shared.errors import JudgeError
from openclaw_rl.shared.records import Vote


def vote(score: float | None, hint: str | None = None) -> Vote:
    return Vote(score=score, hint=hint, failure="" if score is not None else "no answer")


def test_reading_a_score() -> None:
    assert read_score(r"First \boxed{1}, no: \boxed{ -1 }").score == -1.0
    assert read_score("\\boxed{+1}\n[HINT]x[/HINT]").hint is None  # praise wishes nothing
    assert read_score("\\boxed{-1} [HINT] a [/HINT] [HINT] b [/HINT]").hint == "b"
    assert read_score("\\boxed{0} [HINT]  [/HINT]").hint is None
    for text in ("", "1", r"\boxed{2}", r"\boxed{good}"):
        with pytest.raises(JudgeError, match="boxed"):
            read_score(text)


def test_reading_a_hint() -> None:
    assert read_hint("I think. [HINT] Be short. [/HINT]").hint == "Be short."
    for text in ("Nothing to say. [NO HINT]", "[no_hint]", "[HINT][/HINT]"):
        declined = read_hint(text)
        assert (declined.hint, declined.failure, declined.about) == (None, "", "hint")
    with pytest.raises(JudgeError, match="neither"):
        read_hint("Be short.")


def test_the_sign_that_more_than_the_share_of_the_valid_votes_has_wins() -> None:
    assert majority([vote(None), vote(None)], 0.5) is None
    assert majority([vote(-1), vote(None)], 0.5) == -1
    assert majority([vote(-1), vote(1)], 0.5) == 0
    assert majority([vote(-1), vote(-1), vote(1)], 0.5) == -1
    assert majority([vote(-1), vote(-1), vote(1)], 0.67) == 0
    assert majority([vote(-1), vote(-1), vote(-1), vote(1), vote(0)], 0.6) == -1  # three of five are 0.6
    assert majority([vote(-1), vote(-1), vote(1), vote(1)], 0.5) == 0
    assert majority([vote(-1), vote(-1)], 1.0) == -1
    assert majority([vote(-1), vote(1), vote(0)], 0.5) == 0


def test_votes_are_described_in_words() -> None:
    assert describe([vote(-1), vote(-1), vote(None)], 0.5) == (
        "2 of 3 votes valid: 2 for -1; 1 of 3 votes failed: no answer"
    )
    assert describe([vote(None)], 0.5) == "1 of 1 votes failed: no answer"


def test_a_vote_keeps_the_thoughts_before_it() -> None:
    assert Said("yes", thoughts="hm").kept == "<think>\nhm\n</think>\nyes"
    assert Said("yes").kept == "yes"
