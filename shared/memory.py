"""Give freed memory back to the system: the C library keeps it, in pieces, in an arena per thread."""

from __future__ import annotations

import asyncio
import ctypes
import sys

INTERVAL_SECONDS = 30.0
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


async def return_freed_memory(interval: float = INTERVAL_SECONDS) -> None:
    """Do so every `interval` seconds until cancelled, off the event loop. Without `malloc_trim` (glibc has it) there is
    nothing to do.
    """
    trim = getattr(_LIBC, "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(interval)
        await asyncio.to_thread(trim, 0)
