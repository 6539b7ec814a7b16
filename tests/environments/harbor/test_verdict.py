from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw_rl.environments.harbor.verdict import REPORT_CHARACTERS, attempt_of, carried_over
from openclaw_rl.environments.runner import checked_attempt
from openclaw_rl.shared.errors import ConfigError


def _result(rewards: Any = None, failed: str = "", metadata: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        exception_info=SimpleNamespace(exception_type=failed, exception_message="because") if failed else None,
        verifier_result=SimpleNamespace(rewards=rewards) if rewards is not None else None,
        agent_result=SimpleNamespace(metadata=metadata),
    )


def _verifier(folder: Path, **files: str) -> Path:
    (folder / "verifier").mkdir()
    for name, text in files.items():
        (folder / "verifier" / name.replace("_", ".")).write_text(text)
    return folder


def test_the_reward_is_the_verifiers_and_its_report_is_the_next_state(tmp_path: Path) -> None:
    _verifier(tmp_path, reward_txt="1\n")
    (tmp_path / "verifier" / "test-stdout.txt").write_text("x" * REPORT_CHARACTERS + "\n3 of 3 tests passed\n")
    (tmp_path / "agent").mkdir()
    steps = [{"source": "user"}, {"source": "agent"}, {"source": "agent"}]
    (tmp_path / "agent" / "trajectory.json").write_text(json.dumps({"steps": steps}))
    attempt = checked_attempt(attempt_of(_result({"reward": 1}), tmp_path), None)
    assert (attempt.reward, attempt.status, attempt.steps) == (1.0, "ok", 2)
    assert attempt.next_state.endswith("3 of 3 tests passed") and len(attempt.next_state) <= REPORT_CHARACTERS


def test_unread_results_come_before_the_report(tmp_path: Path) -> None:
    metadata = {"steps": 3, "unread": "[exit 0]", "end": "max_steps"}
    attempt = attempt_of(_result({"accuracy": 0.5}, metadata=metadata), tmp_path)
    assert (attempt.reward, attempt.steps, attempt.next_state) == (0.5, 3, "[exit 0]")
    assert attempt.detail == {"end": "max_steps", "rewards": {"accuracy": 0.5}}


@pytest.mark.parametrize(
    ("failed", "end"),
    [
        ("AgentTimeoutError", "timeout"),
        ("NonZeroAgentExitCodeError", "agent"),
        ("ContextWindowExceededError", "context"),
    ],
)
def test_the_agents_own_end_is_judged(tmp_path: Path, failed: str, end: str) -> None:
    attempt = checked_attempt(attempt_of(_result({"reward": 0}, failed), tmp_path), None)
    assert (attempt.reward, attempt.status, attempt.detail["end"]) == (0.0, "agent_error", end)


@pytest.mark.parametrize(
    "failed", ["VerifierTimeoutError", "EnvironmentFault", "NetworkConnectionError", "CancelledError", "ValueError"]
)
@pytest.mark.parametrize("rewards", [None, {"reward": 1}])
def test_a_failure_of_the_environment_or_the_verifier_is_no_reward(tmp_path: Path, failed: str, rewards: Any) -> None:
    attempt = checked_attempt(attempt_of(_result(rewards, failed), tmp_path), None)
    assert (attempt.reward, attempt.status, attempt.detail) == (None, "env_error", {"error": f"{failed}: because"})


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        (None, "gave no reward"),
        ({}, "gave no reward"),
        ({"a": 1, "b": 0}, "gave a, b, and none is called reward"),
        ({"reward": float("inf")}, "reward is inf"),
    ],
)
def test_rewards_that_say_nothing_are_none(tmp_path: Path, rewards: Any, reason: str) -> None:
    attempt = attempt_of(_result(rewards), tmp_path)
    assert attempt.reward is None and attempt.status == "env_error" and reason in attempt.detail["error"]


def test_a_second_reward_file_put_in_place_does_not_pay(tmp_path: Path) -> None:
    """Harbor reads reward.json first: a test script writes reward.txt, and the agent's code that it runs the other."""
    _verifier(tmp_path, reward_txt="0\n", reward_json='{"reward": 1}')
    assert attempt_of(_result({"reward": 1}), tmp_path).reward is None


def test_two_reward_files_that_agree_are_one(tmp_path: Path) -> None:
    _verifier(tmp_path, reward_txt="1.0\n", reward_json='{"reward": 1}')
    assert attempt_of(_result({"reward": 1}), tmp_path).reward == 1.0


def _task(artifacts: Any = (), mode: str | None = None, workdir: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        artifacts=list(artifacts),
        steps=None,
        verifier=SimpleNamespace(environment_mode=mode, environment=None),
        environment=SimpleNamespace(workdir=workdir),
    )


@pytest.mark.parametrize("source", ["/logs", "/logs/verifier", "/logs/verifier/reward.txt", "/", "/tests/test.sh"])
def test_artifacts_never_lie_in_the_verifiers_own_folders(tmp_path: Path, source: str) -> None:
    with pytest.raises(ConfigError, match="of the verifier"):
        carried_over(_task([source]), tmp_path, "docker")
    with pytest.raises(ConfigError, match="of the verifier"):
        carried_over(_task([SimpleNamespace(source=source)]), tmp_path, "docker")


def test_declared_artifacts_alone_are_carried_over(tmp_path: Path) -> None:
    assert carried_over(_task(["/app/answer.txt"]), tmp_path, "bubblewrap") == []
    assert carried_over(_task(mode="separate"), tmp_path, "bubblewrap") == []


def test_a_task_for_a_shared_verifier_has_its_working_folder_carried_over(tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    assert carried_over(_task(), tmp_path, "bubblewrap") == ["/workspace"]
    with pytest.raises(ConfigError, match="no WORKDIR"):
        carried_over(_task(), tmp_path, "docker")
    (tmp_path / "environment" / "Dockerfile").write_text("FROM x\nWORKDIR /app\n")
    assert carried_over(_task(), tmp_path, "docker") == ["/app"]
    assert carried_over(_task(workdir="/srv"), tmp_path, "docker") == ["/srv"]
