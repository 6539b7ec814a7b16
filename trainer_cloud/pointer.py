"""What lies on this machine of a version that lives at a provider: a small file that says where it is."""

from __future__ import annotations

from pathlib import Path

import msgspec

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
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")


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
            "go on with what it was made with, or choose another data folder (--data)"
        )
    return found
