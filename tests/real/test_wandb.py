"""Figures of every step to the real Weights & Biases library: offline as it writes them to disk, and its errors when
no server can be reached.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.evaluation.service import own_service
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion
from tests.processes import ROOT
from tests.rigs.environments import environment

pytestmark = pytest.mark.real

REPORT = """
import asyncio, os, signal, sys
sys.path.append({packages!r})
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.reporting.report import Reporter
from openclaw_rl.learner.main import sinks_of
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.settings.settings import Settings

async def main():
    settings = Settings(data={data!r}, report_to="wandb:team/our-project", api_key="secret-key")
    journal = AsyncJournal(settings.serve.journal_path)
    (sink,) = await sinks_of(settings, journal)
    reporter = Reporter(journal, sink, Progress())
    print(await reporter.once())
    await_version = (await journal.learning_figures()).newest
    sys.stdout.flush()
    if {kill!r} == "at once":
        os.kill(os.getpid(), signal.SIGKILL)
    if {kill!r} == "once kept":
        while sink.kept() < await_version:
            await reporter.once()
            await asyncio.sleep(0.2)
        await reporter.once()
        os.kill(os.getpid(), signal.SIGKILL)
    await reporter.close()
    await journal.close()

asyncio.run(main())
"""
READ = """
import json, sys
sys.path.append({packages!r})
from wandb.proto import wandb_internal_pb2 as pb

def records(data):  # LevelDB's log format, behind a header of seven bytes
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield parts
            parts = b""

found = []
for record in records(open({file!r}, "rb").read()):
    parsed = pb.Record()
    parsed.ParseFromString(record)
    kind = parsed.WhichOneof("record_type")
    if kind == "history":
        found.append([kind, {{item.key or ".".join(item.nested_key): json.loads(item.value_json)
                              for item in parsed.history.item}}])
    else:
        found.append([kind, str(parsed)])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def packages() -> str:
    (folder,) = environment("wandb").glob("lib/python3.*/site-packages")
    return str(folder)


def python(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "OPENCLAW_"))}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )


def journal_with(data: Path, *numbers: int) -> None:
    journal = Journal(data / "journal.db")
    if journal.version(0) is None:
        journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    for number in numbers:
        metrics = {"loss/total": 1.0 / number, "learning_rate": 0.002}
        journal.commit_version(
            PolicyVersion(number=number, parent=0, state="rejected", checkpoint="", method="rehearse", metrics=metrics)
        )
    journal.close()


def runs(data: Path, packages: str) -> Iterator[list[list[Any]]]:
    """The records of each process that wrote to the run, in order."""
    for file in sorted(data.glob("wandb/offline-run-*/*.wandb")):
        done = python(READ.format(packages=packages, file=str(file)))
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


def test_offline_every_step_is_written_once_and_nothing_but_figures(tmp_path: Path, packages: str) -> None:
    offline = {"WANDB_MODE": "offline", "HOME": str(tmp_path)}
    for numbers, kill, written in (
        ((1, 2), "at once", 2),
        ((), "once kept", 2),  # what W&B had not written down is handed over again
        ((3,), "", 1),
        ((), "", 0),
    ):
        journal_with(tmp_path, *numbers)
        done = python(REPORT.format(packages=packages, data=str(tmp_path), kill=kill), **offline)
        assert done.returncode == (-signal.SIGKILL if kill else 0), done.stderr
        assert done.stdout.split() == [str(written)]
        if kill:
            time.sleep(3.0)  # W&B's own process notices that ours is gone, and finishes
    found = list(runs(tmp_path, packages))
    history = [figures for records in found for kind, figures in records if kind == "history"]
    assert [figures["_step"] for figures in history] == [1, 2, 3]
    assert [figures["loss/total"] for figures in history] == [1.0, 1 / 2, 1 / 3]
    assert all(figures["rejected"] == 1 for figures in history)
    assert len({file.stem for file in tmp_path.glob("wandb/offline-run-*/*.wandb")}) == 1, "one run"
    everything = "".join(file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*.wandb"))
    for private in ("secret-key", str(ROOT), str(tmp_path)):
        assert private not in everything, private
    named = [content for records in found for _, content in records if 'host: "' in str(content)]
    assert not named, named
    kinds = {kind for records in found for kind, _ in records}
    assert not kinds & {"stats", "files", "output", "output_raw"}, kinds


def test_a_server_that_is_not_there_is_an_error_in_words(tmp_path: Path, packages: str) -> None:
    journal_with(tmp_path, 1)
    program = REPORT.format(packages=packages, data=str(tmp_path), kill="")
    program = program.replace(
        "asyncio.run(main())",
        "import openclaw_rl.learner.reporting.wandb as w; w.INIT_SECONDS = 3.0\nasyncio.run(main())",
    )
    key = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    done = python(program, **key)
    assert "openclaw_rl.learner.reporting.report.SinkError: W&B:" in done.stderr and "\nKeyError" not in done.stderr
    done = python(program, HOME=str(tmp_path))
    assert "SinkError: W&B: UsageError: No API key" in done.stderr
    journal = Journal(tmp_path / "journal.db")
    assert journal.get_control("reported to wandb", "0") == "0", "it is tried again"
    journal.close()


async def test_a_service_learns_on_without_a_server_for_its_figures(
    tmp_path: Path, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("PYTHONPATH", packages)
    settings: dict[str, str | int | float | bool] = {
        "report_to": "wandb:our-project",
        "batch_size": 1,
        "rehearsals": 1,
        "anchors": 1,
        "epochs": 1,
        "guard": False,
    }
    async with own_service(settings, keep=tmp_path) as service, ChatClient(service.url, service.key) as client:
        said: list[dict[str, Any]] = [{"role": "user", "content": "How much is 7 and 5?"}]
        answer = await client.chat(said)
        said += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "No bold, please."}]
        await client.chat(said)
        async with asyncio.timeout(120):
            while True:
                status = await client.get("/rl/status")
                notes = status["processes"].get("learner", {}).get("detail", {}).get("notes", {})
                if (status["version"]["live"] or 0) >= 1 and "wandb" in notes:
                    break
                await asyncio.sleep(0.5)
        assert "figures are not reported: W&B" in notes["wandb"]
