"""Labelled reactions: the built-in set, users' own files, and the figures computed from verdicts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from openclaw_rl.evaluation import reactions
from openclaw_rl.evaluation.reactions import Confusion, LabelledReaction, load
from openclaw_rl.shared.errors import ConfigError

HALVES = [load(reactions.DEVELOPMENT), load(reactions.HELD_OUT)]
KINDS = {"praise", "blame", "change request", "follow-up", "new task", "sarcasm", "tool result"}


def test_the_set_is_large_enough_and_half_of_it_is_held_out() -> None:
    development, held_out = map(len, HALVES)
    assert development + held_out >= 400
    assert held_out >= development


@pytest.mark.parametrize("half", HALVES, ids=("development", "held_out"))
def test_each_half_has_every_kind_label_and_nine_languages(half: list[LabelledReaction]) -> None:
    kinds = Counter(reaction.kind for reaction in half)
    assert set(kinds) == KINDS and min(kinds.values()) >= 15
    assert len({reaction.language for reaction in half}) == 9
    assert {reaction.score for reaction in half} == {-1, 0, 1}
    assert {reaction.hint for reaction in half} == {True, False, None}
    assert {reaction.role for reaction in half} == {"user", "tool"}


def test_no_reaction_stands_in_both_halves() -> None:
    texts = Counter((reaction.answer, reaction.text) for half in HALVES for reaction in half)
    assert max(texts.values()) == 1
    assert max(Counter(reaction.id for half in HALVES for reaction in half).values()) == 1


def test_a_file_of_ones_own_needs_three_fields(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({"answer": "4", "text": "yes!", "score": 1}) + "\n\n", encoding="utf-8")
    (reaction,) = load(file)
    assert (reaction.role, reaction.hint, reaction.language) == ("user", None, "")
    assert reaction.turn().answer == {"role": "assistant", "content": "4"} and not reaction.turn().messages
    assert (reaction.next_state().text, reaction.next_state().turn_id) == ("yes!", reaction.turn().turn_id)


def test_the_request_is_part_of_the_turn() -> None:
    assert LabelledReaction(answer="4", text="ok", score=0, request="2+2?").turn().messages == [
        {"role": "user", "content": "2+2?"}
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no reaction"),
        ('{"answer": "a", "text": "b"}', "score"),
        ('{"answer": "a", "text": "b", "score": 2}', "score"),
        ('{"answer": "a", "text": "b", "score": 1, "hint": "no"}', "hint"),
        ('{"answer": "a", "text": "b", "score": 1, "role": "system"}', "role"),
        ('{"answer": "a"', "own.jsonl:1"),
        ("[1]", "entry 1"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.jsonl")


def test_figures_are_those_counted_by_hand() -> None:
    confusion = Confusion()
    verdicts: list[tuple[int, bool | None, float | None, bool | None]] = [
        (1, False, 1.0, False),
        (1, False, -1.0, True),
        (0, False, 1.0, False),
        (0, None, 0.0, True),
        (-1, True, -1.0, True),
        (-1, True, 0.0, False),
        (-1, True, 1.0, False),
        (-1, False, None, False),
        (1, True, None, None),
    ]
    for label, wanted, score, hint in verdicts:
        reaction = LabelledReaction(answer="a", text="b", score=label, hint=wanted)  # type: ignore[arg-type]
        confusion.add(reaction, score, hint=hint, understood=label > 0)
    confusion.add(LabelledReaction(answer="a", text="b", score=-1), None, hint=False)
    found = confusion.measures()
    assert found["reactions"] == 10
    assert found["accuracy"] == 3 / 10
    assert found["false_negative"] == 1 / 10
    assert found["false_positive"] == 2 / 10
    assert found["not_understood"] == 1 / 10 and found["failed"] == 2 / 10
    assert found["hint_recall"] == round(1 / 3, 3)
    assert found["hint_precision"] == 1 / 2
    assert found["confusion"]["-1"] == {"-1": 1, "0": 1, "1": 1, "not understood": 1, "failed": 1}


def test_without_hints_there_is_no_precision() -> None:
    confusion = Confusion()
    confusion.add(LabelledReaction(answer="a", text="b", score=0), None, hint=False)
    assert confusion.measures()["hint_recall"] is None and confusion.measures()["hint_precision"] is None
