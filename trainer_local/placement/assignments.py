"""Assignment of GPUs to roles: those that the settings name, and an even split of the rest for each way of sharing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import VISIBLE, Gpu
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.validation import ROLES, SETTINGS, Shapes, why_unusable

GROUPINGS = (
    (("train",), ("serve",), ("judge",)),
    (("train",), ("serve", "judge")),
    (("train", "serve"), ("judge",)),
    (ROLES,),
)
"""Roles that share GPUs, best first."""

Assignment = Mapping[str, tuple[Gpu, ...]]


class Torchrun(NamedTuple):
    """The processes that torchrun starts: `here` on this machine, which is number `node` (from 0) of `nodes`."""

    here: int
    nodes: int
    node: int

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> Torchrun | None:
        """Read torchrun's environment variables; `None` without them. Raises `ConfigError`."""
        try:
            size, here = int(environ["WORLD_SIZE"]), int(environ["LOCAL_WORLD_SIZE"])
            rank = int(environ.get("RANK", "0"))
        except (KeyError, ValueError):
            return None
        if here < 1 or size % here:
            raise ConfigError(
                f"WORLD_SIZE = {size} is no multiple of LOCAL_WORLD_SIZE = {here}: start torchrun with the same "
                "--nproc-per-node on every node"
            )
        return Torchrun(here, size // here, rank // here)


def assignments(
    settings: Settings, shapes: Shapes, gpus: Sequence[Gpu], roles: Sequence[str], torchrun: Torchrun | None
) -> list[Assignment]:
    """Assignments of GPUs to `roles`, best first, at least one. Raises `ConfigError` for impossible settings."""

    def can_use(role: str, size: int) -> bool:
        return not why_unusable(settings, shapes, role, size)

    pool = _pool(settings, gpus)
    fixed = _fixed({role: spec for role in roles if (spec := requested(settings, role, torchrun)) is not None}, pool)
    missing = [role for role in roles if role not in fixed]
    taken = {gpu for group in fixed.values() for gpu in group}
    free = sorted((gpu for gpu in pool if gpu not in taken), key=lambda gpu: -gpu.memory)  # the largest train
    groupings = [[[role for role in group if role in missing] for group in groups] for groups in GROUPINGS]
    splits = [_split([group for group in groups if group], free, can_use) for groups in groupings]
    splits.append(_split([missing], free[:1], can_use))  # other programs may use the rest
    # Without free GPUs roles share with one that has some.
    rest = tuple(free) or next((fixed[role] for role in ("serve", "train", "judge") if role in fixed), ())
    ways = [split for split in splits if split] or [dict.fromkeys(missing, rest)]
    found: list[Assignment] = [fixed | way for place, way in enumerate(ways) if way not in ways[:place]]
    for role, mine in found[0].items():
        if why := why_unusable(settings, shapes, role, len(mine)):
            raise ConfigError(why)
    return found


def apart(assignment: Assignment) -> bool:
    """True if training and serving have no GPU in common."""
    return not set(assignment.get("train", ())) & set(assignment.get("serve", ()))


def requested(settings: Settings, role: str, torchrun: Torchrun | None) -> int | tuple[str, ...] | None:
    """The number or list of GPUs that the settings request for a role. Raises `ConfigError`."""
    spec = parse_gpus(settings.value(SETTINGS[role]), SETTINGS[role])
    if role != "train" or torchrun is None:
        return spec
    if spec is not None and torchrun.here != (spec if isinstance(spec, int) else len(spec)):
        raise ConfigError(
            f"torchrun has started {torchrun.here} processes on this machine (LOCAL_WORLD_SIZE), and actor_gpus = "
            f"{settings.gpu.actor_gpus}: make --nproc-per-node and actor_gpus the same"
        )
    return torchrun.here if spec is None else spec


def parse_gpus(text: str, setting: str) -> int | tuple[str, ...] | None:
    """A number of GPUs, a list of them (of one with a comma after it), or `None` for `auto`. Raises `ConfigError`."""
    text = text.strip()
    if text.lower() in ("", "auto"):
        return None
    if text.isdecimal():
        return int(text)
    entries = tuple(entry.strip() for entry in text.split(",") if entry.strip())
    if not entries or not all(re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", entry) for entry in entries):
        raise ConfigError(
            f'{setting} = {text!r} is neither a number of GPUs nor a list; 2 means two, 0,1 those, and "0," GPU 0 alone'
        )
    return entries


def _pool(settings: Settings, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that may be used at all."""
    if not gpus:
        raise ConfigError(
            f"backend = {settings.engine.backend} needs an NVIDIA GPU, and none is found (nvidia-smi, {VISIBLE}): "
            "install the driver, leave the backend out, or set device = cpu to run on the CPU"
        )
    if settings.engine.device.startswith("cuda:"):
        index = int(settings.engine.device.removeprefix("cuda:"))  # among the visible ones, as torch counts
        if index >= len(gpus):
            raise ConfigError(f"device = {settings.engine.device}, but {_count(gpus)} can be seen; set device = auto")
        return [gpus[index]]
    spec = parse_gpus(settings.gpu.gpus, "gpus")
    if isinstance(spec, tuple):
        return _listed(spec, gpus, "gpus")
    if spec is not None and not 1 <= spec <= len(gpus):
        raise ConfigError(
            f"gpus = {spec}, but {_count(gpus)} can be seen here; set gpus = auto, or a number up to {len(gpus)} "
            '(GPU 0 alone is "0,")'
        )
    return list(gpus[:spec])


def _fixed(specs: Mapping[str, int | tuple[str, ...]], pool: Sequence[Gpu]) -> dict[str, tuple[Gpu, ...]]:
    """GPUs of the roles with a list, then of those with a number, out of the rest."""
    fixed = {
        role: tuple(_listed(spec, pool, SETTINGS[role])) for role, spec in specs.items() if isinstance(spec, tuple)
    }
    for one, other in itertools.combinations(fixed, 2):
        if set(fixed[one]) & set(fixed[other]) and set(fixed[one]) != set(fixed[other]):
            raise ConfigError(
                f"{SETTINGS[one]} and {SETTINGS[other]} share some GPUs and not others: name the same ones for both, "
                "or different ones"
            )
    free = [gpu for gpu in pool if not any(gpu in group for group in fixed.values())]
    counts = {role: spec for role, spec in specs.items() if isinstance(spec, int)}
    if sum(counts.values()) <= len(free):
        rest = iter(free)
        return fixed | {role: tuple(itertools.islice(rest, number)) for role, number in counts.items()}
    if max(counts.values()) <= len(free) < len(counts):
        return fixed | dict.fromkeys(counts, tuple(free[: max(counts.values())]))  # fewer GPUs than roles: they share
    asked = " + ".join(f"{SETTINGS[role]} = {number}" for role, number in counts.items())
    raise ConfigError(
        f"{asked} is more than the {_count(free)}{f' that the lists leave of {len(pool)}' if fixed else ''}: ask for "
        "fewer, or let roles share by naming the same GPUs, such as actor_gpus = 0,1 and rollout_gpus = 0,1"
    )


def _listed(entries: Sequence[str], gpus: Sequence[Gpu], setting: str) -> list[Gpu]:
    listed: list[Gpu] = []
    for entry in entries:
        matches = [gpu for gpu in gpus if entry == str(gpu.number) or gpu.uuid.startswith(entry)]
        if len(matches) != 1:
            have = ", ".join(str(gpu.number) for gpu in gpus)
            raise ConfigError(f"{setting} names GPU {entry}, and there are: {have} (openclaw-rl doctor lists them)")
        if matches[0] in listed:
            raise ConfigError(f"{setting} names GPU {entry} twice")
        listed += matches
    return listed


def _split(
    groups: Sequence[Sequence[str]], gpus: Sequence[Gpu], can_use: Callable[[str, int], bool]
) -> dict[str, tuple[Gpu, ...]]:
    """Each group gets about half of the GPUs that are left, the last one the rest; empty if there are too few."""
    parts: dict[str, tuple[Gpu, ...]] = {}
    left = tuple(gpus)
    for group in groups:
        share = len(left) if group is groups[-1] else len(left) // 2
        sizes = [size for size in range(1, len(left) + 1) if all(can_use(role, size) for role in group)]
        if not sizes:
            return {}
        size = max((size for size in sizes if size <= share), default=sizes[0])
        parts |= dict.fromkeys(group, left[:size])
        left = left[size:]
    return parts


def _count(gpus: Sequence[Gpu]) -> str:
    return f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
