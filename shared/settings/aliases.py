"""The names of other systems that are understood in place of ours, in their users' variables, flags and files.

`aliases.toml` is the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.method_defaults import METHODS as METHOD_NAMES

SECRETS = frozenset({"admin_key", "api_key", "model_keys", "tinker_api_key", "fireworks_api_key"})
_PASSWORD = re.compile(r"://[^\s/?#@]{1,1000}@")

_GROUPS = "CKPT ROLLOUT REWARD OPTIMIZER LORA GRPO OPD COMBINE PERF PRM CUSTOM SGLANG MISC EVAL WANDB"
ARGUMENTS = tuple(f"{group}_ARGS" for group in _GROUPS.split())
"""Variables that hold flags."""

TABLES = ("model", "training", "rollout", "evaluation", "rollout_config")
"""Tables of other systems' configuration files."""

METHODS = {"rl": "binary", "grpo": "binary", "combine": "combined", "sdft": "topk"}
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


def majority(text: str) -> str:
    """Votes for a majority, where their number is not given; without a majority one vote decides."""
    return {"true": "3", "false": "1"}.get(switch(text), text)


def method_name(text: str) -> str:
    """`METHOD`: a method by one of its names; any other word is of another program and sets nothing."""
    return text if method(text) in METHOD_NAMES else ""


def selection(text: str) -> str:
    """A hint selection by our name for it."""
    return {"sequence_optimal": "overlap-sequence", "token_optimal": "overlap-token"}.get(text, text)


def judge_path(text: str) -> str:
    """A variable for the path of a judge: a name of the Hugging Face hub is a model to serve, none of a provider."""
    is_hub_name = _HUB_NAME.fullmatch(text) is not None and not Path(text).is_dir()
    return f"engine:{text}" if is_hub_name else text


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w-]*/[\w.-]+")
_READERS = {
    reader.__name__: reader
    for reader in (switch, in_samples, debug, level, majority, selection, method_name, judge_path)
}


class Alias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names that mean the same, see `aliases.toml`."""

    settings: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    read: Literal[
        "", "switch", "in_samples", "debug", "level", "majority", "selection", "method_name", "judge_path"
    ] = ""
    holds: tuple[str, ...] = ()
    instead: str = ""
    quiet: bool = False
    first: bool = False
    second: str = ""
    next_to: tuple[str, ...] = ()
    yields: str = ""


class _Table(msgspec.Struct, frozen=True):
    aliases: tuple[Alias, ...]


ALIASES = msgspec.toml.decode(Path(__file__).with_name("aliases.toml").read_bytes(), type=_Table).aliases


class Use(msgspec.Struct, frozen=True):
    """An alias in use: its name and value as written, the kind of place, and its entry in the table."""

    name: str
    value: str
    where: Literal["environment", "flag", "file", "table"]
    alias: Alias

    @property
    def meaning(self) -> str:
        """The value in our terms."""
        return _READERS[self.alias.read](self.value) if self.alias.read else self.value

    @property
    def holds(self) -> bool:
        """True if the name asks for something that is always so here."""
        return "*" in self.alias.holds or self.meaning.strip().lower() in self.alias.holds

    @property
    def is_error(self) -> bool:
        """True if the service must not start: the name has no counterpart here, and was written for this service. In
        variables and in other systems' tables it was written for another, and is only noted.
        """
        if not self.alias.instead or self.holds:
            return False
        return self.where in ("flag", "file") or (self.where == "table" and bool(self.alias.holds))

    @property
    def line(self) -> str:
        """The message for an alias without a counterpart."""
        said = f"{self.name} = {self.value}"
        if self.holds:
            return f"{said} needs no setting here: {self.alias.instead}"
        if self.alias.holds:
            return f"{said} is not possible here: {self.alias.instead}"
        return f"{self.name} has no counterpart here: {self.alias.instead}"


_EXACT = {name for alias in ALIASES for name in alias.environment}
"""Variables with entries of their own; the variable of a key is not among them (`MAX_STEPS` and `max_steps`)."""


def in_environment(environ: Mapping[str, str]) -> list[Use]:
    """The aliases set as variables; empty ones count as unset."""
    names = (
        (name, alias)
        for alias in ALIASES
        for name in (*alias.environment, *(name for name in _spellings(alias.keys) if name not in _EXACT))
    )
    return [Use(name, environ[name], "environment", alias) for name, alias in names if environ.get(name)]


def in_flags(flags: Mapping[str, str], variable: str = "") -> list[Use]:
    """The aliases among flags (names without the leading dashes, with dashes inside) of the command line, or in a
    variable.
    """
    names = ((name, alias) for alias in ALIASES for name in flags_of(alias))
    if not variable:
        return [Use(f"--{name}", flags[name], "flag", alias) for name, alias in names if name in flags]
    return [Use(f"{variable} --{name}", flags[name], "environment", alias) for name, alias in names if name in flags]


def in_file(keys: Mapping[str, Any]) -> list[Use]:
    """The aliases among the keys of our file. Those in tables of other systems have the table before them."""
    found: list[Use] = []
    for alias in ALIASES:
        for name, value in keys.items():
            table, _, key = name.rpartition(".")
            if name in alias.tables or key in alias.keys:
                found.append(Use(name, str(value), "table" if table else "file", alias))
    return found


def flags_of(alias: Alias) -> tuple[str, ...]:
    """The flags of an alias."""
    return (*alias.flags, *(key.replace("_", "-") for key in alias.keys))


def flag_names(*, counterpart: bool | None = None) -> frozenset[str]:
    """Every flag that is an alias; with `counterpart` only those that have one, or have none."""
    return frozenset(
        name
        for alias in ALIASES
        if counterpart is None or counterpart == bool(alias.settings)
        for name in flags_of(alias)
    )


def resolve(uses: Iterable[Use], ours: frozenset[str]) -> dict[str, Use]:
    """The use that decides each setting: the last one, unless our own name is set (`ours`).

    Raises `ConfigError` naming both when two uses disagree about a setting.
    """
    chosen: dict[str, Use] = {}
    uses = [use for use in uses if use.meaning]
    for use in uses:
        for setting in _settings(use, uses, ours):
            if setting in ours or (use.meaning == use.alias.yields and _is_set(setting, use, uses)):
                continue
            other = chosen.get(setting)
            if other is not None and not _same(other.meaning, use.meaning):
                raise ConfigError(
                    f"{_shown(other, setting)} and {_shown(use, setting)} both mean {setting} and disagree; "
                    f"drop one of them, or say it by our own name: OPENCLAW_RL_{setting.upper()}"
                )
            chosen[setting] = use
    return chosen


def _settings(use: Use, uses: Sequence[Use], ours: frozenset[str]) -> tuple[str, ...]:
    """The settings that a use means next to the others: `JUDGE_MODEL_PATH` alone is the judge, next to a model for
    scores it is the model for hints.
    """
    alias = use.alias
    others = [one for one in uses if one.alias.first and not _same(one.meaning, use.meaning)]
    given = ours.difference(alias.settings).union(*(one.alias.settings for one in others))
    return (alias.second,) if alias.second and given & set(alias.next_to) else alias.settings


def _is_set(setting: str, use: Use, uses: Sequence[Use]) -> bool:
    return any(setting in one.alias.settings and one.meaning != use.alias.yields for one in uses if one is not use)


def _spellings(keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        yield key
        yield key.upper()


def _same(left: str, right: str) -> bool:
    try:
        return left == right or float(left) == float(right)
    except ValueError:
        return False


def without_passwords(text: str) -> str:
    """A text as people may see it: user names and passwords in its URLs are hidden."""
    return _PASSWORD.sub("://(hidden)@", text)


def _shown(use: Use, setting: str) -> str:
    return use.name if setting in SECRETS else without_passwords(f"{use.name} = {use.value}")
