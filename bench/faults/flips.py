"""Flip the bytes of a small data folder, one at a time, and start the service on it.

A flip is harmless if everything that the service hands out is as before: turns, signals, samples, versions, and what
engine and trainer load. It is named if an error, a set-aside turn, the learner's status or `openclaw-rl check` says so.
Anything else is unnoticed; and it is served where an engine, a trainer or a step gets something else than was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.faults.cases import in_process, repeatable
from bench.faults.day import DayClients, DayService, progress, run_fast, settings_for
from bench.faults.scripted import WEIGHTS, ScriptedEngine, ScriptedTrainer
from openclaw_rl.cli.checks.data import whole_faults
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.versions import Versions
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings

SMALL = 4096
"""Every byte of a file up to this size is flipped; of a larger one as many as asked for."""

NAMED, SERVED, UNNOTICED = "named", "served", "unnoticed"


class Flip(msgspec.Struct, frozen=True):
    """A byte of a file, and the bits of it that are flipped."""

    file: str
    offset: int
    bits: int

    def __str__(self) -> str:
        return f"{self.file} byte {self.offset} ^ {self.bits}"


class Seen(msgspec.Struct):
    """The records that a service hands out, by name, and the weights that engine and trainer have by version. `named`
    is what it says about damage.
    """

    records: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    named: list[str] = []


def flip_all(folder: Path, prompter: Prompter, most: int, seed: int) -> dict[str, Any]:
    """Try every byte of small files and some of large ones; the figures, and the first that were not noticed."""
    if not most:
        return {}
    folder.mkdir()
    code, found = in_process(lambda: try_flips(folder, prompter, most=most, seed=seed), folder / "found.json")
    if code:
        raise RuntimeError("a flip ended the process of the bench")
    shutil.rmtree(folder)
    by_kind = {kind: [flip for flip, kinds in found if kind in kinds] for kind in (NAMED, SERVED, UNNOTICED)}
    return {
        "flips": len(found),
        "flips_named": len(by_kind[NAMED]),
        "flips_served": len(by_kind[SERVED]),
        "flips_unnoticed": len(by_kind[UNNOTICED]),
        "unnoticed": sorted({*by_kind[UNNOTICED], *by_kind[SERVED]})[:40],
    }


def try_flips(
    folder: Path, prompter: Prompter, flips: Sequence[Flip] = (), *, most: int = 0, seed: int = 0
) -> list[tuple[str, list[str]]]:
    """Make a data folder in `folder`, and try these flips in it, or those that `flips_of` chooses; the kinds of each.
    To be run in a process of its own. LIVE in the name of a file is the number of the live version.
    """
    _make(folder, prompter)
    logging.disable(logging.CRITICAL)
    settings, whole = settings_for(folder), folder / "whole"
    data = settings.serve.data
    shutil.copytree(data, whole)
    before = look(settings, prompter)
    found = []
    for flip in flips or flips_of(whole, most, seed):
        _restore(whole, data)
        path = data / flip.file.replace("LIVE", str(before.weights["live"]))
        content = bytearray(path.read_bytes())
        content[flip.offset] ^= flip.bits
        path.write_bytes(content)
        found.append((str(flip), judge(before, look(settings, prompter))))
    return found


def flips_of(data: Path, most: int, seed: int) -> list[Flip]:
    """The flips to try in a folder."""
    draw = random.Random(seed)
    flips = []
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        content = path.read_bytes()
        offsets: Sequence[int] = range(len(content))
        if len(content) > SMALL:  # a journal is zeroes for the most part
            used = [offset for offset, byte in enumerate(content) if byte]
            half = min(len(used), most // 2)
            offsets = sorted({*draw.sample(used, half), *draw.sample(offsets, min(len(content), most - half))})
        name = path.relative_to(data).as_posix()
        flips += [Flip(name, offset, 1 << draw.randrange(8)) for offset in offsets]
    return flips


def _make(folder: Path, prompter: Prompter) -> None:
    """A data folder with two versions, a sample that waits and a turn that is not judged, closed cleanly."""

    repeatable("flips")

    async def work() -> None:
        service = DayService(folder, prompter)
        await service.start()
        clients = DayClients(service, folder / "history.jsonl")
        for _ in range(2):
            await progress(service, clients)
        await clients.say("ann", "How much is seven and five?")
        await clients.thumb("ann", "down", "too long")
        await asyncio.sleep(5.0)
        await service.stop_learner()
        await clients.say("ann", "No, that is wrong. Answer with the number alone.")
        await service.stop()

    run_fast(work())


def _restore(whole: Path, data: Path) -> None:
    shutil.rmtree(data)
    shutil.copytree(whole, data)


def judge(before: Seen, after: Seen) -> list[str]:
    """The kinds of a flip; none where it is harmless."""
    other = {name for name, found in after.records.items() if found is not None and found != before.records.get(name)}
    missing = {name for name, found in before.records.items() if found is not None and after.records.get(name) is None}
    wrong = {name for name, found in after.weights.items() if found != before.weights.get(name, found)}
    other_live = after.weights.get("live") != before.weights.get("live")
    kinds = [NAMED] if after.named else []
    if wrong - {"live"} or any(name.startswith("sample") for name in other):
        kinds.append(SERVED)
    if (other or missing or wrong or other_live) and not after.named:
        kinds.append(UNNOTICED)
    return kinds


def look(settings: Settings, prompter: Prompter) -> Seen:
    """Read everything as the service does, start its versions, and check the folder."""
    seen = Seen({}, {}, [])
    with _naming(seen), contextlib.closing(Journal(settings.serve.journal_path)) as journal:
        for name, value in _records(journal, seen):
            seen.records[name] = value
    with _naming(seen):
        asyncio.run(_versions(settings, prompter, seen))
    with _naming(seen), contextlib.closing(Journal(settings.serve.journal_path)) as journal:
        seen.named += whole_faults(journal, settings.checkpoints_path)
    return seen


def _records(journal: Journal, seen: Seen) -> Iterator[tuple[str, Any]]:
    """Everything that the journal hands out, by name."""
    with _naming(seen):
        yield "versions", [_plain(one) for one in journal.versions()]
    with _naming(seen):
        yield "accounting", journal.accounting()
    turns: list[str] = []
    with _naming(seen):
        turns = [one for session in journal.session_ids() for one in journal.turn_ids(session)]
        yield "turns", turns
    for turn_id in turns:
        for name in ("turn", "next_state", "feedback_for", "judgement", "last_lesson"):
            with _naming(seen):
                yield f"{name} of {turn_id}", _plain(getattr(journal, name)(turn_id))
    with _naming(seen):
        for sample in journal.ready_samples(100):
            yield f"sample of {sample.turn_id}", _plain(sample)


async def _versions(settings: Settings, prompter: Prompter, seen: Seen) -> None:
    """Start the versions as the learner does, and note the weights that engine and trainer have then."""
    journal = AsyncJournal(settings.serve.journal_path)
    try:
        progress = Progress()
        engine = _ReadingEngine(prompter, settings.serve.data.parent / "flips-engine.json", settings.engine.model)
        trainer = ScriptedTrainer()
        versions = Versions(journal, engine, trainer, settings, progress)
        with _naming(seen):
            await versions.start()
            await versions.reconcile()
            seen.weights |= {f"engine {number}": weights for number, weights in engine.weights.items()}
            seen.weights |= {f"trainer {versions.current}": trainer.weights.hex(), "live": versions.current}
        seen.named += progress.notes.values()
    finally:
        await journal.close()


class _ReadingEngine(ScriptedEngine):
    """An engine that shows the weights that it has loaded."""

    def __init__(self, prompter: Prompter, memory: Path, model_path: str) -> None:
        memory.unlink(missing_ok=True)
        super().__init__(prompter, memory, model_path)
        self.weights: dict[int, str] = {}

    async def load(self, version: int, path: str, *, live: bool) -> None:
        await super().load(version, path, live=live)
        if version:
            self.weights[version] = (Path(path) / WEIGHTS).read_bytes().hex()


@contextlib.contextmanager
def _naming(seen: Seen) -> Iterator[None]:
    """Note an error that names its cause. Others would end a process of the service: they are unnoticed damage."""
    try:
        yield
    except OpenClawRLError as error:
        seen.named.append(str(error))
    except Exception as error:
        seen.records["crash"] = f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=lambda one: list(one), builtin_types=())
