"""Placement of training, serving and judging on this machine's GPUs: the first assignment whose estimated memory fits.

The process that starts the others (`serve`, `doctor`) plans once, with the user's settings. Nothing here loads torch.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import GIB, Gpu, find_gpus, found
from openclaw_rl.shared.placement import MemoryPart, Placement, Server, ServerRole, inherited_placement
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.assignments import Assignment, Torchrun, apart, assignments, requested
from openclaw_rl.trainer_local.placement.compiler import why_no_compiler
from openclaw_rl.trainer_local.placement.model_shape import read_shape
from openclaw_rl.trainer_local.placement.validation import ROLES, SETTINGS, check_settings

SHOWN, HINTS = 4, 3
"""Maximum numbers of parts and of settings that a refusal names."""
ALTERNATING = (
    "training and serving alternate: a step, for which SGLang gives memory back, begins only after a while without "
    "requests. A request during a step waits for its end (docs/gpu.md)"
)

UNCOMPILED = "planned without torch's compiler, so a step takes more memory and time"

GpuParts = Mapping[Gpu, Sequence[MemoryPart]]
"""Parts on each GPU in use."""


def wants_gpus(settings: Settings, environ: Mapping[str, str] | None = None) -> bool:
    """True if the backend is placed on GPUs; `local` is, where there are any."""
    if settings.engine.device == "cpu":
        return False
    return settings.engine.backend == "megatron" or (settings.engine.backend == "local" and bool(found(environ)))


def place(
    settings: Settings,
    gpus: Sequence[Gpu],
    environ: Mapping[str, str] | None = None,
    *,
    roles: Iterable[str] = ROLES,
    host_memory: int = 0,
    no_compiler: str = "",
) -> Placement:
    """Placement of `roles` on `gpus`; an impossible one has a `refusal`. `environ` (default: this process's) has
    torchrun's variables; `host_memory` is the machine's own memory in bytes, 0 to leave it out. `no_compiler` is the
    reason why trainers cannot use torch's compiler, "" where they can.
    """
    environ = os.environ if environ is None else environ
    try:
        return _Planner(settings, environ, tuple(roles), host_memory, no_compiler).place(gpus)
    except ConfigError as error:
        return Placement(refusal=str(error))


def current_placement(settings: Settings, environ: Mapping[str, str] | None = None) -> Placement:
    """The inherited placement of this process, else one on the GPUs it sees; empty without GPUs. Raises `ConfigError`
    if it is impossible.
    """
    inherited = inherited_placement(environ)
    if inherited is not None:
        return inherited
    gpus = find_gpus(environ) if wants_gpus(settings, environ) else []
    return possible(place(settings, gpus, environ, no_compiler=why_no_compiler(environ))) if gpus else Placement()


def possible(placement: Placement) -> Placement:
    """The placement itself. Raises its refusal as `ConfigError`."""
    if placement.refusal:
        raise ConfigError(placement.refusal)
    return placement


class _Planner:
    """The roles that run on this machine, and their models."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        roles: Sequence[str],
        host_memory: int,
        no_compiler: str,
    ) -> None:
        """Raises `ConfigError` for settings that no GPUs could satisfy."""
        self._settings, self._host_memory, self._compiled = settings, host_memory, not no_compiler
        self._models: dict[ServerRole, str] = {"policy": settings.engine.model}
        self._models |= JudgeModels.from_settings(settings).to_serve
        self._shapes = {role: read_shape(model) for role, model in self._models.items()}
        self._servers: dict[str, list[ServerRole]] = {"serve": ["policy"], "judge": [*self._models][1:]}
        self._torchrun = Torchrun.from_environment(environ)
        self._nodes = self._torchrun.nodes if self._torchrun else 1
        check_settings(settings, self._shapes["policy"])
        absent = {role: self._why_absent(role) for role in ROLES if role in roles}
        self._roles = [role for role, why in absent.items() if not why]
        self._notes = [
            f"{SETTINGS[role]} = {settings.value(SETTINGS[role])} is not used: {why}"
            for role, why in absent.items()
            if why and settings.value(SETTINGS[role]).strip() not in ("", "0", "auto")
        ]
        if no_compiler and "train" in self._roles:
            self._notes.append(f"{UNCOMPILED}: {no_compiler}")
        unknown = [self._models[role] for role, shape in self._shapes.items() if shape is None]
        self._notes += [f"{model}: no config.json here yet, so its memory is not estimated" for model in unknown]

    def place(self, gpus: Sequence[Gpu]) -> Placement:
        """The first candidate that fits, alternating only where nothing else does; else the one that lacks least
        memory, with its refusal. Raises `ConfigError` for contradictory settings.
        """
        if not self._roles:
            return Placement(notes=tuple(self._notes))
        ways = assignments(self._settings, self._shapes, gpus, self._roles, self._torchrun)
        tried: list[tuple[int, Placement]] = []
        for alternating, way in itertools.product((False, True), ways):
            if not (alternating and apart(way)):
                tried.append(self._candidate(way, gpus, alternating=alternating))
                if not tried[-1][0]:
                    break
        return min(tried, key=lambda candidate: candidate[0])[1]

    def _why_absent(self, role: str) -> str:
        """The reason why a role does not run on this machine's GPUs; "" if it does. Raises `ConfigError`."""
        settings = self._settings
        if requested(settings, role, self._torchrun) == 0:
            return f"{SETTINGS[role]} = 0"
        if role == "train":
            return "" if settings.learning.train else "train = off"
        if self._torchrun is not None and self._torchrun.node:
            return "torchrun's first machine serves, and this is another"
        if role == "serve":
            return f"the engine is at {without_secret(settings.engine.url)}" if settings.engine.url else ""
        return (
            ""
            if self._servers["judge"]
            else "none of judge, hint_model and teacher names a model to serve (engine:FOLDER)"
        )

    def _candidate(self, way: Assignment, gpus: Sequence[Gpu], *, alternating: bool) -> tuple[int, Placement]:
        """The missing bytes, and the placement."""
        settings, shape = self._settings, self._shapes["policy"]
        parts = {role: self._estimate(role, mine) for role, mine in way.items()}
        on_gpus = {
            gpu: [part for role in self._roles if gpu in way[role] for part in parts[role]]
            for gpu in gpus
            if any(gpu in mine for mine in way.values())
        }
        servers = [
            self._server(name, way[role][start : start + each], on_gpus, alternating=alternating)
            for role in self._roles
            if role != "train"
            for name in self._servers[role]
            for each in [self._each(role, len(way[role]))]
            for start in range(0, len(way[role]), each)
        ]
        notes = [*self._notes, *([ALTERNATING] if alternating else [])]
        notes += [f"GPU {gpu.number}: its memory is unknown, so the fit is open" for gpu in on_gpus if not gpu.memory]
        notes += [f"GPU {gpu.number}: nothing to do with these settings" for gpu in gpus if gpu not in on_gpus]
        why = shape.why_not_megatron if shape is not None else ""
        lacking, refusal = self._shortage(way, on_gpus, alternating=alternating)
        return lacking, Placement(
            trainer="transformers" if why else "megatron",
            why_not_megatron=why,
            train=way.get("train", ()),
            tensor_parallel=settings.gpu.tensor_parallel,
            nodes=self._nodes,
            servers=tuple(server for server in servers if server.role == "policy"),
            judges=tuple(server for server in servers if server.role != "policy"),
            sharing="apart" if apart(way) else "alternating" if alternating else "together",
            parts=tuple(part for role in self._roles for part in parts[role]),
            notes=tuple(notes),
            refusal=refusal,
        )

    def _each(self, role: str, size: int) -> int:
        """Number of GPUs, of the `size` of a role, that share one server."""
        return self._settings.gpu.rollout_tensor_parallel or size if role == "serve" else size

    def _estimate(self, role: str, gpus: Sequence[Gpu]) -> list[MemoryPart]:
        """Parts of a role on each of its GPUs; empty where its model is unknown."""
        settings, shape = self._settings, self._shapes["policy"]
        if role != "train":
            smallest, each = min(gpu.memory for gpu in gpus), self._each(role, len(gpus))
            shapes = [(name, known) for name in self._servers[role] if (known := self._shapes[name]) is not None]
            return [part for name, known in shapes for part in memory.serving(settings, known, name, each, smallest)]
        if shape is None:
            return []
        trainer = "transformers" if shape.why_not_megatron else "megatron"
        ranks = len(gpus) * self._nodes
        return memory.training(settings, shape, trainer, settings.gpu.tensor_parallel, ranks, compiled=self._compiled)

    def _shortage(self, way: Assignment, on_gpus: GpuParts, *, alternating: bool) -> tuple[int, str]:
        """The bytes that the worst GPU or the machine's own memory lacks, and the refusal; 0 and "" if it fits."""
        model, worst = self._settings.engine.model, (0, "")
        for gpu, parts in on_gpus.items():
            counted = max(
                memory.during_step(parts, alternating=alternating), memory.between_steps(parts), key=memory.total
            )
            lacking = memory.total(counted) - memory.usable(gpu.memory)
            if gpu.memory and lacking > worst[0]:
                worst = lacking, _refusal(model, gpu, counted)
        host = sum(part.bytes for gpu in way.get("train", ()) for part in on_gpus[gpu] if part.host)
        if self._host_memory and host > self._host_memory and not worst[1]:
            return host - self._host_memory, (
                f"model = {model} does not fit: {host / GIB:.1f} GiB would be kept in the machine's own memory "
                f"(offload_optimizer), which has {self._host_memory / GIB:.1f}"
            )
        return worst

    def _server(self, role: ServerRole, gpus: tuple[Gpu, ...], on_gpus: GpuParts, *, alternating: bool) -> Server:
        """A server; where several share GPUs, the policy's KV cache takes what is left of them."""
        shape, gpu = self._shapes[role], min(gpus, key=lambda one: one.memory)
        server = Server(role=role, model=self._models[role], gpus=gpus, lends_memory=alternating and role == "policy")
        if shape is None or not gpu.memory:
            return server
        own = [part for part in on_gpus[gpu] if part.role == role]
        others = [part for part in on_gpus[gpu] if part.role != role]
        least = static = sum(part.bytes for part in own if part.tag)
        if role == "policy" or not others:
            taken = memory.between_steps(others) if alternating else memory.during_step(others)
            taken += [part for part in own if not part.tag]
            static = max(least, memory.usable(gpu.memory) - memory.total(taken))
        cache = static - least + sum(part.bytes for part in own if part.tag == "kv_cache")
        return msgspec.structs.replace(
            server,
            memory_fraction=memory.fraction_at(gpu.memory, 0.0, static) if others else 0.0,
            static_bytes=static,
            kv_tokens=cache // max(1, memory.kv_token(shape, len(gpus))),
        )


def _refusal(model: str, gpu: Gpu, parts: Sequence[MemoryPart]) -> str:
    """The parts that do not fit on a GPU, and the settings that make the largest of them smaller."""
    largest = sorted(parts, key=lambda part: -part.bytes)
    shown = ", ".join(f"{part.role} {part.what}: {part.bytes / GIB:.1f}" for part in largest[:SHOWN])
    hints = list(dict.fromkeys(part.hint for part in largest if part.hint))[:HINTS]
    advice = f"To need less, set {', or '.join(hints)}; or take" if hints else "Take"
    return (
        f"model = {model} does not fit on GPU {gpu.description}: "
        f"{' and '.join(dict.fromkeys(part.role for part in parts))} take {memory.total(parts) / GIB:.1f} of "
        f"{memory.usable(gpu.memory) / GIB:.1f} GiB: {shown}, …. {advice} a smaller model, or GPUs with more memory"
    )
