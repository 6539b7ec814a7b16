"""Data flows to other machines: `doctor` lists them, and `serve` before the first byte goes (docs/privacy.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from openclaw_rl.cli.model_files import is_hub_name
from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.process import is_loopback
from openclaw_rl.shared.redaction.outgoing import is_here
from openclaw_rl.shared.settings.cloud import CLOUDS
from openclaw_rl.shared.settings.model_reference import ModelReference, read_model
from openclaw_rl.shared.settings.named_models import close_name, find_named
from openclaw_rl.shared.settings.settings import Settings

_REDACTED = {
    "off": "nothing is redacted first (cloud_redact = off)",
    "secrets": "recognised secrets are redacted first (cloud_redact = secrets)",
    "all": "recognised secrets and personal data are redacted first (cloud_redact = all)",
}
TITLES = {"judge": "judge", "hint_model": "hint model", "custom_reward": "reward model", "teacher": "teacher"}


def data_flows(settings: Settings, judges: Sequence[ModelReference]) -> Iterator[str]:
    """One line for each flow of data to other machines; none by default. `settings` name the backend itself."""
    redacted = _REDACTED[settings.cloud.redact]
    is_cloud = settings.engine.backend in CLOUDS
    if is_cloud:
        yield from _provider(settings, judges_there=any(model.kind == "policy" for model in judges))
    for model in judges:
        yield from _judge(model, redacted)
    for setting, text, what in (
        ("side_model", settings.serve.side_model, "side turns go"),
        ("fallback_model", settings.serve.fallback_model, "while the engine is away, requests go"),
    ):
        other = read_model(text, setting) if text else None
        if other is not None and not is_here(other.name, other.url):
            yield f"{what} to the model {other.name} at {without_secret(other.url) or 'its provider'}; {redacted}"
    if settings.learning.wandb and os.environ.get("WANDB_MODE", "online") not in ("offline", "disabled", "dryrun"):
        where = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
        yield (
            f"metrics of every step and its recipe, no text, go to the W&B project {settings.learning.wandb} at {where}"
        )
    if not _is_loopback(settings.engine.url):
        engine = without_secret(settings.engine.url)
        yield f"prompts and answers, as token ids, go to and come from the engine at {engine}"
    yield from _hub(settings, is_cloud=is_cloud)
    if not is_loopback(settings.serve.host):
        at = f"{settings.serve.host}:{settings.serve.port}"
        yield f"answers go, unencrypted, to every client that reaches {at} and has the key"


def _judge(model: ModelReference, redacted: str) -> Iterator[str]:
    """Conversations that a judge, hint model or teacher elsewhere gets."""
    what = TITLES[model.setting]
    if model.kind == "litellm" and not is_here(model.name, model.url):
        yield (
            f"conversations (request, answer and next state) go to the {what} {model.name} "
            f"at {without_secret(model.url) or 'its provider'}; {redacted}"
        )
    elif model.setting == "teacher" and not _is_loopback(model.url):
        yield (
            f"prompts with hints, and answers, go as token ids to the teacher's engine at {without_secret(model.url)}; "
            "nothing is redacted first, because the teacher scores exactly these tokens"
        )
    elif model.kind == "engine" and not _is_loopback(model.url):
        yield f"conversations, as token ids, go to the {what}'s engine at {without_secret(model.url)}; {redacted}"
    elif model.kind == "hook":
        yield f"conversations go to your own code {model.name} ({model.setting}); where it sends them is unknown"


def _is_loopback(url: str) -> bool:
    return not url or is_loopback(urlsplit(url).hostname or "")


def _provider(settings: Settings, *, judges_there: bool) -> Iterator[str]:
    """The data that the policy's provider gets."""
    from openclaw_rl.trainer_cloud.preflight import account, base_url  # with numpy, which other services do without

    to = f"to {account(settings).name} at {base_url(settings)}"
    yield (
        f"every prompt and answer of the policy goes, as token ids, {to}, which samples the answers; so do the prompts "
        f"of rehearsals, the guard and the audit. {_REDACTED[settings.cloud.redact].capitalize()}"
    )
    if settings.learning.train:
        yield (
            "for training, token ids of turns with the logprobs of their sampling, advantages and weights, and the "
            f"teacher's prompts (with hints made from your answers) go {to}, which keeps the trained weights and "
            "their checkpoints"
        )
    if judges_there:
        yield f"conversations (request, answer and next state) go {to}, whose base model judges them and is paid for it"
    yield (
        f"the key, the model's name and that the program is openclaw-rl go {to}; the telemetry of its "
        "library is off (TINKER_TELEMETRY=0)"
    )


def _hub(settings: Settings, *, is_cloud: bool) -> Iterator[str]:
    """Names that are looked up at the Hugging Face hub."""
    model, tokenizer = settings.engine.model, settings.engine.tokenizer
    named = None if is_cloud else find_named(model)
    if named is not None and named.package is not None and not Path(model).exists():
        yield f"the name of the package {named.package.name} goes to the Python package index when it is downloaded"
    elif not is_cloud and not Path(model).exists() and is_hub_name(model) and not close_name(model):
        yield f"the name of the model {model} goes to the Hugging Face hub when it is downloaded"
    name = tokenizer or (model if is_cloud else "")
    if name and not Path(name).exists() and is_hub_name(name):
        yield f"the name {name} goes to the Hugging Face hub when its tokenizer is downloaded; no weights are"
