"""The names of other systems that are understood in place of ours, in their users' variables, flags and files.

`aliases.toml` is the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError

SECRETS = frozenset({"api_key", "model_keys", "tinker_api_key", "fireworks_api_key"})

METHODS = {"rl": "binary", "grpo": "binary", "combine": "combined", "sdft": "topk", "sdpo": "topk"}
"""Other names of learning methods."""


def method(name: object) -> str:
    """A learning method by our own name for it, whatever case and alias it was written in."""
    lower = str(name).lower()
    return METHODS.get(lower, lower)


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


_READERS = {reader.__name__: reader for reader in (switch, in_samples, debug, level)}


class Alias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names that mean the same, see `aliases.toml`."""

    settings: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    read: Literal["", "switch", "in_samples", "debug", "level"] = ""
    instead: str = ""
    quiet: bool = False


class _Table(msgspec.Struct, frozen=True):
    aliases: tuple[Alias, ...]


ALIASES = msgspec.toml.decode(Path(__file__).with_name("aliases.toml").read_bytes(), type=_Table).aliases


class Use(msgspec.Struct, frozen=True):
    """An alias in use: its name and value as written, the place, and its entry in the table."""

    name: str
    value: str
    where: str
    alias: Alias

    @property
    def meaning(self) -> str:
        """The value in our terms."""
        return _READERS[self.alias.read](self.value) if self.alias.read else self.value

    @property
    def line(self) -> str:
        """The message for an alias that has no counterpart."""
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
    """The use that decides each setting: the last one, unless our own name is set (`ours`).

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
