"""A version that lives at a provider, as it is on this machine: a checkpoint's folder whose `meta.json`, and whose
`served/cloud.json` for the engine, hold its paths there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from openclaw_rl.shared.checkpoints import META, SERVED, seal, unsealed
from openclaw_rl.shared.files import atomic_folder, read_json, write_json

FILE = "cloud.json"
FORMAT = 1


class BadPointer(Exception):
    """A folder does not name weights at a provider; the message says why."""


class Pointer(msgspec.Struct, frozen=True):
    """Weights at a provider: its name, the base model, the LoRA's rank, and the paths there of the weights to sample
    from and of the whole state of training.
    """

    provider: str
    model: str
    rank: int
    sampler: str
    state: str
    step: int
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        write_json(folder / FILE, msgspec.structs.asdict(self))

    def write_checkpoint(self, target: Path) -> None:
        """Write a checkpoint's folder. Raises `TrainerError`."""
        with atomic_folder(target) as folder:
            write_json(folder / META, {"trainer": self.provider, "lora": True})
            self.rewrite_checkpoint(folder)

    def rewrite_checkpoint(self, folder: Path) -> None:
        """Write other paths into a checkpoint; the file that counts comes last, and the seal after it."""
        before = read_json(folder / META) or {}
        meta = {**unsealed(before), **msgspec.structs.asdict(self)}
        write_json(folder / META, meta)
        self.write(folder / SERVED)
        if meta != before and "sample_ids" in before:
            seal(folder, parent=before["parent"], sample_ids=before["sample_ids"])


def read(folder: Path, *, provider: str, model: str) -> Pointer:
    """The pointer in a folder, to weights of this provider on this base model. Raises `BadPointer`."""
    file = folder / FILE
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Pointer)
    except OSError as error:
        raise BadPointer(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadPointer(f"{file} names no weights at a provider: {error}") from error
    if found.format != FORMAT:
        raise BadPointer(f"{file} was written by another version of this program (format {found.format})")
    if (found.provider, found.model) != (provider, model):
        raise BadPointer(
            f"{file} is of {found.model} at {found.provider}, and this service has {model} at {provider}: "
            "continue with what it was made with, or choose another data folder (--data)"
        )
    return found
