"""Ownership of fake SGLang servers and their memory: one owner at a time, and cleanup when something fails or the
client is gone. That the real one lends and takes back is in `tests/real/test_sglang_whole.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from openclaw_rl.shared.engine.answers import BROKEN
from openclaw_rl.shared.engine.http_client import authorization, without_secret
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang import owner_api
from openclaw_rl.trainer_local.sglang.owner import Owner
from openclaw_rl.trainer_local.sglang.owner_api import listening
from openclaw_rl.trainer_local.sglang.owner_client import OwnerClient, card_path, owner_url
from openclaw_rl.trainer_local.sglang.versions import VersionStore
from tests.trainer_local.fake_fleet import FakeServer, running
from tests.trainer_local.serving import write_model

TAGS = ("kv_cache", "weights")
LIVE = "policy-v7-0aff"
GAVE, TOOK = "release_memory_occupation", "resume_memory_occupation"


@pytest.fixture
def servers() -> list[FakeServer]:
    found = [FakeServer(), FakeServer()]
    for server in found:
        server.label = LIVE
        server.adapters = [LIVE]
    return found


@pytest.fixture(autouse=True)
def short_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openclaw_rl.trainer_local.sglang.owner.READ_SECONDS", 0.1)


@pytest.fixture
async def owner(servers: list[FakeServer]) -> AsyncIterator[Owner]:
    async with running(*servers) as url:
        made = Owner(url, VersionStore("base"))
        yield made
        await made.close()


@pytest.fixture
async def remote(owner: Owner, tmp_path: Path) -> AsyncIterator[OwnerClient]:
    """The same owner over HTTP."""
    async with listening(owner, tmp_path / "card") as url:
        assert owner_url(tmp_path / "card") == url
        client = OwnerClient(url)
        yield client
        await client.close()


@pytest.fixture(params=["here", "over HTTP"])
def either(request: pytest.FixtureRequest, owner: Owner, remote: OwnerClient) -> Owner | OwnerClient:
    return owner if request.param == "here" else remote


def serves(server: FakeServer) -> bool:
    return (server.label, server.paused, server.gone, server.lent) == (LIVE, False, False, set())


async def test_memory_is_lent_and_taken_back_by_every_fake_server(
    servers: list[FakeServer], either: Owner | OwnerClient
) -> None:
    async with either.lend() as lent:
        assert lent and all(server.lent == set(TAGS) and server.paused for server in servers)
    assert all(map(serves, servers))
    assert all(server.did.count(GAVE) == server.did.count(TOOK) == 1 for server in servers)


async def test_memory_comes_back_where_its_user_fails(servers: list[FakeServer], either: Owner | OwnerClient) -> None:
    with pytest.raises(ValueError, match="the trainer's own trouble"):
        async with either.lend():
            raise ValueError("the trainer's own trouble")
    assert all(map(serves, servers))


async def test_no_memory_is_lent_by_a_busy_fake_server(servers: list[FakeServer], either: Owner | OwnerClient) -> None:
    servers[1].running = 1
    async with either.lend() as lent:
        assert not lent
    assert all(map(serves, servers)) and not servers[0].did


async def test_a_request_at_the_last_moment_goes_first(servers: list[FakeServer], either: Owner | OwnerClient) -> None:
    servers[0].meanwhile = lambda path: setattr(servers[0], "running", 1)
    async with either.lend() as lent:
        assert not lent
    assert all(map(serves, servers)) and all(GAVE not in server.did for server in servers)


async def test_a_request_that_was_being_read_at_the_pause_goes_first(
    servers: list[FakeServer], either: Owner | OwnerClient
) -> None:
    """It passed before the pause, and comes to the queue for grammars after it."""

    def arrives(path: str) -> None:
        if path == "pause_generation":
            asyncio.get_running_loop().call_later(0.02, setattr, servers[1], "grammars", 1)

    servers[1].meanwhile = arrives
    async with either.lend() as lent:
        assert not lent
    assert all(map(serves, servers)) and all(GAVE not in server.did for server in servers)
    servers[1].grammars, servers[1].meanwhile = 0, lambda path: None
    async with either.lend() as lent:
        assert lent


async def test_a_fake_server_takes_its_memory_once_though_another_one_is_gone(
    servers: list[FakeServer], owner: Owner
) -> None:
    servers[0].slow = 1.0
    with pytest.raises(EngineError, match="cannot be reached"):
        async with owner.lend():
            servers[1].gone = True
    assert serves(servers[0]) and servers[0].did.count(TOOK) == 1


async def test_a_fake_server_that_does_not_take_its_memory_is_left_for_a_restart_and_the_other_serves(
    servers: list[FakeServer], either: Owner | OwnerClient
) -> None:
    with pytest.raises(EngineError, match="no memory left"):
        async with either.lend():
            servers[1].refuses = {TOOK: 1}
    assert servers[1].label == BROKEN and serves(servers[0])


@pytest.mark.parametrize("route", ["pause_generation", GAVE])
async def test_fake_servers_are_not_asked_to_take_memory_that_they_did_not_give(
    servers: list[FakeServer], either: Owner | OwnerClient, route: str
) -> None:
    servers[1].refuses = {route: 1}
    with pytest.raises(EngineError, match="no memory left"):
        async with either.lend():
            raise AssertionError("nothing was lent")
    assert all(map(serves, servers)) and TOOK not in servers[1].did


async def test_nothing_is_lent_while_one_of_several_fake_servers_is_away(
    servers: list[FakeServer], owner: Owner
) -> None:
    servers[1].gone = True
    with pytest.raises(EngineError, match=f"{servers[1].url}, behind the router at .* is away"):
        async with owner.lend():
            raise AssertionError("its memory would not be free")
    servers[1].gone = False
    async with owner.lend() as lent:
        assert lent and all(server.lent for server in servers)


async def test_memory_of_a_client_that_is_gone_comes_back(
    servers: list[FakeServer], remote: OwnerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_api, "LEASE_SECONDS", 0.2)
    with pytest.raises(EngineError, match="not renewed in time"):
        async with remote.lend() as lent:
            assert lent
            async with asyncio.timeout(30):
                while not all(map(serves, servers)):
                    await asyncio.sleep(0.01)
    async with remote.lend() as lent:
        assert lent, "nothing is in the way of the next one"


async def test_a_lease_lasts_while_it_is_renewed(
    servers: list[FakeServer], remote: OwnerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_api, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr("openclaw_rl.trainer_local.sglang.owner_client._RENEW_SECONDS", 0.05)
    async with remote.lend() as lent:
        await asyncio.sleep(1.0)
        assert lent and all(server.lent for server in servers)
    assert all(map(serves, servers))


async def test_new_weights_wait_for_memory_that_is_lent(servers: list[FakeServer], remote: OwnerClient) -> None:
    async with remote.lend():
        loading = asyncio.create_task(remote.load(8, "/elsewhere/served", live=True))
        await asyncio.wait([loading], timeout=0.3)
        assert not loading.done() and all("load_lora_adapter" not in server.did for server in servers)
    await asyncio.wait_for(loading, 30)
    assert all(server.label.startswith("policy-v8-") and not server.gone for server in servers)


@asynccontextmanager
async def whole(tmp_path: Path) -> AsyncIterator[tuple[FakeServer, OwnerClient]]:
    """A fake server of full weights and its owner over HTTP."""
    server, base = FakeServer(enable_lora=False), write_model(tmp_path / "base")
    for number in (1, 2):
        write_model(tmp_path / str(number) / "served", seed=number)
    async with running(server) as url:
        owner = Owner(url, VersionStore(str(base), tmp_path))
        async with listening(owner, None) as api:
            client = OwnerClient(api)
            yield server, client
            await client.close()
        await owner.close()


async def test_a_program_that_cannot_read_the_card_commands_no_owner(owner: Owner, tmp_path: Path) -> None:
    card = tmp_path / "card"
    async with listening(owner, card) as url, httpx.AsyncClient() as client:
        assert card.stat().st_mode & 0o077 == 0
        for headers in ({}, {"authorization": "Bearer other"}, {"content-type": "text/plain", **authorization(url)}):
            body = {"version": 1, "path": "/elsewhere", "live": True}
            sent = {"content-type": "application/json"} | headers
            refused = await client.post(f"{without_secret(url)}/load", content=json.dumps(body), headers=sent)
            assert refused.status_code == (415 if "text/plain" in sent.values() else 401)


def test_the_card_of_an_sglang_has_no_secret_in_its_name(tmp_path: Path) -> None:
    assert card_path(tmp_path, "http://bearer:s3cret@gpu:1") == card_path(tmp_path, "http://gpu:1")


CHANGE = ["pause_generation", "flush_cache", "begin_weight_update"]


async def test_of_two_that_change_a_fake_servers_weights_at_the_same_moment_one_waits(tmp_path: Path) -> None:
    async with whole(tmp_path) as (server, remote):
        paths = [str(tmp_path / str(number) / "served") for number in (1, 2)]
        await asyncio.gather(*(remote.load(number, path, live=True) for number, path in enumerate(paths, 1)))
    one = [*CHANGE, "update_weights_from_disk", "update_weight_version", "end_weight_update", "continue_generation"]
    assert server.did == 2 * one and server.label.startswith("2.")


async def test_weights_that_a_client_brings_are_live_when_it_has_brought_them(tmp_path: Path) -> None:
    async with whole(tmp_path) as (server, remote):
        for needed in (True, False):
            async with remote.change(1, str(tmp_path / "1" / "served")) as asked:
                assert asked is needed and server.paused is needed and server.updating is needed
    assert server.label.startswith("1.") and not server.paused and not server.updating


@pytest.mark.parametrize("gone", [True, False], ids=["a client that is gone", "a client that fails"])
async def test_weights_that_did_not_arrive_are_replaced_by_the_old_ones(
    gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_api, "LEASE_SECONDS", 0.2 if gone else 30.0)
    async with whole(tmp_path) as (server, remote):
        await remote.load(1, str(tmp_path / "1" / "served"), live=True)
        server.did.clear()
        with pytest.raises((EngineError, ValueError)):
            async with remote.change(2, str(tmp_path / "2" / "served")):
                while gone and server.paused:
                    await asyncio.sleep(0.01)
                raise ValueError
    undo = ["end_weight_update", "pause_generation", "update_weights_from_disk", "continue_generation"]
    assert server.did == [*CHANGE, *undo]
    assert server.label.startswith("1.") and not server.paused


async def test_a_refusal_of_the_owner_reaches_its_client(tmp_path: Path) -> None:
    async with whole(tmp_path) as (_, remote):
        with pytest.raises(EngineError, match="holds no model") as refused:
            await remote.load(3, str(tmp_path), live=True)
    assert refused.value.status == 400


def test_owners_of_different_engines_write_different_cards(tmp_path: Path) -> None:
    urls = ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://gpu:1", "http://[::1]:1")
    assert len({card_path(tmp_path, url) for url in urls}) == 4
    assert card_path(tmp_path, "http://gpu:1/") == card_path(tmp_path, "http://gpu:1")
    assert owner_url(tmp_path / "missing") == ""
