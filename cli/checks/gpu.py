"""Checks of GPUs for `doctor` and `serve`: the GPUs, the placement on them, its memory, and why it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psutil
from rich.console import Console

from openclaw_rl.cli.checks.check import Check
from openclaw_rl.cli.client import running
from openclaw_rl.cli.tables import table
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import GIB, Gpu, find_gpus, imagined, with_free_memory
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.assignments import parse_gpus
from openclaw_rl.trainer_local.placement.compiler import why_no_compiler
from openclaw_rl.trainer_local.placement.place import place, possible, wants_gpus
from openclaw_rl.trainer_local.placement.validation import ROLES

PROCESSES = {"engine": ("serve",), "learner": ("train", "judge")}
"""Roles on GPUs of the parts of the service."""


def gpu_checks(settings: Settings, with_gpus: str = "") -> tuple[list[Check], Placement | None]:
    """The checks, and the placement if the backend wants one. `with_gpus` describes GPUs to plan for in place of this
    machine's; raises `ConfigError` if it is malformed.
    """
    if with_gpus:
        gpus = imagined(with_gpus)
        planned = settings if wants_gpus(settings) else settings.replace(backend="megatron")
        return _checks(
            planned, gpus, place(planned, gpus), found="planned for, with torch's compiler, not found here: "
        )
    if not wants_gpus(settings):
        quiet = (
            [Check("gpus", True, "none: what is local runs on the CPU")] if settings.engine.backend == "local" else []
        )
        return quiet, None
    try:
        gpus = find_gpus()
    except ConfigError as error:
        return [Check("gpus", False, str(error))], None
    ours = running(settings.serve.data, "engine") is not None  # then the memory in use is the service's own
    placement = _place_here(settings, gpus if ours else with_free_memory(gpus))
    return _checks(settings, gpus, placement, running=ours)


def fitting(settings: Settings, parts: Sequence[str]) -> Placement:
    """The placement of these parts of the service on this machine's GPUs; an empty one if they need none. Raises
    `ConfigError` if they do not fit, in `doctor`'s words.
    """
    roles = [role for role in ROLES if any(role in PROCESSES.get(part, ()) for part in parts)]
    if not roles or not wants_gpus(settings):
        return Placement()
    for role, missing in (("serve", _no_server(settings)), ("train", _no_trainer(settings))):
        if role in roles and missing:
            raise ConfigError(missing)
    return possible(_place_here(settings, with_free_memory(find_gpus()), roles))


def _place_here(settings: Settings, gpus: Sequence[Gpu], roles: Sequence[str] = ROLES) -> Placement:
    """The placement on this machine's GPUs, by its memory and tools."""
    memory = psutil.virtual_memory().total
    return place(settings, gpus, roles=roles, host_memory=memory, no_compiler=why_no_compiler())


def show_memory(out: Console, placement: Placement) -> None:
    """Print the estimate line by line."""
    rows: Any = table("who", "what", "#GiB a GPU", "")
    for role in dict.fromkeys(part.role for part in placement.parts):
        mine = [part for part in placement.parts if part.role == role]
        for part in mine:
            when = [*(["on the host"] if part.host else []), *(["during a step"] if part.step else [])]
            rows.add_row(role, part.what, f"{part.bytes / GIB:.2f}", ", ".join(when))
        total = sum(part.bytes for part in mine if not part.host)
        rows.add_row(role, "total", f"{total / GIB:.2f}", "", style="bold")
    out.print("\nMemory, as estimated (docs/gpu.md says how well that is known):")
    out.print(rows)


def _checks(
    settings: Settings, gpus: Sequence[Gpu], placement: Placement, *, found: str = "", running: bool = False
) -> tuple[list[Check], Placement]:
    checks = [Check("gpus", True, found + "; ".join(gpu.description for gpu in gpus))] if gpus else []
    checks += [
        Check("gpus", None, f"GPU {gpu.number}: other programs hold {_gib(gpu.taken)} of its {_gib(gpu.memory)} GiB")
        for gpu in gpus
        if gpu.taken and not running
    ]
    if placement.refusal:
        return [*checks, Check("placement", False, placement.refusal)], placement
    checks.append(Check("placement", True, "; ".join(_describe(settings, placement)) or "nothing is placed here"))
    notes = [*placement.notes, *filter(None, [_no_server(settings), _no_trainer(settings)])]
    return [*checks, *(Check("placement", None, note) for note in notes)], placement


def _no_server(settings: Settings) -> str:
    """The obstacle if no GPU serves here and no engine is named; "" if there is none."""
    if settings.engine.url or parse_gpus(settings.gpu.rollout_gpus, "rollout_gpus") != 0:
        return ""
    return (
        "rollout_gpus = 0 says that no GPU of this machine serves the policy, and no engine is named: say where it "
        "runs with engine_url (OPENCLAW_RL_ENGINE_URL), or leave rollout_gpus out"
    )


def _no_trainer(settings: Settings) -> str:
    """The obstacle if training is on and no GPU trains here; "" if there is none."""
    if not settings.learning.train or parse_gpus(settings.gpu.actor_gpus, "actor_gpus") != 0:
        return ""
    return (
        "actor_gpus = 0 says that no GPU of this machine trains, and a learner here would train on the CPU: start none "
        "(serve --only proxy --only engine), say train = off, or leave actor_gpus out"
    )


def _describe(settings: Settings, placement: Placement) -> Iterator[str]:
    if placement.train:
        what = "LoRA" if settings.learning.lora else "all weights"
        trainer = "Megatron-core" if placement.trainer == "megatron" else "transformers"
        if not any(part.role == "trainer" for part in placement.parts):  # its config.json is not here
            trainer = "Megatron-core (transformers, if it is no dense Qwen3)"
        parallel = f", tensor parallel {placement.tensor_parallel}, data parallel {placement.data_parallel}"
        over = f" over {placement.nodes} machines" if placement.nodes > 1 else ""
        yield (
            f"{trainer} trains ({what}) on {_gpus(placement.train)}{parallel if len(placement.train) > 1 else ''}{over}"
        )
        if placement.why_not_megatron:
            yield f"the model {placement.why_not_megatron}"
    for server in (*placement.servers, *placement.judges):
        what = "the policy" if server.role == "policy" else f"{server.model} ({server.role})"
        cache = f", about {server.kv_tokens} tokens of KV cache" if server.kv_tokens else ""
        fraction = f", mem-fraction-static {server.memory_fraction}" if server.memory_fraction else ""
        yield f"SGLang serves {what} on {_gpus(server.gpus)}{cache}{fraction}"
    if placement.colocated:
        alternating = ", and SGLang gives its KV cache and weights back for each step"
        yield "training and serving share GPUs" + (alternating if placement.sharing == "alternating" else "")
    if placement.train and placement.servers and not settings.learning.lora:
        yield f"new weights reach SGLang by {placement.weight_transfer}"
    elif placement.train and placement.servers:
        yield "new versions reach SGLang as adapters, by files"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"


def _gpus(gpus: Sequence[Gpu]) -> str:
    return f"GPU {', '.join(str(gpu.number) for gpu in gpus)}"
