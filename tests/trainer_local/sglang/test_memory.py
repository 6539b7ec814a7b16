"""Memory of fake SGLang servers that is lent: what becomes of it when something fails, or two want something of the
servers at once. That the real one lends and takes back is in `tests/real/test_sglang_whole.py`.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang import memory, workers
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from openclaw_rl.trainer_local.sglang.labels import BROKEN, is_wanted, lent, me, updating
from openclaw_rl.trainer_local.sglang.rescue import Rescue
from openclaw_rl.trainer_local.sglang.workers import taken_back
from tests.trainer_local.fake_fleet import FakeServer, running
from tests.trainer_local.serving import wait_for

TAGS = ("kv_cache", "weights")
LIVE = "policy-v7-0aff"
GAVE, TOOK = "release_memory_occupation", "resume_memory_occupation"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FRESH_SECONDS", 0.05)


@pytest.fixture
def servers() -> list[FakeServer]:
    found = [FakeServer(), FakeServer()]
    for server in found:
        server.label = LIVE
        server.adapters = [LIVE]
    return found


@pytest.fixture
async def engine(servers: list[FakeServer]) -> AsyncIterator[SglangEngine]:
    async with running(*servers) as url:
        made = SglangEngine(url, patience=1)
        yield made
        await made.close()


def serves(server: FakeServer) -> bool:
    return (server.label, server.paused, server.gone, server.lent) == (LIVE, False, False, set())


async def until(servers: list[FakeServer]) -> None:
    """What another process does is done."""
    await asyncio.to_thread(wait_for, lambda: all(map(serves, servers)), 30.0)


async def test_memory_is_lent_and_taken_back_by_every_fake_server(
    servers: list[FakeServer], engine: SglangEngine
) -> None:
    async with engine.lend_memory(TAGS) as wanted:
        assert wanted is not None and not wanted.is_set()
        assert all(server.lent == set(TAGS) and server.paused for server in servers)
    assert all(map(serves, servers))
    assert all(server.did.count(GAVE) == server.did.count(TOOK) == 1 for server in servers)


async def test_a_fake_server_takes_its_memory_once_though_another_one_is_gone(
    servers: list[FakeServer], engine: SglangEngine
) -> None:
    servers[0].slow = 1.0
    with pytest.raises(EngineError, match="cannot be reached"):
        async with engine.lend_memory(TAGS) as wanted:
            assert wanted is not None
            servers[1].gone = True
            await asyncio.wait_for(wanted.wait(), 30)
    assert serves(servers[0]) and servers[0].did.count(TOOK) == 1


async def test_a_fake_server_that_does_not_take_its_memory_is_left_to_be_started_anew_and_the_other_serves(
    servers: list[FakeServer], engine: SglangEngine
) -> None:
    with pytest.raises(EngineError, match="no memory left"):
        async with engine.lend_memory(TAGS):
            servers[1].meanwhile = lambda path: servers[1].refuses.update({TOOK: 1} if path == TOOK else {})
    assert servers[1].label == BROKEN and serves(servers[0])


async def test_fake_servers_are_not_told_to_take_what_was_only_promised(
    servers: list[FakeServer], engine: SglangEngine
) -> None:
    await engine.info()
    servers[1].refuses = {"pause_generation": 1}
    with pytest.raises(EngineError, match="no memory left"):
        async with engine.lend_memory(TAGS):
            raise AssertionError("nothing was lent")
    assert all(map(serves, servers)) and all(TOOK not in server.did for server in servers)


@pytest.mark.parametrize("given", [False, True], ids=["promised", "lent"])
async def test_fake_servers_go_on_where_a_trainer_is_ended(
    servers: list[FakeServer], engine: SglangEngine, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes what it has back once this process, which it takes for the trainer, had ten seconds to end."""
    there, left = asyncio.Event(), list[Rescue]()
    leave = Rescue.leave
    monkeypatch.setattr(Rescue, "leave", lambda rescue: (left.append(rescue), leave(rescue)))
    moment = GAVE if given else "update_weight_version"
    servers[0].meanwhile = lambda path: there.set() if path == moment else None
    if not given:
        monkeypatch.setattr(memory, "FRESH_SECONDS", 30.0)

    async def borrow() -> None:
        async with engine.lend_memory(TAGS) as wanted:
            assert wanted is not None
            await asyncio.Event().wait()

    borrowing = asyncio.create_task(borrow())
    await asyncio.wait_for(there.wait(), 30)
    if given:
        await asyncio.to_thread(wait_for, lambda: all(server.lent for server in servers), 30.0)
    borrowing.cancel()
    await asyncio.gather(borrowing, return_exceptions=True)
    await until(servers)
    for rescue in left:
        assert rescue._process is not None and await rescue._process.wait() == 0
    assert len(left) == 1 and {server.did.count(TOOK) for server in servers} == {int(given)}


async def test_what_a_trainer_had_that_is_gone_is_taken_back_before_it_is_lent_again(
    servers: list[FakeServer], engine: SglangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_LEFT_SECONDS", 0.0)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for server in servers:
        server.label, server.paused = lent(LIVE, f"{socket.gethostname()}:{ended.pid}:change_1", TAGS), True
        server.lent = set(TAGS)
    async with engine.lend_memory(TAGS) as wanted:
        assert wanted is not None and all(server.did.count(TOOK) == 1 for server in servers)
    assert all(map(serves, servers))


async def test_what_a_fake_server_could_not_be_told_to_take_back_it_takes_later(
    servers: list[FakeServer], engine: SglangEngine
) -> None:
    """It fell silent for longer than anybody tried."""
    servers[1].label, servers[1].paused, servers[1].lent = lent(LIVE, me(), TAGS), True, set(TAGS)
    assert not await engine.busy()
    assert all(map(serves, servers)) and servers[1].did.count(TOOK) == 1


@pytest.mark.parametrize("label", [updating(8, 7, "elsewhere:1:change_1"), BROKEN])
async def test_nothing_is_lent_while_weights_are_changed(
    servers: list[FakeServer], engine: SglangEngine, label: str
) -> None:
    for server in servers:
        server.label = label
    async with engine.lend_memory(TAGS) as wanted:
        assert wanted is None
    assert all(server.did == [] and server.label == label for server in servers)


async def test_who_changes_weights_at_the_same_moment_goes_first(
    servers: list[FakeServer], engine: SglangEngine
) -> None:
    label = updating(8, 7, me())
    there = asyncio.Event()
    servers[0].meanwhile = lambda path: there.set()

    async def change() -> None:
        await there.wait()
        for server in servers:
            while "-by-" not in server.label:
                await asyncio.sleep(0)
            server.label = label

    changing = asyncio.create_task(change())
    async with engine.lend_memory(TAGS) as wanted:
        assert wanted is None
    await changing
    assert all(server.label == label and set(server.did) == {"update_weight_version"} for server in servers)


async def test_nothing_is_lent_while_one_of_several_fake_servers_is_away(
    servers: list[FakeServer], engine: SglangEngine
) -> None:
    servers[1].gone = True
    with pytest.raises(EngineError, match=f"{servers[1].url}, behind the router at .* is away"):
        async with engine.lend_memory(TAGS):
            raise AssertionError("its memory would not be free")
    with pytest.raises(EngineError, match="is away"):
        await engine.busy()
    servers[1].gone = False
    async with engine.lend_memory(TAGS) as wanted:
        assert wanted is not None and all(server.lent for server in servers)


@pytest.mark.parametrize("whole", [False, True], ids=["an adapter", "all weights"])
async def test_new_weights_wait_for_memory_that_is_lent_when_they_are_on_their_way(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer(enable_lora=not whole)
    server.label = "7.0aff" if whole else LIVE
    before, stand_by = server.label, Rescue.stand_by

    def borrow() -> None:
        if "-by-" not in server.label and not server.did.count(TOOK):
            server.label, server.lent, server.paused = lent(before, me(), TAGS), set(TAGS), True

    async def then_borrow(rescue: Rescue) -> None:
        await stand_by(rescue)
        borrow()

    monkeypatch.setattr(Rescue, "stand_by", then_borrow)
    server.meanwhile = lambda path: borrow() if path == "load_lora_adapter" else None
    async with running(server) as url:
        engine = SglangEngine(url, patience=1)
        await engine.info()
        loading = asyncio.create_task(engine.load(8, "/elsewhere/served", live=True))
        async with asyncio.timeout(30):
            while not is_wanted(server.label):
                assert not loading.done() and "update_weights_from_disk" not in server.did
                await asyncio.sleep(0.01)
        await taken_back(engine._workers.front)
        await asyncio.wait_for(loading, 30)
        assert (await engine.info()).live == 8 and server.did.count(TOOK) == 1 and not server.gone
        await engine.close()
