"""Sources of settings, weakest first: default, alias (wherever it stands), file, environment, flag.

Names that users of other systems have in their scripts are mapped in `shared.settings.aliases`. The file is
`openclaw-rl.toml`, or one in TOML, YAML or JSON that is named, another system's tables in it included.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.process import LISTENERS_VARIABLE, PARENT_VARIABLE
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.method_defaults import method_defaults
from openclaw_rl.shared.settings.model_aliases import SETTING as MODEL_ALIASES
from openclaw_rl.shared.settings.model_aliases import from_table
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE, default_model
from openclaw_rl.shared.settings.presets import preset_values
from openclaw_rl.shared.settings.settings import PREFIX, SETTINGS, Settings, flag_of, flatten, preset_of
from openclaw_rl.shared.settings.turn_rules import SETTING as TURN_RULES

FILE = "openclaw-rl.toml"
FILE_VARIABLE = "OPENCLAW_RL_CONFIG"
_NO_SETTINGS = {FILE_VARIABLE, PARENT_VARIABLE, LISTENERS_VARIABLE, CACHE_VARIABLE}
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
    switches |= {
        name for use in aliases.ALIASES if use.read in ("switch", "majority") for name in aliases.flags_of(use)
    }
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
    folder. If nothing names a `model`, a policy on this machine is `default_model`. Raises `ConfigError` naming
    setting, value and source when a value is out of bounds, a name is unknown, two aliases disagree, or a flag or key
    of the file is an alias without a counterpart.
    """
    said = _read_all(flags, os.environ if environ is None else environ, file)
    for use in said.uses:
        if use.is_error:
            raise ConfigError(use.line)
    own = dict(said.own)
    uses = aliases.resolve(said.uses, frozenset(own))
    own.update({setting: (use.meaning, f"{use.name} (alias)") for setting, use in uses.items()})
    method = aliases.method(own["method"][0] if "method" in own else SETTINGS["method"].field.default)
    sources = dict.fromkeys(SETTINGS, "default") | dict.fromkeys(method_defaults(method), f"default of {method}")
    sources |= {name: source for name, (_, source) in own.items()}
    chosen = {name: value for name, (value, _) in own.items()}
    try:
        settings = Settings(**chosen)
        if "model" not in own and not settings.engine.is_cloud:
            chosen["model"] = str(default_model(settings.serve.data).path)
            settings = Settings(**chosen)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(error, sources))) from error
    preset = preset_of(chosen)
    if preset is not None:
        sized = preset_values(preset, method, settings.engine.model).keys() & SETTINGS.keys() - own.keys()
        sources |= dict.fromkeys(sized, f"preset for a {preset.name}")
    return settings, sources


def notes(
    flags: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    quiet: bool = False,
) -> list[str]:
    """One line for each name of another system that `load` accepts and that sets nothing; with `quiet` also those that
    only `doctor` mentions. Raises `ConfigError` as `load` does.
    """
    uses = _read_all(flags, os.environ if environ is None else environ, file).uses
    nothing = (use for use in uses if use.alias.instead and not use.is_error)
    return [use.line for use in nothing if quiet or not (use.alias.quiet or use.holds)]


class _Said(NamedTuple):
    """Our settings as written, with value and source, and aliases in the order of their places."""

    own: dict[str, tuple[Any, str]]
    uses: list[aliases.Use]


def _read_all(flags: Mapping[str, str] | None, environ: Mapping[str, str], file: Path | None) -> _Said:
    flags = dict(flags or {})
    named = flags.pop("config", "") or environ.get(FILE_VARIABLE, "")
    path = file or Path(named or FILE)
    keys = _read(path, required=bool(named) or file is not None)
    in_file = aliases.in_file(keys)
    written = {use.name for use in in_file}
    own: dict[str, tuple[Any, str]] = {}
    for name, value in keys.items():
        setting = name.rpartition(".")[2]
        if name in written:
            continue
        if setting in own and own[setting][0] != value:
            raise ConfigError(f"{path}: {setting} is there twice, as {own[setting][0]!r} and as {value!r}")
        own[setting] = (value, path.name)
    own.update(_own_variables(environ))
    own.update({BY_FLAG[flag]: (value, f"--{flag}") for flag, value in flags.items() if flag in BY_FLAG})
    return _Said(own, [*aliases.in_environment(environ), *_in_arguments(environ), *in_file, *aliases.in_flags(flags)])


def _in_arguments(environ: Mapping[str, str]) -> Iterator[aliases.Use]:
    """The flags in variables such as `OPTIMIZER_ARGS`. Our own flags there are no stronger than aliases, since the
    variable is another system's.
    """
    for variable in filter(environ.get, aliases.ARGUMENTS):
        try:
            # A shell joins continued lines; files of variables keep the backslash.
            flags = parse_flags(shlex.split(environ[variable].replace("\\\n", " ")))
        except (ValueError, ConfigError) as error:
            raise ConfigError(f"{variable}: {error}; change {variable}, or unset it") from error
        if "config" in flags:
            raise ConfigError(f"{variable}: --config names our file on the command line only; or set {FILE_VARIABLE}")
        yield from aliases.in_flags(flags, variable)
        for flag, value in flags.items():
            if flag in BY_FLAG:
                yield aliases.Use(
                    f"{variable} --{flag}", value, "environment", aliases.Alias(settings=(BY_FLAG[flag],))
                )


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    """The keys of the file, each a setting or an alias: tables of groups are opened, and keys in other systems' tables
    have the table before them.
    """
    try:
        content = _parse(path)
    except FileNotFoundError as error:
        if required:
            raise ConfigError(f"{path}: no such file; name another with --config ({FILE_VARIABLE})") from error
        return {}
    except (OSError, ValueError, RecursionError) as error:
        form = _FORMS.get(path.suffix.lower(), "TOML")
        raise ConfigError(f"{path} cannot be read as {form}: {error}") from error
    others = {key: value for key, value in content.items() if key in aliases.TABLES and isinstance(value, Mapping)}
    keys = flatten({key: value for key, value in content.items() if key not in others and value is not None})
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
        elif isinstance(value, dict | list) and key not in known - SETTINGS.keys():
            raise ConfigError(f"{path}: {key} holds a table or a list; write one value: {key} = …")
    return keys | dict(_others(path, others))


def _others(path: Path, content: Mapping[Any, Any], table: str = "") -> Iterator[tuple[str, Any]]:
    """The keys in other systems' tables, with the tables before them."""
    named = {name for alias in aliases.ALIASES for name in alias.tables}
    known = SETTINGS.keys() | {key for alias in aliases.ALIASES for key in alias.keys}
    for key, value in content.items():
        name = f"{table}{key}"
        if name in named or (table and key in known and not isinstance(value, Mapping | list)):
            if value is not None:
                yield name, value
        elif isinstance(value, Mapping) and (not table or any(one.startswith(f"{name}.") for one in named)):
            yield from _others(path, value, f"{name}.")
        else:
            here = {one.removeprefix(table) for one in named if one.startswith(table)} | known
            raise ConfigError(f"{path}: {name!r} {_unknown(str(key), here)}; openclaw-rl doctor lists them all")


_FORMS = {".yaml": "YAML", ".yml": "YAML", ".json": "JSON"}


def _parse(path: Path) -> Mapping[str, Any]:
    """The content of a file by the format that its name says. Raises `OSError` and `ValueError`."""
    text = path.read_text("utf-8")
    form = _FORMS.get(path.suffix.lower(), "TOML")
    if form == "TOML":
        return tomllib.loads(text)
    if form == "JSON":
        content = json.loads(text, object_pairs_hook=_unique)
    else:
        from openclaw_rl.shared.settings.yaml_file import parse_yaml  # few have such a file

        content = parse_yaml(text)
    if not isinstance(content, Mapping | None):
        raise ValueError(f"it holds a {type(content).__name__}, not names with values")
    return {str(key): value for key, value in (content or {}).items()}


def _unique(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        found[key] = value
    return found


def _own_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable in _NO_SETTINGS or not value:
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
        yield aliases.without_passwords(f"{name} = {value} (from {sources.get(name, 'default')}): {what}")
