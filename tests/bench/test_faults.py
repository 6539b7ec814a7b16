"""A few cases, flips and mutants of `bench.faults`: they find what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.faults.__main__ import cases_of, summary
from bench.faults.cases import CaseResult, in_process, make_template, run_case, warm_up
from bench.faults.flips import NAMED, SERVED, UNNOTICED, Flip, Seen, judge, try_flips
from bench.faults.points import BY_NAME, POINTS, FaultCase, find, parse_case
from bench.mutants import applied
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    warm_up()
    return Prompter(EMBEDDED_POLICY)


@pytest.fixture(scope="module")
def template(prompter: Prompter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "template"
    make_template(folder, prompter)
    return folder


def test_every_point_has_its_place() -> None:
    for point in POINTS:
        find(point.place)


def test_a_point_that_is_not_reached_is_an_error() -> None:
    points = [BY_NAME["record"], BY_NAME["next state"]]
    with pytest.raises(ConfigError, match="next state"):
        cases_of(points, {"record": 3}, 0, 0)
    assert len(cases_of(points[:1], {"record": 9}, 3, 0)) == 3 * len(points[0].kinds)


def test_a_case_is_known_by_its_text() -> None:
    assert parse_case(str(FaultCase("record", "EIO", 2))) == FaultCase("record", "EIO", 2)
    with pytest.raises(ValueError, match="no case"):
        parse_case("record:503:1")


@pytest.mark.parametrize("case", ["commit of a version:exit after:1", "next state:EIO:2"])
def test_nothing_is_wrong_after_a_fault(case: str, template: Path, prompter: Prompter, tmp_path: Path) -> None:
    result = run_case(parse_case(case), template, tmp_path / "case", prompter)
    assert result.happened and not result.failures()


def test_a_day_without_faults_reaches_the_points(template: Path, prompter: Prompter, tmp_path: Path) -> None:
    result = run_case(None, template, tmp_path / "case", prompter)
    assert not result.failures() and {"record", "make live", "forget"} <= result.calls.keys()


def test_a_mutant_is_caught(template: Path, prompter: Prompter, tmp_path: Path) -> None:
    with applied("no entry.done()"):
        result = run_case(parse_case("next state:EIO:2"), template, tmp_path / "case", prompter)
    (failure,) = result.failures()
    assert "acknowledged next_state" in failure
    assert summary(POINTS, [result, CaseResult()])["lost"] == 1


def test_flips_are_named(prompter: Prompter, tmp_path: Path) -> None:
    flips = [
        Flip("checkpoints/LIVE/served/adapter.bin", 20, 1),
        Flip("checkpoints/LIVE/trainer.bin", 20, 1),
        Flip("checkpoints/LIVE/meta.json", 20, 1),
        Flip("journal.db", 3, 1),
    ]
    code, found = in_process(lambda: try_flips(tmp_path, prompter, flips), tmp_path / "found.json")
    assert code == 0
    assert found == [[str(flip), [NAMED]] for flip in flips]


def test_other_records_and_weights_than_were_written_count() -> None:
    before = Seen({"turn": "a", "sample of x": 1, "next state": None}, {"engine 1": "w", "live": 1}, [])
    assert judge(before, before) == []
    assert judge(before, Seen({**before.records, "turn": "b"}, before.weights, [])) == [UNNOTICED]
    assert judge(before, Seen({**before.records, "turn": "b"}, before.weights, ["damaged"])) == [NAMED]
    assert judge(before, Seen({"sample of x": 1}, before.weights, [])) == [UNNOTICED]
    assert judge(before, Seen(before.records, {"engine 1": "v", "live": 1}, ["damaged"])) == [NAMED, SERVED]
    assert judge(before, Seen(before.records, {"engine 0": "", "live": 0}, [])) == [UNNOTICED]
