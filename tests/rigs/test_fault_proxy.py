"""The fault proxy between real HTTP clients and a small real server."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.rigs.fault_proxy import FaultProxy


class Echo(BaseHTTPRequestHandler):
    """Answers a request with its own body, compressed where that is accepted, and a header of its own."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        squeezed = "gzip" in self.headers.get("accept-encoding", "")
        body = gzip.compress(body) if squeezed else body
        self.send_response(200)
        self.send_header("x-host", self.headers["host"])
        self.send_header("content-length", str(len(body)))
        if squeezed:
            self.send_header("content-encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Keeps quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def proxy(server: str) -> Iterator[FaultProxy]:
    with FaultProxy(server) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=proxy.url, timeout=20.0, trust_env=False) as client:
        yield client


def test_without_rules_everything_passes_as_it_is(proxy: FaultProxy, client: httpx.Client) -> None:
    seen = proxy.record()
    answer = client.post("/a/b?c=%2F1", content=b"\x00binary\xff", headers={"x-mine": "1"})
    assert answer.content == b"\x00binary\xff"
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["x-host"] == proxy.url.removeprefix("http://")
    assert (seen[0].method, seen[0].path, seen[0].body, seen[0].answer) == ("POST", "/a/b", b"\x00binary\xff", 200)
    assert seen[0].headers["x-mine"] == "1"
    assert client.get("/a").headers["location"] == "/elsewhere"
    assert proxy.forwarded == proxy.answered == {"/a/b": 1, "/a": 1}


def test_answers_in_the_servers_place_so_many_times(proxy: FaultProxy, client: httpx.Client) -> None:
    rule = proxy.answer(429, on="sample", times=2, headers={"Retry-After": "7"})
    assert client.post("/other", content=b"x").status_code == 200
    first = client.post("/v1/sample", content=b"x")
    assert (first.status_code, first.headers["retry-after"]) == (429, "7")
    assert [client.post("/v1/sample", content=b"x").status_code for _ in range(2)] == [429, 200]
    assert (rule.met, proxy.forwarded["/v1/sample"], proxy.answered["/v1/sample"]) == (2, 1, 3)


def test_the_newest_rule_decides_until_it_is_cleared(proxy: FaultProxy, client: httpx.Client) -> None:
    proxy.answer(500)
    proxy.answer(402, on="pay", body='{"detail": "no money"}')
    assert client.post("/pay", content=b"x").json() == {"detail": "no money"}
    assert [client.post("/a", content=b"x").status_code for _ in range(3)] == [500, 500, 500]
    proxy.clear()
    assert client.post("/pay", content=b"x").status_code == 200


@pytest.mark.parametrize("after", [False, True])
def test_a_reset_connection_tells_the_client_nothing(proxy: FaultProxy, client: httpx.Client, after: bool) -> None:
    proxy.reset(on="step", times=1, after=after)
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        client.post("/step", content=b"x")
    assert (proxy.forwarded["/step"], proxy.answered["/step"]) == (int(after), 0)
    assert client.post("/step", content=b"x").status_code == 200


@pytest.mark.parametrize("after", [False, True])
def test_a_stalled_request_continues_after_its_time(proxy: FaultProxy, client: httpx.Client, after: bool) -> None:
    proxy.stall(0.3, times=1, after=after)
    began = time.monotonic()
    assert client.post("/a", content=b"x").content == b"x"
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("after", [False, True])
async def test_a_stalled_request_wakes_when_the_rules_are_cleared(proxy: FaultProxy, after: bool) -> None:
    rule = proxy.stall(600.0, after=after)
    async with httpx.AsyncClient(base_url=proxy.url, timeout=20.0, trust_env=False) as client:
        waiting = asyncio.create_task(client.post("/a", content=b"x"))
        await asyncio.to_thread(rule.wait)
        assert not waiting.done()
        proxy.clear()
        assert (await waiting).content == b"x"


async def test_refused_connections_and_dropped_ones_until_it_is_cleared(proxy: FaultProxy) -> None:
    rule = proxy.stall(600.0, on="held")
    async with httpx.AsyncClient(base_url=proxy.url, timeout=20.0, trust_env=False) as client:
        held = asyncio.create_task(client.post("/held", content=b"x"))
        await asyncio.to_thread(rule.wait)
        proxy.refuse()
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await held
        with pytest.raises(httpx.ConnectError):
            await client.post("/a", content=b"x")
        proxy.clear()
        assert (await client.post("/held", content=b"x")).status_code == 200
    assert proxy.forwarded == {"/held": 1}


def test_a_server_that_is_away_resets_the_connection() -> None:
    with FaultProxy("http://127.0.0.1:9") as proxy, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        httpx.post(f"{proxy.url}/a", content=b"x", trust_env=False)


def test_waiting_for_requests_that_do_not_come_says_so(proxy: FaultProxy) -> None:
    with pytest.raises(TimeoutError, match="0 of 1 requests for 'never'"):
        proxy.answer(500, on="never").wait(seconds=0.01)
