"""Sources of settings, weakest first: default, alias (wherever it stands), `openclaw-rl.toml`, environment, flag.

Names that users of other systems have in their scripts are mapped in `shared.settings.aliases`.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.process import PARENT_VARIABLE
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.cloud import cloud_defaults
from openclaw_rl.shared.settings.method_defaults import method_defaults
from openclaw_rl.shared.settings.model_aliases import SETTING as MODEL_ALIASES
from openclaw_rl.shared.settings.model_aliases import from_table
from openclaw_rl.shared.settings.settings import PREFIX, SETTINGS, Settings, flag_of, flatten
from openclaw_rl.shared.settings.turn_rules import SETTING as TURN_RULES

FILE = "openclaw-rl.toml"
FILE_VARIABLE = "OPENCLAW_RL_CONFIG"
REMOVED = Path(__file__).with_name("removed.toml")
BY_FLAG = {flag_of(name): name for name in SETTINGS}


def parse_flags(arguments: Sequence[str]) -> dict[str, str]:
    """`--name value`, `--name=value`, `--switch` and `--no-switch` as names and values; the last of several counts.

    Raises `ConfigError` for a name that neither we nor the aliases know, and for a flag that lacks its value.
    """
    known = BY_FLAG.keys() | aliases.flag_names() | {"config"}
    types = {flag: SETTINGS[name].field.annotation for flag, name in BY_FLAG.items()}
    switches = {flag for flag, kind in types.items() if kind is bool or bool in get_args(kind)}
    automatic = {flag for flag in switches if types[flag] is not bool}
    switches |= {name for use in aliases.ALIASES if use.read == "switch" for name in use.flags}
    flags: dict[str, str] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise ConfigError(f"{word!r} is no flag; settings are written --name value")
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if not equals and name.startswith("no-") and name[3:] in switches:
            name, value = name[3:], "false"
        elif not equals:
            takes_next = bool(words) and not words[0].startswith("--")
            said = words[0] if takes_next else ""
            chosen = aliases.switch(said) in {"true", "false"} or (said == "auto" and name in automatic)
            if name in switches and not (takes_next and chosen):
                value = "true"
            elif takes_next:
                value = words.pop(0)
            elif name in known - aliases.flag_names(counterpart=False):
                raise ConfigError(f"--{name} needs a value")
        if name not in known:
            raise ConfigError(f"--{name} {_unknown(name, known)}; openclaw-rl doctor lists them all")
        flags[name] = value
    return flags


def load(
    flags: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> tuple[Settings, dict[str, str]]:
    """The settings, and for each the place that decided it (`default` or the name as written there).

    `flags` as `parse_flags` gives them; `file` defaults to OPENCLAW_RL_CONFIG, then to `openclaw-rl.toml` in this
    folder. Raises `ConfigError` naming setting, value and source when a value is out of bounds, a name is unknown, two
    aliases disagree, or a flag or key of the file is an alias without a counterpart.
    """
    flags = dict(flags or {})
    environ = os.environ if environ is None else environ
    named = flags.pop("config", "") or environ.get(FILE_VARIABLE, "")
    path = file or Path(named or FILE)
    keys = _read(path, required=bool(named) or file is not None)
    own: dict[str, tuple[Any, str]] = {}
    file_uses, flag_uses = aliases.in_file(keys), aliases.in_flags(flags)
    for use in (*file_uses, *flag_uses):
        if use.alias.instead:
            raise ConfigError(use.line)
    alias_keys = {use.name for use in file_uses}
    own.update({name: (value, path.name) for name, value in keys.items() if name not in alias_keys})
    own.update(_own_variables(environ))
    own.update({BY_FLAG[flag]: (value, f"--{flag}") for flag, value in flags.items() if flag in BY_FLAG})
    uses = aliases.resolve([*aliases.in_environment(environ), *file_uses, *flag_uses], frozenset(own))
    own.update({setting: (use.meaning, f"{use.name} (alias)") for setting, use in uses.items()})
    method = aliases.method(own["method"][0] if "method" in own else SETTINGS["method"].field.default)
    backend = own["backend"][0] if "backend" in own else SETTINGS["backend"].field.default
    sources = dict.fromkeys(SETTINGS, "default") | dict.fromkeys(method_defaults(method), f"default of {method}")
    sources |= dict.fromkeys(cloud_defaults(backend, method), f"default of {backend}")
    sources |= {name: source for name, (_, source) in own.items()}
    try:
        return Settings(**{name: value for name, (value, _) in own.items()}), sources
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(error, sources))) from error


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    """The keys of the file, those of groups' tables included, every one a setting or an alias."""
    try:
        keys = flatten(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError as error:
        if required:
            raise ConfigError(f"{path}: no such file; name another with --config ({FILE_VARIABLE})") from error
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    known = SETTINGS.keys() | {key for alias in aliases.ALIASES for key in alias.keys}
    for key, value in keys.items():
        if key not in known:
            raise ConfigError(f"{path}: {key!r} {_unknown(key, known)}; openclaw-rl doctor lists them all")
        if key == TURN_RULES and isinstance(value, list):
            keys[key] = json.dumps(value, ensure_ascii=False, default=str)
        elif key in (MODEL_ALIASES, "model_keys") and isinstance(value, dict):
            try:
                keys[key] = from_table(value)
            except ValueError as error:
                raise ConfigError(f"{path}: {key}: {error}") from error
        elif isinstance(value, dict | list):
            raise ConfigError(f"{path}: {key} holds a table or a list; write one value: {key} = …")
    return keys


def _own_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable in {FILE_VARIABLE, PARENT_VARIABLE} or not value:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in SETTINGS:
            raise ConfigError(f"{variable} {_unknown(name, SETTINGS, upper=True)}; unset it")
        yield name, (value, variable)


def _unknown(name: str, known: Collection[str], *, upper: bool = False) -> str:
    """The reason why a name is no setting: it was removed, or is misspelt."""
    removed = tomllib.loads(REMOVED.read_text("utf-8"))
    words = name.replace("-", "_")  # a table may leave the name of its group out, as for settings that exist
    instead = removed.get(words.rpartition(".")[2]) or removed.get(words.replace(".", "_"))
    if instead:
        return f"is no setting any more: {instead}"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return "is no setting" + (f" (did you mean {PREFIX + close[0].upper() if upper else close[0]}?)" if close else "")


def _explain(error: ValidationError, sources: Mapping[str, str]) -> Iterator[str]:
    for problem in error.errors():
        name = next((str(part) for part in reversed(problem["loc"]) if part in SETTINGS), "settings")
        value = "(hidden)" if name in aliases.SECRETS else repr(str(problem["input"]))
        what = problem["msg"].removeprefix("Value error, ")
        yield f"{name} = {value} (from {sources.get(name, 'default')}): {what}"
