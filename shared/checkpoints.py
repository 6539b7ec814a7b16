"""The seal of a checkpoint: what it was made from, and the size and SHA-256 of each of its files, in `meta.json`.

A checkpoint is sealed once it is on disk, and compared with its seal before it is served, restored or promoted: weights
with flipped bits load without an error and answer nonsense. Checkpoints of older versions have no seal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openclaw_rl.shared.files import read_json, replace_file
from openclaw_rl.shared.records import PolicyVersion

META = "meta.json"
SERVED = "served"
"""The part of a checkpoint that engines load."""

_SEAL = "seal"
_FILES = "files"


def seal(folder: Path, *, parent: int | None, sample_ids: Sequence[str]) -> None:
    """Write the seal of a finished checkpoint. Raises `OSError`."""
    meta = unsealed(read_json(folder / META) or {})
    meta |= {"parent": parent, "sample_ids": list(sample_ids), _FILES: _files(folder)}
    meta[_SEAL] = _digest_of(meta)
    replace_file(folder / META, (json.dumps(meta, indent=2, sort_keys=True) + "\n").encode())


def unsealed(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `meta.json` without the seal; a checkpoint is written again under this, and sealed again."""
    return {name: value for name, value in meta.items() if name not in (_SEAL, _FILES)}


def damage(folder: Path, part: str = "") -> str:
    """The difference of a checkpoint, or a part of it, from its seal; "" where there is none."""
    if not (folder / part).is_dir():
        return f"{folder / part} is gone"
    if not (folder / META).exists():
        return ""
    meta = read_json(folder / META)
    if meta is None or not isinstance(meta.get(_FILES, {}), dict):
        return f"{folder / META} cannot be read"
    if _SEAL not in meta and _FILES not in meta:
        return ""
    if meta.get(_SEAL) != _digest_of({name: value for name, value in meta.items() if name != _SEAL}):
        return f"{folder / META} is not what was written"
    for name, (size, digest) in meta[_FILES].items():
        if part and not name.startswith(f"{part}/"):
            continue
        try:
            found = (folder / name).stat().st_size
            if found != size:
                return f"{folder / name} has {found} bytes of {size}"
            if _sha256(folder / name) != digest:
                return f"{folder / name} is not what was written (SHA-256)"
        except OSError as error:
            return f"{folder / name} cannot be read: {error.strerror}"
    return ""


def sealed_digest(folder: Path) -> str:
    """The digest of what engines load of a checkpoint, by its seal; "" without one."""
    files = (read_json(folder / META) or {}).get(_FILES)
    if not isinstance(files, dict):
        return ""
    return _combined({name[len(SERVED) + 1 :]: of[1] for name, of in files.items() if name.startswith(f"{SERVED}/")})


def folder_digest(folder: Path) -> str:
    """The digest of a folder of weights as it is now. Raises `OSError`."""
    return _combined({name: digest for name, (_, digest) in _files(folder).items()})


def nearest_intact(versions: Mapping[int, PolicyVersion], number: int, part: str = "") -> tuple[PolicyVersion, str]:
    """A version, or its nearest ancestor whose checkpoint (or `part` of it) is intact, in the end the base; and what is
    damaged, "" where nothing is.
    """
    version, found = versions[number], []
    while version.checkpoint and (fault := damage(Path(version.checkpoint), part)):
        found.append(f"version {version.number}: {fault}")
        version = versions[version.parent or 0]
    return version, "; ".join(found)


def _files(folder: Path) -> dict[str, tuple[int, str]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / META)
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, _sha256(path)) for path in paths}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _combined(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest() if digests else ""


def _digest_of(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
