"""The wishes, the reactions, and the report of the real-model benchmark, without a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.cells.cache import Cache
from bench.real_model import __main__ as command
from bench.real_model import report
from bench.real_model.cell import RealModelCell, RealModelPoint, RealModelResult
from bench.real_model.knowledge import KnownQuestion, questions, texts
from bench.real_model.people import NAMES, PROMPTS, REQUESTS, Elsewhere, Person, asking, brief, degenerate, plain
from openclaw_rl.evaluation.personas import take
from openclaw_rl.shared.errors import ConfigError


def result(arm: str, person: str, seed: int, styles: dict[int, float], known: int = 120) -> RealModelResult:
    points = [
        RealModelPoint(interactions=at, version=at // 8, style=style, degenerate=0.0, knowledge=0.9, likelihood=-3.0)
        for at, style in styles.items()
    ]
    cell = RealModelCell(arm=arm, person=person, seed=seed, settings=command.settings_of(arm, {}))
    return RealModelResult(
        cell=cell, points=points, known=known, versions={"live": 1}, complaints=3, seconds=1, cpu_seconds=2
    )


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("Bread needs time. Let it rest.", True),
        ("Do this:\n1. Knead it\n2. Wait", False),
        ("Do this:\n- Knead it", False),
        ("It is **very** good.", False),
        ("# Bread\nKnead it.", False),
        ("It costs 3 * 4 = 12 euros on 1.5 days.", True),
        ("", False),
    ],
)
def test_plain_text_has_no_list_no_heading_and_no_bold(answer: str, kept: bool) -> None:
    assert plain(answer) is kept


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("One sentence", True),
        ("One here. And, e.g. for Mr. Smith, another!", True),
        ("One. Two. Three.", False),
        ("It costs 1.50 euros. That is cheap.", True),
        ("Take\n1. a tent\n2. a lamp", False),
        ("", False),
    ],
)
def test_a_brief_answer_has_two_sentences_at_most(answer: str, kept: bool) -> None:
    assert brief(answer) is kept


def test_an_asking_answer_ends_with_a_question() -> None:
    assert asking('Bread is easy. What do you bake? "') and not asking("What is it? Bread.") and not asking("")


def test_a_loop_and_nothing_at_all_are_degenerate() -> None:
    assert degenerate(" ") and degenerate("very good bread, " * 20)
    assert not degenerate("A short one.") and not degenerate(" ".join(f"word{number}" for number in range(100)))


@pytest.mark.parametrize("name", NAMES)
def test_a_person_complains_about_the_wish_and_thanks_when_it_is_kept(name: str) -> None:
    person = Person(name, 1)
    good = "Bake it well. How do you like it?"
    bad = "1. **Knead.** Well. So.\n2. Wait. Then bake it."
    assert person.react(good).mood == "thanks"
    assert person.react(bad).text in person._phrases.complaints
    assert person.react(bad, attempt=2).text in person._phrases.again
    assert (person.score(good), person.score(bad)) == (1.0, 0.0)


def test_the_halves_of_the_questions_share_none_and_each_seed_has_an_order() -> None:
    person = Person("brief", 1)
    train, held_out = take(person, "train", 1, 48), take(person, "held-out", 1, 32)
    assert set(train) == set(PROMPTS["brief"].train) and not set(train) & set(held_out)
    assert take(person, "train", 2, 48) != train and take(Person("brief", 7), "train", 1, 48) == train


def test_the_placebo_complains_of_good_answers_too_and_never_names_the_wish() -> None:
    placebo = Elsewhere("plain", 3)
    found = [placebo.react("Good and plain.") for _ in range(60)]
    assert {reaction.mood for reaction in found} == {"complaint", "thanks"}
    complaints = {reaction.text for reaction in found if reaction.mood == "complaint"}
    assert complaints <= set(REQUESTS) and not any("list" in text or "bold" in text for text in complaints)


def test_an_unknown_person_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose from plain, brief, asking"):
        Person("nobody", 1)


def test_an_answer_counts_only_as_a_word_of_its_own() -> None:
    question = KnownQuestion(question="What is the capital of Italy?", answers=["Rome"])
    assert question.answered_by("It is rome.") and not question.answered_by("It is Romeo.")
    assert len(questions(100)) == 100 and questions(100) == questions(0)[:100] and len(texts(3)) == 3


def test_equal_cells_have_one_key_and_stops_up_to_their_end() -> None:
    cell = RealModelCell(arm="trained", person="plain", seed=1, interactions=32)
    assert (
        cell.stops == [0, 24, 32]
        and cell.key == RealModelCell(arm="trained", person="plain", seed=1, interactions=32).key
    )
    assert cell.key != RealModelCell(arm="trained", person="plain", seed=1, interactions=32, settings={"epochs": 4}).key


def test_the_report_gives_mean_and_half_width_of_each_stop(tmp_path: Path) -> None:
    results = [result("trained", "plain", seed, {0: 0.2, 24: 0.6 + 0.1 * seed}) for seed in (1, 2, 3)]
    found = report.arms(results)
    assert found["trained"]["plain"]["24"]["style"] == [0.8, 0.2484]
    assert [one["style"] for one in found["trained"]["plain"]["24"]["seeds"]] == pytest.approx([0.7, 0.8, 0.9])
    assert "64" not in found["trained"]["plain"]
    (row,) = report.rows(found)
    assert row[:5] == ["trained", "plain", "0.20±0.00", "0.80±0.25", "–"]
    report.draw(tmp_path / "curve.png", results, "title")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


DOUBTFUL = [
    result("trained", "plain", 1, {0: 0.9}),
    result("control", "plain", 1, {0: 0.4}, known=100),
    result("control", "brief", 1, {0: 0.3}),
    result("control", "brief", 2, {0: 0.6}),
    result("trained", "asking", 1, {0: 0.2}),
    result("trained", "asking", 2, {0: 0.2}, known=99),
]
WARNINGS = [
    "asking: the base answered 99 questions rightly, fewer than 100",
    "brief: the base respects the wish in 0.45 of its answers, more than 0.4",
]


def test_a_person_with_whom_little_can_be_shown_is_named() -> None:
    assert report.warnings(report.arms(DOUBTFUL)) == WARNINGS


def test_warnings_are_in_the_result_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = Cache(tmp_path, RealModelResult)
    for one in DOUBTFUL:
        cache.put(one.cell, one)
    monkeypatch.setattr(sys, "argv", ["real_model", "--missing", "--json", "--cache", str(tmp_path)])
    assert command.main() == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["warnings"] == WARNINGS
    assert all(f"warning: {line}" in printed.err for line in WARNINGS)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--arms", "trained,best"], "best: choose from trained, control, placebo"),
        (["--missing", "--cache", "empty"], "no finished cell in empty: run without --missing"),
    ],
)
def test_the_command_says_what_to_do(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["real_model", *flags])
    assert command.main() == 1
    assert message in capsys.readouterr().err


def test_a_saved_result_is_continued_from_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = result("control", "plain", 1, {0: 0.1}), result("control", "brief", 1, {0: 0.2})
    saved = tmp_path / "real_model.json"

    def save(folder: str, *results: RealModelResult) -> dict[str, Any]:
        cache = Cache(tmp_path / folder, RealModelResult)
        for one in results:
            cache.put(one.cell, one)
        arguments = ["--missing", "--cache", str(cache.folder), "--save", str(saved)]
        monkeypatch.setattr(sys, "argv", ["real_model", *arguments])
        assert command.main() == 0
        found: dict[str, Any] = json.loads(saved.read_bytes())
        return found

    assert list(save("one machine", first)["arms"]["control"]) == ["plain"]
    assert set(save("another machine", second)["arms"]["control"]) == {"plain", "brief"}
    assert command.saved_cells(saved) == [first, second]
    saved.write_text("[]")
    monkeypatch.setattr(sys, "argv", ["real_model", "--missing", "--save", str(saved)])
    assert command.main() == 1
    assert "give another file to --save" in capsys.readouterr().err
    assert command.saved_cells(tmp_path / "nothing.json") == []


def test_cells_of_more_than_one_state_of_the_code_are_warned_about() -> None:
    one = result("control", "plain", 1, {0: 0.1})
    old, new = (msgspec.structs.replace(one, commit=name * 10) for name in ("a", "b"))
    assert report.mixed_code([old, old]) == []
    assert report.mixed_code([new, old]) == ["the cells come from 2 states of the code: aaaaaaaa, bbbbbbbb"]


def test_arms_with_fewer_people_or_seeds_are_named() -> None:
    one, three = {"known": [100]}, {"known": [100] * 3}
    found = {"trained": {"plain": three}, "combined": {"plain": one}, "topk": {"plain": three}}
    assert report.with_fewer_cells(found, ("combined", "topk", "binary")) == ["combined"]


def test_goals_are_met_or_missed() -> None:
    styles = {"trained": {0: 0.1, 24: 0.9, 64: 0.9}, "control": {0: 0.1, 24: 0.1, 64: 0.3}}
    found = report.arms([result(arm, "plain", 1, points) for arm, points in styles.items()])
    found["trained"]["plain"]["64"]["knowledge"] = [0.8, 0.0]
    assert [row[-1] for row in report.goals(found)] == ["met", "met", "missed", "missed"]
    del found["control"]
    assert report.goals(found) == []
