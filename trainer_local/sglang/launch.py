"""SGLang's command lines, from the settings. Imports no torch: the supervisor calls this.

SGLang is a program of its own environment or container. The supervisor starts its controller (`controller`), which
runs one server, or several behind SGLang's router where there are more GPUs than one server takes.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from openclaw_rl.shared.backends import engine_address
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import ALLOCATOR, ORDER, VISIBLE
from openclaw_rl.shared.placement import Server
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.backend import (
    adapter_folder,
    adapts_experts,
    lacking,
    serves_full_weights,
    sglang_targets,
    sglang_variables,
)
from openclaw_rl.trainer_local.models.folder import dtype, quantization
from openclaw_rl.trainer_local.placement.place import current_placement
from openclaw_rl.trainer_local.sglang.container import is_container, with_variables
from openclaw_rl.trainer_local.sglang.owner_client import card_path
from openclaw_rl.trainer_local.sglang.versions import adapter_name, weights_label

VERSION = "0.5.23"
_ARGUMENTS, _GPUS, _MODULE = "{args}", "{gpus}", "{module}"
_SERVER, _ROUTER = "sglang.launch_server", "sglang_router.launch_router"


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The programs to run. `memory`: `--mem-fraction-static` of each server, and the bytes that it stands for. `name`
    begins the names of their containers, and `variables` are set in their environment. `key_file`: the file to give
    SGLang its key in, "" to write it into the command line (a container does not see our files).
    """

    host: str = "127.0.0.1"
    port: int
    program: list[str]
    name: str = "openclaw-rl"
    variables: dict[str, str] = {}
    arguments: list[str] = []
    router: list[str] = []
    gpus: list[list[str]]
    memory: list[tuple[float, int]] = []
    adapters: bool = False
    key_file: str = ""


def command(settings: Settings, servers: Sequence[Server] = ()) -> list[str]:
    """Program and arguments, for the servers of a placement (default: those of the policy in the one that this process
    has). The caller adds `--live N=FOLDER` when another version than the base is live.

    Raises `ConfigError` where SGLang is not to be found, or cannot serve what the settings train.
    """
    servers = servers or current_placement(settings).servers
    gpus = serving(servers)
    card = card_path(settings.serve.data / "run", engine_address(settings))
    given = settings.gpu.sglang_options
    if "--api-key" in given:
        raise ConfigError("sglang_args has --api-key: leave it out, serve gives SGLang a key of its own")
    started = program(settings)
    sees_files = not is_container(started) and "--config" not in given
    plan = FleetPlan(
        host=settings.engine.host,
        port=settings.engine.port,
        program=started,
        name=container_name(settings, servers),
        variables=variables(settings),
        arguments=arguments(settings, servers),
        router=router(settings) if len(gpus) > 1 else [],
        gpus=gpus,
        memory=[(server.memory_fraction, server.static_bytes) for server in servers],
        adapters=not serves_full_weights(settings),
        key_file=str(card.with_suffix(".yaml")) if sees_files else "",
    )
    return [
        *(sys.executable, "-m", "openclaw_rl.trainer_local.sglang.controller"),
        *("--plan", msgspec.json.encode(plan).decode(), "--log-level", settings.serve.log_level),
        *("--base", settings.engine.model, "--checkpoints", str(settings.checkpoints_path)),
        *("--max-versions", str(settings.engine.max_versions)),
        *("--card", str(card)),
    ]


def serving(servers: Sequence[Server]) -> list[list[str]]:
    """The GPUs of each server, as `CUDA_VISIBLE_DEVICES` calls them; one server without any where none are placed (a
    container or a machine of another kind finds its own).
    """
    return [[gpu.handle for gpu in server.gpus] for server in servers] or [[]]


def container_name(settings: Settings, servers: Sequence[Server] = ()) -> str:
    """The beginning of the names of the containers of `servers`: the same at each start, so that a container which was
    left behind by a killed service is found, and another for each data folder and role.
    """
    folder = hashlib.blake2b(str(settings.serve.data.resolve()).encode(), digest_size=4).hexdigest()
    return f"openclaw-rl-{folder}-{servers[0].role if servers else 'policy'}"


def variables(settings: Settings) -> dict[str, str]:
    """Environment variables of SGLang. Its `/health` samples nothing: it would where nothing runs, which a server whose
    memory is lent to the trainer must not. Its environment is not activated, and it looks for `ninja` on PATH when it
    compiles kernels.
    """
    own = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"} | sglang_variables(settings)
    if settings.gpu.sglang_command or not settings.gpu.sglang_python:
        return own
    return own | {"PATH": os.pathsep.join([str(Path(_python(settings)).parent), os.environ.get("PATH", os.defpath)])}


def program(settings: Settings) -> list[str]:
    """The command that starts SGLang, before its arguments."""
    if settings.gpu.sglang_command:
        return _given(settings, _SERVER)
    if not settings.gpu.sglang_python:
        raise ConfigError(
            "backend = megatron serves with SGLang, a program with an environment of its own. Install it there "
            f"(python3 -m venv ~/sglang && ~/sglang/bin/pip install sglang=={VERSION}) and name its Python with "
            "sglang_python (OPENCLAW_RL_SGLANG_PYTHON=~/sglang/bin/python), or say how a container of it is started "
            "with sglang_command; a server that runs already is the engine with engine_url"
        )
    return [_python(settings), "-m", _SERVER]


def router(settings: Settings) -> list[str]:
    """The command that starts the router, before its arguments."""
    if _MODULE in settings.gpu.sglang_command:
        return _given(settings, _ROUTER)
    if settings.gpu.sglang_python:
        return [_python(settings), "-m", _ROUTER]
    raise ConfigError(
        "several SGLang servers need SGLang's router before them (pip install sglang-router): write python -m {module} "
        "in sglang_command, or name sglang_python too, or have one server take all GPUs (rollout_tensor_parallel = 0)"
    )


def _given(settings: Settings, module: str) -> list[str]:
    """`sglang_command` for one of SGLang's modules."""
    words = [word.replace(_MODULE, module) for word in shlex.split(settings.gpu.sglang_command)]
    return with_variables(words, variables(settings))


def arguments(settings: Settings, servers: Sequence[Server] = ()) -> list[str]:
    """SGLang's arguments that do not depend on which server it is, nor on the live version. `sglang_args` come last, so
    that they win.
    """
    found = ["--model-path", settings.engine.model, "--served-model-name", "policy", "--incremental-streaming-output"]
    # Without this its scheduler keeps a core busy while nothing is asked. A request wakes it at once.
    found += ["--sleep-on-idle"]
    if settings.engine.tokenizer:
        found += ["--tokenizer-path", settings.engine.tokenizer]
    if settings.engine.context_length:
        found += ["--context-length", str(settings.engine.context_length)]
    quantized = settings.gpu.quantization or quantization(settings.engine.model)
    if quantized != "gguf":  # whose head has no plain weight
        # bfloat16 rounds logits of 16 to 32 to eighths. It still does in a head with an adapter (targets "all").
        found += ["--enable-fp32-lm-head"]
    if quantized and settings.learning.train and not settings.learning.lora:
        raise ConfigError(
            f"lora = off trains all weights, and SGLang would serve them quantized ({quantized}): every new version "
            "would have to be quantized again. Train a LoRA, whose adapters such a base takes, or a model that is not "
            "quantized"
        )
    # Chat goes before judging and rehearsal, in the queue and on the GPU: our lower numbers are more urgent.
    found += ["--enable-priority-scheduling", "--schedule-low-priority-values-first", "--default-priority-value", "0"]
    found += ["--priority-scheduling-preemption-threshold", "0", "--retraction-policy", "priority"]
    if not serves_full_weights(settings):
        found += ["--enable-lora", "--max-lora-rank", str(settings.learning.lora_rank)]
        found += ["--lora-target-modules", *_targets(settings)]
        if adapts_experts(settings):  # other kernels take no adapters, and names that do not fit would only warn
            found += ["--moe-runner-backend", "triton", "--lora-strict-loading"]
        # Every version in memory, the one being loaded and the base have a place in a batch: none waits for another.
        found += ["--max-loras-per-batch", str(settings.engine.max_versions + 1)]
    if any(server.lends_memory for server in servers):
        found += ["--enable-memory-saver", "--enable-weights-cpu-backup"]
    return found + shlex.split(settings.gpu.sglang_args)


def server_line(
    program: Sequence[str],
    arguments: Sequence[str],
    *,
    gpus: Sequence[str],
    host: str,
    port: int,
    live: tuple[int, str] | None = None,
    adapters: bool = False,
    memory_fraction: float = 0.0,
    key: Sequence[str] = (),
) -> list[str]:
    """The command line of one server on `gpus`, `live` being the number and folder of the live version, `key` the
    arguments with its key. Of several arguments of one name SGLang takes the last: what a person gave goes before
    `memory_fraction`.
    """
    own = ["--host", host, "--port", str(port), *key]
    if len(gpus) > 1:
        own += ["--tp-size", str(len(gpus))]
    given = [*(["--mem-fraction-static", f"{memory_fraction:g}"] if memory_fraction else []), *arguments]
    if live is not None and adapters:
        name = adapter_name(*live)
        own += ["--lora-paths", f"{name}={adapter_folder(live[1])}", "--weight-version", name]
    elif live is not None:
        place = given.index("--model-path") + 1
        if "--tokenizer-path" not in given:
            own += ["--tokenizer-path", given[place]]
        made_for = dtype(given[place])
        given[place] = live[1]
        own += ["--weight-version", weights_label(*live)]
        if made_for in ("bfloat16", "float16"):
            # The trainer writes weights in single precision, for which SGLang takes float16 by itself.
            given = ["--dtype", made_for, *given]
    return filled(program, [*given, *own], ",".join(gpus))


def router_line(
    program: Sequence[str],
    *,
    gpus: Sequence[str],
    host: str,
    port: int,
    servers: Sequence[str],
    key: Sequence[str] = (),
) -> list[str]:
    """The command line of the router before `servers` (URLs). It uses no GPU; `gpus` are for its container, whose line
    is that of a server. It asks for the `key` itself, and passes it on.
    """
    own = ["--host", host, "--port", str(port), "--worker-urls", *servers, "--policy", "cache_aware", *key]
    return filled(program, own, ",".join(gpus))


def filled(program: Sequence[str], arguments: Sequence[str], gpus: str) -> list[str]:
    """A command with its arguments where it has {args}, or at its end, and its GPUs where it has {gpus}."""
    line: list[str] = []
    for part in program:
        if part == _ARGUMENTS:
            line += arguments
        else:
            line.append(part.replace(_ARGUMENTS, shlex.join(arguments)).replace(_GPUS, gpus))
    return line if any(_ARGUMENTS in part for part in program) else [*line, *arguments]


def environment(
    gpus: Sequence[str], own: Mapping[str, str], inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of a server: its `own` variables and its GPUs. Settings of torch's allocator are meant for the
    trainer: SGLang cannot lend the memory of expandable segments, and ends where it is to.
    """
    kept = {name: value for name, value in inherited.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", *ALLOCATOR)}
    return kept | dict(own) | ({VISIBLE: ",".join(gpus), ORDER: "PCI_BUS_ID"} if gpus else {})


def _python(settings: Settings) -> str:
    found = shutil.which(str(Path(settings.gpu.sglang_python).expanduser()))
    if found is None:
        raise ConfigError(
            f"sglang_python = {settings.gpu.sglang_python!r} is no program: name the Python of the environment that "
            f"SGLang {VERSION} is installed in"
        )
    return found


def _targets(settings: Settings) -> list[str]:
    """`lora_targets` as SGLang wants them. Raises `ConfigError` for what it cannot hold."""
    named = [name.strip() for name in settings.learning.lora_targets.split(",") if name.strip()]
    if missing := lacking(named, "qwen3_moe" if adapts_experts(settings) else ""):
        raise ConfigError(
            f"lora_targets = {settings.learning.lora_targets!r}: SGLang computes q_proj, k_proj and v_proj in one, and "
            f"so gate_proj and up_proj, of experts with down_proj; it cannot serve such an adapter. Add "
            f"{', '.join(missing)}, or take all-linear"
        )
    return sglang_targets(settings)
