"""The programs that `openclaw-rl connect` knows: where each keeps its configuration, and what goes into it.

Sources: OpenClaw's configuration reference (2026.9), nanobot's configuration page (0.3).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cli.config_file import Place

PROVIDER = "clawrl"
EXTENSION = "openclaw-rl"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client gets told: the service's `url` (without /v1) and `key`, and OpenClaw's entry for its `provider`
    (see `cli.entry`), which holds all that is known of the model.
    """

    url: str
    key: str
    provider: Mapping[str, Any]
    extension: bool = True

    @property
    def model(self) -> Mapping[str, Any]:
        """`id`, `contextWindow`, `maxTokens`… of the served model."""
        model: Mapping[str, Any] = self.provider["models"][0]
        return model


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a file shall have, and what its owner has to know."""

    values: Mapping[Place, Any]
    notes: Sequence[str] = ()


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program with a configuration file that is enough to connect it."""

    name: str
    file: Callable[[Mapping[str, str]], Path]
    wanted: Callable[[Mapping[str, Any], Offer], Wanted]
    afterwards: str


def _openclaw_file(environ: Mapping[str, str]) -> Path:
    if environ.get("OPENCLAW_CONFIG_PATH"):
        return Path(environ["OPENCLAW_CONFIG_PATH"])
    return Path(environ.get("OPENCLAW_STATE_DIR") or "~/.openclaw") / "openclaw.json"


def _openclaw(config: Mapping[str, Any], offer: Offer) -> Wanted:
    chosen = f"{PROVIDER}/{offer.model['id']}"
    values: dict[Place, Any] = {("models", "providers", PROVIDER): dict(offer.provider)}
    if not _get(config, "models", "mode"):
        values["models", "mode"] = "merge"
    defaults = ("agents", "defaults")
    shape = _get(config, *defaults, "model")
    values[(*defaults, "model") if isinstance(shape, str) else (*defaults, "model", "primary")] = chosen
    allowed = _get(config, *defaults, "modelPolicy", "allow")
    if allowed and chosen not in allowed and f"{PROVIDER}/*" not in allowed:
        values[(*defaults, "modelPolicy", "allow")] = [*allowed, chosen]
    notes = [
        f"agent {name} has a model of its own ({agent['model']}) and goes on with it"
        for name, agent in (_get(config, "agents", "entries") or {}).items()
        if isinstance(agent, dict) and agent.get("model")
    ]
    if offer.extension:
        values["plugins", "entries", EXTENSION, "enabled"] = True
        values["plugins", "entries", EXTENSION, "hooks", "allowConversationAccess"] = True
        plugins = _get(config, "plugins", "allow")
        if plugins is not None and EXTENSION not in plugins:
            values["plugins", "allow"] = [*plugins, EXTENSION]
        notes.append(
            "the plugin entry counts once the extension is installed (docs/openclaw.md); without it everything works "
            "but /good, /bad and /rl in the chat"
        )
    return Wanted(values=values, notes=notes)


def _nanobot(config: Mapping[str, Any], offer: Offer) -> Wanted:
    model = offer.model
    provider = {"displayName": "openclaw-rl", "apiKey": offer.key, "apiBase": f"{offer.url}/v1"}
    preset = {
        "model": model["id"],
        "provider": PROVIDER,
        "maxTokens": model["maxTokens"],
        "contextWindowTokens": model["contextWindow"],
        "temperature": 1.0,  # as the policy is trained; nanobot's own default is nearly greedy
    }
    presets = "model_presets" if "model_presets" in config else "modelPresets"
    defaults = _get(config, "agents", "defaults") or {}
    active = "model_preset" if "model_preset" in defaults else "modelPreset"
    return Wanted(
        values={
            ("providers", PROVIDER): provider,
            (presets, PROVIDER): preset,
            ("agents", "defaults", active): PROVIDER,
        }
    )


def _get(config: Mapping[str, Any], *place: str) -> Any:
    here: Any = config
    for name in place:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


CLIENTS = {
    client.name: client
    for client in (
        Client(
            name="openclaw",
            file=_openclaw_file,
            wanted=_openclaw,
            afterwards="A gateway that runs reads the file again by itself. Talk to it as always.",
        ),
        Client(
            name="nanobot",
            file=lambda environ: Path("~/.nanobot/config.json"),
            wanted=_nanobot,
            afterwards="Start nanobot again (nanobot agent, nanobot gateway) and talk to it as always.",
        ),
    )
}


def file_of(client: Client, given: str) -> Path:
    """The client's file: the one that is given, else where the client itself looks."""
    return Path(given) if given else client.file(os.environ)
