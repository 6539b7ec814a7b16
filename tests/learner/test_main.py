"""The whole learner process, in this one, against a real engine: from recorded turns to a version that is served."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.judge.loop import JudgeLoop
from openclaw_rl.learner.main import run
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import NextState, Sampling
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings, to_environment
from tests.learner.things import turn
from tests.processes import Engine, run_engine
from tests.trainer_local.serving import collect

COMPLAINTS = ("no bold please", "use plain sentences", "too long", "thanks")


@pytest.fixture(scope="module")
def engine(random_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with run_engine(random_policy, tmp_path_factory.mktemp("engine")) as running:
        yield running


def make_settings(engine: Engine, data: Path, **changes: Any) -> Settings:
    fields: dict[str, Any] = {
        "data": data,
        "model": str(engine.policy),
        "engine_url": engine.url,
        "device": "cpu",
        "batch_size": 4,
        "rehearsals": 2,
        "anchors": 2,
        "rehearsal_max_tokens": 6,
        "epochs": 1,
        "lora_rank": 2,
        "guard_max_kl": 50.0,
    }
    data.mkdir(parents=True, exist_ok=True)
    return Settings(**(fields | changes))


async def record(journal: Journal, prompter: Prompter, settings: Settings) -> None:
    """Turns as the proxy records them, with what people said next."""
    engine = create_engine(settings)
    sampling = Sampling(max_tokens=4, temperature=0.8)
    for number, text in enumerate(COMPLAINTS):
        messages = [{"role": "user", "content": f"How much is {number} and 5?"}]
        ids = prompter.render(ChatInput(messages=messages, tools=[], tools_json=b"")).ids()
        answer = await collect(engine.generate(ids, sampling))
        made = turn(
            number,
            messages=messages,
            prompt_ids=ids,
            response_ids=answer.ids,
            logprobs=answer.logprobs,
            versions=answer.last.versions,
            sampling=sampling,
        )
        journal.record_turn(made)
        journal.settle(NextState(turn_id=made.turn_id, role="user", text=text))
    await engine.close()


async def until(condition: Any, journal: Journal, seconds: float = 90.0) -> None:
    """Wait for `condition`; when it does not come, say what the learner was doing."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"after {seconds:.0f} s the learner says {journal.processes()} and the journal {journal.status()}")


async def test_recorded_complaints_become_a_version_that_the_engine_serves(
    engine: Engine, prompter: Prompter, tmp_path: Path
) -> None:
    settings = make_settings(engine, tmp_path / "data")
    journal = Journal(settings.serve.journal_path)
    await record(journal, prompter, settings)
    stop = asyncio.Event()
    process = asyncio.create_task(run(settings, stop))
    try:
        await until(lambda: process.done() or ((live := journal.live_version()) and live.number == 1), journal)
        if process.done():
            await process
        client = create_engine(settings)
        assert (await client.info()).live == 1
        await client.close()
        row = journal.processes()["learner"]
        assert row.pid == os.getpid()
    finally:
        stop.set()
        await process
        journal.close()


async def test_work_that_is_stopped_is_no_death_even_if_its_end_takes_too_long(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(engine, tmp_path / "data", train=False)
    ending = asyncio.Event()

    async def slow(judge: JudgeLoop) -> None:
        await judge._journal.begin_work("step", ["sample_1"])
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ending.wait()

    monkeypatch.setattr(JudgeLoop, "run", slow)
    stop = asyncio.Event()
    process = asyncio.create_task(run(settings, stop))
    journal = Journal(settings.serve.journal_path)

    def runs() -> bool:
        with journal.database.reading() as connection:
            return bool(connection.value("SELECT running FROM work"))

    try:
        await stop.wait()
        await until(lambda: not runs(), journal, 10.0)
        assert not process.done()
        assert journal.count_deaths() == {}
    finally:
        ending.set()
        await process
        journal.close()


async def test_without_training_turns_are_judged_and_no_version_is_made(
    engine: Engine, prompter: Prompter, tmp_path: Path
) -> None:
    settings = make_settings(engine, tmp_path / "data", train=False)
    journal = Journal(settings.serve.journal_path)
    await record(journal, prompter, settings)
    stop = asyncio.Event()
    process = asyncio.create_task(run(settings, stop))
    try:
        await until(lambda: process.done() or journal.ready_count() == 4, journal)
        await until(
            lambda: process.done() or journal.processes()["learner"].status["state"] == "training is off", journal
        )
        await until(lambda: process.done() or not journal.unaudited(1), journal)
        figures = journal.audit_figures()
        assert figures.verdicts.keys() == {"aligned"} and figures.turns >= 3 and figures.largest < 1e-3
        assert [version.number for version in journal.versions()] == [0]
    finally:
        stop.set()
        await process
        journal.close()


async def test_a_setting_that_cannot_work_ends_the_process_with_the_reason(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no_such_module"):
        await run(make_settings(engine, tmp_path / "a", judge="no_such_module:Judge"), asyncio.Event())
    with pytest.raises(ConfigError, match="cannot be read"):
        await run(make_settings(engine, tmp_path / "b", anchor_prompts="/nowhere/drill.txt"), asyncio.Event())
    with pytest.raises(ConfigError, match=r"custom_loss = '\./nowhere\.py'.*no such file"):
        await run(make_settings(engine, tmp_path / "c", custom_loss="./nowhere.py"), asyncio.Event())
    assert not (tmp_path / "c" / "journal.db").exists()  # before anything says that the learner lives


def test_the_process_beats_early_and_ends_cleanly_on_sigterm(engine: Engine, tmp_path: Path) -> None:
    settings = make_settings(engine, tmp_path / "data")
    process = subprocess.Popen(
        [sys.executable, "-m", "openclaw_rl.learner.main"],
        env=os.environ | to_environment(settings),
        stderr=subprocess.PIPE,
    )
    try:
        journal = Journal(settings.serve.journal_path)
        asyncio.run(until(lambda: process.poll() is not None or "learner" in journal.processes(), journal))
        assert process.poll() is None
        assert os.getpriority(os.PRIO_PROCESS, process.pid) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors.decode()
        journal.close()
    finally:
        process.kill()
        process.wait()
