"""The NVIDIA GPUs that this process may use, as the driver's own program tells of them. Nothing here loads torch.

`nvidia-smi` comes with every driver, so it costs no dependency; where there is none there is no GPU, which is known at
once. `CUDA_VISIBLE_DEVICES` is honoured as CUDA does (CUDA C++ Programming Guide, "CUDA Environment Variables"):
numbers or UUIDs, cut short ones too, in the order in which they stand, up to the first that there is not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from shared.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
FIELDS = ("index", "uuid", "name", "memory.total", "memory.free", "mig.mode.current")
SECONDS = 60.0
"""How long the driver may take; without its persistence daemon it starts every GPU first."""

GIB, MIB = 1 << 30, 1 << 20


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. `number` is its place among those that this process sees, from 0, as settings, torch and SGLang count;
    `handle` is what `CUDA_VISIBLE_DEVICES` calls it (with `CUDA_DEVICE_ORDER=PCI_BUS_ID`).

    `memory` is what it has and `free` what nobody holds just now, in bytes; 0 where the driver does not tell.
    """

    number: int
    handle: str
    name: str
    memory: int
    free: int
    uuid: str = ""

    @property
    def told(self) -> str:
        """Its number, name and size, for a person."""
        size = f"{self.memory / GIB:.1f} GiB" if self.memory else "its memory is not told"
        return f"{self.number}: {self.name}, {size}"


def find_gpus(environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that `environ` (default: this process's) lets its processes see; none on a machine that has no driver.

    Raises `ConfigError` where there is a driver that does not answer.
    """
    environ = os.environ if environ is None else environ
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None or environ.get(VISIBLE, "?").strip() in ("", "-1", "NoDevFiles"):
        return []
    command = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=dict(environ))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} does not tell which GPUs there are: {error}") from error
    if answer.returncode != 0:
        told = (answer.stdout + answer.stderr).strip().splitlines() or [f"exit code {answer.returncode}"]
        if "No devices were found" in told[0]:
            return []
        raise ConfigError(
            f"{program} does not tell which GPUs there are: {told[0]}; mend the driver, or keep to the CPU with "
            "backend = embedded and device = cpu"
        )
    return seen(_read(answer.stdout), environ.get(VISIBLE))


def seen(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """Those of `gpus` that `CUDA_VISIBLE_DEVICES` = `visible` names, numbered anew in its order; all where it is not
    set.
    """
    if visible is None:
        return list(gpus)
    found: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        gpu = _named(entry, gpus)
        if gpu is None or any(other.uuid == gpu.uuid for other in found):
            break
        found.append(msgspec.structs.replace(gpu, number=len(found), handle=entry))
    return found


def imagined(text: str) -> list[Gpu]:
    """GPUs that nobody has yet, described as `4x24` (four of 24 GB each) or `24,24,80`. Raises `ConfigError`."""
    sizes: list[float] = []
    for part in text.lower().replace(" ", "").split(","):
        match = re.fullmatch(r"(?:(\d+)x)?(\d+(?:\.\d+)?)(?:gi?b?)?", part)
        if match is None or not float(match[2]) or match[1] == "0":
            raise ConfigError(f"{text!r} describes no GPUs; 2x24 means two of 24 GB each, 24,80 one of each size")
        sizes += [float(match[2])] * int(match[1] or 1)
    return [
        # A card that is sold as 24 GB has 24 · 1024³ bytes, of which the driver keeps some.
        Gpu(number=number, handle=str(number), name="imagined", memory=(size := _sold(gigabytes)), free=size)
        for number, gigabytes in enumerate(sizes)
    ]


def _sold(gigabytes: float) -> int:
    return int(gigabytes * 1024) * MIB


def _read(text: str) -> list[Gpu]:
    found: list[Gpu] = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) < len(FIELDS):
            continue
        index, uuid, *name, total, free, slices = values
        whole = slices.lower() != "enabled"  # of a GPU in slices nobody gets all the memory
        found.append(
            Gpu(
                number=len(found),
                handle=index,
                name=", ".join(name),
                memory=_bytes(total) if whole else 0,
                free=_bytes(free) if whole else 0,
                uuid=uuid,
            )
        )
    return found


def _bytes(mebibytes: str) -> int:
    return int(mebibytes) * MIB if mebibytes.isdigit() else 0


def _named(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """The GPU that an entry of `CUDA_VISIBLE_DEVICES` means, `None` for one that there is not."""
    if entry.startswith("MIG-"):
        return Gpu(number=0, handle=entry, name="a slice (MIG)", memory=0, free=0, uuid=entry)
    if re.fullmatch(r"[+-]?\d+", entry):
        return next((gpu for gpu in gpus if gpu.handle == str(int(entry))), None)
    if not entry.startswith("GPU-"):
        return None
    matches = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
