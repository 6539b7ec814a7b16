"""Remembered hints: distinct ones, the newest wording of each."""

from __future__ import annotations

from openclaw_rl.learner.hints import distinct, same, with_own


def test_near_duplicates_are_one() -> None:
    assert same("No bold please.", "no bold!")
    assert same("Please don't use bold text", "don't use bold text please")
    assert not same("no bold", "no lists")
    assert not same("shorter please", "longer please")


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
