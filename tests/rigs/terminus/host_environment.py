"""A Harbor environment that is a folder of this machine: no container, no isolation, for commands that the tests write.

Runs in Harbor's own environment (`python -m` is not meant for it). Absolute paths of Harbor's (`/logs/…`) are taken to
be in the folder; tmux gets a socket of its own there.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

_OURS = re.compile(r"(?<![\w/.])/(?=(?:logs|tests|solution|installed-agent|app)\b)")
TMUX_SECONDS = 30.0


class HostEnvironment(BaseEnvironment):
    """Commands run in `HOST_ENVIRONMENT`/app of this machine, as this user."""

    @staticmethod
    def type() -> str:
        return "host"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    @property
    def _root(self) -> Path:
        return Path(os.environ["HOST_ENVIRONMENT"])

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        (self._root / "app").mkdir(parents=True, exist_ok=True)
        (self._root / "logs" / "agent").mkdir(parents=True, exist_ok=True)

    async def stop(self, delete: bool) -> None:
        await self.exec("tmux kill-server", timeout_sec=10)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-c", _OURS.sub(f"{self._root}/", command)),
            cwd=self._place(cwd) if cwd else self._root / "app",
            env={
                **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
                "HOME": str(self._root),
                "PS1": "$ ",
                "TMUX_TMPDIR": str(self._root),
                **(env or {}),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, error = await asyncio.wait_for(process.communicate(), timeout_sec or TMUX_SECONDS)
        except TimeoutError:
            process.kill()
            return ExecResult(stdout="", stderr="timed out", return_code=124)
        return ExecResult(stdout=output.decode(), stderr=error.decode(), return_code=process.returncode or 0)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = self._place(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._place(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._place(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._place(source_dir), target_dir, dirs_exist_ok=True)

    def _place(self, path: str) -> Path:
        return Path(_OURS.sub(f"{self._root}/", path))
