"""Other names by which clients may ask for the policy: the setting `model_aliases`.

Many programs ask for models by names of their own (`claude-haiku-…`, `gpt-4o`) that cannot, or not all, be configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

SETTING = "model_aliases"
LONGEST = 200
"""Characters of a name that an alias can stand for."""


class ModelAlias(NamedTuple):
    """`pattern` is a name, in which each `*` stands for any characters; `version` is `None` for the live one."""

    pattern: str
    version: int | None


def parse_aliases(text: str, model_name: str) -> tuple[ModelAlias, ...]:
    """The aliases in `NAME=POLICY, NAME=POLICY@N`. Raises `ValueError` that says which is wrong, and how."""
    aliases: list[ModelAlias] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        pattern, equals, target = (part.strip() for part in entry.partition("="))
        if not equals or not pattern or not target:
            raise ValueError(f"{entry!r} is no alias; write NAME={model_name}, with * for any characters of a name")
        if len(pattern) > LONGEST or any(character.isspace() or not character.isprintable() for character in pattern):
            raise ValueError(f"{pattern[:80]!r} is no model name: it has blanks, or more than {LONGEST} characters")
        if pattern.partition("@")[0] == model_name:
            raise ValueError(f"{pattern!r} is the policy's own name (model_name) already")
        if any(alias.pattern == pattern for alias in aliases):
            raise ValueError(f"{pattern!r} is there twice")
        base, at, number = target.partition("@")
        if base != model_name or (at and not is_version(number)):
            raise ValueError(
                f"{pattern!r} stands for {target!r}, which is not served; it can stand for {model_name!r} (the live "
                f"version) or {model_name + '@N'!r}"
            )
        aliases.append(ModelAlias(pattern, int(number) if at else None))
    return tuple(aliases)


def from_table(table: Mapping[str, Any]) -> str:
    """A TOML table of names as the setting's text. Raises `ValueError`."""
    for pattern, target in table.items():
        if not isinstance(target, str) or "," in pattern + target or "=" in pattern:
            raise ValueError(f'{pattern!r} must be a name, and its value another: "claude-*" = "policy"')
    return ", ".join(f"{pattern}={target}" for pattern, target in table.items())


def is_version(number: str) -> bool:
    """True for the number of a version, as it stands behind the @."""
    return number.isascii() and number.isdigit() and len(number) <= 9
