"""The programs that `openclaw-rl connect` knows: where each keeps its configuration, and the values that connect it.

Existing values stay where possible: in an entry of our name only the keys that connect it are set, lists grow, and a
reference to a secret stays. Sources: OpenClaw's configuration reference and its config/paths.ts,
config/includes.ts and plugins/config-activation-shared.ts (2026.9), nanobot's configuration page (0.3).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.cli.connect.config_file import Place, shorten
from openclaw_rl.cli.connect.provider_entry import PROVIDER, context_note
from openclaw_rl.shared.errors import ConfigError

EXTENSION = "openclaw-rl"

_REFERENCE = re.compile(r"\$(\{\w+\}|[A-Z][A-Z0-9_]*)")
_PROVIDER_PLACE = ("models", "providers", PROVIDER)
_POLICY_PLACE = ("agents", "defaults", "modelPolicy", "allow")
_READ_PLACES = (
    ("models", "mode"),
    (*_PROVIDER_PLACE, "models"),
    ("agents", "defaults", "model"),
    _POLICY_PLACE,
    ("agents", "entries"),
    ("agents", "list"),
    ("plugins", "allow"),
    ("plugins", "deny"),
    ("plugins", "entries", EXTENSION),
)


class ServiceAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The service's `url` (without /v1) and `key`, and OpenClaw's `provider` entry for it with the model."""

    url: str
    key: str
    provider: Mapping[str, Any]
    extension: bool = True

    @property
    def model(self) -> Mapping[str, Any]:
        """`id`, `contextWindow`, `maxTokens`… of the served model."""
        model: Mapping[str, Any] = self.provider["models"][0]
        return model


class Wanted(msgspec.Struct):
    """The values that a file should have, and notes for its owner."""

    values: dict[Place, Any] = {}
    notes: list[str] = []


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that its configuration file connects. `file` finds that from the environment variables."""

    file: Callable[[Mapping[str, str]], Path]
    wanted: Callable[[Mapping[str, Any], ServiceAccess], Wanted]
    afterwards: str


def _openclaw_file(environ: Mapping[str, str]) -> Path:
    """As OpenClaw's `resolveConfigPath`; OPENCLAW_PROFILE by itself moves nothing there either."""

    def variable(name: str) -> str:
        return environ.get(name, "").strip()

    def below_home(path: str) -> Path:
        return home / path[1:].lstrip("/") if path == "~" or path.startswith("~/") else Path(path)

    home = Path(variable("HOME") or os.path.expanduser("~"))
    if variable("OPENCLAW_HOME") not in ("", "undefined", "null"):
        home = below_home(variable("OPENCLAW_HOME"))
    if variable("OPENCLAW_CONFIG_PATH"):
        return below_home(variable("OPENCLAW_CONFIG_PATH"))
    state = variable("OPENCLAW_STATE_DIR")
    folders = [below_home(state)] if state else [home / ".openclaw", home / ".clawdbot"]
    files = [folder / name for folder in folders for name in ("openclaw.json", "clawdbot.json")]
    folder = next(filter(os.path.exists, folders), folders[0])
    return next(filter(os.path.exists, files), folder / "openclaw.json")


def _openclaw(config: Mapping[str, Any], offer: ServiceAccess) -> Wanted:
    chosen = f"{PROVIDER}/{offer.model['id']}"
    wanted = Wanted()
    _openclaw_provider(wanted, config, offer)
    included = _included(config)
    if not _get(config, "models", "mode") and not included.keys() & {(), ("models",)}:
        wanted.values["models", "mode"] = "merge"
    model = ("agents", "defaults", "model")
    wanted.values[model if isinstance(_get(config, *model), str) else (*model, "primary")] = chosen
    allowed = _list(config, *_POLICY_PLACE)
    if allowed and chosen not in allowed and f"{PROVIDER}/*" not in allowed:
        wanted.values[_POLICY_PLACE] = [*allowed, chosen]
    for name, agent in _openclaw_agents(config):
        own = agent.get("model")
        own = own.get("primary") if isinstance(own, Mapping) else own
        if own and own != chosen:
            wanted.notes.append(f"agent {name} keeps its own model ({own})")
    if note := context_note(offer.model):
        wanted.notes.append(note)
    if offer.extension:
        _openclaw_extension(wanted, config)
    if included:
        takes = ", ".join(f"{'.'.join(place) or 'the file'} takes in {files}" for place, files in included.items())
        wanted.notes.append(
            f"{takes} ($include), which connect does not read: its own values win over included ones, and lists are "
            "joined. Look there for models.mode, models.providers.clawrl, modelPolicy.allow, plugins.allow, "
            "plugins.deny and agents with their own model. OpenClaw itself (plugins install, config set) does not "
            "write a section that has both: install the extension first, or move our lines into the included file"
        )
    return wanted


def _openclaw_provider(wanted: Wanted, config: Mapping[str, Any], offer: ServiceAccess) -> None:
    _add_entry(wanted, config, _PROVIDER_PLACE, offer.provider)
    place = (*_PROVIDER_PLACE, "models")
    if place not in wanted.values:
        return
    if _is_include(_get(config, *place)):
        del wanted.values[place]
        return
    there = _list(config, *place)
    mine = [model for model in there if isinstance(model, Mapping) and model.get("id") == offer.model["id"]]
    wanted.values[place] = [
        {**model, **offer.model, **{name: model[name] for name in ("name", "cost") if name in model}}
        if model in mine
        else model
        for model in there
    ] + ([] if mine else [dict(offer.model)])
    for name in ("baseUrl", "api"):
        wanted.notes += [
            f"{'.'.join(place)}: {offer.model['id']} has its own {name} ({model[name]}), which is used instead of ours"
            for model in mine
            if model.get(name, offer.provider.get(name)) != offer.provider.get(name)
        ]


def _openclaw_extension(wanted: Wanted, config: Mapping[str, Any]) -> None:
    entry = ("plugins", "entries", EXTENSION)
    wanted.values |= {(*entry, "enabled"): True, (*entry, "hooks", "allowConversationAccess"): True}
    wanted.notes.append(
        "the plugin entry takes effect once the extension is installed (docs/openclaw.md); only /good, /bad and /rl in "
        "the chat need it"
    )
    allowed = _list(config, "plugins", "allow")
    if _ids(allowed) and EXTENSION not in _ids(allowed):  # an empty list lets every plugin in
        wanted.values["plugins", "allow"] = [*allowed, EXTENSION]
    if EXTENSION in _ids(_list(config, "plugins", "deny")):
        wanted.notes.append(f"plugins.deny lists {EXTENSION}: the extension does not load until you take it out there")
    if _get(config, "plugins", "enabled") is False:
        wanted.notes.append("plugins.enabled is false: the extension does not load until you change that")


def _openclaw_agents(config: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Name and entry of each agent, in the keyed form and in the older list."""
    entries, listed = _get(config, "agents", "entries"), _get(config, "agents", "list")
    keyed = list(entries.items()) if isinstance(entries, Mapping) else []
    if isinstance(listed, list):
        keyed += [(str(_get(agent, "id") or number), agent) for number, agent in enumerate(listed)]
    return [(name, agent) for name, agent in keyed if isinstance(agent, Mapping)]


def _included(config: Mapping[str, Any]) -> dict[Place, str]:
    """The included files, by the place that includes them, on the paths to the values that we read or write."""
    paths = [place[:depth] for place in _READ_PLACES for depth in range(len(place) + 1)]
    found = [(place, _get(config, *place)) for place in dict.fromkeys(paths)]
    found += [(("agents", name), agent) for name, agent in _openclaw_agents(config)]
    files = {place: here["$include"] for place, here in found if _is_include(here)}
    return {place: " and ".join(map(str, one if isinstance(one, list) else [one])) for place, one in files.items()}


def _ids(plugins: Sequence[Any]) -> set[str]:
    return {plugin.strip().lower() for plugin in plugins if isinstance(plugin, str)} - {""}


def _nanobot(config: Mapping[str, Any], offer: ServiceAccess) -> Wanted:
    model = offer.model
    provider = {"displayName": "openclaw-rl", "apiKey": offer.key, "apiBase": f"{offer.url}/v1"}
    preset = {
        "model": model["id"],
        "provider": PROVIDER,
        "maxTokens": model["maxTokens"],
        "temperature": 1.0,  # as the policy is trained; nanobot's own default is nearly greedy
    }
    if "contextWindow" in model:
        preset["contextWindowTokens"] = model["contextWindow"]
    presets = _spelled("modelPresets", config)
    active = _spelled("modelPreset", _get(config, "agents", "defaults"))
    wanted = Wanted()
    _add_entry(wanted, config, ("providers", PROVIDER), provider, keep=("displayName",))
    _add_entry(wanted, config, (presets, PROVIDER), preset)
    wanted.values["agents", "defaults", active] = PROVIDER
    return wanted


def _claude_code(config: Mapping[str, Any], offer: ServiceAccess) -> Wanted:
    """The variables that Claude Code sets for itself. It knows the limits of its own models only, so the policy is
    named, with its context.
    """
    values = {"ANTHROPIC_BASE_URL": offer.url, "ANTHROPIC_AUTH_TOKEN": offer.key, "ANTHROPIC_MODEL": offer.model["id"]}
    if "contextWindow" in offer.model:
        values["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(offer.model["contextWindow"])
    wanted = Wanted(values={("env", name): value for name, value in values.items()})
    if _get(config, "model"):
        wanted.notes.append("ANTHROPIC_MODEL is used instead of the model of this file")
    return wanted


def _opencode(config: Mapping[str, Any], offer: ServiceAccess) -> Wanted:
    model = offer.model
    entry: dict[str, Any] = {"name": model["name"]}
    if "contextWindow" in model:
        entry["limit"] = {"context": model["contextWindow"], "output": model["maxTokens"]}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "openclaw-rl",
        "options": {"baseURL": f"{offer.url}/v1", "apiKey": offer.key},
        "models": {model["id"]: entry},
    }
    wanted = Wanted()
    _add_entry(wanted, config, ("provider", PROVIDER), provider, keep=("name",))
    wanted.values["model",] = f"{PROVIDER}/{model['id']}"
    return wanted


def _opencode_file(environ: Mapping[str, str]) -> Path:
    if environ.get("OPENCODE_CONFIG"):
        return Path(environ["OPENCODE_CONFIG"])
    folder = Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "opencode"
    files = [folder / name for name in ("opencode.jsonc", "opencode.json", "config.json")]
    return next(filter(os.path.exists, files), folder / "opencode.json")


def _qwen_code(config: Mapping[str, Any], offer: ServiceAccess) -> Wanted:
    """The OpenAI-compatible connection and its model."""
    auth = ("security", "auth")
    values: dict[Place, Any] = {
        (*auth, "selectedType"): "openai",
        (*auth, "baseUrl"): f"{offer.url}/v1",
        (*auth, "apiKey"): offer.key,
        ("model", "name"): offer.model["id"],
    }
    if "contextWindow" in offer.model:
        values["model", "generationConfig", "contextWindowSize"] = offer.model["contextWindow"]
    return Wanted(values=values)


def _cline(config: Mapping[str, Any], offer: ServiceAccess) -> Wanted:
    """The OpenAI-compatible provider of its command line. It ignores a file without the version and a time."""
    entry = ("providers", "openai-compatible")
    settings = {
        "provider": "openai-compatible",
        "baseUrl": f"{offer.url}/v1",
        "apiKey": offer.key,
        "model": offer.model["id"],
    }
    if "contextWindow" in offer.model:
        settings["contextWindow"] = offer.model["contextWindow"]
    wanted = Wanted(values={("version",): 1, ("lastUsedProvider",): "openai-compatible"})
    _add_entry(wanted, config, (*entry, "settings"), settings)
    if not _get(config, *entry, "updatedAt"):
        wanted.values[*entry, "updatedAt"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted.notes.append(
        'the editor extension: choose the API provider "OpenAI Compatible" in its settings, and enter the base URL '
        f"{offer.url}/v1, the key, the model ID {offer.model['id']} and its context window"
    )
    return wanted


def _cline_file(environ: Mapping[str, str]) -> Path:
    if environ.get("CLINE_PROVIDER_SETTINGS_PATH"):
        return Path(environ["CLINE_PROVIDER_SETTINGS_PATH"])
    data = Path(environ.get("CLINE_DATA_DIR") or Path(environ.get("CLINE_DIR") or "~/.cline") / "data")
    return data / "settings" / "providers.json"


def _add_entry(
    wanted: Wanted, config: Mapping[str, Any], place: Place, entry: Mapping[str, Any], *, keep: Sequence[str] = ()
) -> None:
    """Want the whole entry where there is none, else its keys one by one: other keys stay, so do those of `keep` that
    are set, and an API key that refers to a secret (with a note).
    """
    there = _get(config, *place)
    if there is None:
        wanted.values[place] = dict(entry)
        return
    own = there if isinstance(there, Mapping) else {}
    for name, value in entry.items():
        spelled = _spelled(name, own)
        key = own.get(spelled)
        refers = isinstance(key, Mapping) or (isinstance(key, str) and _REFERENCE.fullmatch(key.strip()))
        if name == "apiKey" and refers:
            wanted.notes.append(
                f"{'.'.join((*place, spelled))} names a secret kept elsewhere and stays: it must be the service's key, "
                "which openclaw-rl connect without a name shows"
            )
        elif name not in keep or spelled not in own:
            wanted.values[(*place, spelled)] = value


def _spelled(name: str, there: Any) -> str:
    """The name as the file spells it: nanobot reads model_preset as it reads modelPreset."""
    snake = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
    return snake if isinstance(there, Mapping) and snake in there and name not in there else name


def _is_include(value: Any) -> bool:
    return isinstance(value, Mapping) and "$include" in value


def _get(config: Mapping[str, Any], *place: str) -> Any:
    here: Any = config
    for name in place:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def _list(config: Mapping[str, Any], *place: str) -> list[Any]:
    """The list at a place, empty where there is none or it is included. Raises `ConfigError` for anything else."""
    found = _get(config, *place)
    if found is None or _is_include(found):
        return []
    if not isinstance(found, list):
        raise ConfigError(
            f"{'.'.join(place)} is no list but {shorten(found, 20)}; mend or remove it first, nothing was changed"
        )
    return found


def _again(program: str, note: str = "") -> str:
    return f"Start {program} again and talk to it as always.{note}"


CLIENTS = {
    "openclaw": Client(
        file=_openclaw_file,
        wanted=_openclaw,
        afterwards="A running gateway rereads the file. Talk to it as always.",
    ),
    "nanobot": Client(
        file=lambda environ: Path("~/.nanobot/config.json"),
        wanted=_nanobot,
        afterwards=_again("nanobot (nanobot agent, nanobot gateway)"),
    ),
    "claude-code": Client(
        file=lambda environ: Path(environ.get("CLAUDE_CONFIG_DIR") or "~/.claude") / "settings.json",
        wanted=_claude_code,
        afterwards=_again("claude"),
    ),
    "opencode": Client(file=_opencode_file, wanted=_opencode, afterwards=_again("opencode")),
    "qwen-code": Client(
        file=lambda environ: Path("~/.qwen/settings.json"),
        wanted=_qwen_code,
        afterwards=_again("qwen", " Variables OPENAI_… in its environment come first."),
    ),
    "cline": Client(file=_cline_file, wanted=_cline, afterwards=_again("cline")),
}
