"""Run a coroutine to its end, or until the process is asked to stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_until_stopped(work: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run`, which SIGTERM ends as cleanly as Ctrl-C: every task is cancelled where it waits, and no process
    stays behind. An exception of a signal handler would end one of them in the middle of anything.

    Raises `SystemExit` after SIGTERM.
    """
    stopped = False

    async def watched() -> Result:
        task = asyncio.current_task()

        def stop() -> None:
            nonlocal stopped
            stopped = True
            assert task is not None, "it runs this"
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if stopped:
            sys.exit(128 + signal.SIGTERM)
        raise
