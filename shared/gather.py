"""Await several coroutines at once; the first failure ends them all and is raised unwrapped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gather(*work: Coroutine[Any, Any, Result]) -> list[Result]:
    """The results, in order. The first exception cancels the others and is raised bare (a task group would wrap it)."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
