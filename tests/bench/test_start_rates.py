"""The measurement of start rates, and the comparison of a new policy with the one that ships."""

from __future__ import annotations

from itertools import islice

import pytest

from bench.shipped_policy.compare import shares, verdict
from bench.shipped_policy.measure import share
from bench.shipped_policy.start_rates import FAMILIES, Rooms


@pytest.mark.parametrize(("solves", "reward"), [(True, 1.0), (False, 0.0)])
async def test_a_room_judges_the_files_that_the_agent_left(solves: bool, reward: float) -> None:
    rooms = Rooms("boundary")
    [task] = islice(rooms.tasks("held-out", 0), 1)
    room = rooms.environment()
    try:
        await room.reset(task, 0)
        for call in task.data["calls"] if solves else task.data["calls"][:1]:
            assert not (await room.call(call["name"], call["arguments"])).error
        assert (await room.evaluate("Done.")).reward == reward
    finally:
        await room.close()


def test_all_families_are_measured_on_tasks_with_names_of_their_own() -> None:
    assert {"count", "remove", "boundary", "sums", "calls"} <= set(FAMILIES)
    ids = [task.id for task in islice(Rooms("count").tasks("held-out", 0), 20)]
    assert len(set(ids)) == 20


def test_figures_are_compared_by_their_intervals() -> None:
    low, middle, high = (share([True] * hits + [False] * (100 - hits)) for hits in (20, 28, 60))
    assert (verdict(low, low), verdict(low, middle), verdict(low, high), verdict(high, low)) == (
        *("inside", "inside", "apart", "apart"),
    )
    assert verdict(share([True] * 20 + [False] * 80), share([True] * 33 + [False] * 67)) == "overlaps"
    assert [name for name, _ in shares({"tools": {"right_call": low, "unknown": {"called": low}}})] == [
        *("tools.right_call", "tools.unknown.called"),
    ]
