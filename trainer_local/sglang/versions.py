"""Versions of the policy in SGLang: LoRA adapters side by side, or one set of weights.

Which version is live is the servers' `weight_version`, so that each answer carries it: an adapter's name
(`policy-v7-DIGEST`), full weights (`7.DIGEST`), `0` for the base, or SGLang's own `default` where nothing was changed.
The digest tells two checkpoints of the same number apart (one that was written again, or another run's).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.engine.answers import BROKEN, version_number
from openclaw_rl.shared.engine.client import LOAD_SECONDS
from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.backend import adapter_folder
from openclaw_rl.trainer_local.models.folder import dtype, problem, quantization
from openclaw_rl.trainer_local.sglang.servers import Servers, relabel

log = logging.getLogger(__name__)

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BASE = "0"
UNTOUCHED = "default"
"""The `weight_version` of a server that was given none."""
_ADAPTER = re.compile(r"policy-v(\d+)-[0-9a-f]+")
_FLUSH_SECONDS = 30.0
_DELIVERY_SECONDS = 0.5
"""Time for tokens that were sampled before a pause to leave SGLang, under the label that it has then."""
_PAUSE = 0.2


class VersionStore(msgspec.Struct, frozen=True):
    """The places of the policy's versions on disk: the base's folder ("": the one that SGLang reports), version N at
    `checkpoints/N/served`; and how many of them SGLang keeps in memory.
    """

    base: str = ""
    checkpoints: Path | None = None
    max_versions: int = 4

    def folder(self, version: int) -> str:
        """The folder with a version's weights, "" if there is none."""
        if version == 0:
            return self.base
        folder = self.checkpoints / str(version) / "served" if self.checkpoints else None
        return str(folder) if folder is not None and folder.is_dir() else ""


class ServerVersions(msgspec.Struct, frozen=True):
    """The versions in the servers. `live` is −1 where they do not agree, or a change broke off; `default` is the one
    that a request without a version gets meanwhile. `names` are the adapters in memory, by version (`None` if none).
    """

    live: int
    default: int
    names: dict[int, str] | None = None
    trouble: str = ""

    @property
    def versions(self) -> list[int]:
        """All versions that requests may ask for."""
        if self.names is not None:
            return sorted({0, *self.names})
        return [] if self.live < 0 else [self.live]


async def read_versions(servers: Servers, *, adapters: bool) -> ServerVersions:
    """The versions that all servers hold, as `Servers.find` saw them; `adapters`: SGLang was started for them."""
    labels = servers.labels
    default = version_number(labels[0])
    agreed = set(labels) == {labels[0]}
    if not adapters:
        broken = BROKEN in labels
        trouble = "a change of weights broke off, and the old ones could not be read again" if broken else ""
        return ServerVersions(default if agreed else -1, default, trouble=trouble)
    found = await asyncio.gather(*map(adapters_of, servers.all))
    loaded = [name for name in found[0] if all(name in others for others in found)]
    # A version may be there twice for a moment, until the adapter that was replaced is unloaded.
    loaded.sort(key=lambda name: name == labels[0])
    names = {number: name for name in loaded if (number := version_of(name)) is not None}
    agreed = agreed and (default == 0 or labels[0] in loaded)
    return ServerVersions(default if agreed else -1, default, names)


class Adapters:
    """The versions of a LoRA policy: each is an adapter of its own, 0 is the base without one. SGLang keeps what
    requests in flight need: loading does not disturb them, and unloading waits for them. The live adapter stays in
    memory, and those that were used last.
    """

    def __init__(self, servers: Servers, store: VersionStore, *, may_import_torch: bool = False) -> None:
        self._servers = servers
        self._store = store
        self._may_import_torch = may_import_torch
        self._tidying: asyncio.Task[None] | None = None

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Load the adapter in `path` ("": the one in the store) on every server."""
        if version == 0:
            if path not in ("", self._store.base):
                raise EngineError(
                    f"the engine at {self._servers.front.url} did not load {path} as version 0: that is the base, "
                    f"{self._store.base}",
                    status=400,
                )
            name = BASE
        else:
            path = path or self._store.folder(version)
            if not path:
                raise EngineError(
                    f"the engine at {self._servers.front.url} has no version {version}, nor has the folder of "
                    "checkpoints",
                    status=404,
                )
            name = await self._load(version, path)
        if live:
            await self._servers.set_label(name)
        if version and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._tidy(name))

    async def settle(self) -> None:
        """Wait for what is being unloaded."""
        if self._tidying is not None:
            await asyncio.wait([self._tidying])

    async def close(self) -> None:
        """Stop unloading."""
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)

    async def _load(self, version: int, path: str) -> str:
        failed = f"the engine at {self._servers.front.url} did not load {path} as version {version}"
        folder = Path(path)
        if folder.is_dir() and not ((folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()):
            raise EngineError(f"{failed}: it serves adapters, and the folder holds none ({WEIGHTS})", status=400)
        try:
            name = await asyncio.to_thread(adapter_name, version, path)
            await self._servers.each(lambda server: self._load_on(server, name, adapter_folder(path)))
        except OSError as error:
            raise EngineError(f"{failed}: {error}", status=400) from error
        except EngineError as error:
            raise EngineError(f"{failed}: {error}", status=error.status) from error
        return name

    async def _load_on(self, server: EngineEndpoint, name: str, path: str) -> None:
        if name in await adapters_of(server):
            return
        until = time.monotonic() + LOAD_SECONDS
        while True:
            try:
                await server.command("/load_lora_adapter", {"lora_name": name, "lora_path": path}, LOAD_SECONDS)
            except EngineError as error:
                if "incomplete unload" in str(error) and time.monotonic() < until:  # its name is free again after that
                    await asyncio.sleep(_PAUSE)
                    continue
                if "already" in str(error) or await self._send_tensors(server, name, path):
                    return
                raise
            return

    async def _send_tensors(self, server: EngineEndpoint, name: str, path: str) -> bool:
        """Send the adapter itself to a server that could not read its folder; whether that worked."""
        if not Path(path).is_dir() or not (self._may_import_torch or "torch" in sys.modules):
            return False
        try:
            from openclaw_rl.trainer_local.sglang.weight_transfer import adapter_payload

            info = await server.get("/server_info")
            served = await asyncio.to_thread(served_type, self._store.base, info)
            fields = await asyncio.to_thread(adapter_payload, name, path, int(info.get("tp_size") or 1), served)
            await server.command("/load_lora_adapter_from_tensors", fields, LOAD_SECONDS)
        except EngineError as error:
            return "already" in str(error)
        except (OSError, ValueError, ImportError) as error:
            log.warning("%s cannot be sent: %s", path, error)
            return False
        return True

    async def _tidy(self, keep: str) -> None:
        """Unload replaced adapters, and those beyond the limit, least recently used first."""
        for server in self._servers.all:
            with contextlib.suppress(EngineError):
                names = [name for name in await adapters_of(server) if version_of(name) is not None]
                live = str((await server.get("/model_info")).get("weight_version"))
                spare = [name for name in names if name not in (keep, live)]
                replaced = [name for name in spare if version_of(name) == version_of(keep)]
                rest = [name for name in spare if name not in replaced]
                surplus = len(names) - len(replaced) - (self._store.max_versions - 1)
                for name in [*replaced, *rest[: max(0, surplus)]]:
                    await server.command("/unload_lora_adapter", {"lora_name": name}, LOAD_SECONDS)
                    log.info("unloaded %s from %s", name, server.url)


class FullWeights:
    """The one set of weights of an SGLang without adapters, changed while chat continues.

    A change retracts the requests in flight (their KV is dropped and computed again), empties the cache, and lets them
    continue with the new weights: each answer says from which token on (`weight_versions`).
    """

    def __init__(self, servers: Servers, store: VersionStore, server_info: Mapping[str, Any]) -> None:
        self._servers = servers
        self._store = store
        self._server_info = server_info

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Read the folder `path` ("": the one in the store) on every server; it is always `live`."""
        path = path or self._store.folder(version)
        failed = f"the engine at {self._servers.front.url} did not load {path} as version {version}"
        try:
            await check_full_weights(path, self._store.base, self._server_info)
            async with self.change(version, path) as needed:
                if needed:
                    fields = {"model_path": path, "flush_cache": True}
                    await self._servers.command("/update_weights_from_disk", fields, LOAD_SECONDS)
        except EngineError as error:
            raise EngineError(f"{failed}: {error}", status=error.status) from error

    @contextlib.asynccontextmanager
    async def change(self, version: int, path: str) -> AsyncIterator[bool]:
        """The block brings the weights of the folder `path` to the servers, which are paused. It gets `False`, and has
        nothing to do, where they are served already. When it fails, the old ones serve again.
        """
        await self._servers.find()
        label = weights_label(version, path)
        if {BASE if old == UNTOUCHED else old for old in self._servers.labels} == {label}:
            yield False
            return
        before = max(0, version_number(self._servers.labels[0]))
        try:
            await self._servers.command("/pause_generation", {"mode": "retract"})
            delivered = time.monotonic() + _DELIVERY_SECONDS
            await self._servers.command("/flush_cache", {}, _FLUSH_SECONDS)
            await self._servers.command("/begin_weight_update", {}, LOAD_SECONDS)
            yield True
            await asyncio.sleep(delivered - time.monotonic())
            await self._servers.set_label(label)
            await self._servers.command("/end_weight_update", {}, LOAD_SECONDS)
        except BaseException:
            await self.restore(before)
            raise
        await self._servers.each(_continue)

    async def recover(self) -> None:
        """Undo a change that is still open, since its owner was killed, and let paused servers continue."""
        found = await asyncio.gather(*map(_end_session, self._servers.all))
        if any(found):
            await self.restore(max(0, version_number(self._servers.labels[0])))
        else:
            await self._servers.each(_continue)

    async def restore(self, version: int) -> None:
        """Have every server that is there read version `version` again and continue. Where that fails, it is marked as
        broken, and left to be started again.
        """
        path = self._store.folder(version)

        async def restore_on(server: EngineEndpoint) -> None:
            try:
                await _end_session(server)
                if not path:
                    raise EngineError(f"it is not known where the weights of version {version} are")
                # Paused already, unless the change ended before that.
                await server.command("/pause_generation", {"mode": "retract"})
                fields = {"model_path": path, "weight_version": weights_label(version, path), "flush_cache": True}
                await server.command("/update_weights_from_disk", fields, LOAD_SECONDS)
                await server.command("/continue_generation", {})
            except EngineError as error:
                log.error("%s cannot be given version %d back: %s", server.url, version, error)
                await mark_broken(server)
            else:
                log.warning("a change of the weights of %s broke off: version %d serves again", server.url, version)

        await self._servers.each(restore_on)


async def check_full_weights(path: str, base: str, server_info: Mapping[str, Any]) -> None:
    """Refuse weights that SGLang could not take, before it is paused: weights that do not fit end its process."""
    quantized = server_info.get("quantization") or await asyncio.to_thread(quantization, base)
    if quantized:
        raise EngineError(
            f"it serves full weights quantized ({quantized}), and new ones would have to be quantized again; train a "
            "LoRA instead (lora = true), whose adapters such a base takes",
            status=400,
        )
    if wrong := await asyncio.to_thread(problem, path, base):
        raise EngineError(wrong, status=400)


def served_type(base: str, server_info: Mapping[str, Any]) -> str:
    """The type that SGLang computes in, by its name for it; "" where that is unknown. Reads the folder `base`."""
    given = str(server_info.get("dtype"))
    return dtype(base or str(server_info.get("model_path"))) if given == "auto" else given


async def adapters_of(server: EngineEndpoint) -> list[str]:
    """The adapters that a server has, the least recently used first (SGLang's `LoRARegistry` keeps that order)."""
    listed = (await server.get("/v1/models"))["data"]
    return [str(one["id"]) for one in listed if one.get("parent")]


async def mark_broken(server: EngineEndpoint) -> None:
    """Leave a server to what starts it again."""
    with contextlib.suppress(EngineError):
        await server.command("/update_weight_version", relabel(BROKEN))


async def _end_session(server: EngineEndpoint) -> bool:
    """End a weight update that was begun; whether there was one."""
    try:
        await server.command("/end_weight_update", {}, LOAD_SECONDS)
    except EngineError as error:
        if error.status != 400:
            raise
        return False
    return True


async def _continue(server: EngineEndpoint) -> None:
    """Let a server answer again; one that does already does not mind."""
    try:
        await server.command("/continue_generation", {})
    except EngineError:
        try:
            await server.command("/continue_generation", {})
        except EngineError:
            await mark_broken(server)
            raise


def version_of(name: str) -> int | None:
    """The version that an adapter of this name is, `None` if it is none of ours."""
    found = _ADAPTER.fullmatch(name)
    return int(found.group(1)) if found else None


def adapter_name(version: int, path: str) -> str:
    """The name of version `version`, whose adapter is in the folder `path`. Reads the folder."""
    digest = hashlib.blake2b(digest_size=6)
    folder = Path(path)
    if folder.is_dir():
        for file in (folder / CONFIG, folder / WEIGHTS):
            with file.open("rb") as content:
                while chunk := content.read(1 << 20):
                    digest.update(chunk)
    else:  # it is on the servers' machine only
        digest.update(path.encode())
    return f"policy-v{version}-{digest.hexdigest()}"


def weights_label(version: int, path: str) -> str:
    """The label of version `version`, whose weights are in the folder `path`: a digest of the names, sizes and times of
    its files, since there may be many gigabytes.
    """
    if version == 0:
        return BASE
    digest = hashlib.blake2b(path.encode(), digest_size=6)
    folder = Path(path)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        facts = file.stat()
        digest.update(f"{file.name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return f"{version}.{digest.hexdigest()}"
