"""Harbor's environment for tasks that need no image: our sandbox. Runs in Harbor's own Python.

The folders in which a task works are folders of this machine, of one sandbox each, at the same path inside. Files go in
and come out by `copy_in` and `copy_out`, so no link that an agent leaves is followed out here.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.utils.path_filter import filter_paths_by_patterns

from openclaw_rl.environments.attempt import EnvironmentFault
from openclaw_rl.environments.harbor.dockerfile import DEFAULT_FOLDER, ImageFiles, NeedsContainer, read_image
from openclaw_rl.environments.sandbox.artifacts import copy_in, copy_out, remove_folder
from openclaw_rl.environments.sandbox.launch import Mount
from openclaw_rl.environments.sandbox.sandbox import Sandbox, SandboxLimits

FOLDERS = ("app", "installed-agent", "logs", "solution", "tests", "workspace")
"""Top folders that every sandbox has, as Harbor and its tasks expect, and those that the image has files in."""
LOGS = ("agent", "artifacts", "verifier")
TIMED_OUT = 124
DAY = 86_400.0
POLICY_SECONDS = 30.0
_POLICY_IS_THERE = "until (exec 3<>/dev/tcp/127.0.0.1/30000) 2>/dev/null; do sleep 0.05; done"
"""The way to the policy is a process that starts after the sandbox; agents may ask at once."""


class BubblewrapEnvironment(BaseEnvironment):
    """A sandbox for one agent, or one verifier. `policy_socket` leads the agent's to the policy; no verifier gets it.
    `programs`: folders of this machine that can be read inside, at the same place, with their `bin` on the PATH.
    """

    def __init__(self, *args: Any, policy_socket: str = "", programs: Sequence[str] = (), **options: Any) -> None:
        self._image = ImageFiles()
        self._sandbox: Sandbox | None = None
        self._programs = [Path(program).expanduser().resolve() for program in programs]
        super().__init__(*args, **options)
        self._is_verifier = "__verifier__" in self.session_id
        self._socket = Path(policy_socket) if policy_socket and not self._is_verifier else None
        self._root = (self.trial_paths.trial_dir / "sandboxes" / self.session_id).resolve()
        self._folder = self.task_env_config.workdir or self._image.folder or DEFAULT_FOLDER
        self._tops = sorted({*FOLDERS, *self._image.tops(), PurePosixPath(self._folder).parts[1]})

    @staticmethod
    def type() -> str:
        """Its name in Harbor's records."""
        return "bubblewrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """There is no network, whatever a phase asks for; so a change of the policy is none."""
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=True)

    async def _apply_network_policy(self, network_policy: Any) -> None:
        """Nothing to change."""

    def _validate_definition(self) -> None:
        if self.task_env_config.docker_image:
            raise NeedsContainer(f"it needs the image {self.task_env_config.docker_image}: choose another --sandbox")
        self._image = read_image(self.environment_dir)

    async def start(self, force_build: bool) -> None:
        """Make the folders, and start the sandbox."""
        await asyncio.to_thread(self._fill)
        limits = SandboxLimits()
        self._sandbox = await Sandbox.start(
            self._root / "workspace",
            mounts=[Mount(self._root / top, f"/{top}", writable=True) for top in self._tops if top != "workspace"]
            + [Mount(program, str(program)) for program in self._programs],
            limits=SandboxLimits(
                memory_mb=self._effective_memory_mb or limits.memory_mb,
                workspace_mb=self._effective_storage_mb or limits.workspace_mb,
            ),
            environment=self._image.variables,
            policy_socket=self._socket,
        )

        if self._socket is not None:
            await self._sandbox.run(_POLICY_IS_THERE, seconds=POLICY_SECONDS)

    def _fill(self) -> None:
        for top in (*self._tops, *(f"logs/{log}" for log in LOGS)):
            (self._root / top).mkdir(parents=True, exist_ok=True)
        self._image.write(self._root)

    async def stop(self, delete: bool) -> None:
        """End everything inside, and delete its folders."""
        if self._sandbox is not None:
            await self._sandbox.close()
        await asyncio.to_thread(remove_folder, self._root)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command with bash. There is one user inside, whatever `user` says."""
        if self._programs:
            places = shlex.quote(":".join(str(program / "bin") for program in self._programs))
            command = f'export PATH={places}:"$PATH"\n{command}'
        result = await self._running().run(
            command,
            seconds=float(timeout_sec or DAY),  # the trial's own limits end it before
            folder=cwd or self._folder,
            environment=self._merge_env(env) or {},
        )
        code = TIMED_OUT if result.code is None else result.code
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=code)

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise EnvironmentFault("the sandbox has not started")
        return self._sandbox

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file of this machine in."""
        await asyncio.to_thread(copy_in, Path(source_path), self._root, self._place(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the content of a folder of this machine in."""
        await asyncio.to_thread(copy_in, Path(source_dir), self._root, self._place(target_dir))

    def _place(self, path: str) -> str:
        """A path inside as one in the folders of this machine. Raises `FileNotFoundError` for those that have none."""
        parts = PurePosixPath(path).parts
        if len(parts) < 2 or parts[0] != "/" or parts[1] not in self._tops:
            raise FileNotFoundError(f"{path} is in none of the folders that can be copied: {', '.join(self._tops)}")
        return "/".join(parts[1:])

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out. Raises `FileNotFoundError`."""
        await self._copy_out(source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the content of a folder out. Raises `FileNotFoundError`."""
        if self._is_verifier:
            await self._running().close()  # what the tests left running changes no reward
        await self._copy_out(source_dir, Path(target_dir))

    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: list[str]
    ) -> None:
        """The same without some files."""
        await self.download_dir_filtered(source_dir=source_dir, target_dir=target_dir, exclude=exclude)

    async def download_dir_filtered(
        self,
        *,
        source_dir: str,
        target_dir: Path | str,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        protect: Sequence[str] | None = None,
    ) -> None:
        """The same with some files only."""
        await self.download_dir(source_dir, target_dir)
        paths = [path for path in Path(target_dir).rglob("*") if not path.is_dir() or path.is_symlink()]
        names = {str(path.relative_to(target_dir)): path for path in paths}
        kept = {*filter_paths_by_patterns(list(names), include=include, exclude=exclude), *(protect or ())}
        for name in names.keys() - kept:
            names[name].unlink()

    async def _copy_out(self, source: str, target: Path) -> None:
        left_out = await asyncio.to_thread(copy_out, self._root, self._place(source), target)
        for text in left_out:
            self.logger.warning(f"{self.session_id}: not copied: {text}")
        await asyncio.to_thread(_drop_links, PurePosixPath(source), target)


def _drop_links(source: PurePosixPath, target: Path) -> None:
    """Remove the links that lead out of what was copied: in a verifier they may lead to its own files. Of logs remove
    all: they are read out here.
    """
    for path in [target, *target.rglob("*")]:
        if path.is_symlink():
            folder = source / path.relative_to(target).parent
            place = PurePosixPath(os.path.normpath(folder / os.readlink(path)))
            if path == target or source.is_relative_to("/logs") or not place.is_relative_to(source):
                path.unlink()
