"""Backends by name, loaded only when asked for. A new backend is one entry here and one package elsewhere.

`OPENCLAW_RL_BACKEND` chooses; `local` is what trains on this machine (megatron where there are NVIDIA GPUs, else
embedded), `cloud` the provider whose key is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import msgspec

from openclaw_rl.shared import gpus
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.settings.cloud import CLOUDS

if TYPE_CHECKING:
    from openclaw_rl.shared.engine.protocol import Engine
    from openclaw_rl.shared.placement import Server
    from openclaw_rl.shared.settings.settings import Settings
    from openclaw_rl.shared.trainer import Trainer


class NoProvider(ConfigError):
    """`backend = cloud`, and no provider has a key."""


class Rating(NamedTuple):
    """A reward model's score in [−1, +1], and an explanation of it."""

    score: float
    explanation: str


class RewardModel(Protocol):
    """Scores conversations."""

    async def rate(self, conversation: Sequence[tuple[str, str]]) -> Rating:
        """Rate (role, text) messages that end with the next state. Raises `JudgeError`, `ConfigError`."""
        ...


class Backend(msgspec.Struct, frozen=True):
    """Import paths (`module:attribute`) of a backend's parts, each called with the settings.

    `engine` makes the client, `trainer` the trainer, `server` the command line (list of str) of the engine process,
    `launch` starts the processes of a trainer that needs several. `extra` is the pip extra of all their imports.
    """

    engine: str
    trainer: str
    server: str
    extra: str
    launch: str = ""


BACKENDS: dict[str, Backend] = {
    "embedded": Backend(
        engine="openclaw_rl.trainer_local.sglang.client:connect",
        trainer="openclaw_rl.trainer_local.transformers_trainer:create",
        server="openclaw_rl.trainer_local.embedded.launch:command",
        extra="local",
    ),
    "megatron": Backend(
        engine="openclaw_rl.trainer_local.sglang.client:connect",
        trainer="openclaw_rl.trainer_local.backend:create",
        server="openclaw_rl.trainer_local.sglang.launch:command",
        extra="gpu",
        launch="openclaw_rl.trainer_local.backend:launch",
    ),
} | {
    name: Backend(
        engine="openclaw_rl.trainer_cloud.launch:connect",
        trainer="openclaw_rl.trainer_cloud.training.trainer:create",
        server="openclaw_rl.trainer_cloud.launch:command",
        extra="cloud",
    )
    for name in CLOUDS
}

ENGINES = {
    "sglang": "backend = megatron starts SGLang; one that runs is the engine with engine_url (--engine-url "
    "http://HOST:PORT)",
    "vllm": "an SGLang server can be the engine (--engine-url http://HOST:PORT), vLLM cannot",
}
"""Names of engines, which scripts for other systems give as the backend, and what to say instead."""

REWARD_MODEL = "openclaw_rl.trainer_local.models.reward_model:create"


def backend(name: str) -> Backend:
    """The backend called `name`; `ConfigError` with the known names otherwise."""
    if name not in BACKENDS:
        known = ", ".join([*sorted(BACKENDS), "local", "cloud"])
        remedy = f"choose one of: {known} (OPENCLAW_RL_BACKEND)"
        if name in ENGINES:
            remedy = f"leave it out: {ENGINES[name]}"
        raise ConfigError(f"backend = {name!r} is not available in this version; {remedy}")
    return BACKENDS[name]


def resolve_backend(settings: Settings) -> Settings:
    """The settings with the backend that `local` or `cloud` means. Raises `ConfigError` for a backend that is none,
    `NoProvider` for `cloud` without a key.
    """
    name = settings.engine.backend
    if name == "local":
        name = "megatron" if settings.engine.device != "cpu" and gpus.found() else "embedded"
    elif name == "cloud":
        name = _provider_with_key(settings)
    backend(name)
    return settings.replace(backend=name)


def _provider_with_key(settings: Settings) -> str:
    keys = {name: f"{name.upper()}_API_KEY" for name in CLOUDS if settings.value(f"{name}_api_key")}
    if not keys:
        raise NoProvider(
            "backend = cloud is the provider whose key is set, and none is: set TINKER_API_KEY or FIREWORKS_API_KEY "
            "(tinker_api_key, fireworks_api_key), or leave the backend out to train on this machine"
        )
    if len(keys) > 1:
        choices = " or ".join(f"OPENCLAW_RL_BACKEND={name}" for name in keys)
        raise ConfigError(f"backend = cloud, and both {' and '.join(keys.values())} are set: say which with {choices}")
    return next(iter(keys))


def engine_address(settings: Settings) -> str:
    """The URL of the engine: `engine_url`, or of the one that `serve` starts on `engine_host` and `engine_port`.

    Raises `ConfigError` when neither is known.
    """
    if settings.engine.url:
        return settings.engine.url
    if not settings.engine.port:
        raise ConfigError(
            "no engine to connect to: set engine_url (OPENCLAW_RL_ENGINE_URL) or engine_port (OPENCLAW_RL_ENGINE_PORT)"
        )
    host = f"[{settings.engine.host}]" if ":" in settings.engine.host else settings.engine.host
    return f"http://{host}:{settings.engine.port}"


def create_engine(settings: Settings, *, owns: bool = False) -> Engine:
    """An engine client for the configured backend. `owns`: this process is to change the weights of an SGLang that was
    not started by us.
    """
    entry = backend(settings.engine.backend)
    return cast("Engine", resolve(entry.engine, extra=entry.extra)(settings, owns=owns))


def launch_trainer(settings: Settings) -> int | None:
    """Run this program again once for each process of a trainer that needs several, and return the exit code when they
    have ended; `None` where one process is enough, or this is one of them.
    """
    entry = backend(settings.engine.backend)
    return cast("int | None", resolve(entry.launch, extra=entry.extra)(settings)) if entry.launch else None


def create_trainer(settings: Settings) -> Trainer:
    """A trainer for the configured backend; imports torch and the like, so only the learner process calls this."""
    entry = backend(settings.engine.backend)
    return cast("Trainer", resolve(entry.trainer, extra=entry.extra)(settings))


def engine_command(settings: Settings, servers: Sequence[Server] = ()) -> list[str]:
    """The command line that starts the engine process. `servers` are its servers in a placement on GPUs, where there is
    one (`trainer_local.placement.place`).
    """
    entry = backend(settings.engine.backend)
    command = resolve(entry.server, extra=entry.extra)
    return cast("list[str]", command(settings, servers) if servers else command(settings))


def is_sglang(settings: Settings) -> bool:
    """True if the engine process that `serve` starts is SGLang."""
    return settings.engine.backend == "megatron"


def takes_key(settings: Settings) -> bool:
    """True if the engine can be started with a key: SGLang takes none with several tokenizer workers."""
    return not is_sglang(settings) or "--tokenizer-worker-num" not in settings.gpu.sglang_options


def own_engine(settings: Settings, folder: str, *, url: str = "", port: int = 0, on_gpus: bool = False) -> Settings:
    """The settings of a further engine besides the policy's, on `folder`, at `url`, or to be started at `port` on
    loopback: SGLang where it is placed on GPUs (`on_gpus`), else the embedded one, on the CPU where the policy has all
    GPUs. Settings of the policy's server do not apply to it.
    """
    own: dict[str, Any] = {"backend": "embedded"}
    if on_gpus:
        own = {"backend": "megatron", "train": False, "lora": False, "sglang_args": ""}
    elif settings.engine.backend == "megatron":
        own["device"] = "cpu"
    policys = {"tokenizer": "", "family": "auto", "tools": "auto", "thinking": False, "context_length": 0}
    place = {"engine_url": url, "engine_host": "127.0.0.1", "engine_port": port}
    return settings.replace(model=folder, **own, **policys, **place)


def create_reward_model(settings: Settings, folder: str) -> RewardModel:
    """The sequence classifier in `folder` as a reward model; it imports torch when it is first asked."""
    return cast("RewardModel", resolve(REWARD_MODEL, extra="local")(settings, folder))
