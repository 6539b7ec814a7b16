"""The base of the groups of settings, and types that several groups use."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from openclaw_rl.shared.trainer import Recipe


class Group(BaseModel):
    """Settings of one part of the service. A field's alias is its flat name, where that is another (`engine.url` is
    `engine_url` in files, variables and flags).
    """

    model_config = Recipe.model_config


def _url(value: str) -> str:
    if value and not re.match(r"https?://[^/\s]+", value):
        raise ValueError("not a URL; it begins with http:// or https://")
    return value.rstrip("/")


def _address(value: str) -> str:
    if not value or "/" in value or any(character.isspace() for character in value):
        raise ValueError("not an address; 127.0.0.1 serves this machine, 0.0.0.0 the network")
    return value


def _key(value: str) -> str:
    if not value.isascii() or any(character.isspace() for character in value):
        raise ValueError("a key is ASCII without blanks, so that it fits into an HTTP header; copy it completely")
    return value


Url = Annotated[str, AfterValidator(_url)]
Address = Annotated[str, AfterValidator(_address)]
Key = Annotated[str, AfterValidator(_key)]
