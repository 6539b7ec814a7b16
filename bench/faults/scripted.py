"""A scripted engine and a scripted trainer: real files and digests, no weights."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from openclaw_rl.shared.checkpoints import SERVED, folder_digest
from openclaw_rl.shared.engine.protocol import Engine, EngineInfo, Scores, Tokens
from openclaw_rl.shared.errors import EngineError, TrainerError
from openclaw_rl.shared.files import atomic_folder, read_json
from openclaw_rl.shared.records import Sample, Sampling
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport

WEIGHTS = "adapter.bin"
STATE = "trainer.bin"
MAGIC = b"weights:"
LOGPROB = -0.5


class ScriptedEngine:
    """Answers each request with the same words. It is a process of its own, so its memory is a file that outlives the
    others: which versions it holds, by the digest of the files that it loaded.
    """

    def __init__(self, prompter: Prompter, memory: Path, model_path: str) -> None:
        self._prompter = prompter
        self._memory = memory
        self._model_path = model_path
        kept = read_json(memory) or {}
        self.live: int = kept.get("live", 0)
        self.digests: dict[int, str] = {int(number): digest for number, digest in kept.get("digests", {}).items()}
        self.digests[0] = ""
        self.served: Callable[[int], None] = lambda version: None  # it is about to serve a version

    async def generate(
        self, prompt_ids: Sequence[int] | bytes, sampling: Sampling, *, version: int | None = None, **_: Any
    ) -> AsyncIterator[Tokens]:
        """The answer in two events."""
        number = self._number(version)
        ids = [*self._prompter.tokenizer.encode("It is twelve, as far as I can see."), self._prompter.stop_ids[0]]
        yield Tokens(ids[:1], [LOGPROB], number)
        await asyncio.sleep(0)
        yield Tokens(ids[1:], [LOGPROB] * (len(ids) - 1), number, finish_reason="stop")

    async def score(
        self, prompt_ids: Sequence[int], continuation_ids: Sequence[int], *, version: int | None = None, **_: Any
    ) -> Scores:
        """Every token is as likely as when it was sampled."""
        return Scores([LOGPROB] * len(continuation_ids), self._number(version))

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Read a folder of weights. Raises `EngineError` with status 400 if it holds none."""
        if version and version not in self.digests:
            try:
                whole = (Path(path) / WEIGHTS).read_bytes().startswith(MAGIC) and bool(
                    read_json(Path(path) / "config.json")
                )
            except OSError as error:
                raise EngineError(f"{path} cannot be read: {error}", status=400) from error
            if not whole:
                raise EngineError(f"{path} holds no weights", status=400)
        if version:
            self.digests[version] = folder_digest(Path(path)) if Path(path).is_dir() else self.digests[version]
        if live:
            self.served(version)
            self.live = version
        self._memory.write_text(json.dumps({"live": self.live, "digests": self.digests}))

    async def info(self) -> EngineInfo:
        """The live version and the digest of its files."""
        return EngineInfo(
            self.live, tuple(self.digests), self._model_path, 8192, self._prompter.vocab_size,
            digest=self.digests[self.live],
        )  # fmt: skip

    async def close(self) -> None:
        """Nothing to close."""

    def _number(self, version: int | None) -> int:
        number = self.live if version is None else version
        if number not in self.digests:
            raise EngineError(f"there is no version {number}", status=404)
        return number


class ScriptedTrainer:
    """Its weights are a digest of all that it has learned from, in order, so two that learned the same are equal.
    `busy` are the turns of the step that is made now; `during`, once, is what happens meanwhile.
    """

    def __init__(self) -> None:
        self.step_number = 0
        self.weights = MAGIC
        self.busy: set[str | None] = set()
        self.during: Callable[[], Awaitable[None]] | None = None

    async def obstacle(self) -> str:
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Count the step, and mix the samples into the weights."""
        text = "\n".join(sample.sample_id for sample in samples)
        self.weights = MAGIC + hashlib.sha256(self.weights + text.encode()).digest()
        self.step_number += 1
        self.busy = {sample.turn_id for sample in samples}
        during, self.during = self.during, None
        if during is not None:
            await during()
        self.busy = set()
        figures = {"loss/total": 0.1, "gradient/norm": 1.0, "learning_rate": 1e-3, "tokens": 9.0, "seconds": 0.1}
        return StepReport(
            step=self.step_number,
            sample_ids=[sample.sample_id for sample in samples],
            metrics={**figures, "updates": 1.0, "kl/parent": 0.01},
        )

    async def save(self, path: str) -> Checkpoint:
        """Write the files as the real trainers do."""
        await asyncio.to_thread(self._save, Path(path))
        return Checkpoint(path=path, served=str(Path(path) / SERVED), step=self.step_number)

    async def restore(self, checkpoint: str | None) -> None:
        """Go back to the weights of a folder. Raises `TrainerError`."""
        if checkpoint is None:
            self.step_number, self.weights = 0, MAGIC
            return
        try:
            meta = read_json(Path(checkpoint) / "meta.json") or {}
            self.step_number, self.weights = int(meta["step"]), (Path(checkpoint) / STATE).read_bytes()
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise TrainerError(f"{checkpoint} cannot be restored: {error}") from error

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """Let the engine load it."""
        await engine.load(version, checkpoint.served, live=live)

    async def export(self, path: str) -> None:
        raise TrainerError("a scripted trainer exports nothing")

    async def close(self) -> None:
        """Nothing to close."""

    def _save(self, path: Path) -> None:
        with atomic_folder(path) as folder:
            (folder / SERVED).mkdir()
            write_file(folder / STATE, self.weights)
            write_file(folder / SERVED / WEIGHTS, self.weights)
            write_file(folder / SERVED / "config.json", b'{"rank": 1}')
            write_file(folder / "meta.json", json.dumps({"step": self.step_number}).encode())


def write_file(path: Path, content: bytes) -> None:
    """Write a checkpoint's file, in two halves: what ends between them leaves half a file."""
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        write_rest(file, content[len(content) // 2 :])


def write_rest(file: Any, content: bytes) -> None:
    """The second half."""
    file.write(content)
