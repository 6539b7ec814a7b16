"""Out of memory: the pass that did not fit is named, and later passes are smaller.

A step that runs out of memory is undone. Then, in this step and in all later ones of the process, more layers
recompute their activations; where all do, passes get half as many tokens as the one that failed. If one row alone does
not fit even so, the step fails with the name of its sample.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from openclaw_rl.shared.errors import TrainerOutOfMemory
from openclaw_rl.shared.files import read_json, write_json
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.training.batching import Row

log = logging.getLogger(__name__)

FILE = ".out-of-memory.json"
"""In the folder of checkpoints: what a process that had to end leaves for the next one."""

GROWTH = 4
"""In so many failures the layers that recompute grow from none to all."""

_ALLOCATIONS = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
"""In messages of torch (2.14), of CUDA's libraries and of Triton about failed allocations that have no type of their
own: those that do not go through torch's allocator for CUDA.
"""


@dataclass
class MemoryLimit:
    """The limits that were found. A pass of more than one row has at most `tokens` tokens (`None`: no pass has failed).
    `failed`: samples whose answer did not fit in the process before this one, with the answer's tokens. `recomputed` of
    the `layers` that may recompute their activations do.
    """

    tokens: int | None = None
    failed: dict[str, int] = field(default_factory=dict)
    recomputed: int = 0
    layers: int = 0

    def apply(self, micro_batch_tokens: int) -> int:
        """The micro batch, where at most `micro_batch_tokens` were asked for."""
        return micro_batch_tokens if self.tokens is None else min(micro_batch_tokens, self.tokens)

    def lower(self, error: TrainerOutOfMemory) -> bool:
        """Let more layers recompute after `error`, or halve the passes. False if that does not help: one row alone did
        not fit, or nothing of a pass.
        """
        if self.recomputed < self.layers and (error.sample_id or error.tokens):
            self.recomputed = min(self.layers, self.recomputed - -self.layers // GROWTH)
            share = 100 * self.recomputed // self.layers
            log.warning("%s; %d %% of the layers recompute their activations from now on", str(error), share)
            return True
        if error.sample_id or error.tokens < 2:
            return False
        self.tokens = error.tokens // 2 if self.tokens is None else min(self.tokens, error.tokens // 2)
        log.warning("%s; passes have at most %d tokens from now on", str(error), self.tokens)
        return True

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise `TrainerOutOfMemory` for an answer that is as long as when it did not fit."""
        for sample in samples:
            tokens = self.failed.get(sample.sample_id)
            if tokens is not None and len(sample.response_ids) >= tokens:
                raise TrainerOutOfMemory(
                    f"the answer of sample {sample.sample_id} did not fit in memory with {tokens} tokens before the "
                    "trainer's processes were started again",
                    sample_id=sample.sample_id,
                )

    def merge(self, others: Sequence[MemoryLimit]) -> None:
        """Take the strictest of the limits of all."""
        found = [one.tokens for one in (self, *others) if one.tokens is not None]
        self.tokens = min(found, default=None)
        self.recomputed = min(self.layers, max(one.recomputed for one in (self, *others)))
        for other in others:
            for name, tokens in other.failed.items():
                self.failed[name] = min(tokens, self.failed.get(name, tokens))

    def hand_over(self, settings: Settings) -> None:
        """Leave the limits for the next process, which `take_over` gives them to."""
        left = {"tokens": self.tokens, "failed": self.failed, "recomputed": self.recomputed}
        write_json(settings.checkpoints_path / FILE, left)


def take_over(settings: Settings) -> MemoryLimit:
    """The limits that a process left which had to end; they are read once."""
    path: Path = settings.checkpoints_path / FILE
    found: Mapping[str, object] = read_json(path) or {}
    path.unlink(missing_ok=True)
    tokens, failed, recomputed = found.get("tokens"), found.get("failed"), found.get("recomputed")
    return MemoryLimit(
        tokens if isinstance(tokens, int) else None,
        {str(name): int(value) for name, value in failed.items()} if isinstance(failed, dict) else {},
        recomputed if isinstance(recomputed, int) else 0,
    )


def is_out_of_memory(error: BaseException) -> bool:
    """True if `error`, or what it came from, is a failed allocation."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (torch.OutOfMemoryError, MemoryError, TrainerOutOfMemory)):
            return True
        if isinstance(cause, RuntimeError) and any(text in str(cause) for text in _ALLOCATIONS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


@contextmanager
def naming_pass(rows: Sequence[Row], tokens: int, *, divisible: bool) -> Iterator[None]:
    """Say, as `TrainerOutOfMemory`, that a pass of `tokens` tokens over `rows` does not fit, if the block shows it.
    `divisible`: smaller passes would have fewer of its tokens.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, TrainerOutOfMemory) or not is_out_of_memory(error):
            raise
        release(error)
        if divisible:
            raise TrainerOutOfMemory(
                f"a pass of {tokens} tokens does not fit in memory: {_first_line(error)}", tokens=tokens
            ) from error
        longest = max(rows, key=lambda row: row.length)
        raise TrainerOutOfMemory(
            f"the answer of sample {longest.sample_id or '?'} ({longest.response_length} tokens after a prompt of "
            f"{longest.start}) does not fit in memory even alone: {_first_line(error)}",
            sample_id=longest.sample_id,
        ) from error


@contextmanager
def naming_shortage(doing: str) -> Iterator[None]:
    """Say, as `TrainerOutOfMemory`, that `doing` this takes too much memory, if the block shows it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TrainerOutOfMemory) or not is_out_of_memory(error):
            raise
        release(error)
        raise TrainerOutOfMemory(f"{doing} takes too much memory: {_first_line(error)}") from error


def release(error: BaseException) -> None:
    """Let go of what the frames of `error` hold: the activations of the pass that failed."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
