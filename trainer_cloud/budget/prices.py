"""Prices of tokens at providers: the table that ships (`prices.toml`), and the user's own over it."""

from __future__ import annotations

import datetime
import functools
import operator
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_cloud.budget.ledger import Kind

SHIPPED = Path(__file__).with_name("prices.toml")
PROVIDERS = ("tinker", "fireworks")
PRICED: tuple[Kind, ...] = ("prefill", "sample", "train")
_MILLION = 1_000_000
_FIELDS = (
    "a model has prefill, sample, train and cached in dollars for a million tokens, such as 0.44, as_of, a date such "
    "as 2026-05-01 without quotes, and the texts source and note"
)

_Dollars = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars for a million tokens of each kind, `None` where it is not known; since when, and by which source.
    `cached` is for tokens of prompts that the provider had in its cache; unknown, they cost what `prefill` does.
    """

    prefill: _Dollars | None = None
    cached: _Dollars | None = None
    sample: _Dollars | None = None
    train: _Dollars | None = None
    as_of: datetime.date | None = None
    source: str = ""
    note: str = ""


class Cost(msgspec.Struct, frozen=True):
    """Dollars of what has a known price, and the kinds of tokens that have none."""

    dollars: float
    unknown: tuple[Kind, ...] = ()


def cost(price: Price | None, amounts: Mapping[Kind, float]) -> Cost:
    """The cost of tokens of each kind; steps cost nothing by themselves."""
    dollars = 0.0
    unknown: list[Kind] = []
    rates: dict[Kind, float | None] = {kind: getattr(price, kind, None) for kind in PRICED}
    rates["cached"] = rates["prefill"] if price is None or price.cached is None else price.cached
    for kind, rate in rates.items():
        tokens = amounts.get(kind, 0)
        if rate is None:
            unknown += [kind] if tokens else []
        else:
            dollars += rate * tokens / _MILLION
    return Cost(dollars, tuple(unknown))


class Prices:
    """Prices by provider and model."""

    def __init__(self, entries: Mapping[tuple[str, str], Price], notes: Mapping[str, str]) -> None:
        self._entries = dict(entries)
        self.notes = dict(notes)

    @classmethod
    def load(cls, own: str = "") -> Prices:
        """The shipped table, with the models of the file `own` in place of its own. Raises `ConfigError` naming file,
        line and field.
        """
        entries, notes = _read(SHIPPED, "the price table that ships")
        if own:
            more, said = _read(Path(own).expanduser(), f"cloud_prices = {own!r}")
            entries, notes = {**entries, **more}, {**notes, **said}
        return cls(entries, notes)

    def for_model(self, provider: str, model: str) -> Price | None:
        """The price of a model, `None` where it is not known."""
        return self._entries.get((provider, model))


def _read(path: Path, name: str) -> tuple[dict[tuple[str, str], Price], dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # TOML (it says the line itself), or bytes that are no UTF-8
        raise ConfigError(f"{name} is no TOML: {error}") from error
    entries: dict[tuple[str, str], Price] = {}
    notes: dict[str, str] = {}
    for provider, models in content.items():
        if provider not in PROVIDERS or not isinstance(models, dict):
            raise ConfigError(
                f"{name}{_line(text, [provider])}: {provider!r} is no table of a provider; models are in tables such "
                f'as [tinker."Qwen/Qwen3-8B"], and providers are {" and ".join(PROVIDERS)}'
            )
        for model, fields in models.items():
            if model == "note" and isinstance(fields, str):
                notes[provider] = fields
            elif isinstance(fields, dict):
                entries[provider, model] = _price(fields, text, [provider, model], name)
            else:
                place = f"{name}{_line(text, [provider, model])}: {provider}.{model}"
                raise ConfigError(f'{place} is no table; a model is one: [{provider}."{model}"]')
    return entries, notes


def _price(fields: Mapping[str, Any], text: str, path: list[str], name: str) -> Price:
    try:
        price = msgspec.convert(fields, Price)
    except msgspec.ValidationError as error:
        named = re.search(r"`(?:\$\.)?([^`]*)`\Z", str(error))  # the field at fault, or the one that is unknown
        field = named[1] if named else ""
        where = f"{name}{_line(text, [*path, field])}: {'.'.join(path)}: {field} = {fields.get(field)!r}"
        raise ConfigError(f"{where}: {error}; {_FIELDS}") from error
    if all(getattr(price, kind) is None for kind in PRICED):
        raise ConfigError(f"{name}{_line(text, path)}: {'.'.join(path)} says no price; {_FIELDS}")
    return price


def _line(text: str, path: list[str]) -> str:
    """The line that a table, or a field in it, ends on, as `, line 3`; "" where it cannot be found."""
    lines = text.splitlines()
    for number in range(1, len(lines) + 1):
        try:
            functools.reduce(operator.getitem, path, tomllib.loads("\n".join(lines[:number])))
            return f", line {number}"
        except (tomllib.TOMLDecodeError, KeyError, TypeError):
            continue  # a piece of something longer, or it comes later
    return ""
