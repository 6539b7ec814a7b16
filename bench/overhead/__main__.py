"""The cost of the proxy in the path. Four ways to the same engine, side by side.

    python -m bench.overhead [--json] [--save FILE] [--scale 1] [--prompts …] [--paces …] [--clients …]

- direct: the clients ask the engine
- relay: Starlette and aiohttp pass bytes on, the least that a proxy can do
- proxy: ours, each turn committed to its journal before the last event leaves
- litellm: one `acompletion` of LiteLLM's SDK a request

The engine is a stand-in that sends 100 tokens, at once (`burst`) or 3 ms apart. Prompts: see `bench.overhead.prompts`.
`cpu_ms` is CPU time of the process in the middle a request, user and system, all its threads; `ttft` the time from the
first byte asked to the first word, as the clients see it, the direct way's included; `rps` requests a second. All
answers are compared with what the engine said. `stall_ms` are percentiles of how late the proxy's event loop was for a
callback, while 16 people chat and new ones come.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from bench.overhead import processes
from bench.overhead.answers import script
from bench.overhead.measure import Bench
from bench.overhead.plan import ARMS, CLIENTS, PACES, cases
from bench.overhead.prompts import KINDS
from bench.overhead.upkeep import stalls, upkeep
from bench.service import log, report, run

MIDDLE = ARMS[1:]


async def measure(options: argparse.Namespace) -> None:
    """Everything, and the report."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        engine = await enter(processes.engine())
        bench = Bench(engine, script().text)
        held = await upkeep(bench, engine, options.scale)
        stall = await stalls(bench, engine, options.scale)
        log.print(f"the proxy's event loop is late by {stall} ms")
        arms = {
            "direct": engine,
            "relay": await enter(processes.relay(engine)),
            "proxy": await enter(processes.proxy(engine)),
            "litellm": await enter(processes.litellm(engine)),
        }
        chosen = cases(options.prompts, options.paces, options.clients)
        measured = await bench.compare(arms, chosen, options.scale)
    result = {
        "cases": measured,
        "memory_growth_mb": held.growth,
        "memory_filled_mb": held.filled,
        "start_s": held.start_seconds,
        "rss_mb": held.memory,
        "stall_ms": stall,
    }
    columns = ["prompt", "pace", "clients", f"CPU ms {_slashed(MIDDLE)}", "proxy : relay"]
    columns += [f"added TTFT {share} {_slashed(MIDDLE)}" for share in ("p50", "p99")]
    columns.append(f"req/s {_slashed(ARMS)}")
    title = (
        f"proxy ready after {held.start_seconds} s with {held.memory} MB, {held.filled:+} MB until its caches are full "
        f"and {held.growth:+} MB after that; event loop late by {stall['p99.9']} ms at p99.9"
    )
    report(options, title, columns, [row(case) for case in measured], result)


def row(case: Mapping[str, Any]) -> list[str]:
    """A case as the table has it."""
    cells = [str(case["prompt"]), str(case["pace"]), str(case["clients"])]
    cells.append(_slashed(f"{case[name]['cpu_ms']:.2f}" for name in MIDDLE))
    cells.append(f"{case['proxy']['cpu_ms'] / case['relay']['cpu_ms']:.2f}")
    for figure in ("ttft_p50_ms", "ttft_p99_ms"):
        cells.append(_slashed(f"{case[name][figure] - case['direct'][figure]:.1f}" for name in MIDDLE))
    return [*cells, _slashed(f"{case[name]['rps']:.0f}" for name in ARMS)]


def main() -> int:
    options = argparse.ArgumentParser(description="What the proxy costs, beside a bare relay and LiteLLM.")
    options.add_argument(
        "--json", action="store_true", help="print one JSON line on stdout and everything else on stderr"
    )
    options.add_argument(
        "--save", type=Path, metavar="FILE", help="also write the result there, with command and machine"
    )
    options.add_argument("--scale", type=float, default=1.0, help="share of the requests to make (default: all)")
    options.add_argument("--prompts", type=_words, default=KINDS, help=f"default: {','.join(KINDS)}")
    options.add_argument("--paces", type=_words, default=tuple(PACES), help=f"default: {','.join(PACES)}")
    options.add_argument("--clients", type=_numbers, default=CLIENTS, help=f"default: {','.join(map(str, CLIENTS))}")
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    return run(measure(options.parse_args()))


def _slashed(items: Iterable[str]) -> str:
    return " / ".join(items)


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
