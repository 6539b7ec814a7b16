"""The command: parts, results that are there, and cells of one state of the code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.cells import code_digest
from bench.cells.cache import Cache
from bench.learning import __main__ as command
from bench.learning import plan, rates
from bench.learning.cell import Cell, Result
from tests.bench.learning.cells import result


@pytest.fixture(autouse=True)
def one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_digest, "digest", lambda _: "state")
    monkeypatch.setattr(code_digest, "uncommitted", lambda _: [])


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: str) -> int:
    monkeypatch.setattr(sys, "argv", ["learning", "--json", "--hours", "0", "--cache", str(folder), *flags])
    return command.main()


def fill(folder: Path, cells: list[Cell], style: float = 0.9) -> None:
    cache = Cache(folder, Result)
    for one in cells:
        cache.put(one, result(one, dict.fromkeys(one.stops, style), cpu_seconds=36.0))


def grid(*parts: str, **changes: Any) -> list[Cell]:
    sizes: dict[str, Any] = {"seeds": 2, "interactions": 256} | changes
    return [one for part in parts for one in plan.grid(list(plan.PARTS[part]), plan.PERSONAS, **sizes)]


def test_finished_cells_are_reported_with_points_commit_and_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "cells", grid("shipped", "ablation"))
    saved = tmp_path / "learning.json"
    assert call(monkeypatch, tmp_path / "cells", "--part", "shipped,ablation", "--save", str(saved)) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out.splitlines()[-1])
    assert found["points"]["rehearse"]["ta"]["2"]["24"]["style"] == 0.9
    assert found["commit"] and found["code"] == ["state"] and "whole" not in found["arms"]
    assert [row[-1] for row in found["goals"]] and (tmp_path / "learning.png").exists()
    apart = json.loads((tmp_path / "ablation.json").read_bytes())
    assert apart["commit"] == json.loads(saved.read_bytes())["commit"] and apart["command"]
    assert set(apart["arms"]) == set(plan.ABLATION) and (tmp_path / "ablation.png").exists()
    finished, missing = 24 + 28 - 4, 5 * 26 - 52 - (5 - 2) * 2
    assert f"at the end: {finished} cells are finished, {missing} are missing: about 0." in printed.err


def test_cells_of_another_state_of_the_code_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, grid("shipped"))
    monkeypatch.setattr(code_digest, "digest", lambda _: "another")
    assert call(monkeypatch, tmp_path, "--part", "shipped") == 1
    assert "no finished cell of this code" in capsys.readouterr().err


def test_nothing_is_saved_that_no_commit_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, grid("shipped"))
    monkeypatch.setattr(code_digest, "uncommitted", lambda _: ["learner/loop.py"])
    assert call(monkeypatch, tmp_path, "--part", "shipped", "--save", str(tmp_path / "a.json")) == 1
    assert "learner/loop.py differ; commit first" in capsys.readouterr().err
    assert call(monkeypatch, tmp_path, "--part", "shipped") == 0


def test_methods_are_compared_at_the_rates_of_their_search_as_far_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = rates.first_round(["opd"], ["ta", "teacher"])
    fill(tmp_path, first, 0.5)
    second = [one for one in rates.second_round([result(one, {256: 0.5}) for one in first]) if one.persona == "ta"]
    fill(tmp_path, second[:1], 0.9)
    fill(tmp_path, second[1:], 0.1)
    chosen = {"opd": {"ta": float(second[0].settings["learning_rate"])}}
    fill(tmp_path, [one for one in grid("compared", rates=chosen) if one.arm == "opd"])
    assert call(monkeypatch, tmp_path, "--part", "search,compared", "--arms", "opd") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["learning_rates"] == chosen
    assert {arm: list(people) for arm, people in found["arms"].items()} == {"opd": ["ta"]}
    assert found["search"]["opd"]["teacher"]["0.001"] == [0.5]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--part", "all"], "all: choose from shipped, ablation"),
        (["--arms", "best"], "best: choose from control, rehearse"),
        (["--personas", "pupil"], "pupil: choose from student, ta, teacher"),
    ],
)
def test_the_command_names_the_choices(
    tmp_path: Path, flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, tmp_path, *flags) == 1
    assert message in capsys.readouterr().err
