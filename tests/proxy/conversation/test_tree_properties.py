"""Whatever clients do to their conversations, side by side: the tree's promises hold (`tests.proxy.world` has them)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from openclaw_rl.shared.journal import AsyncJournal
from tests.proxy.world import ACTIONS, ANSWERS, CLIENTS, TEXTS, Action, Program, World

EXAMPLES = int(os.environ.get("TREE_EXAMPLES", "0"))
"""More by hand, others every time: `TREE_EXAMPLES=5000 pytest --timeout=0
tests/proxy/conversation/test_tree_properties.py`."""

_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where files are not written to a disk: what survives a crash is tested elsewhere."""

_ACTION = st.builds(
    Action,
    client=st.integers(0, len(CLIENTS) - 1),
    name=st.sampled_from(ACTIONS),
    number=st.integers(0, 7),
    words=st.integers(0, len(TEXTS) - 1),
    answer=st.integers(0, len(ANSWERS) + 3),
)
_ROUND = st.lists(_ACTION, min_size=1, max_size=3, unique_by=lambda action: action.client // 2)


async def _play(program: Program, folder: Path) -> None:
    journal = AsyncJournal(folder / "journal.db", linger=0)
    try:
        await World(journal).run(program)
    finally:
        await journal.close()


@settings(max_examples=EXAMPLES or 40, derandomize=not EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_ROUND, min_size=2, max_size=14))
@example([[Action(0, "say", answer=1), Action(2, "say")], [Action(0, "say"), Action(2, "restart")]])
@example([[Action(0, "say", 0, 4, 1)], [Action(0, "restart")], [Action(3, "lose", 0, 4)], [Action(3, "say")]])
@example(
    [
        [Action(0, "say")],
        [Action(0, "say")],
        [Action(0, "say", 0, 4)],
        [Action(0, "compact", 2)],
        [Action(0, "unname", 0, 4)],
        [Action(0, "edit", 4)],
    ]
)
@example(
    [
        [Action(0, "say twice", 0, 4)],
        [Action(1, "say", 0, 4)],
        [Action(1, "say", 0, 1, 5)],
        [Action(0, "say", 0, 1, 5)],
        [Action(0, "rewrite")],
    ]
)
@example([[Action(0, "say", 0, 4)], [Action(5, "abort", 5, 4)], [Action(5, "say")]])
@example(
    [
        [Action(3, "say twice", 0, 4)],
        [Action(3, "say", 0, 4)],
        [Action(0, "say", 0, 4, 1), Action(2, "say", 0, 4)],
        [Action(3, "rewrite")],
    ]
)
@example([[Action(5, "cron")], [Action(5, "retry")], [Action(5, "cron")], [Action(5, "say")]])
@example(
    [
        [Action(0, "unname", 0, 4, 13)],
        [Action(5, "say", 0, 4, 13)],
        [Action(5, "unname")],
        [Action(0, "say")],
        [Action(5, "say")],
        [Action(5, "unname")],
    ]
)
@example(
    [
        [Action(5, "unname", 0, 3, 6)],
        [Action(5, "say", 0, 0, 3)],
        [Action(5, "unname", 0, 3, 6)],
        [Action(5, "unname")],
        [Action(5, "clear")],
    ]
)
@example(
    [
        [Action(0, "say", 0, 4, 8)],
        [Action(1, "say", 0, 4, 8)],
        [Action(0, "say")],
        [Action(0, "say", 0, 4, 8)],
        [Action(0, "rewrite", 1)],
    ]
)
@example([[Action(2, "say")], [Action(2, "say", 0, 0, 1)], [Action(2, "announce")]])
@example([[Action(2, "say", 0, 0, 1)], [Action(2, "announce")]])
@example([[Action(3, "announce", 0, 0, 1)], [Action(3, "say")]])
@example([[Action(1, "fork", 0, 0, 5), Action(4, "announce", 0, 0, 5)], [Action(0, "say")]])
@example(
    [
        [Action(0, "say", 0, 1)],
        [Action(0, "leave out")],
        [Action(2, "say", 0, 1)],
        [Action(2, "more", 0, 0, 1)],
        [Action(1, "restart")],
        [Action(0, "say")],
        [Action(2, "say")],
    ]
)
@example(
    [
        [Action(1, "say", 0, 5)],
        [Action(0, "say", 0, 5)],
        [Action(0, "say")],
        [Action(1, "say")],
        [Action(1, "say")],
        [Action(1, "rewrite", 1)],
    ]
)
def test_every_turn_is_placed_and_settled_by_what_its_client_did(program: Program) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        asyncio.run(_play(program, Path(folder)))
