"""Who may get which GPUs: what the settings say of it, and the ways to share out what they leave open, best first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import VISIBLE, Gpu
from openclaw_rl.shared.settings.settings import Settings

ROLES = ("train", "serve", "judge")
SETTINGS = {"train": "actor_gpus", "serve": "rollout_gpus", "judge": "judge_gpus"}
"""The setting that says how many, or which, GPUs a role gets."""
SHARES = {"train": 2, "serve": 1, "judge": 1}
"""How many GPUs a role gets to those of the others, with a judge; without one half of them train."""
SHARED_BY = (("serve", "judge"), ("train", "judge"), ("train", "serve"), ROLES)
"""Roles that share GPUs where there are too few for all, or too little memory on those of their own; best first."""

Assignment = Mapping[str, tuple[Gpu, ...]]
Valid = Callable[[str, int], bool]
"""Whether a role can use so many GPUs."""


class Torchrun(msgspec.Struct, frozen=True):
    """The processes that torchrun starts: `here` on this machine, which is number `node` (from 0) of `nodes`."""

    here: int
    nodes: int
    node: int

    @staticmethod
    def of(environ: Mapping[str, str]) -> Torchrun | None:
        """What its variables say (docs.pytorch.org, "torchrun", "Environment Variables"); `None` without it. Raises
        `ConfigError` where machines have different numbers of processes.
        """
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
    settings: Settings, gpus: Sequence[Gpu], roles: Sequence[str], torchrun: Torchrun | None, valid: Valid
) -> list[Assignment]:
    """Every way to give `roles` some of `gpus` that the settings allow, best first: never none. Raises `ConfigError`
    for settings that contradict each other or ask for GPUs that are not there.
    """
    pool = _pool(settings, gpus)
    said = {role: spec for role in roles if (spec := said_of(settings, role, torchrun)) is not None}
    fixed = _fixed(said, pool, roles)
    left = [gpu for gpu in pool if not any(gpu in group for group in fixed.values())]
    open_roles = [role for role in roles if role not in fixed]
    if not open_roles:
        return [fixed]
    if not left:
        # All are spoken for: who is not named goes where others are, the judge to the servers first.
        return [fixed | dict.fromkeys(open_roles, fixed[host]) for host in ("serve", "train", "judge") if host in fixed]
    ways: list[Assignment] = [fixed | way for order in _orders(left) for way in _ways(open_roles, order, valid)]
    hosts = [fixed[role] for role in ("serve", "train", "judge") if role in fixed]
    ways += [
        fixed | dict.fromkeys(open_roles, host) for host in hosts if all(valid(role, len(host)) for role in open_roles)
    ]
    return ways or [fixed | dict.fromkeys(open_roles, tuple(left))]


def apart(assignment: Assignment) -> bool:
    """Whether training and serving have no GPU in common."""
    return not set(assignment.get("train", ())) & set(assignment.get("serve", ()))


def _pool(settings: Settings, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that may be used at all."""
    if not gpus:
        raise ConfigError(
            f"backend = {settings.backend} needs an NVIDIA GPU, and none is found"
            f" (nvidia-smi, {VISIBLE}): install the driver, leave the backend out, or set device = cpu to run even "
            "Megatron-core and SGLang on the CPU"
        )
    if settings.device.startswith("cuda:"):
        place = int(settings.device.removeprefix("cuda:"))  # among those that are seen, as torch counts
        if place >= len(gpus):
            raise ConfigError(f"device = {settings.device}, but {_count(len(gpus))} can be seen; set device = auto")
        return [gpus[place]]
    spec = read(settings.gpus, "gpus")
    if spec is None:
        return list(gpus)
    if isinstance(spec, tuple):
        return _listed(spec, gpus, "gpus")
    if not 1 <= spec <= len(gpus):
        raise ConfigError(
            f"gpus = {spec}, but {_count(len(gpus))} can be seen here; set gpus = auto, or a number up to {len(gpus)}"
            + ('. "0," with a comma names GPU 0' if spec == 0 else "")
        )
    return list(gpus[:spec])


def read(text: str, setting: str) -> int | tuple[str, ...] | None:
    """What a setting says: a number of GPUs, which ones (a list; of one GPU with a comma after it), or nothing. Raises
    `ConfigError`.
    """
    text = text.strip()
    if text.lower() in ("", "auto"):
        return None
    if re.fullmatch(r"\d+", text):
        return int(text)
    entries = tuple(entry.strip() for entry in text.split(",") if entry.strip())
    if not entries or not all(re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", entry) for entry in entries):
        raise ConfigError(
            f"{setting} = {text!r} is neither a number of GPUs nor a list of them; 2 means two, 0,1 means those "
            'numbers, and "0," GPU 0 alone'
        )
    return entries


def said_of(settings: Settings, role: str, torchrun: Torchrun | None) -> int | tuple[str, ...] | None:
    """What is said of a role's GPUs: how many, which, or nothing. Raises `ConfigError`."""
    spec = read(settings.value(SETTINGS[role]), SETTINGS[role])
    if role != "train" or torchrun is None:
        return spec
    if spec is None:
        return torchrun.here
    number = spec if isinstance(spec, int) else len(spec)
    if number != torchrun.here:
        raise ConfigError(
            f"torchrun has started {torchrun.here} processes on this machine (LOCAL_WORLD_SIZE), and actor_gpus = "
            f"{settings.actor_gpus} names {_count(number)} of it: make --nproc-per-node and actor_gpus the same"
        )
    return spec


def _fixed(
    said: Mapping[str, int | tuple[str, ...]], pool: Sequence[Gpu], roles: Sequence[str]
) -> dict[str, tuple[Gpu, ...]]:
    """The GPUs of the roles that settings speak of: those of lists, then as many as are asked for of the rest."""
    fixed: dict[str, tuple[Gpu, ...]] = {}
    for role, spec in said.items():
        if isinstance(spec, tuple):
            fixed[role] = tuple(_listed(spec, pool, SETTINGS[role]))
    for (one, first), (other, second) in itertools.combinations(fixed.items(), 2):
        if set(first) & set(second) and set(first) != set(second):
            raise ConfigError(
                f"{SETTINGS[one]} and {SETTINGS[other]} share some GPUs and not others: name the same ones for both, "
                "which then share them, or different ones"
            )
    left = [gpu for gpu in pool if not any(gpu in group for group in fixed.values())]
    counts = {role: spec for role, spec in said.items() if isinstance(spec, int)}
    wanted = sum(counts.values())
    if wanted > len(left):
        most = max(counts.values())
        if len(counts) > 1 and len(left) < len(counts) and most <= len(left):
            return fixed | dict.fromkeys(counts, tuple(left[:most]))  # fewer GPUs than roles: they share
        told = " + ".join(f"{SETTINGS[role]} = {number}" for role, number in counts.items())
        others = "" if len(left) == len(pool) else f" that the lists leave of {len(pool)}"
        raise ConfigError(
            f"{told} is more than the {_count(len(left))}{others}: ask for fewer, or let roles share by naming the "
            "same GPUs, such as actor_gpus = 0,1 and rollout_gpus = 0,1"
        )
    for role in roles:
        if role in counts:
            fixed[role], left = tuple(left[: counts[role]]), left[counts[role] :]
    return fixed


def _listed(entries: Sequence[str], gpus: Sequence[Gpu], setting: str) -> list[Gpu]:
    found: list[Gpu] = []
    for entry in entries:
        matches = [gpu for gpu in gpus if _is(gpu, entry)]
        if len(matches) != 1:
            have = ", ".join(str(gpu.number) for gpu in gpus)
            raise ConfigError(f"{setting} names GPU {entry}, and there are: {have} (openclaw-rl doctor lists them)")
        if matches[0] in found:
            raise ConfigError(f"{setting} names GPU {entry} twice")
        found += matches
    return found


def _is(gpu: Gpu, entry: str) -> bool:
    return str(gpu.number) == entry if entry.isdigit() else (gpu.uuid or gpu.handle).startswith(entry)


def _ways(roles: Sequence[str], gpus: Sequence[Gpu], valid: Valid) -> list[dict[str, tuple[Gpu, ...]]]:
    """Ways to give all of `roles` GPUs out of `gpus`: first with GPUs of their own for each, then with more and more of
    them sharing; of the first ones those that use most GPUs, and of these the ones that come closest to `SHARES`.
    """
    if not roles:
        return []
    ways: list[dict[str, tuple[Gpu, ...]]] = []
    for groups in _groupings(roles):
        found = []
        for sizes in _sizes(len(groups), len(gpus)):
            if all(valid(role, size) for group, size in zip(groups, sizes, strict=True) for role in group):
                found.append(sizes)
        wanted = [sum(_share(role, roles) for role in group) for group in groups]
        found.sort(key=lambda sizes: (-sum(sizes), _off(sizes, wanted)))
        for sizes in found:
            starts = itertools.accumulate(sizes, initial=0)
            ways.append(
                {
                    role: tuple(gpus[start : start + size])
                    for group, start, size in zip(groups, starts, sizes, strict=False)
                    for role in group
                }
            )
    return ways


def _orders(gpus: Sequence[Gpu]) -> list[Sequence[Gpu]]:
    """Orders in which GPUs are given out, training first: where they differ it gets the largest, or the smallest."""
    if len({gpu.memory for gpu in gpus}) < 2:
        return [gpus]
    return [
        sorted(gpus, key=lambda gpu: -gpu.memory),
        sorted(gpus, key=lambda gpu: gpu.memory),
    ]


def _groupings(roles: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    yield [(role,) for role in roles]
    for together in SHARED_BY:
        if set(together) <= set(roles):
            groups = [together, *((role,) for role in roles if role not in together)]
            yield sorted(groups, key=lambda group: ROLES.index(group[0]))


def _sizes(groups: int, gpus: int) -> Iterator[tuple[int, ...]]:
    for sizes in itertools.product(range(1, gpus + 1), repeat=groups):
        if sum(sizes) <= gpus:
            yield sizes


def _share(role: str, roles: Sequence[str]) -> int:
    return SHARES[role] if "judge" in roles else 1


def _off(sizes: Sequence[int], wanted: Sequence[int]) -> float:
    """How far a way is from the shares that are wanted."""
    return sum(abs(size / sum(sizes) - share / sum(wanted)) for size, share in zip(sizes, wanted, strict=True))


def _count(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"
