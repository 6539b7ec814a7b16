"""The one set of weights of a plain SGLang without adapters, changed while chat goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import EngineError
from trainer_local import sglang_wire as wire
from trainer_local.sglang_workers import Workers

LOAD_SECONDS = 600.0


class Whole:
    """See `sglang_held.Held`."""

    beside = False
    trouble = ""
    transfer = "disk"

    def __init__(
        self, workers: Workers, server: Mapping[str, Any], base: str, checkpoints: Path | None, transfer: str
    ) -> None:
        self._workers = workers
        self.server = server
        self._base = base
        self._checkpoints = checkpoints
        self._wanted = transfer

    async def told(self) -> tuple[int, Sequence[int]]:
        """See `Held.told`."""
        labels = await self._workers.labels()
        live = wire.number(labels[0]) if set(labels) == {labels[0]} else -1
        return live, [live] if live >= 0 else []

    async def address(self, request: dict[str, Any], version: int | None) -> int | None:
        """See `Held.address`."""
        if version is not None and version != wire.number(await self._workers.label()):
            raise EngineError(
                f"the engine at {self._workers.front.url} serves its live version only, not {version}", status=404
            )
        return None

    def doubt(self) -> None:
        """See `Held.doubt`."""

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """See `Held.load`."""
        if not live:
            raise EngineError(
                f"the engine at {self._workers.front.url} holds one version: it cannot load {version} beside it",
                status=400,
            )
        # The cache can only be emptied of what the old weights computed while nothing runs.
        await self._workers.every("/pause_generation", {"mode": "retract"})
        try:
            fields = {"model_path": path, "weight_version": str(version)}
            await self._workers.every("/update_weights_from_disk", fields, LOAD_SECONDS)
        except EngineError as error:
            raise EngineError(
                f"the engine at {self._workers.front.url} did not load {path} as version {version}: {error}",
                status=error.status,
            ) from error
        finally:
            await self._workers.every("/continue_generation", {})
            self._workers.know("")

    async def close(self) -> None:
        """See `Held.close`."""
