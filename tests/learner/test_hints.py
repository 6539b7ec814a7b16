"""Remembered hints: distinct ones, the newest wording of each."""

from __future__ import annotations

import pytest

from openclaw_rl.learner.hints import distinct, with_own
from openclaw_rl.shared.messages.wishes import same


def test_near_duplicates_are_one() -> None:
    assert same("No bold please.", "no bold!")
    assert same("Please don't use bold text", "don't use bold text please")
    assert not same("no bold", "no lists")
    assert not same("shorter please", "longer please")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use bullet points for the list of steps please.", "Don't use bullet points for the list of steps please."),
        ("Ask before you edit files in my project.", "Do not ask before you edit files in my project."),
        ("Ask before you edit files in my project.", "dont ask before you edit files in my project"),
        ("Write a summary at the end of long answers", "Write no summary at the end of long answers"),
        ("Show the whole file with every change", "Show the whole file with every change except tests"),
        ("Antworte mit Listen und fetten Wörtern bitte", "Antworte nicht mit Listen und fetten Wörtern bitte"),
        ("Answer my questions in at most 3 short sentences", "Answer my questions in at most 5 short sentences"),
        ("Answer my questions in two short plain sentences", "Answer my questions in four short plain sentences"),
        ("Make answers to my questions about code shorter", "Make answers to my questions about code longer"),
        ("Use tabs for the indentation of my Python files", "Use spaces for the indentation of my Python files"),
    ],
)
def test_a_negation_another_number_or_another_thing_is_another_wish(one: str, other: str) -> None:
    assert not same(one, other) and not same(other, one)
    assert distinct([one, other], 6) == [one, other]


def test_the_same_negation_in_another_spelling_is_the_same_wish() -> None:
    assert same("Don't use bold text in answers", "Please do not use bold text in answers!")
    assert same("You can't use bold text in answers", "You cannot use bold text in answers")
    assert same("Answer in at most 3 sentences", "Please answer in at most 3 short sentences")


def test_the_newest_of_each_stay_in_order() -> None:
    hints = ["no bold", "shorter", "No bold, please!", "in plain sentences"]
    assert distinct(hints, 6) == ["shorter", "No bold, please!", "in plain sentences"]


def test_only_the_last_ones_are_kept() -> None:
    hints = [f"wish number {word}" for word in ("one", "two", "three", "four")]
    assert distinct(hints, 2) == hints[2:]
    assert distinct([], 2) == []


def test_hints_of_little_words_are_still_distinct() -> None:
    assert distinct(["just to you", "or not", " "], 6) == ["just to you", "or not"]


def test_a_turn_is_taught_its_own_hint_whatever_else_is_remembered() -> None:
    assert with_own("shorter", [], 6) == ["shorter"], "nothing stands"
    assert with_own("shorter", ["no bold", "no lists"], 1) == ["shorter"]
    assert with_own("shorter", ["no bold", "no lists"], 2) == ["no lists", "shorter"]
    assert with_own("No bold, please!", ["no bold", "no lists"], 6) == ["no lists", "No bold, please!"]
