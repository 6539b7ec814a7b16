"""The built-in kinds `terminal` and `swe`: our tasks, run by Harbor."""

from __future__ import annotations

from openclaw_rl.environments.harbor.kind import TERMINUS, HarborKind
from openclaw_rl.environments.kinds import KindOptions
from openclaw_rl.environments.tasks.drawn import SWE, TERMINAL, DrawnFolders
from openclaw_rl.environments.tasks.folder import FolderSource
from openclaw_rl.environments.tasks.swe.repositories import Repositories
from openclaw_rl.environments.tasks.terminal.hand_written import HandWritten
from openclaw_rl.shared.errors import ConfigError

HAND_WRITTEN = f"{TERMINAL}:hand-written"
REPOSITORIES = f"{SWE}:repositories"
AGENTS = {TERMINAL: "bash", SWE: "bash", HAND_WRITTEN: TERMINUS, REPOSITORIES: "mini-swe-agent"}
"""The agent of each set of tasks, without `--agent`."""


def folder_source(spec: str) -> FolderSource:
    """The set of tasks that `spec` names. Raises `ConfigError` if there is none of that name."""
    if spec in (TERMINAL, SWE):
        return DrawnFolders(spec)
    if spec == HAND_WRITTEN:
        return HandWritten()
    if spec == REPOSITORIES:
        return Repositories()
    raise ConfigError(f"there are no tasks {spec!r}; choose one of {', '.join(AGENTS)}")


def harbor_tasks(spec: str, options: KindOptions) -> HarborKind:
    """`terminal`, `swe`, `terminal:hand-written`, `swe:repositories`. Raises `ConfigError`."""
    return HarborKind(folder_source(spec), options, agent=AGENTS.get(spec, ""))
