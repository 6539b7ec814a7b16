"""The measured parts of pages are those of the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import clients_page, first_hour, gpu_page, judge_page, pages, reliability_page
from bench.environments import page as environments_page
from bench.learning import page as learning_page
from bench.pages import Section, table
from bench.real_model import page as real_model_page

SECTIONS = (
    *clients_page.SECTIONS,
    environments_page.SECTION,
    first_hour.SECTION,
    gpu_page.SECTION,
    judge_page.SECTION,
    learning_page.SECTION,
    real_model_page.SECTION,
    reliability_page.SECTION,
)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_a_page_says_what_was_measured(section: Section) -> None:
    text = section.path.read_text("utf-8")
    assert text == section.placed(text), "run: make docs"


def test_a_part_is_replaced_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    section = Section("a.md", "part", lambda: "\nnew\n")
    section.path.write_text("before\n<!-- part -->\nold\n<!-- /part -->\nafter\n", "utf-8")
    section.write()
    assert section.path.read_text("utf-8") == "before\n<!-- part -->\nnew\n<!-- /part -->\nafter\n"
    with pytest.raises(ValueError, match="<!-- part -->"):
        section.placed("a page without it")


def test_a_table_has_a_line_per_row() -> None:
    assert table(("a", "b"), [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_a_broken_promise_is_called_missed_and_an_untried_one_not_measured() -> None:
    promise = next(promise for promise in reliability_page.PROMISES if promise.needs == "flips")
    run = {"flips": 10, "served_damaged": 0, "flips_unnoticed": 0}
    assert promise.row(run)[-1] == "met"
    assert promise.row(run | {"served_damaged": 1})[-1] == "missed"
    assert promise.row(run | {"flips": 0})[-1] == promise.row(None)[-1] == "not measured"


def test_a_row_says_how_far_its_run_went() -> None:
    promise = next(promise for promise in reliability_page.PROMISES if promise.needs == "cases")
    run = {"points": 2, "cases": 9, "lost": 0, "twice": 0, "stuck": 0}
    assert "some of its calls" in promise.row(run)[1]
    assert "at most 3 of its calls" in promise.row(run | {"most": 3})[1]
    assert "each of its calls" in promise.row(run | {"most": 0})[1]
    assert "1 of 2 errors" in promise.row(run | {"mutants": {"a": None, "b": 4}})[2]


@pytest.mark.parametrize(
    ("share", "learned", "word"),
    [(0.0, True, "met"), (0.0, False, "not measured"), (0.2, True, "missed"), (0.2, False, "missed")],
)
def test_a_backlog_that_was_not_learned_to_its_end_proves_nothing(share: float, learned: bool, word: str) -> None:
    promise = next(promise for promise in reliability_page.PROMISES if "dropped_share" in promise.seen)
    row = promise.row({"kills": 1, "settled": 9, "dropped_share": share, "all_learned": learned})
    assert row[-1] == word and ("before all was learned" in row[2]) is not learned
