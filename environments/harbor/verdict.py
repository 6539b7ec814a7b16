"""A trial as the verifier sees it, and the attempt that it amounts to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from openclaw_rl.environments.attempt import Attempt
from openclaw_rl.environments.harbor.dockerfile import DEFAULT_FOLDER, working_folder
from openclaw_rl.environments.harbor.protocol import BUBBLEWRAP
from openclaw_rl.shared.errors import ConfigError

CARRIED_IN = ("/logs/verifier", "/tests")
"""Folders of the verifier's own."""
REPORT_CHARACTERS = 4000
AGENT_ENDS = {
    "AgentTimeoutError": "timeout",
    "NonZeroAgentExitCodeError": "agent",
    "ContextWindowExceededError": "context",
    "OutputTokenExceededError": "context",
    "AgentSafetyRefusalError": "refusal",
}
"""Exceptions of Harbor's that are the agent's own end; the verdict is on the state that it left."""
CONTEXT_ERRORS = ("ContextLengthExceededError", "OutputLengthExceededError", "ContextWindowExceededError")
"""Exceptions of agents on the host whose context, or answer, was full."""


def carried_over(config: Any, folder: Path, sandbox: str) -> list[str]:
    """The artifacts of a task that declares none, and is not made for a separate verifier: its working folder.

    `config` is Harbor's `TaskConfig`. Raises `ConfigError` if the folder is not known, and for artifacts that would put
    files into the verifier's own folders.
    """
    declared = [*config.artifacts, *(artifact for step in config.steps or [] for artifact in step.artifacts)]
    parts = (config, *(config.steps or []))
    separate = any(
        part.verifier.environment_mode == "separate" or part.verifier.environment is not None for part in parts
    )
    for artifact in declared:
        path = PurePosixPath(artifact if isinstance(artifact, str) else artifact.source)
        for own in map(PurePosixPath, CARRIED_IN):
            if path.is_relative_to(own) or own.is_relative_to(path):
                raise ConfigError(f"the artifact {path} would put the agent's files into {own} of the verifier")
    if declared or separate:  # its author has said all that the verifier needs
        return []
    default = DEFAULT_FOLDER if sandbox == BUBBLEWRAP else ""
    work = config.environment.workdir or working_folder(folder / "environment") or default
    if not work:
        raise ConfigError("it declares no artifacts and no WORKDIR, so its verifier would see none of the agent's work")
    return [work]


def attempt_of(result: Any, folder: Path) -> Attempt:
    """The attempt of `result`, Harbor's `TrialResult`, whose files are in `folder`.

    The reward is the verifier's. Without one, or if the environment or the verifier failed, there is none, and `detail`
    says why. The report that the verifier printed is part of the next state.
    """
    failed = result.exception_info
    rewards = result.verifier_result.rewards if result.verifier_result is not None else None
    metadata = (result.agent_result.metadata if result.agent_result is not None else None) or {}
    steps = int(metadata.get("steps") or count_steps(folder / "agent" / "trajectory.json"))
    end = "answer" if failed is None else AGENT_ENDS.get(failed.exception_type, "")
    problem = _problem(failed) if not end else check_rewards(rewards, folder / "verifier")
    if problem:
        return Attempt(reward=None, status="env_error", detail={"error": problem}, steps=steps)
    assert rewards is not None, "check_rewards"
    report = read_end(folder / "verifier" / "test-stdout.txt")
    return Attempt(
        reward=float(_reward(rewards)),
        status="ok" if failed is None else "agent_error",
        detail={"end": metadata.get("end", end), "rewards": dict(rewards)},
        next_state="\n".join(filter(None, [str(metadata.get("unread", "")), report])),
        steps=steps,
    )


def _problem(failed: Any) -> str:
    return f"{failed.exception_type}: {failed.exception_message}"[:REPORT_CHARACTERS]


def check_rewards(rewards: Mapping[str, float] | None, verifier: Path) -> str:
    """The problem of the verifier's rewards, "" for none. Two files that disagree are no verdict: code of the agent's
    that the tests ran may have written one of them.
    """
    if not rewards:
        return "the verifier gave no reward"
    if "reward" not in rewards and len(rewards) > 1:
        return f"the verifier gave {', '.join(rewards)}, and none is called reward"
    if not math.isfinite(_reward(rewards)):
        return f"the verifier's reward is {_reward(rewards)}"
    if (verifier / "reward.json").exists() and not _says(verifier / "reward.txt", _reward(rewards)):
        return "reward.txt and reward.json of the verifier disagree"
    return ""


def _says(file: Path, reward: float) -> bool:
    """True if a text file is not there, or holds this number."""
    try:
        return float(file.read_text("utf-8")) == reward
    except FileNotFoundError:
        return True
    except ValueError:
        return False


def _reward(rewards: Mapping[str, float]) -> float:
    return rewards["reward"] if "reward" in rewards else next(iter(rewards.values()))


def read_end(file: Path) -> str:
    """The end of a text file; "" if there is none."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - REPORT_CHARACTERS))
            return opened.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def count_steps(trajectory: Path) -> int:
    """The agent's answers in a trajectory of Harbor's format; 0 if there is none."""
    try:
        steps = json.loads(trajectory.read_bytes())["steps"]
        return sum(1 for step in steps if step.get("source") == "agent")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0
