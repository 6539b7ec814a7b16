"""One thing that `doctor` looked at."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from openclaw_rl.shared.errors import ConfigError


class Check(msgspec.Struct, frozen=True):
    """`ok` is False where the service would not work, None where it is worth knowing."""

    name: str
    ok: bool | None
    message: str

    @classmethod
    def attempt(cls, name: str, describe: Callable[[], str]) -> Check:
        """ok with this description, or bad with the `ConfigError` in place of one."""
        try:
            return cls(name, True, describe())
        except ConfigError as error:
            return cls(name, False, str(error))
