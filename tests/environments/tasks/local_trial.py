"""A trial of a task folder as Harbor runs it, with plain processes in a temporary folder: work in a copy of the
workspace, collect, carry the artifacts into a fresh copy, and let the verifier decide there.
"""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

from openclaw_rl.environments.tasks.folder import copy_tree

PATHS = ("/workspace", "/logs", "/tests", "/solution")


class LocalTrial:
    """One trial of the task in `task`, in the empty folder `scratch`."""

    def __init__(self, task: Path, scratch: Path) -> None:
        self.task = task
        self.settings = tomllib.loads((task / "task.toml").read_text())
        self.agent = self._fresh(scratch / "agent")
        self.verifier = scratch / "verifier"
        self.report = ""

    def _fresh(self, root: Path) -> Path:
        copy_tree(self.task / "environment/workspace", root / "workspace")
        for name in ("logs/artifacts", "logs/verifier"):
            (root / name).mkdir(parents=True)
        return root

    def run(self, command: str) -> int:
        """Run a command in the agent's workspace."""
        for path in PATHS:
            command = command.replace(path, f"{self.agent}{path}")
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.agent), "TMPDIR": str(self.agent), "TERM": "xterm"}
        return subprocess.run(
            ["bash", "-c", command], cwd=self.agent / "workspace", env=environment, capture_output=True, timeout=60
        ).returncode

    def bring_solution(self) -> None:
        """Put the reference solution where the agent can run it."""
        copy_tree(self.task / "solution", self.agent / "solution")

    def solve(self) -> None:
        """Run the reference solution."""
        self.bring_solution()
        assert self.run("/solution/solve.sh") == 0

    def reward(self) -> str:
        """The verifier's reward; "" if it left none."""
        for hook in self.settings["verifier"].get("collect", ()):
            self.run(hook["command"])
        root = self._fresh(self.verifier)
        for artifact in ("/logs/artifacts", *self.settings["artifacts"]):
            self._carry(self.agent / artifact[1:], root / artifact[1:])
        copy_tree(self.task / "tests", root / "tests")
        ran = subprocess.run(
            [root / "tests/test.sh"], cwd=root / "workspace", capture_output=True, text=True, timeout=90
        )
        self.report = ran.stdout + ran.stderr
        reward = root / "logs/verifier/reward.txt"
        return reward.read_text().strip() if reward.exists() else ""

    def _carry(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            copy_tree(source, target)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def trial_reward(task: Path, scratch: Path, work: str | Callable[[LocalTrial], None]) -> tuple[str, str]:
    """Reward and report of a trial in which the agent ran a command, or did what `work` does."""
    trial = LocalTrial(task, scratch)
    if isinstance(work, str):
        trial.run(work)
    else:
        work(trial)
    return trial.reward(), trial.report
