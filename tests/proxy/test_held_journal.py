"""A journal that another process holds is reported while it is held."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

from tests.processes import Proxy


def until_journal(proxy: Proxy, ready: bool, seconds: float = 25.0) -> str:
    """The words of `/readyz` on the journal, once it is ready or not ready."""
    deadline = time.monotonic() + seconds
    with proxy.client() as client:
        while time.monotonic() < deadline:
            found = str(client.get("/readyz").json()["journal"])
            if (found == "ok") == ready:
                return found
            time.sleep(0.2)
    raise AssertionError(f"the journal is still {found}")


def test_readyz_says_that_the_journal_is_held(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    with closing(sqlite3.connect(proxy.journal().path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert "another process holds it" in until_journal(proxy, ready=False)
        holder.execute("ROLLBACK")
    assert until_journal(proxy, ready=True) == "ok"
