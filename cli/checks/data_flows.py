"""What goes to other machines: `doctor` says it, and `serve` before the first byte goes. docs/privacy.md has it all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.cli.model_files import is_hub_name
from openclaw_rl.learner.judge.askers import litellm
from openclaw_rl.shared import backends
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.process import is_loopback
from openclaw_rl.shared.redaction.outgoing import is_here
from openclaw_rl.shared.settings import judge_spec
from openclaw_rl.shared.settings.judge_spec import Spelling
from openclaw_rl.shared.settings.settings import Settings

_REDACTED = {
    "off": "nothing is taken out of them first (cloud_redact = off)",
    "secrets": "secrets that are recognised are taken out first (cloud_redact = secrets)",
    "all": "secrets and personal data that are recognised are taken out first (cloud_redact = all)",
}


def leaves(settings: Settings) -> Iterator[str]:
    """What goes to other machines with these settings, one line each; nothing by default."""
    cloud = _cloud(settings)
    if cloud:
        yield from _provider(settings.model_copy(update={"backend": cloud}))
    yield from _judges(settings)
    for name, base, what in (
        (settings.side_model, settings.side_api_base, "side turns go to the model"),
        (
            settings.fallback_model,
            settings.fallback_api_base,
            "while the engine is away, requests go to the model",
        ),
    ):
        if name and not is_here(name, base):
            yield f"{what} {name} at {base or 'its provider'}; {_REDACTED[settings.cloud_redact]}"
    if settings.wandb and os.environ.get("WANDB_MODE", "online") not in ("offline", "disabled", "dryrun"):
        where = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
        yield f"figures of every step and its recipe, no text, go to the W&B project {settings.wandb} at {where}"
    if settings.engine_url and not is_loopback(urlsplit(settings.engine_url).hostname or ""):
        yield f"prompts and answers, as token ids, go to and come from the engine at {settings.engine_url}"
    yield from _hub(settings, cloud)
    if not is_loopback(settings.host):
        yield f"answers go to whoever reaches {settings.host}:{settings.port} and has the key, unencrypted"


def _judges(settings: Settings) -> Iterator[str]:
    """Where judge and hint model send conversations; those that run here send them nowhere."""
    for setting, what, spelling in asked(settings):
        name = settings.value(setting)
        if spelling.kind == "litellm":
            base = litellm.address(name, settings)[0]
            if not is_here(name, base):
                yield (
                    f"conversations (request, answer and what came next) go to the {what} {name} "
                    f"at {base or 'its provider'}; {_REDACTED[settings.cloud_redact]}"
                )
        elif spelling.kind == "engine":
            url = spelling.url or judge_spec.engine_url(settings, setting)
            if url and not is_loopback(urlsplit(url).hostname or ""):
                yield (
                    f"conversations, as token ids, go to the {what}'s engine at {url}; "
                    f"{_REDACTED[settings.cloud_redact]}"
                )
        elif spelling.kind == "hook":
            yield f"conversations go to your own code {name} ({setting}); where that sends them is not known here"


def asked(settings: Settings) -> list[tuple[str, str, Spelling]]:
    """Who is asked about conversations: the setting, what to call it, and what its value means. None of them where a
    value means nothing (`_judge` says so).
    """
    found = []
    try:
        if settings.custom_reward:
            found.append(("custom_reward", "reward model", Spelling("hook", settings.custom_reward)))
        else:
            found.append(("judge", "judge", judge_spec.scorer(settings)))
        hinter = judge_spec.hinter(settings)
    except ConfigError:
        return []
    return found if hinter is None else [*found, ("hint_model", "hint model", hinter)]


def _cloud(settings: Settings) -> str:
    """The provider that holds the weights, "" where none does, or nobody can say which."""
    with contextlib.suppress(ConfigError):
        return backends.chosen(settings) if backends.is_cloud(settings) else ""
    return ""


def _provider(settings: Settings) -> Iterator[str]:
    """What the provider of the policy gets, and where that is."""
    from openclaw_rl.trainer_cloud.preflight import (  # with numpy, which a service on this machine does without
        account,
        base_url,
    )

    to = f"to {account(settings).name} at {base_url(settings)}"
    yield (
        f"everything that is said to the policy and by it, as token ids, goes {to}, which samples the answers; so do "
        f"the prompts of rehearsals, the guard and the audit. {_REDACTED[settings.cloud_redact].capitalize()}"
    )
    if settings.train:
        yield (
            "for training, token ids of turns with the logprobs of their sampling, advantages and weights, and the "
            f"prompts that the teacher sees (with hints made from what you answered) go {to}, which keeps the trained "
            "weights and their checkpoints"
        )
    if any(spelling.kind == "policy" for _, _, spelling in asked(settings)):
        yield f"conversations (request, answer and what came next) go {to}, whose base model judges them"
    yield (
        f"the key, the model's name and that the program is openclaw-rl go {to}; the telemetry of its "
        "library is switched off (TINKER_TELEMETRY=0)"
    )


def _hub(settings: Settings, cloud: str) -> Iterator[str]:
    """Names that are looked up at the Hugging Face hub."""
    if not cloud and not Path(settings.model).exists():
        yield f"the name of the model {settings.model} goes to the Hugging Face hub when it is downloaded"
    words = settings.tokenizer or (settings.model if cloud else "")
    if words and not Path(words).exists() and is_hub_name(words):
        yield f"the name {words} goes to the Hugging Face hub when its tokenizer is downloaded; no weights are"
