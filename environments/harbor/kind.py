"""Tasks in Harbor's folders: `harbor:FOLDER`, and kinds that write such folders."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, cast, get_args

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.harbor.dockerfile import NeedsContainer, read_image
from openclaw_rl.environments.harbor.harness import HarborHarness, trial_variables
from openclaw_rl.environments.harbor.installation import harbor_python
from openclaw_rl.environments.harbor.protocol import BUBBLEWRAP, TrialSetup
from openclaw_rl.environments.kinds import KindOptions, Split
from openclaw_rl.environments.tasks.folder import FolderSource
from openclaw_rl.shared.errors import ConfigError

TERMINUS = "terminus-2"
CONVERT_SECONDS = 300.0
_HELD_OUT = 10
"""One in so many tasks is held out where the folder does not say which."""

log = logging.getLogger(__name__)


class HarborKind:
    """A kind whose tasks are Harbor's: any agent, in any sandbox, judged by the task's own verifier. `source` has the
    folders, or writes one for an attempt. `agent` is the one without `--agent`. The process that runs the attempts
    starts with the first.
    """

    def __init__(self, source: FolderSource | TaskFolders, options: KindOptions, *, agent: str = TERMINUS) -> None:
        self._source = source
        self._options = options
        self._agent = options.agent or agent
        self._harness: HarborHarness | None = None

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of the source."""
        return self._source.tasks(split, seed)

    def harness(self) -> HarborHarness:
        """The harness of all attempts. Raises `ConfigError` if Harbor is not set up."""
        options = self._options
        setup = TrialSetup(
            agent=self._agent,
            agent_options=options.agent_options,
            sandbox=options.sandbox,
            programs=options.programs,
            seconds=options.timeout,
            max_steps=options.max_steps,
            folder="",
        )
        self._harness = HarborHarness(setup, harbor_python(), self._write)
        return self._harness

    def _write(self, task_id: str, folder: Path) -> None:
        assert not isinstance(self._source, TaskFolders), "its tasks have folders"
        self._source.folder(task_id).write(folder)

    async def close(self) -> None:
        """End the process of the trials."""
        if self._harness is not None:
            await self._harness.close()


class TaskFolders:
    """The tasks in a folder: one, or a folder of them. The split of a task is `split` in the `[metadata]` of its
    `task.toml`; where no task says it, a tenth is held out.

    Raises `ConfigError` if there is none, or if none of them can be run in `sandbox`.
    """

    def __init__(self, folder: Path, sandbox: str) -> None:
        self._folders = {path.name: path for path in _task_folders(folder)}
        if sandbox == BUBBLEWRAP:
            self._leave_out_images()
        self._splits = _splits(self._folders)

    def _leave_out_images(self) -> None:
        refused: list[str] = []
        for name, path in list(self._folders.items()):
            try:
                _check_image(path)
            except NeedsContainer as error:
                refused.append(str(error))
                del self._folders[name]
        hint = "without a container only files are copied: for others choose a kind of container with --sandbox"
        if not self._folders:
            raise ConfigError(f"{refused[0]}; {hint}")
        if refused:
            log.warning("left out %d tasks that need a container, the first: %s; %s", len(refused), refused[0], hint)

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split without end, in an order of the seed's. Raises `ConfigError` if there are none."""
        names = [name for name, own in self._splits.items() if own in (split, None)]
        if not names:
            raise ConfigError(f"no task is in the split {split!r}: set `split` in the [metadata] of some task.toml")
        random = Random(f"tasks {split} {seed}")
        while True:
            for name in random.sample(names, len(names)):
                yield self._task(name)

    def _task(self, name: str) -> Task:
        folder = self._folders[name]
        file = folder / "instruction.md"  # a task of several steps has one in each
        prompt = file.read_text("utf-8").strip() if file.exists() else name
        return Task(id=name, prompt=prompt, data={"folder": str(folder)})


def harbor_kind(spec: str, options: KindOptions) -> HarborKind:
    """The kind of `harbor:FOLDER`. Raises `ConfigError`."""
    name = spec.partition(":")[2]
    if not name:
        raise ConfigError("harbor needs a folder: harbor:FOLDER, a task or a folder of tasks")
    folder = Path(name).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"{name} is no folder")
    return HarborKind(TaskFolders(folder, options.sandbox), options)


def _task_folders(folder: Path) -> list[Path]:
    """The folders of tasks, those of Terminal-Bench's older layout converted. Raises `ConfigError` if there is none."""
    if (folder / "task.toml").exists():
        return [folder]
    if (folder / "task.yaml").exists():
        return [_converted(folder)]
    found = sorted(path.parent for path in folder.glob("*/task.toml"))
    if not found and any(folder.glob("*/task.yaml")):
        found = sorted(path.parent for path in _converted(folder).glob("*/task.toml"))
    if not found:
        raise ConfigError(f"{folder} has no task: neither a task.toml, nor folders with one")
    return found


def _converted(folder: Path) -> Path:
    """The tasks of an older layout, by Harbor's own mapper, in a folder that is made once for these files."""
    single = (folder / "task.yaml").exists()
    parent = folder.parent if single else folder
    digest = hashlib.sha256(str(folder).encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)} {file.stat().st_size} {file.stat().st_mtime_ns}\n".encode())
    python = harbor_python()
    target = python.parents[1].with_name("harbor-tasks") / digest.hexdigest()[:16]
    if not target.exists():
        command = [str(python), "-c", _MAP, str(parent), str(target), folder.name if single else ""]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CONVERT_SECONDS, env=trial_variables(BUBBLEWRAP)
        )
        if done.returncode != 0:
            raise ConfigError(f"{folder} could not be converted: {done.stderr.strip()[-600:]}")
    return target / folder.name if single else target


_MAP = """
import sys, tempfile
from pathlib import Path
from harbor.mappers.terminal_bench import TerminalBenchMapper
source, target, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
target.parent.mkdir(parents=True, exist_ok=True)
with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
    tasks = Path(scratch, "source")
    if name:
        tasks.mkdir()
        (tasks / name).symlink_to(source / name)
    else:
        tasks = source
    made = TerminalBenchMapper().map(tasks, Path(scratch, "made"))
    if not made.mapped:
        sys.exit(f"no task could be mapped: {made.failed[:3]}")
    Path(scratch, "made").rename(target)
"""


def _check_image(folder: Path) -> None:
    """Raise `NeedsContainer` if the task needs one, for its agent or for its verifier."""
    settings = _settings(folder)
    verifier = settings.get("verifier", {}).get("environment", {})
    for image in (settings.get("environment", {}).get("docker_image"), verifier.get("docker_image")):
        if image:
            raise NeedsContainer(f"{folder / 'task.toml'}: it needs the image {image}")
    for part in ("environment", "tests"):
        read_image(folder / part)


def _splits(folders: Mapping[str, Path]) -> dict[str, Split | None]:
    """The split of each task, `None` for the one of both: a task alone."""
    said = {name: _said_split(folder) for name, folder in folders.items()}
    if any(said.values()):
        return {name: split or "train" for name, split in said.items()}
    if len(said) == 1:
        return dict.fromkeys(said)
    drawn = sorted(said, key=lambda name: hashlib.sha256(name.encode()).digest())
    held_out = drawn[: -(-len(drawn) // _HELD_OUT)]
    return {name: "held-out" if name in held_out else "train" for name in said}


def _said_split(folder: Path) -> Split | None:
    split = _settings(folder).get("metadata", {}).get("split")
    if split is not None and split not in get_args(Split):
        raise ConfigError(f"{folder / 'task.toml'}: `split` is one of {', '.join(get_args(Split))}, not {split!r}")
    return cast(Split | None, split)


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / "task.toml"
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
