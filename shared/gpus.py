"""Which GPUs train, which serve the policy and which serve a judge: `gpus` and the three settings after it.

Found without torch, since the proxy asks too: NVIDIA's device files, or what `CUDA_VISIBLE_DEVICES` leaves of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.settings import Settings

_DEVICES = Path("/dev")
_PARTS = ("actor_gpus", "judge_gpus", "rollout_gpus")


class Placement(msgspec.Struct, frozen=True):
    """GPUs by the names that `CUDA_VISIBLE_DEVICES` takes; empty where there are none."""

    actor: Sequence[str] = ()
    rollout: Sequence[str] = ()
    judge: Sequence[str] = ()

    @property
    def colocated(self) -> bool:
        """Whether some GPU both trains and serves the policy."""
        return bool({*self.actor} & {*self.rollout})


def found(environment: Mapping[str, str] = os.environ, devices: Path = _DEVICES) -> list[str]:
    """The GPUs that this process may use."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        named = [name.strip() for name in visible.split(",")]
        return named[: named.index("-1")] if "-1" in named else [name for name in named if name]
    numbers = (re.fullmatch(r"nvidia(\d+)", file.name) for file in devices.glob("nvidia*"))
    return sorted((match.group(1) for match in numbers if match), key=int)


def placed(settings: Settings, available: Sequence[str] | None = None) -> Placement:
    """Who gets which GPU. Those that are named are taken as named (`2,` names one); counts are filled from the rest in
    the order actor, judge, rollout; where neither says it, actor and rollout halve what is left, and share a single
    one.

    Raises `ConfigError` where there are not enough.
    """
    pool = _named("gpus", settings.gpus, found() if available is None else available)
    wanted = {name: str(getattr(settings, name)).strip() for name in _PARTS}
    lists = {name: _list(text) for name, text in wanted.items() if text and not text.isdigit()}
    free = [gpu for gpu in pool if not any(gpu in taken for taken in lists.values())]
    counts = {name: int(text) for name, text in wanted.items() if text.isdigit()}
    if sum(counts.values()) > len(free):
        told = ", ".join(f"{name} = {text}" for name, text in wanted.items() if text)
        raise ConfigError(
            f"{told} need {sum(counts.values())} GPUs beside those that are named, and {len(free)} of {len(pool)} are "
            "left: ask for fewer, or leave actor_gpus and rollout_gpus out so that both share what there is"
        )
    for name, count in counts.items():
        lists[name], free = free[:count], free[count:]
    if "actor_gpus" not in lists and "rollout_gpus" not in lists:
        half = len(free) // 2
        lists |= {"actor_gpus": free[:half] or free, "rollout_gpus": free[half:]}
    for name, other in (("actor_gpus", "rollout_gpus"), ("rollout_gpus", "actor_gpus")):
        if name not in lists:
            lists[name] = free or lists[other]
    return Placement(tuple(lists["actor_gpus"]), tuple(lists["rollout_gpus"]), tuple(lists.get("judge_gpus", ())))


def _named(setting: str, text: str, available: Sequence[str]) -> list[str]:
    text = text.strip()
    if text in ("", "auto"):
        return list(available)
    if not text.isdigit():
        return _list(text)
    if int(text) > len(available):
        raise ConfigError(f"{setting} = {text}, and {len(available)} GPUs are to be had here: {_told(available)}")
    return list(available[: int(text)])


def _list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _told(gpus: Sequence[str]) -> str:
    return ", ".join(gpus) or "none"
