from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.environments.attempt import Endpoint, EnvironmentFault, Task
from openclaw_rl.environments.harbor.harness import PREFIX, HarborHarness, sweep, trial_variables
from openclaw_rl.environments.harbor.protocol import TrialSetup
from openclaw_rl.shared.errors import ConfigError
from tests.processes import ROOT

ENDPOINT = Endpoint(base_url="http://127.0.0.1:1/v1", api_key="episode:1", session_id="run/1", model="policy")


def _write(task_id: str, folder: Path) -> None:
    folder.mkdir()
    (folder / "instruction.md").write_text(task_id)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[HarborHarness]:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {sys.executable} {Path(__file__).with_name("fake_trials.py")}\n'
    )
    python.chmod(0o755)
    made = HarborHarness(TrialSetup(agent="bash", sandbox="bubblewrap", folder=""), python, _write)
    try:
        yield made
    finally:
        await made.close()


def _task(name: str) -> Task:
    return Task(id=name, data={"folder": f"/tasks/{name}"})


async def test_attempts_of_one_process(harness: HarborHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_RL_API_KEY", "the key of the service")
    one, two = await asyncio.gather(*(harness.run(_task(name), ENDPOINT) for name in ("one", "two")))
    assert [one.detail["folder"], two.detail["folder"]] == ["/tasks/one", "/tasks/two"]
    assert one.reward == 1.0 and one.detail["key"] == "episode:1"
    assert one.detail["trials"] == two.detail["trials"]
    assert not [name for name in one.detail["variables"] if name.startswith("OPENCLAW")]
    assert {"LITELLM_LOCAL_MODEL_COST_MAP", "HARBOR_TELEMETRY", "DO_NOT_TRACK"} <= set(one.detail["variables"])
    await harness.close()
    assert not Path(one.detail["trials"]).parent.exists()


async def test_a_task_without_a_folder_is_written_for_the_attempt(harness: HarborHarness) -> None:
    attempt = await harness.run(Task(id="terminal/train/0/17"), ENDPOINT)
    assert attempt.detail["files"] == ["instruction.md"]
    assert not Path(attempt.detail["folder"]).exists()


async def test_a_process_that_ends_costs_its_attempts_and_the_next_starts_another(harness: HarborHarness) -> None:
    first = await harness.run(_task("one"), ENDPOINT)
    hanging = asyncio.create_task(harness.run(_task("hangs"), ENDPOINT))
    with pytest.raises(EnvironmentFault, match="no memory left"):
        await harness.run(_task("dies"), ENDPOINT)
    with pytest.raises(EnvironmentFault, match="Harbor's process ended"):
        await hanging
    again = await harness.run(_task("one"), ENDPOINT)
    assert again.detail["trials"] != first.detail["trials"]
    assert not Path(first.detail["trials"]).exists()


async def test_a_task_that_cannot_be_run_stops_the_run(harness: HarborHarness) -> None:
    with pytest.raises(ConfigError, match="it needs a container"):
        await harness.run(_task("refused"), ENDPOINT)


async def test_an_attempt_that_is_cancelled_is_stopped(harness: HarborHarness) -> None:
    trials = Path((await harness.run(_task("one"), ENDPOINT)).detail["trials"])
    hanging = asyncio.create_task(harness.run(_task("hangs"), ENDPOINT))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    await harness.run(_task("two"), ENDPOINT)  # answered after the stop
    assert (trials / "stopped").exists()


def test_keys_stay_out_of_the_process_that_runs_other_peoples_tasks() -> None:
    variables = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "OPENAI_API_KEY": "k",
        "OPENCLAW_RL_API_KEY": "k",
        "MODAL_TOKEN": "k",
    }
    assert set(trial_variables("bubblewrap", variables)) == {"PATH", "HOME"}
    assert set(trial_variables("modal", variables)) == {"PATH", "HOME", "OPENAI_API_KEY", "MODAL_TOKEN"}


def test_folders_of_processes_that_were_killed_are_removed(tmp_path: Path) -> None:
    names = [f"{PREFIX}{name}" for name in ("old", "held", "new")]
    for name in (*names, "other"):
        (tmp_path / name / "trials").mkdir(parents=True)
        os.utime(tmp_path / name, (0, 0) if "new" not in name else None)
    with HeldFolder(tmp_path / names[1]):
        sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {names[1], names[2], "other"}


class HeldFolder:
    """A folder that another process holds."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY)

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)
