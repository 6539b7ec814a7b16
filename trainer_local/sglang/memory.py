"""Lending SGLang's memory to the trainer on the same GPU, while nobody wants an answer.

The servers hold new requests back while it is lent (they are paused), and say so in their `weight_version`; a client
that reads it there asks for the memory before it sends anything (`sglang_workers`). So who lends says so first, waits
until every client must have read it, and lends only where nothing runs or waits even then, and where nobody wrote
over it: whoever changes what is served writes there too. SGLang has to run with `--enable-memory-saver` and, for its
weights, `--enable-weights-cpu-backup`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang.http import EngineHttp
from openclaw_rl.trainer_local.sglang.labels import BROKEN, is_wanted, lent, lent_to, me, mine, updated_by
from openclaw_rl.trainer_local.sglang.rescue import Rescue
from openclaw_rl.trainer_local.sglang.workers import (
    FRESH_SECONDS,
    Workers,
    label_of,
    of_tags,
    relabel,
    taken_back,
    together,
)

log = logging.getLogger(__name__)

_RELEASE_SECONDS = 120.0
_WATCH_SECONDS = 0.1


@contextlib.asynccontextmanager
async def lending(workers: Workers, tags: Sequence[str] = ()) -> AsyncIterator[asyncio.Event | None]:
    """The block has what SGLang calls `tags` of the servers' memory (`shared.placement.Server.lends`; nothing: all). It
    gets an event that is set when somebody wants an answer, or a server is gone, and is to end soon then. It gets
    `None`, and no memory, where the servers are busy, or somebody changes their weights. Raises `EngineError`.
    """
    if await busy(workers):
        yield None
        return
    by = me()
    rescue = Rescue([worker.url for worker in workers.all], by, 0, "")
    await rescue.stand_by()
    watch: asyncio.Task[None] | None = None
    try:
        if not await _promised(workers, by, tags):
            yield None
        else:
            await workers.every("/pause_generation", {"mode": "retract"})
            rescue.lends()
            await workers.every("/release_memory_occupation", of_tags(tags), _RELEASE_SECONDS)
            wanted = asyncio.Event()
            watch = asyncio.create_task(_watch(workers, wanted))
            yield wanted
            watch.cancel()
            await together(map(taken_back, workers.all))
        await asyncio.sleep(2 * FRESH_SECONDS)  # who read that it is lent has asked for it by now: in vain
        await _unsaid(workers)
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


async def _promised(workers: Workers, by: str, tags: Sequence[str]) -> bool:
    """Say that the memory is lent to `by`; whether it can be, since nobody wants an answer, or wrote over that."""
    labels = set(await asyncio.gather(*map(label_of, workers.all)))
    label = labels.pop()
    if labels or label == BROKEN or lent_to(label) or updated_by(label):
        return False
    said = lent(label, by, tags)
    await workers.every("/update_weight_version", relabel(said))
    await asyncio.sleep(2 * FRESH_SECONDS)  # who sends a request now has read that, or sent it before
    if set(await asyncio.gather(*map(label_of, workers.all))) == {said} and not await _answering(workers):
        return True
    await _unsaid(workers)
    return False


async def _unsaid(workers: Workers) -> None:
    await together(taken_back(worker, out=False) for worker in workers.all)


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
    """Whether some server has a request; asked while nothing is lent. Raises `EngineError`, also where one of several
    is away: what it takes when it comes back nobody could lend.
    """
    await workers.find()
    for worker in workers.all:
        # Left without its memory where it did not answer when that was to come back, or where who had it was killed.
        if mine(lent_to(await label_of(worker))):
            await taken_back(worker)
        await workers.settled(worker)
    if workers.away:
        raise EngineError(f"{' and '.join(workers.away)}, behind the router at {workers.front.url}, is away")
    return await _answering(workers)


async def _answering(workers: Workers) -> bool:
    return any(await asyncio.gather(*map(_requests, workers.all)))


async def _requests(worker: EngineHttp) -> int:
    loads = (await worker.get("/v1/loads")).get("loads") or []
    return sum(int(one.get("num_running_reqs") or 0) + int(one.get("num_waiting_reqs") or 0) for one in loads)
