"""A large journal is not counted at each look at the status."""

from __future__ import annotations

import asyncio
from typing import Any

from openclaw_rl.proxy.service import Accounts


class Counting:
    """A journal that counts how often it is counted."""

    def __init__(self) -> None:
        self.times = self.at_once = self.most_at_once = 0

    async def accounting(self) -> dict[str, Any]:
        self.times += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return {"settled": self.times}


async def test_a_small_journal_is_counted_each_time_and_a_large_one_is_not() -> None:
    small = Accounts(Counting().accounting, iter([0.0, 0.01, 0.02, 0.03]).__next__)
    assert [(await small.read())["settled"] for _ in range(2)] == [1, 2]
    large = Accounts(Counting().accounting, iter([100.0, 102.0, 103.0, 139.9, 140.1, 142.0]).__next__)
    assert [(await large.read())["settled"] for _ in range(4)] == [1, 1, 1, 2]


async def test_questions_at_once_take_one_reading_thread() -> None:
    journal = Counting()
    accounts = Accounts(journal.accounting)
    await asyncio.gather(*(accounts.read() for _ in range(5)))
    assert journal.most_at_once == 1
