"""The judge by rules reads messages of simulated people as they are meant, whatever they react to."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.personas import WORDS
from openclaw_rl.learner.judge.rules.rules import read_message

COMMENT = "**Check:** 5 + 3 = 8, told 9, 9 - 8 = 1, wrong\n**Verdict:** wrong"
DETAILED = "Step 1: 5 + 3 = 8, the solution says 9, 9 - 8 = 1, wrong. So step 1 is wrong, and the result should be 8."
WARM = "Nice work showing your steps! 5 + 3 = 8, you wrote 9. So this step is wrong. You are so close!"
STRUCTURED = "**Step 1:** 5 + 3 = 8\n\n**Final answer:** Tom has 8 apples now."

COMPLAINTS = [
    *((STRUCTURED, words) for group in WORDS["student"].complaints.values() for words in group),
    *((STRUCTURED, words) for words in WORDS["student"].again),
    *(
        (seen, words)
        for who, answers in ((WORDS["ta"], (COMMENT, WARM)), (WORDS["teacher"], (COMMENT, DETAILED)))
        for seen in answers
        for words in (*(words for group in who.complaints.values() for words in group), *who.again)
    ),
]
THANKS = [
    *(("Tom has 5 apples and buys 3 more, so Tom has 8.", words) for words in WORDS["student"].thanks),
    *((DETAILED, words) for words in WORDS["ta"].thanks),
    *((WARM, words) for words in WORDS["teacher"].thanks),
]


@pytest.mark.parametrize(("answer", "words"), COMPLAINTS)
def test_every_complaint_is_read_as_one_with_a_hint(answer: str, words: str) -> None:
    reading = read_message(words, answer=answer)
    assert reading.score == -1.0
    assert reading.hint


@pytest.mark.parametrize(("answer", "words"), THANKS)
def test_all_thanks_are_read_as_praise(answer: str, words: str) -> None:
    reading = read_message(words, answer=answer)
    assert reading.score == 1.0
    assert reading.hint is None


def test_no_complaint_is_of_the_lists_that_the_shipped_policy_was_trained_on() -> None:
    from bench.shipped_policy.dialogues.problems import phrases

    grading = {wish.lower().strip(" .!") for wishes in phrases()["grading"]["wishes"].values() for wish in wishes}
    said = {words.lower().strip(" .!") for _, words in COMPLAINTS}
    assert not grading & said
