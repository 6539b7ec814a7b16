"""The built-in kinds `calls` and `sums`."""

from __future__ import annotations

import shlex
import sys

from openclaw_rl.environments.families.calls import CALLS
from openclaw_rl.environments.families.sums import SUMS
from openclaw_rl.environments.kinds import KindOptions
from openclaw_rl.environments.tools.kinds import ToolKind, served

SERVER = shlex.join([sys.executable, "-m", "openclaw_rl.environments.families.server"])


def calls_kind(spec: str, options: KindOptions) -> ToolKind:
    """`calls`."""
    return served(SERVER, CALLS, options, shared=True)


def sums_kind(spec: str, options: KindOptions) -> ToolKind:
    """`sums`."""
    return served(SERVER, SUMS, options, shared=True)
