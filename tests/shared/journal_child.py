"""A process that writes turns until it is killed, and prints the id of each one that was acknowledged.

`python -m tests.shared.journal_child JOURNAL SESSION [COUNT]`
"""

from __future__ import annotations

import asyncio
import sys

from openclaw_rl.shared.journal import AsyncJournal
from tests.shared.journal_records import make_turn


async def write(path: str, session_id: str, count: int) -> None:
    journal = AsyncJournal(path)
    numbers = iter(range(count))

    async def one_client() -> None:
        parent: str | None = None
        for number in numbers:
            turn = make_turn(session_id, text=f"question {number}", parent_turn_id=parent)
            await journal.record_turn(turn)
            print(turn.turn_id, flush=True)
            parent = turn.turn_id

    await asyncio.gather(*(one_client() for _ in range(8)))
    await journal.close()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10**9))
