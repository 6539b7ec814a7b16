"""From settings, a model's shape and GPUs to a placement: every way that the settings allow is tried, best first, and
the first that fits is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from openclaw_rl.shared.gpus import Gpu
from openclaw_rl.shared.placement import Placement, Server, Sharing, fraction_of
from openclaw_rl.shared.settings.judge_models import judge_models
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement import memory as gpu_memory
from openclaw_rl.trainer_local.placement.assignments import (
    ROLES,
    SETTINGS,
    Assignment,
    Torchrun,
    apart,
    assignments,
    said_of,
)
from openclaw_rl.trainer_local.placement.memory import GIB, Part
from openclaw_rl.trainer_local.placement.model_shape import ModelShape, read_shape
from openclaw_rl.trainer_local.placement.validation import check, check_way, shareable

LENT: tuple[tuple[str, ...], ...] = ((), ("kv_cache",), ("kv_cache", "weights"))
"""What SGLang may give back for a step where it shares GPUs with the trainer, mildest first."""

Held = Mapping[Gpu, Sequence[Part]]
"""What is on each GPU."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A placement, and why it does not fit (`short`; "" where it does) with how many bytes are lacking."""

    placement: Placement
    short: str = ""
    lacking: int = 0


class Planner:
    """What the settings want of GPUs, whichever there are."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], roles: Sequence[str] = ROLES, host_memory: int = 0
    ) -> None:
        """Raises `ConfigError` for settings that no GPUs could honour."""
        self.settings = settings
        self.shape = read_shape(settings.model)
        check(settings, self.shape)
        self._host_memory = host_memory
        self._torchrun = Torchrun.of(environ)
        self._judges = judge_models(settings)
        self._judge_shapes = {role: read_shape(model) for role, model in self._judges.items()}
        self._roles = [role for role in ROLES if role in roles and not self._unwanted(role)]
        self._unused = [
            f"{setting} = {settings.value(setting)} is not used: {self._unwanted(role)}"
            for role, setting in SETTINGS.items()
            if role in roles and self._unwanted(role) and settings.value(setting).strip() not in ("", "0", "auto")
        ]
        self._estimates: dict[tuple[str, int, int], list[Part]] = {}

    def best(self, gpus: Sequence[Gpu]) -> Found:
        """The best way that fits, or the one that lacks least. Raises `ConfigError` for what contradicts itself."""
        if not self._roles:
            return Found(placement=Placement(notes=tuple(self._unused)))
        ways = assignments(self.settings, gpus, self._roles, self._torchrun, self._valid)
        check_way(self.settings, self.shape, ways[0], self._judge_shapes)
        ways = [way for way in ways if all(self._valid(role, len(mine)) for role, mine in way.items())]
        tried: list[Found] = []
        for lends in LENT:
            for way in ways:
                if lends and apart(way):
                    continue
                tried.append(self._tried(way, gpus, lends))
                if not tried[-1].short:
                    return tried[-1]
        # Of ways that lack about as much the one that would be taken first is told.
        return min(tried, key=lambda found: found.lacking >> 32)

    def _unwanted(self, role: str) -> str:
        """Why nobody has this role here; "" where somebody has. Raises `ConfigError`."""
        if said_of(self.settings, role, self._torchrun) == 0:
            return f"{SETTINGS[role]} = 0"
        if role == "train":
            return "" if self.settings.train else "train = off"
        if self._torchrun is not None and self._torchrun.node:
            return "torchrun's first machine serves, and this is another"
        if role == "serve":
            return f"the engine is at {self.settings.engine_url}" if self.settings.engine_url else ""
        return "" if self._judges else "neither judge nor hint_model is a model with an engine (engine:FOLDER)"

    def _valid(self, role: str, size: int) -> bool:
        """Whether a role can use `size` GPUs."""
        if role == "train":
            one = self.shape is not None and self.shape.why_not_megatron
            return size == 1 if one else size % self.settings.tensor_parallel == 0
        if role == "serve":
            each = self.settings.rollout_tensor_parallel or size
            return size % each == 0 and shareable(self.shape, each)
        return all(shareable(shape, size) for shape in self._judge_shapes.values())

    def _tried(self, way: Assignment, gpus: Sequence[Gpu], lends: tuple[str, ...]) -> Found:
        """One way, with what it lacks where the policy's servers give back what they `lend` for a step."""
        parts = {role: self._parts(role, mine) for role, mine in way.items()}
        used = [gpu for gpu in gpus if any(gpu in mine for mine in way.values())]
        held = {gpu: [part for role, mine in way.items() if gpu in mine for part in parts[role]] for gpu in used}
        sharing: Sharing = "apart" if apart(way) else "alternating" if lends else "together"
        placed = self._placement(way, sharing, lends, parts, held, self._notes(gpus, used, sharing))
        worst, lacking, need = None, 0, 0
        for gpu in used:
            most = max(gpu_memory.at_step(held[gpu], lends), gpu_memory.at_rest(held[gpu]))
            if gpu.memory and most - gpu_memory.usable(gpu.memory) > lacking:
                worst, lacking, need = gpu, most - gpu_memory.usable(gpu.memory), most
        if worst is not None:
            return Found(placement=placed, lacking=lacking, short=self._told(worst, need, held[worst], lends))
        return self._loads(way, placed) or self._hosts(way, parts, lends, placed)

    def _loads(self, way: Assignment, placed: Placement) -> Found | None:
        """Whether servers can load the model in the first place; `None` if they can."""
        serve = way.get("serve", ())
        each = self.settings.rollout_tensor_parallel or len(serve)
        size = gpu_memory.loading(self.settings, self.shape, each) if serve and self.shape is not None else 0
        for gpu in serve:
            lacking = size - gpu_memory.usable(gpu.memory)
            if gpu.memory and lacking > 0:
                told = (
                    f"model = {self.settings.model} does not fit: SGLang loads it in bfloat16 before it quantizes it "
                    f"(quantization = {self.settings.quantization}), which takes {size / GIB:.1f} GiB of GPU {gpu.told}"
                )
                return Found(placement=placed, lacking=lacking, short=told)
        return None

    def _hosts(
        self, way: Assignment, parts: Mapping[str, Sequence[Part]], lends: tuple[str, ...], placed: Placement
    ) -> Found:
        """Whether the machine's own memory holds what is kept there."""
        host = sum(part.bytes for part in parts.get("train", ()) if part.host) * len(way.get("train", ()))
        if "weights" in lends:
            host += sum(part.bytes for part in parts["serve"] if part.tag == "weights") * len(way["serve"])
        if not self._host_memory or host <= self._host_memory:
            return Found(placement=placed)
        told = (
            f"model = {self.settings.model} does not fit: {host / GIB:.1f} GiB would be kept in the machine's own "
            f"memory (offload_optimizer), which has {self._host_memory / GIB:.1f}"
        )
        return Found(placement=placed, lacking=host - self._host_memory, short=told)

    def _parts(self, role: str, gpus: Sequence[Gpu]) -> list[Part]:
        """What a role takes of each of its GPUs; nothing where the model is not known."""
        key = role, len(gpus), min(gpu.memory for gpu in gpus)
        if key not in self._estimates:
            self._estimates[key] = self._estimate(*key)
        return self._estimates[key]

    def _estimate(self, role: str, number: int, memory: int) -> list[Part]:
        settings = self.settings
        if role == "judge":
            models = [(name, shape) for name, shape in self._judge_shapes.items() if shape is not None]
            return [
                part for name, shape in models for part in gpu_memory.serving(settings, shape, name, number, memory)
            ]
        if self.shape is None:
            return []
        if role == "serve":
            each = settings.rollout_tensor_parallel or number
            return gpu_memory.serving(settings, self.shape, "policy", each, memory)
        ranks = number * (self._torchrun.nodes if self._torchrun else 1)
        trainer = "transformers" if self.shape.why_not_megatron else "megatron"
        return gpu_memory.training(settings, self.shape, trainer, settings.tensor_parallel, ranks)

    def _placement(
        self,
        way: Assignment,
        sharing: Sharing,
        lends: tuple[str, ...],
        parts: Mapping[str, Sequence[Part]],
        held: Held,
        notes: Sequence[str],
    ) -> Placement:
        settings, train, serve = self.settings, way.get("train", ()), way.get("serve", ())
        nodes = self._torchrun.nodes if self._torchrun else 1
        each = settings.rollout_tensor_parallel or len(serve) or 1
        why = self.shape.why_not_megatron if self.shape is not None else ""
        return Placement(
            trainer="transformers" if why else "megatron",
            why_not_megatron=why,
            train=train,
            tensor_parallel=settings.tensor_parallel,
            data_parallel=max(1, nodes * len(train) // settings.tensor_parallel),
            nodes=nodes,
            servers=tuple(
                _server("policy", settings.model, serve[start : start + each], self.shape, held, lends)
                for start in range(0, len(serve), each)
            ),
            judges=tuple(
                _server(role, model, way["judge"], self._judge_shapes[role], held, lends)
                for role, model in self._judges.items()
                if "judge" in way
            ),
            sharing=sharing,
            parts=tuple(part for role in ROLES for part in parts.get(role, ())),
            notes=tuple(notes),
        )

    def _notes(self, gpus: Sequence[Gpu], used: Sequence[Gpu], sharing: Sharing) -> list[str]:
        found = list(self._unused)
        if sharing == "alternating":
            found.append(
                "training and serving alternate: a step, for which SGLang gives memory back, is begun only when nobody "
                "has asked for anything for a while. Requests that come during a step wait for its end (docs/gpu.md, "
                "Alternating)"
            )
        models = [(self.settings.model, self.shape)]
        models += [(model, self._judge_shapes[role]) for role, model in self._judges.items()]
        found += [
            f"{model}: its config.json is not here yet, so what it takes is not estimated"
            for model, shape in models
            if shape is None
        ]
        if untold := [str(gpu.number) for gpu in used if not gpu.memory]:
            found.append(f"GPU {', '.join(untold)}: how much memory it has is not told, so whether all fits is open")
        if idle := [str(gpu.number) for gpu in gpus if gpu not in used]:
            found.append(f"GPU {', '.join(idle)}: nothing to do with these settings")
        return found

    def _told(self, gpu: Gpu, need: int, held: Sequence[Part], lends: tuple[str, ...]) -> str:
        """Why it does not fit, at the worst GPU."""
        kind = "LoRA" if self.settings.lora else "all weights"
        does = {"trainer": f"trains ({kind})", "policy": "serves", "judge": "judges", "hint": "proposes hints"}
        step = need == gpu_memory.at_step(held, lends)
        counted = [part for part in held if not part.host and not (part.tag in lends if step else part.step)]
        sums = []
        for role in dict.fromkeys(part.role for part in held):
            mine = sorted((part for part in counted if part.role == role), key=lambda part: -part.bytes)
            largest = ", ".join(f"{part.what}: {part.bytes / GIB:.1f}" for part in mine[:3])
            sums.append(f"{role} {sum(part.bytes for part in mine) / GIB:.1f} ({largest}; …)")
        given = " and ".join(lends).replace("kv_cache", "KV cache")
        return (
            f"model = {self.settings.model} does not fit on GPU {gpu.told}, which "
            f"{' and '.join(does[role] for role in dict.fromkeys(part.role for part in held))}: that takes "
            f"{need / GIB:.1f} of {gpu_memory.usable(gpu.memory) / GIB:.1f} GiB"
            + (f", even if SGLang gives its {given} back for each step" if lends and step else "")
            + f": {', '.join(sums)}"
        )


def _server(
    role: Literal["policy", "judge", "hint"],
    model: str,
    gpus: tuple[Gpu, ...],
    shape: ModelShape | None,
    held: Held,
    lends: tuple[str, ...],
) -> Server:
    """A server. What is left of its GPUs is KV cache: the policy's, where several servers share them."""
    made = Server(role=role, model=model, gpus=gpus, tensor_parallel=len(gpus), lends=lends if role == "policy" else ())
    gpu = min(gpus, key=lambda one: one.memory)
    if shape is None or not gpu.memory:
        return made
    own = [part for part in held[gpu] if part.role == role]
    others = [part for part in held[gpu] if part.role != role]
    around = sum(part.bytes for part in own if not part.is_static)
    least = sum(part.bytes for part in own if part.is_static)
    static = least
    if role == "policy" or {part.role for part in others} <= {"trainer"}:
        taken = gpu_memory.at_rest(others) if lends else gpu_memory.at_step(others)
        static = max(least, gpu_memory.usable(gpu.memory) - around - taken)
    cache = static - least + sum(part.bytes for part in own if part.is_cache)
    return msgspec.structs.replace(
        made,
        memory_fraction=fraction_of(static, gpu.memory) if others else 0.0,
        static_bytes=static,
        kv_tokens=cache // max(1, gpu_memory.kv_token(shape, len(gpus))),
    )
