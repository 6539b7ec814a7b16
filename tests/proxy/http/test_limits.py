"""The limit of concurrent answers: waiting, refusal with a time to come back, and clients that hold up no others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from openclaw_rl.proxy.app import create_app
from openclaw_rl.proxy.dialects import process
from openclaw_rl.proxy.dialects.errors import dialect_response
from openclaw_rl.proxy.http import limits
from openclaw_rl.proxy.http.body import read_body
from openclaw_rl.proxy.http.limits import ConcurrencyLimit, RateLimited
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.engine.protocol import Tokens
from openclaw_rl.shared.errors import Overloaded, UploadTooSlow
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from tests.processes import TLS
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service

HELLO = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8}
CHAT = "/v1/chat/completions"


def limit(places: int = 1) -> ConcurrencyLimit:
    return ConcurrencyLimit(places, per_key=True)


class GatedEngine(ScriptedEngine):
    """Answers only once `gate` is open."""

    gate = asyncio.Event()

    async def generate(self, prompt_ids: Sequence[int] | bytes, sampling: Any, **rest: Any) -> AsyncIterator[Tokens]:
        """Generate the scripted answer, after the gate."""
        await self.gate.wait()
        async for tokens in super().generate(prompt_ids, sampling, **rest):
            yield tokens


class EndlessEngine(ScriptedEngine):
    """Says the same word for as long as anybody reads, to those who ask for many tokens; counts them."""

    said = 0

    async def generate(self, prompt_ids: Sequence[int] | bytes, sampling: Any, **rest: Any) -> AsyncIterator[Tokens]:
        """One token after the other."""
        if sampling.max_tokens < 1000:
            async for tokens in super().generate(prompt_ids, sampling, **rest):
                yield tokens
            return
        token = self._prompter.tokenizer.encode(self.says)[0]
        while True:
            self.said += 1
            yield Tokens([token], [-1.0], 0, top_logprobs=[[(-1.0, token)] * 20])
            await asyncio.sleep(0)


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_places_are_handed_on_in_the_order_of_arrival() -> None:
    places, order = limit(), []

    async def work(number: int) -> None:
        async with places.place():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(5)))
    assert order == list(range(5))
    assert (places.active, places.waiting) == (0, 0)


async def test_a_wait_that_is_too_long_ends_with_a_time_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAIT_SECONDS", 0.01)
    places = limit()
    async with places.place():
        with pytest.raises(RateLimited, match=r"1 requests .* API key .*key_concurrency.*0.01 s.*Try again in"):
            async with places.place():
                pass
    assert (places.active, places.waiting, places.refused) == (0, 0, 1)
    async with places.place():
        assert places.active == 1


async def test_a_full_line_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONGEST_LINE", 0)
    places = limit()
    async with places.place():
        with pytest.raises(RateLimited, match="more are waiting") as refused:
            async with places.place():
                pass
    assert refused.value.retry_after is not None and refused.value.retry_after >= 1.0


async def test_a_client_that_leaves_the_line_takes_no_place() -> None:
    places = limit()

    async def work() -> None:
        async with places.place():
            await asyncio.Event().wait()

    first, second, third = (asyncio.create_task(work()) for _ in range(3))
    await until(lambda: places.waiting == 2)
    second.cancel()
    first.cancel()  # the place goes to the third, over the head of the second
    await until(lambda: places.waiting == 0)
    assert places.active == 1
    third.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert places.active == 0


async def test_a_place_given_to_one_that_gives_up_is_not_lost() -> None:
    places = limit()

    async def work() -> None:
        async with places.place():
            pass

    async with places.place():
        waiting = asyncio.create_task(work())
        await until(lambda: places.waiting == 1)
    waiting.cancel()  # after it was given the place, before it could run
    await asyncio.gather(waiting, return_exceptions=True)
    assert places.active == 0


def test_everybodys_limit_is_no_fault_of_the_client() -> None:
    shared = ConcurrencyLimit(1)
    assert isinstance(shared._refusal("x"), Overloaded) and shared._refusal("x").status == 503


@contextlib.asynccontextmanager
async def served(
    engine: type[ScriptedEngine], policy: Path, data: Path, **changes: Any
) -> AsyncIterator[tuple[str, ProxyService, Any]]:
    """The application on a port of its own, over an engine in this process."""
    port = claim_port("127.0.0.1", 0, setting="port")
    settings = Settings(model=str(policy), data=data, api_key="one,two", port=port, **changes)
    prompter = Prompter(policy)
    made = engine(prompter, "word")
    service = ProxyService(settings, AsyncJournal(settings.serve.journal_path), made, prompter)
    config = uvicorn.Config(create_app(service), port=port, log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{port}", service, made
    finally:
        server.should_exit = True
        await task


def asking(url: str, key: str = "one") -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30.0, verify=TLS)


async def test_each_key_has_places_of_its_own(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONGEST_LINE", 1)
    async with (
        served(GatedEngine, policy_folder, tmp_path, key_concurrency=1) as (url, service, engine),
        asking(url) as one,
        asking(url, "two") as two,
    ):
        engine.gate = asyncio.Event()
        asked = [asyncio.create_task(one.post(CHAT, json=HELLO)) for _ in range(2)]
        await until(lambda: service.limits.for_key(0).waiting == 1)
        refused = await one.post(CHAT, json=HELLO)
        assert refused.status_code == 429
        assert refused.headers["retry-after"].isdigit()
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
        assert "key_concurrency" in error["message"] and "Try again in" in error["message"]
        other = asyncio.create_task(two.post(CHAT, json=HELLO))
        await until(lambda: service.limits.for_key(1).active == 1)
        report = (await two.get("/rl/status")).json()["limits"]["keys"]
        assert [(row["active"], row["waiting"], row["refused"]) for row in report] == [(1, 1, 1), (1, 0, 0)]
        assert "openclaw_rl_waiting_requests 1.0" in (await two.get("/metrics")).text
        engine.gate.set()
        answers = await asyncio.gather(*asked, other)
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert (await one.get("/v1/models", headers={"authorization": "Bearer three"})).status_code == 401


async def test_a_key_has_the_same_places_in_every_dialect(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONGEST_LINE", 0)
    async with (
        served(GatedEngine, policy_folder, tmp_path, key_concurrency=1) as (url, service, engine),
        asking(url) as one,
    ):
        engine.gate = asyncio.Event()
        asked = asyncio.create_task(one.post(CHAT, json=HELLO))
        await until(lambda: service.limits.for_key(0).active == 1)
        refused = await one.post("/v1/messages", json={"max_tokens": 8, **HELLO})
        assert refused.status_code == 429 and refused.json()["error"]["type"] == "rate_limit_error"
        assert service.dialects.limit.active == 0
        engine.gate.set()
        assert (await asked).status_code == 200


async def test_dialects_share_places_that_chats_do_not_take(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PLACES", 1)
    monkeypatch.setattr(limits, "WAIT_SECONDS", 0.0)
    async with (
        served(ScriptedEngine, policy_folder, tmp_path) as (url, service, _),
        asking(url) as client,
        service.dialects.limit.place(),
    ):
        refused = await client.post("/v1/messages", json={"max_tokens": 8, **HELLO})
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "overloaded_error"
        assert (await client.post(CHAT, json=HELLO)).status_code == 200


async def test_a_client_that_leaves_the_line_leaves_no_trace(policy_folder: Path, tmp_path: Path) -> None:
    async with (
        served(GatedEngine, policy_folder, tmp_path, key_concurrency=1) as (url, service, engine),
        asking(url) as client,
    ):
        engine.gate = asyncio.Event()
        first = asyncio.create_task(client.post(CHAT, json=HELLO))
        await until(lambda: service.limits.for_key(0).active == 1)
        with pytest.raises(httpx.TimeoutException):
            await client.post(CHAT, json=HELLO, timeout=0.2)
        await until(lambda: service.limits.for_key(0).waiting == 0)
        engine.gate.set()
        assert (await first).status_code == 200
        assert (await service.journal.status())["turns"]["total"] == 1


async def test_a_client_that_reads_nothing_stops_only_its_own_answer(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_SECONDS", 1.0)
    async with (
        served(EndlessEngine, policy_folder, tmp_path) as (url, service, engine),
        asking(url) as client,
    ):
        body = httpx.Request(
            "POST",
            url + CHAT,
            headers={"authorization": "Bearer one", "x-session-id": "slow"},
            json=HELLO | {"max_tokens": 1_000_000, "stream": True, "logprobs": True, "top_logprobs": 20},
        )
        head = f"POST {CHAT} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in body.headers.items())
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(stuck, ("127.0.0.1", body.url.port))
            await loop.sock_sendall(stuck, head.encode() + b"\r\n" + body.read())
            await until(lambda: engine.said > 0)
            assert (await client.post(CHAT, json=HELLO)).status_code == 200
            await until(lambda: not service.answering)
        [turn] = (await service.journal.session("slow")).turns  # type: ignore[union-attr]
        assert turn.status == "aborted"
        kept = await service.journal.turn(turn.turn_id)
        assert kept is not None and "read nothing for 1 s" in kept.error
        assert len(kept.response_ids) == engine.said < 50_000, "what the client did not take was not sampled"


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", CHAT + "/input_tokens", "/rl/feedback"])
async def test_a_client_that_does_not_get_done_with_its_request_is_sent_away(
    policy_folder: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_SECONDS", 0.3)
    async with served(ScriptedEngine, policy_folder, tmp_path) as (url, service, _):
        port = httpx.URL(url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer one\r\ncontent-length: 1000\r\n\r\n{{"
        writer.write(head.encode())
        response = await asyncio.wait_for(reader.read(), 20.0)  # to its end: the connection is closed
        writer.close()
        assert response.startswith(b"HTTP/1.1 408 ")
        assert b"timeout" in response
        if path == CHAT:
            assert 'openclaw_rl_requests_total{status="408"} 1.0' in service.metrics.render().decode()


async def test_a_large_upload_has_time_for_it() -> None:
    chunks = [b"x" * 200_000, b"y"]

    async def receive() -> dict[str, Any]:
        if len(chunks) == 1:
            await asyncio.sleep(0.1)  # a slow line, not a wait for something of ours
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    assert len(await read_body(receive, {}, 1 << 20, 0.02)) == 200_001
    chunks[:] = [b"x", b"y"]
    with pytest.raises(UploadTooSlow):
        await read_body(receive, {}, 1 << 20, 0.02)


def test_anthropics_clients_are_refused_in_their_own_words() -> None:
    response = dialect_response("/v1/messages", limit()._refusal("why"))
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    body = json.loads(bytes(response.body))
    assert (body["type"], body["error"]["type"]) == ("error", "rate_limit_error")
    assert "raise key_concurrency" in body["error"]["message"]


async def test_nothing_of_a_request_counts_before_it_has_a_place(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAIT_SECONDS", 0.0)
    async with scripted_service(policy_folder, tmp_path, "Hi.", key_concurrency=1) as found:
        client, service, _ = found
        async with service.limits.for_key(0).place():
            refused = await client.post(CHAT, json=HELLO)
        assert refused.status_code == 429
        assert (await service.journal.status())["classes"] == []
        assert (await client.post(CHAT, json=HELLO)).status_code == 200


async def test_counting_the_tokens_of_a_long_text_lets_the_others_through(policy_folder: Path, tmp_path: Path) -> None:
    text = "".join(f"Line {number} of a log that was pasted.\n" for number in range(60_000))
    lags: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            lags.append(time.monotonic() - before)

    async with served(ScriptedEngine, policy_folder, tmp_path) as (url, service, _), asking(url) as client:
        short = await client.post(CHAT + "/input_tokens", json=HELLO)
        await until(lambda: service.watch.context_length > 0)
        ticking = asyncio.create_task(tick())
        began = time.monotonic()
        counted = await client.post(CHAT + "/input_tokens", json={"messages": [{"role": "user", "content": text}]})
        took = time.monotonic() - began
        ticking.cancel()
        assert counted.status_code == 200
        assert counted.json()["input_tokens"] > 60_000 + short.json()["input_tokens"]
        assert max(lags) < took / 4, f"the loop stood still for {max(lags):.2f} of {took:.2f} s"
        assert [figure.refused for figure in service.limits.figures()] == [0]


async def test_counting_takes_a_place_of_its_key(policy_folder: Path, tmp_path: Path) -> None:
    async with (
        served(ScriptedEngine, policy_folder, tmp_path, key_concurrency=1) as (url, service, _),
        asking(url) as client,
        asking(url, "two") as other,
        service.limits.for_key(0).place(),
    ):
        waiting = asyncio.create_task(client.post(CHAT + "/input_tokens", json=HELLO))
        await until(lambda: service.limits.waiting == 1)
        assert (await other.post(CHAT + "/input_tokens", json=HELLO)).status_code == 200
        assert not waiting.done()
        waiting.cancel()
