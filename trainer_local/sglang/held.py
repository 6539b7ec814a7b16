"""How an engine holds versions of the policy, and how a request says which one it wants: our own engines know numbers
(`OurVersions`), a plain SGLang holds adapters beside each other (`sglang_adapters`) or one set of weights
(`sglang_whole`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang import wire
from openclaw_rl.trainer_local.sglang.adapters import LOAD_SECONDS, Adapters
from openclaw_rl.trainer_local.sglang.full_weights import Whole, chosen
from openclaw_rl.trainer_local.sglang.workers import Workers


class Keeping(msgspec.Struct, frozen=True):
    """What an engine that does not know of versions has to be told by its client: the base's folder ("": the one it
    says it serves), where version N lies at `N/served`, how many versions it keeps in memory, the setting
    `weight_transfer`, and whether the trainer works on the same GPUs.
    """

    base: str = ""
    checkpoints: Path | None = None
    most: int = 4
    transfer: str = "auto"
    colocated: bool = False


class Held(Protocol):
    """The versions of one engine. Methods raise `EngineError`."""

    @property
    def beside(self) -> bool:
        """Whether there can be several at a time."""
        ...

    @property
    def transfer(self) -> str:
        """How new weights get there."""
        ...

    @property
    def trouble(self) -> str:
        """What is wrong with the weights, "" if nothing is."""
        ...

    async def told(self) -> tuple[int, Sequence[int]]:
        """The live version and all there are."""
        ...

    async def address(self, request: dict[str, Any], version: int | None) -> int | None:
        """Say in a request which version is wanted, `None` being the live one. Returns its number where the engine
        will not say it. 404 for one that cannot be had.
        """
        ...

    def doubt(self) -> None:
        """A request found that its version is not there: what is known of the engine is out of date."""
        ...

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """See `shared.engine.protocol.Engine.load`."""
        ...

    async def close(self) -> None:
        """End what goes on in the background."""
        ...


class OurVersions:
    """The versions of an engine of ours (`shared.engine.server`), which keeps them itself."""

    beside = True
    transfer = ""
    trouble = ""

    def __init__(self, workers: Workers) -> None:
        self._engine = workers.front

    async def told(self) -> tuple[int, Sequence[int]]:
        """See `Held.told`."""
        facts = await self._engine.get("/model_info")
        return int(facts["live"]), list(facts["versions"])

    async def address(self, request: dict[str, Any], version: int | None) -> int | None:
        """See `Held.address`."""
        if version is not None:
            request["weight_version"] = str(version)
        return None

    def doubt(self) -> None:
        """See `Held.doubt`."""

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """See `Held.load`."""
        body = msgspec.json.encode({"model_path": path, "weight_version": str(version), "live": live})
        status, raw = await self._engine.post("/update_weights_from_disk", body, LOAD_SECONDS)
        result = wire.decoded(raw, wire.UpdateResult)
        if status != 200 or result is None or not result.success:
            reason = result.message if result is not None and result.message else wire.message(raw)
            raise EngineError(
                f"the engine at {self._engine.url} did not load {path} as version {version}: {reason}", status=status
            )

    async def close(self) -> None:
        """See `Held.close`."""


def holding(server: Mapping[str, Any], workers: Workers, keeping: Keeping, before: Held | None) -> Held:
    """How a plain SGLang with this `/server_info` holds versions; `before` if that is how it did."""
    if server.get("enable_lora"):
        if isinstance(before, Adapters):
            return before
        return Adapters(workers, keeping.base or str(server["model_path"]), keeping.checkpoints, keeping.most - 1)
    if isinstance(before, Whole):
        return before
    how = chosen(keeping.transfer, server, colocated=keeping.colocated)
    return Whole(workers, server, keeping.base or str(server["model_path"]), keeping.checkpoints, how)
