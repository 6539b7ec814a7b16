from __future__ import annotations

from openclaw_rl.evaluation.comments import detail_score, form, friendly_score, warmth, words

TERSE = "**Check:** 5 + 3 = 8, told 9, 9 - 8 = 1, wrong\n**Verdict:** wrong"
DETAILED = (
    "Let me go through the steps. The problem says that Tom has 5 apples and buys 3. Step 1: 5 + 3 = 8, the solution "
    "says 9, 9 - 8 = 1, wrong. So step 1 is wrong, and the result should be that Tom has 8 apples now."
)
FRIENDLY = (
    "Nice work showing your steps! I checked it: 5 + 3 = 8, you wrote 9, 9 - 8 = 1, wrong. So this step is wrong. "
    "You are so close, take your time and try it again!"
)


def test_detail_names_the_steps_in_enough_words() -> None:
    assert (detail_score(TERSE), detail_score(FRIENDLY), detail_score(DETAILED)) == (0.0, 0.0, 1.0)
    assert detail_score("Step 1 is wrong.") == 0.5
    assert detail_score(DETAILED, enough=100) == 0.5
    assert detail_score("In the first line you added wrongly. " + "Look at it once again with care. " * 2) == 1.0


def test_friendliness_is_several_warm_expressions_without_labels() -> None:
    assert (friendly_score(TERSE), friendly_score(DETAILED), friendly_score(FRIENDLY)) == (0.0, 0.0, 1.0)
    assert friendly_score("Well done, your answer is correct.") == 0.5
    assert friendly_score(f"{TERSE}\nGreat job, don’t worry!") == 0.0
    assert warmth("Great, great, great!") == 1


def test_forms_tell_escapes_into_third_styles() -> None:
    assert form(TERSE) == "terse"
    assert form(DETAILED) == "detailed"
    assert form(FRIENDLY) == "friendly"
    assert form(f"{FRIENDLY} {DETAILED}") == "detailed friendly"
    assert form("The solution of Tom is wrong.") == "plain"
    assert form("") == form("8") == form("wrong " * 40) == "bare"
    assert detail_score("step 1 " * 40) == friendly_score("thanks great " * 40) == 0.0


def test_words_are_letters_not_numbers() -> None:
    assert words("5 + 3 = 8, so Tom has 8") == 3
