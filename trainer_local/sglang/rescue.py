"""Puts SGLang back on its feet where the process that was changing its weights, or had its memory, failed or is gone.

While weights are on their way the servers are paused, and hold a mixture of old and new. Who changes them starts this
process first, and tells it when all is well; when it does not (`kill -9` included, which closes the pipe), this one has
the servers read the old weights from disk and go on. What was being answered goes on with it. The `weight_version` says
whether there is anything to mend (`sglang_labels`), and `broken` where it cannot be mended: then `sglang_server`
starts them anew. Where all of them have the new weights, and may only not have been told to go on, they are told.

It has a session of its own, so that nobody who ends the other process's group ends it too, and does nothing for longer
than `MOST_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Collection, Sequence
from typing import Any

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang.http import EngineHttp
from openclaw_rl.trainer_local.sglang.labels import BROKEN, gone, lent_to, updated_by, whole_label
from openclaw_rl.trainer_local.sglang.workers import label_of, relabel, taken_back

log = logging.getLogger(__name__)

MOST_SECONDS = 900.0
_LEAVING_SECONDS = 10.0
_READY, _DONE, _NOW, _OUT = b"ready\n", b"done\n", b"now\n", b"out\n"


class Rescue:
    """One that stands by for the change named `by`, from version `before` whose weights are in `path` ("": unknown) to
    those that are called `after` once they are there.
    """

    def __init__(self, urls: Sequence[str], by: str, before: int, path: str, after: str = "") -> None:
        self._task: dict[str, Any] = {"urls": list(urls), "by": by, "before": before, "path": path, "after": after}
        self._process: asyncio.subprocess.Process | None = None

    async def stand_by(self) -> None:
        """Start it; returns when it is watching."""
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "openclaw_rl.trainer_local.sglang.rescue"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(self._task).encode() + b"\n")
        if await process.stdout.readline() != _READY:
            raise EngineError("weights cannot be changed: what would mend a change that breaks off does not start")

    def lends(self) -> None:
        """From now on the servers may be without their memory."""
        assert self._process is not None and self._process.stdin is not None
        self._task["out"] = True
        self._process.stdin.write(_OUT)

    async def dismiss(self) -> None:
        """All is well."""
        process = self._process
        assert process is not None and process.stdin is not None
        process.stdin.write(_DONE)
        await self._end(process)

    async def mend(self) -> bool:
        """All is not: have the old weights served again. Whether they are."""
        process = self._process
        assert process is not None and process.stdin is not None
        process.stdin.write(_NOW)
        code = await self._end(process)
        # One that was ended itself did nothing.
        return code == 0 if code in (0, 1) else await mended(**self._task)

    def leave(self) -> None:
        """As `mend`, and let it be."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    @staticmethod
    async def _end(process: asyncio.subprocess.Process) -> int:
        assert process.stdin is not None
        process.stdin.close()
        return await process.wait()


async def mended(
    urls: Sequence[str],
    by: str,
    before: int,
    path: str,
    after: str = "",
    *,
    out: bool = False,
    ending: bool = False,
) -> bool:
    """Have the servers at `urls` serve version `before` again, where `by` left them in the middle of a change. Whether
    all serve something whole. `out`: their memory is lent to it, and not only promised; `ending`: that process is
    ending, and memory that it was lent is free when it has ended.
    """
    servers = [EngineHttp(url, 1.0) for url in urls]
    try:
        async with asyncio.timeout(MOST_SECONDS):
            labels = await asyncio.gather(*map(_label_of, servers))
            if ending and out and any(lent_to(label) == by for label in labels):
                await _left(by)
            # They go on when all have the new weights: where one has not, those that have are held as well.
            left = {label for label in labels if updated_by(label) == by}
            back = {*left, after} if left else set()
            work = zip(servers, labels, strict=True)
            return all(
                await asyncio.gather(
                    *(
                        _lent_no_more(server, out)
                        if lent_to(label) == by
                        else _mended(server, label, before, path, after, back)
                        for server, label in work
                    )
                )
            )
    except TimeoutError:
        return False
    finally:
        for server in servers:
            server.close()


async def _label_of(server: EngineHttp) -> str:
    """What a server says it serves; "" for one that ended, and begins with whole weights."""
    try:
        return await label_of(server)
    except EngineError:
        return ""


async def _lent_no_more(server: EngineHttp, out: bool) -> bool:
    try:
        await taken_back(server, out=out)
    except EngineError as error:
        log.error("%s does not take its memory back: %s", server.url, error)
        await _given_up(server)
        return False
    return True


async def _mended(server: EngineHttp, label: str, before: int, path: str, after: str, back: Collection[str]) -> bool:
    if not label or label not in {*back, after}:
        return True
    if label not in back:
        return await _goes_on(server)
    try:
        await ended_session(server)
        if not path:
            raise EngineError(f"nobody knows where the weights of version {before} are")
        # Paused already, unless the change ended before it came to that.
        await server.command("/pause_generation", {"mode": "retract"})
        fields = {"model_path": path, "weight_version": whole_label(before, path), "flush_cache": True}
        await server.command("/update_weights_from_disk", fields, MOST_SECONDS)
        await server.command("/continue_generation", {})
    except EngineError as error:
        log.error("%s cannot be given version %d back: %s", server.url, before, error)
        await _given_up(server)
        return False
    log.warning("a change of the weights of %s broke off: version %d serves again", server.url, before)
    return True


async def _given_up(server: EngineHttp) -> None:
    """Leave a server to who starts it anew."""
    with contextlib.suppress(EngineError):
        await server.command("/update_weight_version", relabel(BROKEN))


async def _goes_on(server: EngineHttp) -> bool:
    """Tell a server that has the new weights to answer again, which one that does so takes for nothing."""
    with contextlib.suppress(EngineError):
        await server.command("/continue_generation", {})
        return True
    return False


async def _left(by: str) -> None:
    """Wait until a process that is ending has ended, and what it held of the GPU is free."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVING_SECONDS):
            while not gone(by):
                await asyncio.sleep(0.1)


async def ended_session(server: EngineHttp) -> None:
    """End what `/begin_weight_update` began, if anything."""
    try:
        await server.command("/end_weight_update", {}, MOST_SECONDS)
    except EngineError as error:
        if error.status != 400:
            raise


def main() -> None:
    """Stand by; exit code 0 when all is well or mended."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(levelname)s %(message)s")
    task = json.loads(sys.stdin.buffer.readline())
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    told = sys.stdin.buffer.readline()
    if told == _OUT:
        task["out"], told = True, sys.stdin.buffer.readline()
    if told != _DONE:
        sys.exit(0 if asyncio.run(mended(**task, ending=told != _NOW)) else 1)


if __name__ == "__main__":
    main()
