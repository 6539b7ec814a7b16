from __future__ import annotations

import pytest

from openclaw_rl.learner.judge.protocol import Said
from openclaw_rl.learner.judge.votes import describe, plurality, read_hint, read_score
from openclaw_rl.shared.errors import JudgeError
from openclaw_rl.shared.records import Vote


def vote(score: float | None, hint: str | None = None) -> Vote:
    return Vote(score=score, hint=hint, failure="" if score is not None else "no answer")


def test_reading_a_score() -> None:
    assert read_score(r"First \boxed{1}, no: \boxed{ -1 }").score == -1.0
    assert read_score("\\boxed{+1}\n[HINT]x[/HINT]").hint == "x"
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


@pytest.mark.parametrize(
    ("scores", "threshold", "winner"),
    [
        ([None, None], 0.0, None),
        ([-1, None], 0.0, -1),
        ([-1, 1], 0.0, 0),
        ([-1, -1, 1], 0.0, -1),
        ([-1, -1, 1, 0], 0.0, -1),  # two of four: the most frequent, though no more than half
        ([-1, 1, 0], 0.0, 0),
        ([-1, -1, 1, 1], 0.0, 0),
        ([-1, -1, 1, 1, 0], 0.0, 0),
        ([0, 0, 1], 0.0, 0),
        ([-1, -1, 1, 0], 0.5, -1),
        ([-1, -1, 1, 0], 0.6, 0),
        ([-1, -1, 1], 0.67, 0),
        ([-1, -1, -1, 1, 0], 0.6, -1),  # three of five are 0.6
        ([-1, -1], 1.0, -1),
    ],
)
def test_the_most_frequent_score_of_the_valid_votes_wins(
    scores: list[float | None], threshold: float, winner: float | None
) -> None:
    assert plurality([vote(score) for score in scores], threshold) == winner


def test_votes_are_described_in_words() -> None:
    assert describe([vote(-1), vote(-1), vote(None)], 0.5) == (
        "2 of 3 votes valid: 2 for -1; 1 of 3 votes failed: no answer"
    )
    assert describe([vote(None)], 0.0) == "1 of 1 votes failed: no answer"
    assert describe([vote(-1), vote(-1), vote(1), vote(0)], 0.0) == "4 of 4 votes valid: 1 for +1, 1 for +0, 2 for -1"
    assert describe([vote(-1), vote(1)], 0.0) == "2 of 2 votes valid: 1 for +1, 1 for -1; a tie, which scores 0"
    assert describe([vote(-1), vote(-1), vote(1)], 0.7) == (
        "3 of 3 votes valid: 1 for +1, 2 for -1; no score has the share 0.7 of them"
    )


def test_a_vote_keeps_the_thoughts_before_it() -> None:
    assert Said("yes", thoughts="hm").kept == "<think>\nhm\n</think>\nyes"
    assert Said("yes").kept == "yes"
