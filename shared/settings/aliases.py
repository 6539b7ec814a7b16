"""The one table of names that users of other systems have in their scripts, and what each means here.

A name stands for one or more of our settings, or for none yet: then `instead` says in one line what to use. Names are
understood where their users put them: `environment` as variables, `flags` on the command line, `keys` (bare names of
configuration files) as a flag, as a variable in either case, and in `openclaw-rl.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from openclaw_rl.shared.errors import ConfigError

SECRETS = frozenset(
    {
        *("api_key", "more_api_keys", "judge_api_key", "hint_api_key", "side_api_key", "fallback_api_key"),
        *("tinker_api_key", "fireworks_api_key"),
    }
)

METHODS = {"rl": "binary", "grpo": "binary", "combine": "combined", "sdft": "topk", "sdpo": "topk"}
"""Other names of learning methods."""


def method(name: object) -> str:
    """A learning method by our own name for it, whatever case and alias it was written in."""
    lower = str(name).lower()
    return METHODS.get(lower, lower)


def as_is(text: str) -> str:
    """The value unchanged."""
    return text


def switch(text: str) -> str:
    """A truth value in any of the spellings of shell scripts, as `true` or `false`."""
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on", "y", "t", "enable", "enabled"}:
        return "true"
    return "false" if word in {"0", "false", "no", "off", "n", "f", "disable", "disabled", "none"} else text


def in_samples(text: str) -> str:
    """A number of judged turns, as settings of steps take it."""
    return f"{text} samples"


def debug(text: str) -> str:
    """`OPENCLAW_DEBUG`: a truth value; off leaves the level alone."""
    return {"true": "debug", "false": ""}.get(switch(text), text.lower())


def level(text: str) -> str:
    """A log level as Python's or SGLang's users write it."""
    word = text.strip().lower()
    return {"warn": "warning", "critical": "error", "fatal": "error", "trace": "debug"}.get(word, word)


class Alias(msgspec.Struct, frozen=True, kw_only=True):
    """Names that mean the same. `read` turns their value into ours ("" leaves the setting alone).

    `quiet`: a variable that other programs on the machine set for themselves; only `doctor` mentions it.
    """

    settings: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    read: Callable[[str], str] = as_is
    instead: str = ""
    quiet: bool = False


def _maps(*settings: str, env: str = "", flags: str = "", keys: str = "", read: Callable[[str], str] = as_is) -> Alias:
    return Alias(
        settings=settings,
        environment=tuple(env.split()),
        flags=tuple(flags.split()),
        keys=tuple(keys.split()),
        read=read,
    )


def _none(instead: str, *, env: str = "", flags: str = "", keys: str = "", quiet: bool = False) -> Alias:
    return Alias(
        instead=instead,
        environment=tuple(env.split()),
        flags=tuple(flags.split()),
        keys=tuple(keys.split()),
        quiet=quiet,
    )


ALIASES: tuple[Alias, ...] = (
    _maps("host", env="HOST OPENCLAW_HOST"),
    _maps("port", env="PORT OPENCLAW_PORT"),
    _maps("api_key", env="SGLANG_API_KEY OPENCLAW_API_KEY"),
    _maps("model_name", env="SERVED_MODEL_NAME"),
    _maps("model", env="MODEL_PATH BASE_MODEL_PATH CKPT_PATH", flags="model-path model-name"),
    _maps("tokenizer", env="TOKENIZER_PATH", flags="tokenizer-path"),
    _maps("judge", env="PRM_MODEL_PATH JUDGE_MODEL_PATH", flags="rm-checkpoint"),
    _maps("hint_model", keys="hint_extraction_model"),
    _maps("batch_size", env="BATCH_SIZE", flags="rollout-batch-size"),
    _maps("grad_accumulation", env="GRAD_ACCUM_STEPS", flags="grad-accum-steps gradient-accumulation-steps"),
    _maps("votes", env="PRM_M MAJORITY_VOTE_N", flags="prm-m majority-vote-n", keys="num_judges"),
    _maps("judge_threshold", env="MAJORITY_VOTE_THRESHOLD", flags="majority-vote-threshold"),
    _maps("judge_concurrency", flags="num-judge-workers"),
    _maps("w_rl", env="OPENCLAW_COMBINE_W_RL", keys="binary_weight"),
    _maps("w_opd", env="OPENCLAW_COMBINE_W_OPD", keys="opd_weight"),
    _maps("lora", env="USE_LORA", flags="use-lora", read=switch),
    _maps("lora_rank", env="LORA_RANK"),
    _maps("lora_alpha", env="LORA_ALPHA"),
    _maps("lora_dropout", env="LORA_DROPOUT"),
    _maps("learning_rate", env="LEARNING_RATE", flags="lr"),
    _maps("beta1", flags="adam-beta1"),
    _maps("beta2", flags="adam-beta2"),
    _maps("lr_warmup_steps", keys="warmup_steps"),
    _maps("lr_warmup_steps", keys="lr_warmup_samples", read=in_samples),
    _maps("clip_grad", env="CLIP_GRAD_NORM"),
    _maps("clip_low", "clip_high", env="PPO_CLIP_RATIO", flags="ppo-clip-ratio"),
    _maps(
        "recompute",
        env="USE_GRADIENT_CHECKPOINTING",
        flags="gradient-checkpointing use-gradient-checkpointing",
        read=switch,
    ),
    _maps("offload_optimizer", flags="offload-optimizer-state", read=switch),
    _maps("checkpoints", env="CKPT_SAVE_DIR", flags="save-dir checkpoint-dir"),
    _maps("resume", env="RESUME_CKPT", flags="resume-from-checkpoint"),
    _maps("gpus", env="NUM_GPUS", flags="gpu-ids num-gpus"),
    _maps("actor_gpus", env="ACTOR_GPUS TRAIN_GPUS", flags="train-gpus"),
    _maps("rollout_gpus", env="ROLLOUT_GPUS"),
    _maps("judge_gpus", env="PRM_GPUS", flags="prm-gpus"),
    _none(
        "torchrun's own: it tells the trainer's processes of each other",
        env="MASTER_ADDR MASTER_PORT NODE_RANK GPUS_PER_NODE",
        quiet=True,
    ),
    _maps("tinker_api_key", env="TINKER_API_KEY"),
    _maps("tinker_base_url", env="TINKER_BASE_URL TINKER_ENDPOINT"),
    _maps("tinker_project", env="TINKER_PROJECT_ID"),
    _maps("fireworks_api_key", env="FIREWORKS_API_KEY"),
    _maps("fireworks_base_url", env="FIREWORKS_BASE_URL"),
    _none("read by Hugging Face's own library when model is a hub name", env="HF_TOKEN", quiet=True),
    _none("read by Weights & Biases' own library when wandb names a project", env="WANDB_API_KEY", quiet=True),
    _maps("min_turns", env="MIN_TURNS"),
    _maps("teacher_temperature", env="TEACHER_TEMPERATURE"),
    _none("the extension talks to this service; choose its address with host and port", keys="rollout_endpoint"),
    _maps("capture", flags="enable-rl-intercept", read=switch),
    _maps("data", flags="rl-buffer-dir rollout-dir"),
    _maps("session_idle_seconds", keys="session_timeout"),
    _maps("max_sessions", keys="max_concurrent_sessions"),
    _maps("custom_loss", flags="custom-loss-function-path"),
    _maps("custom_rollout", flags="rollout-function-path"),
    _maps("custom_generate", flags="custom-generate-function-path"),
    _maps("custom_reward", flags="custom-rm-path"),
    _none(
        "environments are not in this version; a harness can post to /rl/outcome",
        env="PARALLEL_ENVS MAX_GUI_STEPS TOOLS_CONFIG SWE_BENCH_PATH SCREENSHOT_BACKEND",
        flags="max-turns num-rollouts-per-prompt",
    ),
    # Names so general that other programs set them too.
    _none(
        "environments are not in this version; a harness can post to /rl/outcome",
        env="ENV_TYPE MAX_STEPS TASK_TYPE",
        quiet=True,
    ),
    _maps("log_level", env="OPENCLAW_DEBUG", read=debug),
    _maps("log_level", env="ROLLOUT_LOG_LEVEL", read=level),
    _none("capture and training never stop the chat here; leave it out", keys="training_mode session_tracking"),
)
"""Names that are ours as well (`--host`, `--method`, `--lora-rank`, `teacher_temperature`, …) need no entry."""


class Use(msgspec.Struct, frozen=True):
    """One alias that somebody set: the name as they wrote it, its value as they wrote it, and what it means here."""

    name: str
    value: str
    where: str
    alias: Alias

    @property
    def meaning(self) -> str:
        """The value in our terms."""
        return self.alias.read(self.value)

    @property
    def line(self) -> str:
        """What to say about an alias that has no counterpart."""
        return f"{self.name} has no counterpart here: {self.alias.instead}"


def in_environment(environ: Mapping[str, str]) -> list[Use]:
    """The aliases set as variables; empty ones count as unset."""
    names = ((name, alias) for alias in ALIASES for name in (*alias.environment, *_spellings(alias.keys)))
    return [Use(name, environ[name], "environment", alias) for name, alias in names if environ.get(name)]


def in_flags(flags: Mapping[str, str]) -> list[Use]:
    """The aliases among flags (names without the leading dashes, with dashes inside)."""
    names = (
        (name, alias) for alias in ALIASES for name in (*alias.flags, *(key.replace("_", "-") for key in alias.keys))
    )
    return [Use(f"--{name}", flags[name], "flag", alias) for name, alias in names if name in flags]


def in_file(keys: Mapping[str, Any]) -> list[Use]:
    """The aliases among the keys of `openclaw-rl.toml`."""
    names = ((name, alias) for alias in ALIASES for name in alias.keys)
    return [Use(name, str(keys[name]), "openclaw-rl.toml", alias) for name, alias in names if name in keys]


def notes(environ: Mapping[str, str], *, quiet: bool = False) -> list[str]:
    """One line per variable that has no counterpart here; with `quiet` also those that only `doctor` mentions."""
    return [use.line for use in in_environment(environ) if use.alias.instead and (quiet or not use.alias.quiet)]


def flag_names(*, counterpart: bool | None = None) -> frozenset[str]:
    """Every flag that is an alias; with `counterpart` only those that have one, or have none."""
    return frozenset(
        name
        for alias in ALIASES
        if counterpart is None or counterpart == bool(alias.settings)
        for name in (*alias.flags, *(key.replace("_", "-") for key in alias.keys))
    )


def resolve(uses: Iterable[Use], ours: frozenset[str]) -> dict[str, Use]:
    """Which use decides each setting: the last one, where none of our own names (`ours`, settings already set) does.

    Raises `ConfigError` naming both when two uses disagree about a setting.
    """
    chosen: dict[str, Use] = {}
    for use in uses:
        if use.meaning == "":
            continue
        for setting in use.alias.settings:
            if setting in ours:
                continue
            other = chosen.get(setting)
            if other is not None and not _same(other.meaning, use.meaning):
                raise ConfigError(
                    f"{_shown(other, setting)} and {_shown(use, setting)} both mean {setting} and disagree; "
                    f"drop one of them, or say it by our own name: OPENCLAW_RL_{setting.upper()}"
                )
            chosen[setting] = use
    return chosen


def _spellings(keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        yield key
        yield key.upper()


def _same(left: str, right: str) -> bool:
    try:
        return left == right or float(left) == float(right)
    except ValueError:
        return False


def _shown(use: Use, setting: str) -> str:
    return use.name if setting in SECRETS else f"{use.name} = {use.value}"
