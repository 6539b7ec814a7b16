"""What `doctor` and `serve` say of GPUs: which there are, who goes where, what that takes, and why it cannot be so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psutil
from rich.console import Console

from openclaw_rl.cli.checks.check import Check
from openclaw_rl.cli.tables import table
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.gpus import GIB, Gpu, find_gpus, imagined, left
from openclaw_rl.shared.process import alive
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.assignments import ROLES, read
from openclaw_rl.trainer_local.placement.place import Placement, placement, plan, wants_gpus

PROCESSES = {"engine": ("serve",), "learner": ("train", "judge")}
"""What the parts of the service do on GPUs."""


def gpu_checks(settings: Settings, with_gpus: str = "") -> tuple[list[Check], Placement | None]:
    """What there is to say of GPUs, and the placement on them where the backend wants one. `with_gpus` describes GPUs
    that are not here; raises `ConfigError` where it does not.
    """
    if with_gpus:
        gpus = imagined(with_gpus)
        planned = settings if wants_gpus(settings) else settings.model_copy(update={"backend": "megatron"})
        return _placed(planned, gpus, found="planned for, not found here: ")
    if not wants_gpus(settings):
        quiet = [Check("gpus", True, "none: what is local runs on the CPU")] if settings.backend == "local" else []
        return quiet, None
    try:
        gpus = find_gpus()
    except ConfigError as error:
        return [Check("gpus", False, str(error))], None
    card = read_json(settings.data / "run" / "engine.json")
    running = card is not None and alive(int(card["pid"]))
    return _placed(settings, gpus, running=running, host=psutil.virtual_memory().total)


def fitting(settings: Settings, roles: Sequence[str]) -> Placement:
    """Where the parts `roles` of the service go on this machine's GPUs, with what a person should know before they
    start there; on none where they want none. Raises `ConfigError` where they do not fit, in `doctor`'s words.
    """
    wanted = [what for role in roles for what in PROCESSES.get(role, ())]
    if not wanted or not wants_gpus(settings):
        return Placement()
    asked = [role for role in ROLES if role in wanted]
    if "serve" in asked and (none := _nobody_serves(settings)):
        raise ConfigError(none)
    if "train" in asked and (none := _nobody_trains(settings)):
        raise ConfigError(none)
    return placement(settings, left(find_gpus()), roles=asked, host_memory=psutil.virtual_memory().total)


def show_memory(out: Console, placed: Placement) -> None:
    """The estimate, line by line."""
    rows: Any = table("who", "what", "#GiB a GPU", "")
    for role in dict.fromkeys(part.role for part in placed.parts):
        mine = [part for part in placed.parts if part.role == role]
        for part in mine:
            where = "on the host" if part.host else ""
            when = "while a step is made" if part.step else ""
            rows.add_row(role, part.what, f"{part.bytes / GIB:.2f}", ", ".join(filter(None, (where, when))))
        together = sum(part.bytes for part in mine if not part.host)
        rows.add_row(role, "together", f"{together / GIB:.2f}", "", style="bold")
    out.print("\nMemory, as estimated (docs/gpu.md says how well that is known):")
    out.print(rows)


def _placed(
    settings: Settings, gpus: Sequence[Gpu], *, found: str = "", running: bool = False, host: int = 0
) -> tuple[list[Check], Placement]:
    placed = plan(settings, gpus if running else left(gpus), host_memory=host)
    checks = []
    if gpus:
        checks.append(Check("gpus", True, found + "; ".join(gpu.told for gpu in gpus)))
    checks += [
        Check("gpus", None, f"GPU {gpu.number}: other programs hold {_gib(gpu.taken)} of its {_gib(gpu.memory)} GiB")
        for gpu in gpus
        if gpu.taken and not running
    ]
    if placed.refusal:
        return [*checks, Check("placement", False, placed.refusal)], placed
    checks.append(Check("placement", True, "; ".join(_told(settings, placed)) or "nothing is placed here"))
    notes = [*placed.notes, *filter(None, [_nobody_serves(settings), _nobody_trains(settings)])]
    return [*checks, *(Check("placement", None, note) for note in notes)], placed


def _nobody_serves(settings: Settings) -> str:
    """What is wrong where no GPU is to serve here and no engine is named; "" if nothing."""
    if settings.engine_url or read(settings.rollout_gpus, "rollout_gpus") != 0:
        return ""
    return (
        "rollout_gpus = 0 says that no GPU of this machine serves the policy, and no engine is named: say where it "
        "runs with engine_url (OPENCLAW_RL_ENGINE_URL), or leave rollout_gpus out"
    )


def _nobody_trains(settings: Settings) -> str:
    """What is wrong where training is on and no GPU is to train here; "" if nothing."""
    if not settings.train or read(settings.actor_gpus, "actor_gpus") != 0:
        return ""
    return (
        "actor_gpus = 0 says that no GPU of this machine trains, and a learner here would train on the CPU: start none "
        "(serve --only proxy --only engine), say train = off, or leave actor_gpus out"
    )


def _told(settings: Settings, placed: Placement) -> Iterator[str]:
    if placed.train:
        what = "LoRA" if settings.lora else "all weights"
        who = "Megatron-core" if placed.trainer == "megatron" else "transformers"
        if not any(part.role == "trainer" for part in placed.parts):  # nobody has read its config.json
            who = "Megatron-core (transformers, if it is no dense Qwen3)"
        many = f", tensor parallel {placed.tensor_parallel}, data parallel {placed.data_parallel}"
        over = f" over {placed.nodes} machines" if placed.nodes > 1 else ""
        yield f"{who} trains ({what}) on {_gpus(placed.train)}" + (many if len(placed.train) > 1 else "") + over
        if placed.why_not_megatron:
            yield f"the model {placed.why_not_megatron}"
    for server in (*placed.servers, *placed.judges):
        what = "the policy" if server.role == "policy" else f"{server.model} ({server.role})"
        kept = f", about {server.kv_tokens} tokens of KV cache" if server.kv_tokens else ""
        given = f", mem-fraction-static {server.memory_fraction}" if server.memory_fraction else ""
        yield f"SGLang serves {what} on {_gpus(server.gpus)}{kept}{given}"
    if placed.sharing != "apart":
        given = " and ".join(placed.lends).replace("kv_cache", "KV cache")
        yield "training and serving share GPUs" + (
            f", and SGLang gives its {given} back for each step" if given else ""
        )
    if placed.train and placed.servers and not settings.lora:
        way = placed.weight_transfer if settings.weight_transfer == "auto" else settings.weight_transfer
        yield f"new weights reach SGLang by {way} (weight_transfer)"
    elif placed.train and placed.servers:
        yield "new versions reach SGLang as adapters, by files"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"


def _gpus(gpus: Sequence[Gpu]) -> str:
    return f"GPU {', '.join(str(gpu.number) for gpu in gpus)}"
