"""The NVIDIA GPUs that this process may use, as reported by `nvidia-smi`, which comes with every driver. Nothing here
loads torch.

`CUDA_VISIBLE_DEVICES` is read as CUDA does (CUDA C++ Programming Guide, "CUDA Environment Variables"): numbers or
UUIDs, also abbreviated ones, in their order, up to the first that does not exist.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from openclaw_rl.shared.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Settings of torch's allocator: the name that every version reads, and the newer one."""
FIELDS = ("index", "uuid", "name", "memory.total", "memory.free", "mig.mode.current")
SECONDS = 60.0
"""Time limit of the driver, which starts every GPU first if its persistence daemon does not run."""

GIB, MIB = 1 << 30, 1 << 20
DRIVERS = 0.02
"""Maximum share of a GPU's memory that the driver itself holds."""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. `number` is the driver's, as in `nvidia-smi` and in settings; `handle` is its name in
    `CUDA_VISIBLE_DEVICES` (with `CUDA_DEVICE_ORDER=PCI_BUS_ID`): the same number, or the UUID that is written there.
    `memory` and `free` are in bytes, 0 where the driver does not report them.
    """

    number: int
    handle: str
    name: str
    memory: int
    free: int
    uuid: str = ""

    @property
    def taken(self) -> int:
        """Bytes that programs hold; 0 where it is so little that it may be the driver."""
        used = self.memory - self.free
        return used if used > DRIVERS * self.memory else 0

    @property
    def description(self) -> str:
        """Number, name and size."""
        size = f"{self.memory / GIB:.1f} GiB" if self.memory else "unknown memory"
        return f"{self.number}: {self.name}, {size}"


def found(environ: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> list[str]:
    """Handles of the GPUs that processes of `environ` see, by the driver's device files alone, which is fast. Empty if
    there is no NVIDIA driver.
    """
    environ = os.environ if environ is None else environ
    if VISIBLE in environ:
        named = [name.strip() for name in environ[VISIBLE].split(",")]
        return list(itertools.takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), named))
    numbers = [match[1] for file in devices.glob("nvidia*") if (match := re.fullmatch(r"nvidia(\d+)", file.name))]
    if not numbers and (devices / "dxg").exists() and shutil.which("nvidia-smi", path=environ.get("PATH")):
        return ["0"]  # Windows Subsystem for Linux: at least one
    return sorted(numbers, key=int)


def find_gpus(environ: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> list[Gpu]:
    """The GPUs that processes of `environ` (default: this process's) see; none on a machine without a driver, and
    without names and memory if `nvidia-smi` is missing, as in some containers. Raises `ConfigError` if it fails.
    """
    environ = os.environ if environ is None else environ
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if not found({VISIBLE: environ.get(VISIBLE, "0")}):
        return []
    if program is None:
        return [_unknown(name, number) for number, name in enumerate(found(environ, devices))]
    command = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=dict(environ))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} does not list the GPUs: {error}") from error
    if answer.returncode != 0:
        output = (answer.stdout + answer.stderr).strip().splitlines() or [f"exit code {answer.returncode}"]
        if "No devices were found" in output[0]:
            return []
        raise ConfigError(
            f"{program} does not list the GPUs: {output[0]}; repair the driver, or stay on the CPU with "
            "backend = embedded and device = cpu"
        )
    return seen(_read(answer.stdout), environ.get(VISIBLE))


def seen(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """The GPUs among `gpus` that `CUDA_VISIBLE_DEVICES` = `visible` names, in its order; all where it is not set."""
    if visible is None:
        return list(gpus)
    named: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        gpu = _named(entry, gpus)
        if gpu is None or any(other.uuid == gpu.uuid for other in named):
            break
        named.append(msgspec.structs.replace(gpu, handle=entry))
    return named


def with_free_memory(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The same GPUs, their memory limited to what other programs leave free."""
    return [msgspec.structs.replace(gpu, memory=min(gpu.memory, gpu.free)) if gpu.taken else gpu for gpu in gpus]


def imagined(text: str) -> list[Gpu]:
    """GPUs to plan for, described as `4x24` (four of 24 GB each) or `24,24,80`. Raises `ConfigError`."""
    sizes: list[float] = []
    for part in text.lower().replace(" ", "").split(","):
        match = re.fullmatch(r"(?:(\d+)x)?(\d+(?:\.\d+)?)(?:gi?b?)?", part)
        if match is None or not float(match[2]) or match[1] == "0":
            raise ConfigError(f"{text!r} describes no GPUs; 2x24 means two of 24 GB each, 24,80 one of each size")
        sizes += [float(match[2])] * int(match[1] or 1)
    return [
        # A card that is sold as 24 GB has 24 · 1024³ bytes, of which the driver keeps some.
        Gpu(number=number, handle=str(number), name="imagined", memory=(size := int(gigabytes * 1024) * MIB), free=size)
        for number, gigabytes in enumerate(sizes)
    ]


def _read(text: str) -> list[Gpu]:
    rows: list[Gpu] = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) < len(FIELDS):
            continue
        index, uuid, *name, total, free, slices = values
        whole = slices.lower() != "enabled"  # no process gets all the memory of a GPU in slices
        rows.append(
            Gpu(
                number=int(index) if index.isdigit() else len(rows),
                handle=index,
                name=", ".join(name),
                memory=_bytes(total) if whole else 0,
                free=_bytes(free) if whole else 0,
                uuid=uuid,
            )
        )
    return rows


def _unknown(handle: str, place: int) -> Gpu:
    """A GPU of which only the handle is known."""
    number = int(handle) if handle.isdigit() else place
    name = "a slice (MIG)" if handle.startswith("MIG-") else "an NVIDIA GPU"
    return Gpu(number=number, handle=handle, name=name, memory=0, free=0, uuid="" if handle.isdigit() else handle)


def _bytes(mebibytes: str) -> int:
    return int(mebibytes) * MIB if mebibytes.isdigit() else 0


def _named(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """The GPU that an entry of `CUDA_VISIBLE_DEVICES` names; `None` if there is no such GPU."""
    if entry.startswith("MIG-"):
        return _unknown(entry, 0)
    if re.fullmatch(r"[+-]?\d+", entry):
        return next((gpu for gpu in gpus if gpu.handle == str(int(entry))), None)
    if not entry.startswith("GPU-"):
        return None
    matches = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
