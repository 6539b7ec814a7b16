"""A rank that hangs is found by the ranks that waited for it in vain.

Collectives of a command end with an error after a time. Each rank counts the exchanges it has entered, in the store
that all ranks share, and says there when its own wait was too long. Ranks that are behind, and wait for none, hang.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

TIMEOUT = timedelta(minutes=30)
"""Maximum time that a rank waits for the others within a command, NCCL's collectives included."""
PAUSE_SECONDS = 2.0
"""Time for ranks that wait for the same one to say so too."""


class Attendance:
    """The exchanges that ranks have entered. `store` is shared by all of them."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._entered = 0
        self._inside = False

    def enter(self) -> None:
        """Note that this rank waits in the next exchange."""
        self._entered += 1
        self._inside = True
        self._store.set(f"entered/{self._rank}", str(self._entered))

    def leave(self) -> None:
        """Note, here alone, that the exchange is done."""
        self._inside = False

    def late(self) -> list[int]:
        """The ranks that this rank's wait, which was too long, was for."""
        self._store.set(f"waits/{self._rank}", "")
        time.sleep(PAUSE_SECONDS)
        expected = self._entered if self._inside else self._entered + 1
        others = [rank for rank in range(self._size) if rank != self._rank]
        return [
            rank
            for rank in others
            if not self._store.check([f"waits/{rank}"])
            and (not self._store.check([f"entered/{rank}"]) or int(self._store.get(f"entered/{rank}")) < expected)
        ]

    def describe(self, error: BaseException, *, commanding: bool = False) -> str:
        """The ranks that hang, where this rank waited for them, and what to do, after `error` by a time-out.
        `commanding`: it gave them a command. Nothing shows then which of several has not taken it.
        """
        late = [] if commanding else self.late()
        if self._size == 2:
            late = [1 - self._rank]  # also where it entered the exchange and hangs inside
        names = f"rank {', '.join(map(str, late))} of {self._size} hangs" if late else "another rank hangs"
        where = "in an exchange between passes" if self._inside else "in a collective inside a pass"
        if commanding:
            where = "to take a command"
        return (
            f"{names}: rank {self._rank} waited {self._timeout} for it {where} ({_root(error)}). The step is lost, "
            "and the trainer starts again from the checkpoint of the live version. If this happens again, look at that "
            "rank's GPU (nvidia-smi, Xid in dmesg) and at the links between GPUs and machines (NCCL_DEBUG=INFO)"
        )


def is_timeout(error: BaseException) -> bool:
    """True if `error`, or what it came from, is a collective of gloo that took too long. NCCL ends the process."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RuntimeError) and "Timed out waiting" in str(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _root(error: BaseException) -> str:
    cause = error
    while (before := cause.__cause__ or cause.__context__) is not None:
        cause = before
    return str(cause)
