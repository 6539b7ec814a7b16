"""Figures of every step on their way out: TensorBoard's files as TensorBoard reads them, and the notes when they
cannot go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from openclaw_rl.learner.main import sinks_of
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.reporting import report
from openclaw_rl.learner.reporting.report import Reporter, SinkError
from openclaw_rl.learner.reporting.tensorboard import TensorBoard
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import PolicyVersion, VersionState
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.test_loop import COMPLAINTS, Worlds, tell


async def commit(journal: AsyncJournal, number: int, state: VersionState, **metrics: float) -> None:
    parent = None if number == 0 else 0
    kind = "" if number == 0 else "rehearse"
    named = {name.replace("_", "/"): value for name, value in metrics.items()}
    await journal.commit_version(
        PolicyVersion(
            number=number,
            parent=parent,
            state="candidate" if state == "retired" else state,
            checkpoint="",
            method=kind,
            metrics=named,
            time=1000.0 + number,
        )
    )


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read a folder as TensorBoard shows it: steps and values by tag, in the order of the files."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncJournal:  # type: ignore[misc]
    opened = AsyncJournal(tmp_path / "journal.db")
    await commit(opened, 0, "live")
    yield opened
    await opened.close()


async def test_every_step_is_written_once_whatever_dies(journal: AsyncJournal, tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    first = Reporter(journal, TensorBoard(folder), Progress())
    assert await first.once() == 0
    await commit(journal, 1, "rejected", loss_total=2.0, judge_votes=4.0, judge_failed=1.0)
    assert (await first.once(), await first.once()) == (1, 0)
    await commit(journal, 2, "rejected", loss_total=1.0, judge_votes=8.0, judge_failed=4.0)
    assert await first.once() == 1
    # Killed between the figures and the note of it in the journal, in the middle of a further record.
    await journal.set_control("reported to tensorboard", "1")
    (file,) = folder.iterdir()
    with file.open("ab") as torn:
        torn.write(file.read_bytes()[-40:-10])
    again = Reporter(journal, TensorBoard(folder), Progress())
    assert await again.once() == 0
    await commit(journal, 3, "rejected", loss_total=0.5, judge_votes=8.0, judge_failed=4.0)
    assert await again.once() == 1
    figures = read(folder)
    assert figures["loss/total"] == [(1, 2.0), (2, 1.0), (3, 0.5)]
    assert figures["judge/failure_rate"] == [(1, 0.25), (2, 0.75)]
    assert figures["rejected"] == [(1, 1.0), (2, 1.0), (3, 1.0)]


async def test_a_version_waits_until_it_is_decided(journal: AsyncJournal, tmp_path: Path) -> None:
    reporter = Reporter(journal, TensorBoard(tmp_path / "tensorboard"), Progress())
    await commit(journal, 1, "candidate", loss_total=2.0)
    assert await reporter.once() == 0
    await journal.make_live(1)
    assert await reporter.once() == 1
    assert read(tmp_path / "tensorboard")["rejected"] == [(1, 0.0)]


async def test_a_journal_with_a_history_is_written_as_a_whole(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds(batch_size=1, rehearsals=1, anchors=1, report_to="tensorboard")
    await world.versions.start()
    for number in (1, 2):
        await tell(world, number, [COMPLAINTS[number]])
        assert await world.learner.once()
    (sink,) = await sinks_of(world.settings, world.journal)
    assert await Reporter(world.journal, sink, world.progress).once() == 2
    figures = read(world.settings.serve.data / "tensorboard")
    for name in (
        "loss/total",
        "loss/binary",
        "loss/opd",
        "reward/mean",
        "reward/std",
        "gradient/norm",
        "learning_rate",
    ):
        assert [step for step, _ in figures[name]] == [1, 2], name
    second = await world.journal.version(2)
    assert second is not None
    for name, value in second.metrics.items():
        assert figures[name][-1][1] == pytest.approx(value, rel=1e-6), name


async def test_a_sink_that_fails_is_noted_and_tried_again(
    journal: AsyncJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(report, "POLL", 0.01)

    class Broken:
        """Cannot be opened at first, then not be written once."""

        name = "broken"
        opened = 0

        def __init__(self) -> None:
            self.written: list[int] = []

        def open(self, last: int) -> int:
            self.opened += 1
            if self.opened == 1:
                raise SinkError("no such host")
            return last

        def write(self, version: int, time: float, figures: Mapping[str, float]) -> None:
            if self.opened == 2:
                raise SinkError("the disk is full")
            self.written.append(version)

        def kept(self) -> int:
            return max(self.written, default=0)

        def close(self) -> None:
            pass

    progress, sink, notes = Progress(), Broken(), []
    await commit(journal, 1, "rejected", loss_total=2.0)
    note = progress.note
    monkeypatch.setattr(progress, "note", lambda about, text: (notes.append(text), note(about, text)))
    task = asyncio.create_task(Reporter(journal, sink, progress).run())
    async with asyncio.timeout(20):
        while not (sink.written and not progress.notes):
            assert not task.done()
            await asyncio.sleep(0.01)
    task.cancel()
    assert sink.written == [1]
    distinct = [text for text in dict.fromkeys(notes) if text]
    assert distinct == [f"figures are not reported: {why}" for why in ("no such host", "the disk is full")]


async def test_a_missing_package_names_its_extra(journal: AsyncJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)  # what an import of a package not installed meets
    (sink,) = await sinks_of(Settings(report_to="wandb:my-project", data=Path("nowhere")), journal)
    with pytest.raises(SinkError, match=r"pip install -e '\.\[wandb\]'"):
        await Reporter(journal, sink, Progress()).once()
    (same,) = await sinks_of(Settings(report_to="wandb:my-project", data=Path("nowhere")), journal)
    assert sink._run_id == same._run_id and len(sink._run_id) == 8  # type: ignore[attr-defined]
