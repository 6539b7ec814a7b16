"""Faults of a data folder: of its journal, and of the checkpoints that its versions name.

The quick check, after each start of the service, reads no content. The whole one reads every turn and every checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openclaw_rl.shared.checkpoints import damage
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion

TURNS_AT_ONCE = 200
"""Turns that are read in one transaction: a longer one keeps the write-ahead log from being reused."""


def quick_faults(journal: Journal, checkpoints: Path) -> list[str]:
    """Contradictions in the journal, and checkpoints that are missing or belong to no version."""
    following = journal.next_version_number()  # first: a version that is committed meanwhile is no stray folder
    return [*journal.contradictions(), *_folders(journal.versions(), checkpoints, following)]


def whole_faults(journal: Journal, checkpoints: Path) -> Iterator[str]:
    """All faults that can be found, one after another."""
    yield from quick_faults(journal, checkpoints)
    yield from journal.file_faults()
    rows = journal.turn_rows()
    for start in range(0, len(rows), TURNS_AT_ONCE):
        yield from journal.unreadable(rows[start : start + TURNS_AT_ONCE])
    for version in journal.versions():
        if version.checkpoint and Path(version.checkpoint).is_dir() and (fault := damage(Path(version.checkpoint))):
            yield f"version {version.number}: {fault}"


def _folders(versions: list[PolicyVersion], checkpoints: Path, following: int) -> Iterator[str]:
    """A step that is being made may have written the folder of the `following` version already."""
    for version in versions:
        if version.state == "live" and version.checkpoint and not Path(version.checkpoint).is_dir():
            yield f"version {version.number} is live, and its checkpoint {version.checkpoint} is gone"
    known = {Path(version.checkpoint).name for version in versions if version.checkpoint}
    found = sorted(path.name for path in checkpoints.iterdir()) if checkpoints.is_dir() else []
    for name in found:
        if name not in known and name.isdigit() and int(name) < following:
            yield f"{checkpoints / name} belongs to no version: it can be removed"
