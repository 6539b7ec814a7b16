"""Tasks written to a folder in Harbor's layout, for `harbor:FOLDER` and for Harbor itself: `openclaw-rl env tasks`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec

from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.drawn import SWE
from openclaw_rl.environments.tasks.kinds import folder_source
from openclaw_rl.environments.tasks.swe.rows import read_rows
from openclaw_rl.shared.errors import ConfigError


class WrittenTasks(msgspec.Struct, frozen=True, kw_only=True):
    """The folder, the names of the tasks in it, and an error for each that could not be written."""

    folder: Path
    names: list[str]
    errors: list[str] = []


def write_tasks(spec: str, path: Path, out: Path | None, *, split: Split, seed: int, count: int) -> WrittenTasks:
    """Write rows of the file `path` to `out` (default: a folder of the file's name next to it), or at most `count`
    tasks of the set `spec` to the folder `path`. Raises `ConfigError` if neither is named, and for folders in use.
    """
    if spec == SWE and path.is_file():
        return write_rows(path, out or path.with_suffix(""))
    source = folder_source(spec)
    _check_free(path)
    names = []
    for task in islice(source.tasks(split, seed), count):
        name = task.id.partition("/")[2].replace("/", "-")
        source.folder(task.id).write(path / name)
        names.append(name)
    return WrittenTasks(folder=path, names=names)


def write_rows(file: Path, folder: Path) -> WrittenTasks:
    """Write every row of a file that can be written. Raises `ConfigError` if there is no such file, or no row."""
    _check_free(folder)
    names: list[str] = []
    errors: list[str] = []
    for row in read_rows(file):
        try:
            if isinstance(row, ConfigError):
                raise row
            row.folder().write(folder / row.name)
            names.append(row.name)
        except ConfigError as error:
            errors.append(str(error))
    if not names and not errors:
        raise ConfigError(f"{file} has no rows")
    return WrittenTasks(folder=folder, names=names, errors=errors)


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; name a new folder")
