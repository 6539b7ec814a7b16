"""Small outages: everything is settled afterwards, and a backlog that goes stale is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import reliability_page
from bench.outages import SITUATIONS, OutageScene, OutageSituation, measured
from openclaw_rl.learner.batch import Batches

LEARNER = OutageSituation("learner dead", OutageScene.learner_dead, 1200.0)
SMALL = {"method": "binary", "batch_size": 2, "max_version_lag": 4}


@pytest.mark.parametrize("situation", SITUATIONS[1:], ids=lambda one: one.name)
def test_everything_is_settled_afterwards(situation: OutageSituation, tmp_path: Path) -> None:
    folder = tmp_path / "world"
    folder.mkdir()
    short = situation._replace(seconds=min(situation.seconds, 3600.0))
    found = measured(short, folder, {"method": "rehearse", "batch_size": 2}, scale=0.1, imports=12)
    assert (found["refused"], found["lost"], found["dropped"], found["faults"]) == (0, 0, 0, [])
    assert found["settled"] > 5 and found["versions"] and found["seconds"] is not None


def test_turns_that_became_too_old_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ignore_backlog(*_: Any) -> tuple[int, int]:
        return 0, 0

    dropped = {}
    for name in ("as it is", "a batch does not grow"):
        folder = tmp_path / name
        folder.mkdir()
        dropped[name] = measured(LEARNER, folder, SMALL, scale=0.5)["dropped_share"]
        monkeypatch.setattr(Batches, "_keeping_up", ignore_backlog)
    # A few are settled too late in both: their people think for longer than so small a batch takes.
    assert dropped["as it is"] < 0.1 and dropped["a batch does not grow"] > 0.2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, "met"),
        ({"dropped_share": 0.2}, "missed"),
        ({"faults": ["lost"]}, "missed"),
        ({"seconds": None}, "missed"),
        ({"settled": 3}, "not measured"),  # most of them were set aside for another reason
    ],
)
def test_a_situation_is_judged_by_its_figures(change: dict[str, Any], word: str) -> None:
    found = {"situation": "import", "method": "rehearse", "turns": 9, "settled": 8, "dropped": 0, "dropped_share": 0.0}
    found |= {"lost": 0, "refused": 0, "seconds": 60.0, "faults": []}
    found |= {"set_aside": {"held back for the guard: it is kept": 2, "stale: sampled N versions ago": 1}}
    (row,) = reliability_page.outage_rows([found | change])
    assert row[-1] == word and row[2].endswith("; 2 set aside otherwise: held back for the guard")
    both = reliability_page.outage_rows([found | change, found | {"situation": "pause", "seconds": 600.0}])
    assert [line[-1] for line in both] == list(dict.fromkeys([word, "met"]))
    assert both[-1][1].startswith("import, pause; 18 turns" if word == "met" else "pause; 9 turns")
    assert "settled after at most 10 minutes" in both[-1][2]
