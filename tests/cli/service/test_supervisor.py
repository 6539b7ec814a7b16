"""The start of an engine: with which weights, and with which secret."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.cli.service import supervisor as supervisor_module
from openclaw_rl.cli.service.child import Child
from openclaw_rl.cli.service.liveness import LOOK_SECONDS
from openclaw_rl.cli.service.plan import ServicePlan
from openclaw_rl.cli.service.supervisor import Supervisor, _client, _replies
from openclaw_rl.shared.checkpoints import META, SERVED, seal
from openclaw_rl.shared.engine.wire import SECRET
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.process import LISTENERS_VARIABLE
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.trainer_local.sglang.owner_api import listening
from openclaw_rl.trainer_local.sglang.owner_client import card_path
from tests.processes import Engine

Supervise = Callable[..., tuple[Supervisor, list[str]]]


@pytest.fixture
async def supervise(tmp_path: Path) -> AsyncIterator[Callable[..., tuple[Supervisor, list[str]]]]:
    """Make a supervisor that starts nothing, and get what it says."""
    made: list[Supervisor] = []

    def make(*roles: str, **settings: object) -> tuple[Supervisor, list[str]]:
        said: list[str] = []
        chosen = Settings(model=str(EMBEDDED_POLICY), data=tmp_path / "data", port=0, **settings)
        made.append(Supervisor(ServicePlan.from_settings(chosen, roles), say=said.append))
        return made[-1], said

    yield make
    for supervisor in made:
        await supervisor._stop()


def _versions(tmp_path: Path) -> list[Path]:
    """Commit two versions of one file, the second live; returns their folders."""
    folders = []
    with closing(Journal(tmp_path / "data" / "journal.db")) as journal:
        journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint="", method="base"))
        for number in (1, 2):
            folder = tmp_path / "data" / "checkpoints" / str(number)
            (folder / SERVED).mkdir(parents=True)
            (folder / SERVED / "weights").write_bytes(bytes([number]) * 100)
            (folder / "trainer.pt").write_bytes(b"optimizer")
            seal(folder, parent=number - 1, sample_ids=[])
            version = PolicyVersion(
                number=number,
                parent=number - 1,
                state="candidate",
                checkpoint=str(folder),
                method="rehearse",
                guard={"passed": True},
            )
            journal.commit_version(version)
            journal.make_live(number)
            folders.append(folder)
    return folders


async def test_an_engine_starts_with_the_live_version_if_what_it_loads_is_intact(
    tmp_path: Path, supervise: Callable[..., tuple[Supervisor, list[str]]]
) -> None:
    supervisor, said = supervise("engine")
    first, second = _versions(tmp_path)
    (second / "trainer.pt").write_bytes(b"0ptimizer")
    assert supervisor._live_version() == ["--live", f"2={second / SERVED}"], "the trainer's part is the learner's"
    (second / SERVED / "weights").write_bytes(bytes(100))
    assert supervisor._live_version() == ["--live", f"1={first / SERVED}"]
    assert "version 2" in said[-1] and "the engine starts with version 1" in said[-1]


async def test_an_engine_starts_with_the_base_if_weights_without_a_seal_are_gone(
    tmp_path: Path, supervise: Callable[..., tuple[Supervisor, list[str]]]
) -> None:
    supervisor, said = supervise("engine")
    for folder in _versions(tmp_path):
        (folder / META).write_text(json.dumps({"step": 1}))
        (folder / SERVED).rename(folder / "elsewhere")
    assert supervisor._live_version() == []
    assert f"{SERVED} is gone" in said[-1]


async def test_the_engines_secret_is_in_the_url_and_in_the_engines_environment_alone(
    tmp_path: Path, supervise: Callable[..., tuple[Supervisor, list[str]]]
) -> None:
    supervisor, said = supervise("engine", "proxy", "learner")
    kept = tmp_path / "data" / "engine_secret"
    secret = kept.read_text().strip()
    assert kept.stat().st_mode & 0o077 == 0
    assert f"http://bearer:{secret}@127.0.0.1:" in supervisor.settings.engine.url
    given = {child.name: child._environment.get(SECRET) for child in supervisor.children}
    assert given == {"engine": secret, "proxy": None, "learner": None}
    assert not any(secret in word for child in supervisor.children for word in child._command())
    assert secret not in " ".join(said)


async def test_the_proxy_alone_inherits_the_port_at_which_connections_wait_already(supervise: Supervise) -> None:
    supervisor, _ = supervise("engine", "proxy", "learner")
    with socket.create_connection(("127.0.0.1", supervisor.settings.serve.port)):
        inherited = {child.name: child._descriptors for child in supervisor.children}
        assert inherited == {"engine": (), "proxy": (supervisor._listeners[0].fileno(),), "learner": ()}
        variables = {child.name: child._environment.get(LISTENERS_VARIABLE) for child in supervisor.children}
        assert variables == {"engine": None, "proxy": str(inherited["proxy"][0]), "learner": None}
    await supervisor._stop()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", supervisor.settings.serve.port)):
        pass


async def test_a_secret_in_the_url_of_another_engine_is_not_shown(
    supervise: Callable[..., tuple[Supervisor, list[str]]],
) -> None:
    _, said = supervise("engine", "proxy", engine_url="http://bearer:hidden@127.0.0.1:9")
    assert any("http://127.0.0.1:9" in line for line in said) and "hidden" not in " ".join(said)


async def test_every_engine_of_ours_is_asked_whether_it_hangs(supervise: Supervise) -> None:
    async with httpx.AsyncClient() as client:
        judging, _ = supervise("proxy", "engine", "learner", judge=f"engine:{EMBEDDED_POLICY}")
        assert set(judging._questions(client)) == {"proxy", "engine", "judge", "learner"}


async def test_an_sglang_is_asked_by_its_controller_which_is_asked_itself(tmp_path: Path, supervise: Supervise) -> None:
    program = {"backend": "megatron", "sglang_command": "run {args}", "device": "cpu", "train": False}
    supervisor, _ = supervise("proxy", "engine", **program)
    assert not supervisor.placement.servers
    card = card_path(tmp_path / "data" / "run", supervisor.settings.engine.url)
    async with httpx.AsyncClient(timeout=1.0) as client:
        questions = supervisor._questions(client)
        assert set(questions) == {"proxy", "engine"} and supervisor._sglang == {"engine"}
        assert await questions["engine"]() is None, "it has not said where it listens"
        owner: Any = None  # it is not asked to do anything
        async with listening(owner, card):
            assert await questions["engine"]() is True
        with socket.create_server(("127.0.0.1", 0)) as hanging:
            url = f"http://bearer:secret@127.0.0.1:{hanging.getsockname()[1]}"
            write_json(card, {"url": url, "pid": os.getpid()}, mode=0o600)
            assert await questions["engine"]() is False


async def test_a_learner_that_is_loading_has_not_answered_by_what_an_earlier_one_wrote(
    tmp_path: Path, supervise: Supervise
) -> None:
    supervisor, _ = supervise("learner", engine_url="http://127.0.0.1:9")
    (child,) = supervisor.children
    supervisor._written = time.monotonic()
    with closing(Journal(tmp_path / "data" / "journal.db")) as journal:
        journal.heartbeat("learner", 1, {})
        child.started = 1.0
        assert [await supervisor._learner_beats() for _ in range(2)] == [False, False]
        journal.heartbeat("learner", 2, {})
        assert [await supervisor._learner_beats() for _ in range(2)] == [True, False]
        journal.heartbeat("learner", 2, {})
        child.started = 2.0
        assert [await supervisor._learner_beats() for _ in range(2)] == [False, False]


async def test_a_learner_is_not_judged_while_our_own_heartbeat_waits(tmp_path: Path, supervise: Supervise) -> None:
    supervisor, _ = supervise("learner", engine_url="http://127.0.0.1:9")
    supervisor._written = time.monotonic()
    with closing(Journal(tmp_path / "data" / "journal.db")):
        assert await supervisor._learner_beats() is False
        supervisor._written -= 2 * LOOK_SECONDS
        assert await supervisor._learner_beats() is None


async def test_a_journal_that_cannot_be_opened_ends_neither_heartbeats_nor_the_wait_for_a_learner(
    tmp_path: Path, supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "HEARTBEAT_SECONDS", 0.01)
    supervisor, said = supervise("learner", engine_url="http://127.0.0.1:9")
    (child,) = supervisor.children
    monkeypatch.setattr(Child, "pid", 1)
    child.started = time.time()
    path = tmp_path / "data" / "journal.db"
    path.write_bytes(b"no journal" * 1000)
    beating = asyncio.create_task(supervisor._heartbeats())
    async with httpx.AsyncClient() as client, asyncio.timeout(20):
        while not said:
            await asyncio.sleep(0.01)
        assert not await supervisor._is_up("learner", client)
        path.unlink()
        while not supervisor._written:
            await asyncio.sleep(0.01)
    assert not beating.done() and len(said) == 1
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    with closing(Journal(path)) as journal:
        assert "supervisor-learner" in journal.processes()


async def test_our_own_processes_are_asked_past_a_proxy_of_the_environment(
    engine_server: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with _client(5.0) as client:
        assert await _replies(client, f"{engine_server.url}/health")
