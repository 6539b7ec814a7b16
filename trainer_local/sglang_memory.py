"""Lending SGLang's memory to the trainer on the same GPU, while nobody wants an answer.

The servers hold new requests back while it is lent (they are paused), and say so in their `weight_version`; a client
that reads it there asks for the memory before it sends anything (`sglang_workers`). So who lends says so first, waits
until every client must have read it, and lends only where nothing runs or waits even then. SGLang has to run with
`--enable-memory-saver` and, for its weights, `--enable-weights-cpu-backup`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from shared.errors import EngineError
from trainer_local.sglang_http import EngineHttp
from trainer_local.sglang_labels import is_wanted, lent, lent_to, me
from trainer_local.sglang_rescue import Rescue
from trainer_local.sglang_workers import FRESH_SECONDS, Workers, label_of, of_tags, relabel, taken_back

log = logging.getLogger(__name__)

_RELEASE_SECONDS = 120.0
_WATCH_SECONDS = 0.1


@contextlib.asynccontextmanager
async def lending(workers: Workers, tags: Sequence[str] = ()) -> AsyncIterator[asyncio.Event | None]:
    """The block has what SGLang calls `tags` of the servers' memory (`shared.placed.Server.lends`; nothing: all). It
    gets an event that is set when somebody wants an answer, or a server is gone, and is to end soon then. It gets
    `None`, and no memory, where the servers are busy. Raises `EngineError`.
    """
    labels = set(await workers.labels())
    if len(labels) != 1 or await busy(workers):
        yield None
        return
    (label,) = labels
    by = me()
    rescue = Rescue([worker.url for worker in workers.all], by, 0, "")
    await rescue.stand_by()
    watch: asyncio.Task[None] | None = None
    try:
        await workers.every("/update_weight_version", relabel(lent(label, by, tags)))
        await asyncio.sleep(2 * FRESH_SECONDS)  # who sends a request now has read that, or sent it before
        if await _asked_back(workers) or await busy(workers):
            await workers.every("/update_weight_version", relabel(label))
            yield None
        else:
            await workers.every("/pause_generation", {"mode": "retract"})
            await workers.every("/release_memory_occupation", of_tags(tags), _RELEASE_SECONDS)
            wanted = asyncio.Event()
            watch = asyncio.create_task(_watch(workers, wanted))
            yield wanted
            watch.cancel()
            await asyncio.gather(*map(taken_back, workers.all))
        await asyncio.sleep(2 * FRESH_SECONDS)  # who read that it is lent has asked for it by now: in vain
        if any([lent_to(found) == by for found in await asyncio.gather(*map(label_of, workers.all))]):
            await workers.every("/update_weight_version", relabel(label))
    except Exception:
        await rescue.mend()
        raise
    except BaseException:  # this process is ending
        rescue.leave()
        raise
    finally:
        workers.know("")
        if watch is not None:
            watch.cancel()
    await rescue.dismiss()


async def _watch(workers: Workers, wanted: asyncio.Event) -> None:
    while not wanted.is_set():
        try:
            asked = await _asked_back(workers)
        except EngineError as error:  # what starts it again must find the memory free
            log.warning("a server whose memory is lent is gone: %s", error)
            asked = True
        if asked:
            wanted.set()
        await asyncio.sleep(_WATCH_SECONDS)


async def _asked_back(workers: Workers) -> bool:
    return any([is_wanted(await label_of(worker)) for worker in workers.all])


async def busy(workers: Workers) -> bool:
    """Whether some server has a request. Raises `EngineError`."""
    return any(await asyncio.gather(*map(_requests, workers.all)))


async def _requests(worker: EngineHttp) -> int:
    loads = (await worker.get("/v1/loads")).get("loads") or []
    return sum(int(one.get("num_running_reqs") or 0) + int(one.get("num_waiting_reqs") or 0) for one in loads)
