"""The lines of `openclaw-rl status` that are there only when something is out of the ordinary."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.commands.status import accounting_lines, rendered, show, traffic_lines, unrecorded_lines
from openclaw_rl.shared.journal.accounting import PLACES

FREE = {"places": 4, "active": 1, "waiting": 0, "refused": 0}


def answer(**changes: Any) -> dict[str, Any]:
    ordinary = {
        "capture": True,
        "other_models": {"side_model": None, "fallback_model": None},
        "limits": {"keys": [FREE], "dialects": FREE, "sessions": None},
    }
    return ordinary | changes


def test_an_ordinary_service_has_none() -> None:
    assert traffic_lines(answer()) == []


def test_answers_that_are_not_recorded_are_reported() -> None:
    assert unrecorded_lines({"turns": 0, "reason": ""}) == unrecorded_lines({}) == []
    assert unrecorded_lines({"turns": 3, "reason": ""}) == [("not recorded", "3 answers since the proxy started")]
    (line,) = unrecorded_lines({"turns": 0, "reason": "disk full"})
    assert line[1].endswith("; now: disk full")


def test_capture_off_is_reported() -> None:
    assert traffic_lines(answer(capture=False)) == [("capture", "off: requests are answered and not recorded")]


def test_other_models_and_full_limits_are_reported() -> None:
    side = {"model": "openai/small", "answered": 3, "failed": 1, "last_failure": "401"}
    full = {"places": 4, "active": 4, "waiting": 2, "refused": 7}
    lines = traffic_lines(
        answer(
            other_models={"side_model": side, "fallback_model": None},
            limits={"keys": [FREE, full], "dialects": FREE, "sessions": full | {"waiting": 0}},
        )
    )
    assert lines == [
        ("side_model", "openai/small answered 3×, failed 1× (last: 401)"),
        ("key 2", "4 of 4 places taken, 2 waiting, 7 refused"),
        ("sessions", "4 of 4 places taken, 0 waiting, 7 refused"),
    ]


@pytest.mark.parametrize("trouble", ["", "the Tinker account cannot pay"])
def test_trouble_of_the_engine_is_reported(trouble: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = answer(
        trouble=trouble,
        version={"live": 0, "engine": 0},
        backlog={"unjudged": 0, "ready": 0, "quarantined": {}},
        turns={},
        training="running",
        interactions=0,
        why_untrained="",
        audit={"fraction": 0},
        judging={"judge": "rules (auto: the tiny policy)", "not_understood": 2},
    )
    show("http://here", content, "")
    shown = capsys.readouterr().out
    assert ("trouble" in shown) == bool(trouble) and trouble in shown
    assert "rules (auto: the tiny policy); 2 turns not understood" in shown


def test_settled_turns_are_accounted_for() -> None:
    places = {"queued": 3, "ready": 0, "consumed": 90, "rolled_back": 2, "quarantined": {"stale: old": 4, "cut": 1}}
    assert accounting_lines({"settled": 0}) == []
    assert accounting_lines({"settled": 100, **dict.fromkeys(PLACES, 0), **places, "dropped": 4}) == [
        (
            "settled",
            "100 = 3 with the judge + 90 learned from + 2 learned from by versions that were left + 5 set aside",
        ),
        ("dropped", "4 of them set aside as too old (4.0 %)"),
    ]
    lost = {"settled": 1, **dict.fromkeys(PLACES, 0), "quarantined": {}, "lost": 1, "dropped": 0}
    assert accounting_lines(lost) == [("settled", "1 = 1 LOST")]


def test_a_watched_service_that_is_away_is_reported_in_place() -> None:
    text = rendered(Service("http://127.0.0.1:1", "key"), 80)
    assert "http://127.0.0.1:1" in text and "Ctrl-C ends this" in text
