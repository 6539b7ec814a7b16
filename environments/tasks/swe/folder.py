"""A repository with a fault as a task folder: an issue, a checkout, hidden tests, a reference patch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.environments.tasks.folder import VERIFIER, WORKSPACE, TaskFolder
from openclaw_rl.environments.tasks.swe.history import BASE, FORGET

TESTBED = "/testbed"
"""The folder of the repository in images of SWE-bench and SWE-Gym."""
TESTBED_PYTHON = "/opt/miniconda3/envs/testbed/bin/python"
HELPERS = ("applied.py", "contained.py", "run_tests.py")
PATCHED = re.compile(r"^(?:---|\+\+\+) [ab]/(.+?)\t?$", re.MULTILINE)
_CHECK = (VERIFIER / "repository.py").read_text(encoding="utf-8")
_SOLVE = '#!/bin/sh\nexec git -c safe.directory="*" apply "$(dirname "$0")/gold.patch"\n'


class SweTask(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in a repository. `patch` mends it, `test_patch` brings the hidden tests; `fail_to_pass` and
    `pass_to_pass` are the ids of tests that pass with the reference patch, and fail or pass without it. `seconds` of
    the agent, `test_seconds` of all tests.
    """

    problem: str
    fail_to_pass: Sequence[str]
    pass_to_pass: Sequence[str]
    patch: str
    test_patch: str = ""
    seconds: float = 600.0
    test_seconds: float = 60.0

    def folder(
        self, fill: Callable[[Path], None] | None, *, image: str = "", base: str = BASE, metadata: Mapping[str, Any]
    ) -> TaskFolder:
        """The task with a workspace that `fill` makes, or in an image that has the repository in `/testbed`, at or
        after the commit `base`.
        """
        repository = TESTBED if image else WORKSPACE
        where: dict[str, Any] = {}
        if image:
            clean = f"RUN sh /forget.sh {TESTBED} {base} && rm /forget.sh"
            where = {"image": image, "dockerfile": ("COPY workspace/forget.sh /forget.sh", clean), "workdir": TESTBED}
        return TaskFolder(
            instruction=self.problem,
            workspace=fill or {"forget.sh": FORGET},
            check=_CHECK,
            helpers=HELPERS,
            tests={"tests.json": self._tests(repository), "test.patch": self.test_patch},
            solution=_SOLVE,
            solution_files={"gold.patch": self.patch},
            artifacts=(),
            collect=collect_command(repository),
            network=False,
            seconds=self.seconds,
            check_seconds=self.test_seconds + 120.0,
            metadata=metadata,
            **where,
        )

    def _tests(self, repository: str) -> str:
        spec = {
            "repository": repository.lstrip("/"),
            "FAIL_TO_PASS": list(self.fail_to_pass),
            "PASS_TO_PASS": list(self.pass_to_pass),
            "gold_paths": patched_paths(self.patch),
            "pythons": [TESTBED_PYTHON] if repository == TESTBED else [],
            "seconds": self.test_seconds,
        }
        return json.dumps(spec, indent=1)


def collect_command(repository: str) -> str:
    """The command that writes the agent's diff to the base commit, with new files."""
    git = f'git -C {repository} -c safe.directory="*" -c core.fsmonitor=false'
    diff = "diff --cached --binary --no-renames --no-ext-diff --no-textconv"
    return f"{git} add -A && {git} {diff} {BASE} -- . ':!*.pyc' > /logs/artifacts/agent.diff"


def patched_paths(patch: str) -> list[str]:
    """The paths that a patch of git changes."""
    return sorted(set(PATCHED.findall(patch)))


def new_file_patch(path: str, content: str) -> str:
    """A patch of git that makes a file, whose content ends with a newline."""
    lines = content.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n{body}"


def edit_patch(path: str, before: str, after: str) -> str:
    """A patch of git that changes the text of a file."""
    lines = unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
    return f"diff --git a/{path} b/{path}\n{''.join(lines)}"
