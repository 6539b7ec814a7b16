"""The planner: takes the first assignment of GPUs whose estimated memory fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import GIB, Gpu
from openclaw_rl.shared.placement import MemoryPart, Placement, Server, ServerRole
from openclaw_rl.shared.settings.judge_models import judge_models
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.assignments import (
    ROLES,
    SETTINGS,
    Assignment,
    Torchrun,
    apart,
    assignments,
    requested,
)
from openclaw_rl.trainer_local.placement.model_shape import ModelShape, read_shape
from openclaw_rl.trainer_local.placement.validation import check_settings, why_unusable

LENT: tuple[tuple[str, ...], ...] = ((), ("kv_cache",), ("kv_cache", "weights"))
"""What SGLang may release for a step where it shares GPUs with the trainer; the less, the sooner it answers again."""
SHOWN, HINTS = 4, 3
"""Maximum numbers of parts and of settings that a refusal names."""
ALTERNATING = (
    "training and serving alternate: a step, for which SGLang gives memory back, begins only after a while without "
    "requests. A request during a step waits for its end (docs/gpu.md)"
)

Held = Mapping[Gpu, Sequence[MemoryPart]]
"""The parts on each GPU that is used."""


class Planner:
    """The roles that run on this machine and their models; `place` puts them on GPUs."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], roles: Sequence[str], host_memory: int) -> None:
        """Raises `ConfigError` for settings that no GPUs could satisfy."""
        self._settings, self._host_memory = settings, host_memory
        self._models: dict[ServerRole, str] = {"policy": settings.model}
        for role, model in judge_models(settings).items():
            self._models[role] = model
        self._shapes = {role: read_shape(model) for role, model in self._models.items()}
        self._servers: dict[str, list[ServerRole]] = {"serve": ["policy"], "judge": [*self._models][1:]}
        self._torchrun = Torchrun.from_environment(environ)
        self._nodes = self._torchrun.nodes if self._torchrun else 1
        check_settings(settings, self._shapes["policy"])
        absent = {role: self._why_absent(role) for role in ROLES if role in roles}
        self._roles = [role for role, why in absent.items() if not why]
        self._unused = [
            f"{SETTINGS[role]} = {settings.value(SETTINGS[role])} is not used: {why}"
            for role, why in absent.items()
            if why and settings.value(SETTINGS[role]).strip() not in ("", "0", "auto")
        ]

    def place(self, gpus: Sequence[Gpu]) -> Placement:
        """The first way that fits, SGLang releasing as little as possible; else the one that lacks least, with its
        refusal. Raises `ConfigError` for settings that contradict each other.
        """
        if not self._roles:
            return Placement(notes=tuple(self._unused))
        ways = assignments(self._settings, gpus, self._roles, self._torchrun, self._can_use)
        for role, mine in ways[0].items():
            if why := why_unusable(self._settings, self._shapes, role, len(mine)):
                raise ConfigError(why)
        tried: list[tuple[int, Placement]] = []
        for lends in LENT:
            for way in ways:
                if all(self._can_use(role, len(mine)) for role, mine in way.items()) and not (lends and apart(way)):
                    tried.append(self._candidate(way, gpus, lends))
                    if not tried[-1][0]:
                        return tried[-1][1]
        return min(tried, key=lambda candidate: candidate[0])[1]

    def _why_absent(self, role: str) -> str:
        """Why a role does not run on this machine's GPUs; "" if it does. Raises `ConfigError`."""
        if requested(self._settings, role, self._torchrun) == 0:
            return f"{SETTINGS[role]} = 0"
        if role == "train":
            return "" if self._settings.train else "train = off"
        if self._torchrun is not None and self._torchrun.node:
            return "torchrun's first machine serves, and this is another"
        if role == "serve":
            return f"the engine is at {self._settings.engine_url}" if self._settings.engine_url else ""
        return (
            "" if self._servers["judge"] else "neither judge nor hint_model is a model with an engine (engine:FOLDER)"
        )

    def _can_use(self, role: str, size: int) -> bool:
        return not why_unusable(self._settings, self._shapes, role, size)

    def _each(self, role: str, size: int) -> int:
        """How many of `size` GPUs share one server of a role."""
        return self._settings.rollout_tensor_parallel or size if role == "serve" else size

    def _candidate(self, way: Assignment, gpus: Sequence[Gpu], lends: tuple[str, ...]) -> tuple[int, Placement]:
        """The bytes that are lacking, and the placement."""
        settings, shape = self._settings, self._shapes["policy"]
        parts = {role: self._estimate(role, way[role]) for role in self._roles}
        used = [gpu for gpu in gpus if any(gpu in mine for mine in way.values())]
        held = {gpu: [part for role in self._roles if gpu in way[role] for part in parts[role]] for gpu in used}
        servers = [
            _server(name, self._models[name], way[role][start : start + each], self._shapes[name], held, lends)
            for role in self._roles
            if role != "train"
            for name in self._servers[role]
            for each in [self._each(role, len(way[role]))]
            for start in range(0, len(way[role]), each)
        ]
        why = shape.why_not_megatron if shape is not None else ""
        lacking, refusal = self._shortage(way, held, lends)
        return lacking, Placement(
            trainer="transformers" if why else "megatron",
            why_not_megatron=why,
            train=way.get("train", ()),
            tensor_parallel=settings.tensor_parallel,
            nodes=self._nodes,
            servers=tuple(server for server in servers if server.role == "policy"),
            judges=tuple(server for server in servers if server.role != "policy"),
            sharing="apart" if apart(way) else "alternating" if lends else "together",
            parts=tuple(part for role in self._roles for part in parts[role]),
            notes=(*self._unused, *([ALTERNATING] if lends else []), *self._notes(gpus, used)),
            refusal=refusal,
        )

    def _estimate(self, role: str, gpus: Sequence[Gpu]) -> list[MemoryPart]:
        """The parts of a role on each of its GPUs; empty where its model is unknown."""
        settings, shape, smallest = self._settings, self._shapes["policy"], min(gpu.memory for gpu in gpus)
        if role != "train":
            shapes = [(name, known) for name in self._servers[role] if (known := self._shapes[name]) is not None]
            each = self._each(role, len(gpus))
            return [part for name, known in shapes for part in memory.serving(settings, known, name, each, smallest)]
        if shape is None:
            return []
        trainer = "transformers" if shape.why_not_megatron else "megatron"
        return memory.training(settings, shape, trainer, settings.tensor_parallel, len(gpus) * self._nodes)

    def _notes(self, gpus: Sequence[Gpu], used: Sequence[Gpu]) -> list[str]:
        notes = [
            f"{self._models[role]}: its config.json is not here yet, so what it takes is not estimated"
            for role, shape in self._shapes.items()
            if shape is None
        ]
        if unknown := [gpu for gpu in used if not gpu.memory]:
            notes.append(f"{_names(unknown)}: its memory is unknown, so whether everything fits is open")
        if idle := [gpu for gpu in gpus if gpu not in used]:
            notes.append(f"{_names(idle)}: nothing to do with these settings")
        return notes

    def _shortage(self, way: Assignment, held: Held, lends: tuple[str, ...]) -> tuple[int, str]:
        """The bytes that the worst GPU or the machine's own memory lacks, and the refusal; 0 and "" if it fits."""
        settings, shape, serve = self._settings, self._shapes["policy"], way.get("serve", ())
        start = memory.loading(settings, shape, self._each("serve", len(serve))) if serve and shape else []
        worst = (0, "")
        for gpu, parts in held.items():
            step, rest = memory.during_step(parts, lends), memory.between_steps(parts)
            peaks = [(step, lends), (rest, ()), (start if gpu in serve else [], ())]
            counted, lent = max(peaks, key=lambda peak: memory.total(peak[0]))
            lacking = memory.total(counted) - memory.usable(gpu.memory)
            if gpu.memory and lacking > worst[0]:
                worst = lacking, self._refusal(gpu, counted, lent)
        host = sum(part.bytes for gpu in way.get("train", ()) for part in held[gpu] if part.host)
        host += sum(part.bytes for gpu in serve for part in held[gpu] if "weights" in lends and part.tag == "weights")
        if self._host_memory and host > self._host_memory and not worst[1]:
            return host - self._host_memory, (
                f"model = {settings.model} does not fit: {host / GIB:.1f} GiB would be kept in the machine's own "
                f"memory (offload_optimizer), which has {self._host_memory / GIB:.1f}"
            )
        return worst

    def _refusal(self, gpu: Gpu, parts: Sequence[MemoryPart], lends: Sequence[str]) -> str:
        """Why these parts do not fit on a GPU, and which settings make the largest of them smaller."""
        kind = "LoRA" if self._settings.lora else "all weights"
        does = {"trainer": f"trains ({kind})", "policy": "serves", "judge": "judges", "hint": "proposes hints"}
        roles = " and ".join(does[role] for role in dict.fromkeys(part.role for part in parts))
        lent = " and ".join(lends).replace("kv_cache", "KV cache")
        largest = sorted(parts, key=lambda part: -part.bytes)
        hints = list(dict.fromkeys(part.hint for part in largest if part.hint))[:HINTS]
        advice = f"To need less, set {', or '.join(hints)}; or take" if hints else "Take"
        return (
            f"model = {self._settings.model} does not fit on GPU {gpu.description}, which {roles}: that takes "
            f"{memory.total(parts) / GIB:.1f} of {memory.usable(gpu.memory) / GIB:.1f} GiB"
            f"{f', even if SGLang gives its {lent} back for each step' if lent else ''}: "
            f"{', '.join(f'{part.role} {part.what}: {part.bytes / GIB:.1f}' for part in largest[:SHOWN])}, …. "
            f"{advice} a smaller model, or GPUs with more memory"
        )


def _server(
    role: ServerRole,
    model: str,
    gpus: tuple[Gpu, ...],
    shape: ModelShape | None,
    held: Held,
    lends: tuple[str, ...],
) -> Server:
    """A server, whose KV cache takes what is left of its GPUs: the policy's, where several servers share them."""
    server = Server(role=role, model=model, gpus=gpus, lends=lends if role == "policy" else ())
    gpu = min(gpus, key=lambda one: one.memory)
    if shape is None or not gpu.memory:
        return server
    own = [part for part in held[gpu] if part.role == role]
    others = [part for part in held[gpu] if part.role != role]
    least = static = sum(part.bytes for part in own if part.tag)
    if role == "policy" or {part.role for part in others} <= {"trainer"}:
        taken = memory.between_steps(others) if lends else memory.during_step(others)
        taken += [part for part in own if not part.tag]
        static = max(least, memory.usable(gpu.memory) - memory.total(taken))
    cache = static - least + sum(part.bytes for part in own if part.tag == "kv_cache")
    return msgspec.structs.replace(
        server,
        memory_fraction=memory.fraction_at(gpu.memory, 0.0, static) if others else 0.0,
        static_bytes=static,
        kv_tokens=cache // max(1, memory.kv_token(shape, len(gpus))),
    )


def _names(gpus: Sequence[Gpu]) -> str:
    return f"GPU {', '.join(str(gpu.number) for gpu in gpus)}"
