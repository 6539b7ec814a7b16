"""The report of the places of a hint, without a model."""

from __future__ import annotations

import pytest

from bench import hint_places
from bench.real_model import page

FOUND = {
    "after": {"plain": {"ended": 0.5, "belongs": 0.25, "heeds": 0.0, "ended_respects": 0.125, "taught_respects": None}},
    "before": {"plain": {"ended": 1.0, "belongs": 0.75, "heeds": 0.5, "ended_respects": 0.5, "taught_respects": 0.75}},
}


def test_a_row_has_the_shares_of_a_place_and_a_person() -> None:
    assert hint_places.rows(FOUND) == [
        ["after", "plain", "0.50", "0.25", "0.00", "0.12", "–"],
        ["before", "plain", "1.00", "0.75", "0.50", "0.50", "0.75"],
    ]


def test_the_page_has_the_shares_once_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"hint_places.json": {"command": "python -m it", "date": "a day", "questions": 24, "places": FOUND}}
    monkeypatch.setattr(page, "result", results.get)
    text = page.measured()
    assert "Nothing yet" in text and "`python -m it`\n(a day; 24 training" in text
    assert "| before | plain | 1.00 | 0.75 | 0.50 | 0.50 | 0.75 |" in text
    monkeypatch.setattr(page, "result", lambda name: None)
    assert "| before |" not in page.measured()
