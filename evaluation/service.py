"""Start `openclaw-rl serve` for the time of a block, on a free port with a temporary data folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from openclaw_rl.shared import gpus
from openclaw_rl.shared.child_process import end_child, start_child
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.named_models import TINY
from openclaw_rl.shared.settings.sources import FILE_VARIABLE

START_SECONDS = 180.0
GPU_START_SECONDS = 1200.0
"""The same where SGLang reads a large model and captures graphs."""
STOP_SECONDS = 20.0
OWN_SETTINGS = (
    *("HOST", "PORT", "DATA", "JOURNAL", "API_KEY", "ADMIN_KEY", "CAPTURE", "TRAIN", "PARENT_PID", "LISTENERS"),
    *("ENGINE_URL", "ENGINE_HOST", "ENGINE_PORT", "CHECKPOINTS", "RESUME", "BACKEND_FALLBACK"),
)
"""Settings that such a service never takes from the environment."""


class ServiceFailed(OpenClawRLError):
    """The service did not start; the message carries the end of its log."""


@dataclass(frozen=True)
class RunningService:
    """A running service: base URL (without `/v1`), key, data folder and supervisor's process id (both `None` if it is
    not ours).
    """

    url: str
    key: str
    data: Path | None = None
    pid: int | None = None


@asynccontextmanager
async def own_service(
    settings: Mapping[str, str | int | float | bool] | None = None,
    *,
    keep: Path | None = None,
    only: Sequence[str] = (),
) -> AsyncIterator[RunningService]:
    """Start a service and end it with the block, whatever happens in it.

    `settings` by their flat names; the tiny policy if nothing names a model. The data folder is temporary, or `keep`,
    which stays. `only`: the parts to run (engine, proxy, learner), all if empty. Raises `ServiceFailed` if it is not
    ready within three minutes, or twenty on GPUs.
    """
    data = keep or Path(tempfile.mkdtemp(prefix="openclaw-rl-"))
    data.mkdir(parents=True, exist_ok=True)
    # A port that the supervisor keeps across restarts of the proxy, and a key of its own.
    own: dict[str, str | int | float | bool] = {"host": "127.0.0.1", "port": 0, "data": str(data)}
    own |= {"api_key": secrets.token_urlsafe(16), **default_policy(os.environ), **(settings or {})}
    log = data / "service.log"
    seconds = GPU_START_SECONDS if on_gpus(settings or {}) else START_SECONDS
    with log.open("wb") as output:
        process = await start_child(
            *(sys.executable, "-m", "openclaw_rl.cli.main", "serve"),
            *(argument for part in only for argument in ("--only", part)),
            # An empty folder, so that no openclaw-rl.toml of the reader's gets into the experiment.
            folder=data,
            environment=_environment() | {f"OPENCLAW_RL_{name.upper()}": str(value) for name, value in own.items()},
            stdout=output,
            stderr=output,
        )
    try:
        yield await _ready(process, data, log, seconds)
    finally:
        await end_child(process, STOP_SECONDS)
        if keep is None:
            shutil.rmtree(data, ignore_errors=True)


def _environment() -> dict[str, str]:
    """Our environment without the settings that concern other services."""
    return {name: value for name, value in os.environ.items() if name.removeprefix("OPENCLAW_RL_") not in OWN_SETTINGS}


def default_policy(environ: Mapping[str, str]) -> dict[str, str]:
    """The setting for the tiny policy, which experiments are made for; empty if the environment, or a file of settings
    that it names, may name another model.
    """
    names = {"OPENCLAW_RL_MODEL", FILE_VARIABLE}
    names.update(name for alias in aliases.ALIASES if "model" in alias.settings for name in alias.environment)
    return {} if any(environ.get(name) for name in names) else {"model": TINY.name}


def on_gpus(settings: Mapping[str, object]) -> bool:
    """True if a service with these settings takes this machine's GPUs, so that only one can run at a time."""
    backend = settings.get("backend") or os.environ.get("OPENCLAW_RL_BACKEND")
    return backend == "megatron" or (backend == "local" and bool(gpus.found()))


async def _ready(process: asyncio.subprocess.Process, data: Path, log: Path, seconds: float) -> RunningService:
    """Wait until the supervisor has left its card in the data folder and the proxy is ready to answer."""
    deadline = time.monotonic() + seconds
    card = data / "run" / "proxy.json"
    async with httpx.AsyncClient(trust_env=False, timeout=5.0) as http:
        while time.monotonic() < deadline:
            if process.returncode is not None:
                raise ServiceFailed(
                    f"the service ended with status {process.returncode} before it was ready:\n{_tail(log)}"
                )
            if content := read_json(card):
                service = RunningService(content["url"], content["key"], data, process.pid)
                with contextlib.suppress(httpx.HTTPError):  # not listening yet; the deadline decides
                    if (await http.get(f"{service.url}/readyz")).status_code == 200:
                        return service
            await asyncio.sleep(0.1)
    raise ServiceFailed(f"the service was not ready after {seconds:.0f} s:\n{_tail(log)}")


def _tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
