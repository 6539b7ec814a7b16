"""Folders that are there complete, or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openclaw_rl.shared.errors import OpenClawRLError, TrainerError


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """A folder that appears at `path` complete and synced when the block ends, or not at all. What was there is
    replaced.

    Files get mode 0644: an engine under another user reads them too.
    """
    target = Path(path)
    mark = uuid.uuid4().hex[:8]
    scratch = target.with_name(f".{target.name}.{mark}.tmp")
    old = target.with_name(f".{target.name}.{mark}.old")
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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
