"""`doctor`'s checks of the SGLang that is to serve the policy: that it can be started, and its version."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from openclaw_rl.cli.checks.check import Check
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.place import current_placement
from openclaw_rl.trainer_local.sglang import launch

_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
_SECONDS = 30.0


def engine_checks(settings: Settings) -> Iterator[Check]:
    """Nothing where another engine serves."""
    if settings.engine.backend != "megatron":
        return
    if settings.engine.url:
        yield Check("sglang", None, f"the one at {settings.engine.url}, which you start")
        return
    try:
        program = launch.program(settings)
        launch.arguments(settings, current_placement(settings).servers)
    except ConfigError as error:
        yield Check("sglang", False, str(error))
        return
    if settings.gpu.sglang_command:
        yield Check("sglang", None, f"started by {settings.gpu.sglang_command!r}; its version is not looked at")
        return
    python = program[program.index("-m") - 1]
    yield _installed(python)


def _installed(python: str) -> Check:
    """Check that the environment of this Python has the SGLang that this was built for."""
    wanted = launch.VERSION
    try:
        asked = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("sglang", False, f"{python} (sglang_python) cannot be run: {error}")
    found = asked.stdout.strip()
    if asked.returncode or not found:
        return Check("sglang", False, f"{python} has no SGLang: {python} -m pip install sglang=={wanted}")
    if found != wanted:
        message = f"{found} in {python}; only {wanted} was tried, so another may refuse arguments or answer otherwise"
        return Check("sglang", None, message)
    return Check("sglang", True, f"{found} in {python}")
