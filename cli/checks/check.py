"""One thing that `doctor` looked at."""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct, frozen=True):
    """`ok` is False where the service would not work, None where it is worth knowing."""

    name: str
    ok: bool | None
    message: str
