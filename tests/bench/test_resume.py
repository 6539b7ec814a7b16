"""The comparison of two runs sees a single bit, and a learner dies where it is to."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import resume
from openclaw_rl.learner import versions
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion


def checkpoint(data: Path, number: int, value: float, **state: Any) -> None:
    folder = data / "checkpoints" / str(number)
    (folder / "served").mkdir(parents=True)
    (folder / "served" / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "meta.json").write_text(str(data))
    torch.save({"weights": {"a": torch.tensor([value, 0.0])}, "step": number, **state}, folder / "trainer.pt")


def test_states_with_other_names_for_the_same_values_are_equal_and_one_bit_is_not(tmp_path: Path) -> None:
    shared = torch.ones(2)
    checkpoint(tmp_path / "a", 1, 1.0, average=[shared, shared])
    checkpoint(tmp_path / "b", 1, 1.0, average=[torch.ones(2), torch.ones(2)])
    checkpoint(
        tmp_path / "c", 1, float(torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))), average=[shared, shared]
    )
    assert resume.differences(tmp_path / "a", tmp_path / "b", 1) == []
    assert resume.differences(tmp_path / "a", tmp_path / "c", 1) == ["1/trainer.pt/.weights.a"]
    assert "2/served/adapter_model.safetensors" not in resume.parts(tmp_path / "a", 1)


def test_a_version_that_one_run_lacks_differs(tmp_path: Path) -> None:
    for data in ("a", "b"):
        checkpoint(tmp_path / data, 1, 1.0)
    checkpoint(tmp_path / "a", 2, 1.0)
    assert "2/served/adapter_model.safetensors" in resume.differences(tmp_path / "a", tmp_path / "b", 2)


@pytest.mark.parametrize("place", ["save", "commit", "publish", "prune"])
def test_the_learner_dies_at_its_place_in_its_step_alone(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "journal.db")
    journal = Journal(path)
    owner, name = {
        "save": (versions, "seal"),
        "commit": (versions.Versions, "accept"),
        "publish": (versions.Versions, "publish"),
        "prune": (versions.Versions, "_prune"),
    }[place]
    signals: list[int] = []
    calls: list[str] = []
    monkeypatch.setattr(os, "kill", lambda _, number: signals.append(number))
    monkeypatch.setattr(owner, name, lambda *_, **__: calls.append(name))
    resume.die_at(place, 2, path)
    for number in range(4):
        journal.commit_version(
            PolicyVersion(number=number, parent=number - 1 if number else None, state="live", checkpoint="")
        )
        getattr(owner, name)()
    journal.close()
    assert (signals, len(calls)) == ([signal.SIGKILL], 4)
