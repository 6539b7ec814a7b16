"""Files and folders that are there complete, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openclaw_rl.shared.errors import ConfigError, OpenClawRLError, TrainerError


def replace_file(path: Path, content: bytes, *, mode: int = 0o644, like: os.stat_result | None = None) -> None:
    """Replace a file in one go, synced: a reader never sees half of it. It gets the rights of `like` instead of `mode`,
    and its owner where we may set that.
    """
    partial = _scratch(path, "tmp")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if like is not None:
                os.fchmod(file.fileno(), like.st_mode & 0o777)
            if like is not None and os.geteuid() == 0:
                os.fchown(file.fileno(), like.st_uid, like.st_gid)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync(path.parent)  # else the file that was there may be back after a power cut
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Mapping[str, Any], *, mode: int = 0o644) -> None:
    """Replace a small JSON file in one go; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(content).encode(), mode=mode)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; `None` where there is no such file, or no object in it."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def read_config(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model's folder; empty where there is no such file, or no object in it. Raises
    `ConfigError` for a file that cannot be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from error
    return value if isinstance(value, dict) else {}


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """A folder that appears at `path` complete and synced when the block ends, or not at all. What was there is
    replaced.

    Files get mode 0644: an engine under another user reads them too.
    """
    target = Path(path)
    scratch, old = _scratch(target, "tmp"), _scratch(target, "old")
    try:
        scratch.mkdir(parents=True)
        yield scratch
        for folder, _, files in os.walk(scratch):
            for name in files:
                file = Path(folder) / name
                file.chmod(0o644)
                _sync(file)
            _sync(Path(folder))
        if target.exists():
            target.rename(old)
        scratch.rename(target)
        _sync(target.parent)
    except OpenClawRLError:
        raise
    except Exception as error:  # libraries that write weights have errors of their own
        raise TrainerError(f"Could not write {target}: {error}. Check the space and the rights there") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _scratch(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.{ending}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
