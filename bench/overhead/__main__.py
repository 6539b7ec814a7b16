"""Measure the cost of the proxy: four paths to the same engine.

    python -m bench.overhead [--json] [--save FILE] [--scale 1] [--prompts …] [--paces …] [--clients …]

- direct: the clients send requests to the engine
- relay: Starlette and aiohttp forward bytes, the minimum of a proxy
- proxy: ours, which commits each turn to its journal before it sends the last event
- litellm: one `acompletion` of LiteLLM's SDK per request

The engine is a stand-in that sends 100 tokens, at once (`burst`) or 3 ms apart. Prompts: see `bench.overhead.prompts`.
`cpu_ms` is the CPU time per request of the process in the middle: user and system, all threads. `ttft` is the clients'
time from sending a request to the first word, including the direct path; `rps` is requests per second. Every answer is
compared with the engine's. `stall_ms` are percentiles of the delay of a callback in the proxy's event loop while 16
clients chat and new ones arrive.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from itertools import product
from typing import Any

import uvloop

from bench.overhead import processes
from bench.overhead.answers import script
from bench.overhead.measure import ARMS, CLIENTS, PACES, Bench, Case
from bench.overhead.prompts import KINDS
from bench.overhead.upkeep import stalls, upkeep
from bench.program import log, parser, report, run

MIDDLE = ARMS[1:]


async def measure(options: argparse.Namespace) -> None:
    """Run all measurements and report them."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        engine = await enter(processes.engine())
        bench = Bench(engine, script().text)
        costs = await upkeep(bench, engine, options.scale)
        stall = await stalls(bench, engine, options.scale)
        log.print(f"the proxy's event loop is delayed by {stall} ms")
        arms = {
            "direct": engine,
            "relay": await enter(processes.relay(engine)),
            "proxy": await enter(processes.proxy(engine)),
            "litellm": await enter(processes.litellm(engine)),
        }
        cases = [Case(*values) for values in product(options.prompts, options.paces, options.clients)]
        measured = await bench.compare(arms, cases, options.scale)
    result = {
        "cases": measured,
        **costs,
        "stall_ms": stall,
    }
    columns = ["prompt", "pace", "clients", f"CPU ms {_slashed(MIDDLE)}", "proxy : relay"]
    columns += [f"added TTFT {share} {_slashed(MIDDLE)}" for share in ("p50", "p99")]
    columns.append(f"req/s {_slashed(ARMS)}")
    title = (
        f"proxy ready after {costs['start_s']} s with {costs['rss_mb']} MB, {costs['memory_filled_mb']:+} MB until "
        f"caches are full and {costs['memory_growth_mb']:+} MB after that; "
        f"event loop delayed by {stall['p99.9']} ms at p99.9"
    )
    report(options, title, columns, [row(case) for case in measured], result)


def row(case: Mapping[str, Any]) -> list[str]:
    """A case as a row of the table."""
    cells = [str(case["prompt"]), str(case["pace"]), str(case["clients"])]
    cells.append(_slashed(f"{case[name]['cpu_ms']:.2f}" for name in MIDDLE))
    cells.append(f"{case['proxy']['cpu_ms'] / case['relay']['cpu_ms']:.2f}")
    for figure in ("ttft_p50_ms", "ttft_p99_ms"):
        cells.append(_slashed(f"{case[name][figure] - case['direct'][figure]:.1f}" for name in MIDDLE))
    return [*cells, _slashed(f"{case[name]['rps']:.0f}" for name in ARMS)]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--scale", type=float, default=1.0, help="share of the requests to send (default: all)")
    options.add_argument("--prompts", type=_words, default=KINDS, help=f"default: {','.join(KINDS)}")
    options.add_argument("--paces", type=_words, default=tuple(PACES), help=f"default: {','.join(PACES)}")
    options.add_argument("--clients", type=_numbers, default=CLIENTS, help=f"default: {','.join(map(str, CLIENTS))}")
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    return run(options, measure)


def _slashed(items: Iterable[str]) -> str:
    return " / ".join(items)


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
