"""The engine's port: other programs and web pages of the machine can reach it, and must get nothing from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.engine.http_client import authorization
from openclaw_rl.shared.engine.server import create_app
from openclaw_rl.shared.engine.wire import EngineJob, Event, GenerateRequest
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.logs import JsonLines


class StubEngine:
    """Stands for an engine that is asked nothing but for its state; counts what reaches it."""

    healthy = True

    def __init__(self) -> None:
        self.reached: list[str] = []

    def abort_rid(self, rid: str | None) -> None:
        self.reached.append("abort")

    def info(self) -> dict[str, Any]:
        self.reached.append("info")
        return {"openclaw_rl": True}

    async def load(self, wanted: Any) -> int:
        self.reached.append("load")
        return 1

    def live(self) -> int:
        return 1


def _client(engine: StubEngine, secret: str = "") -> httpx.AsyncClient:
    app = create_app(engine, secret=secret)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://engine")


COMMANDS = [
    ("/abort_request", {"abort_all": True}),
    ("/update_weights_from_disk", {"model_path": "/x", "weight_version": "1"}),
    ("/generate", {"input_ids": [1]}),
]


@pytest.mark.parametrize(("path", "body"), COMMANDS)
async def test_a_web_page_can_do_nothing(path: str, body: dict[str, Any]) -> None:
    engine = StubEngine()
    async with _client(engine) as client:
        page = {"origin": "http://evil.example"}
        assert (await client.post(path, json=body, headers=page)).status_code == 403
        # A request that a page may send without asking the server first.
        simple = {"content-type": "text/plain"}
        assert (await client.post(path, content=b"{}", headers=simple)).status_code == 415
        assert (await client.get("/model_info", headers=page)).status_code == 403
    assert engine.reached == []


@pytest.mark.parametrize("authorization", [None, "Basic eDp5", "Basic YmVhcmVyOnJpZ2h0", "Bearer wrong"])
async def test_a_program_without_the_secret_can_do_nothing(authorization: str | None) -> None:
    engine = StubEngine()
    headers = {} if authorization is None else {"authorization": authorization}
    async with _client(engine, "right") as client:
        for path, body in COMMANDS:
            refused = await client.post(path, json=body, headers=headers)
            assert refused.status_code == 401 and "engine_url" in refused.json()["error"]["message"]
        assert (await client.get("/model_info", headers=headers)).status_code == 401
        assert (await client.get("/health", headers=headers)).status_code == 200
        assert engine.reached == []
        known = {"authorization": "Bearer right"}
        assert (await client.post("/abort_request", json={"abort_all": True}, headers=known)).status_code == 200
    assert engine.reached == ["abort"]


@pytest.mark.parametrize(
    ("server", "host", "status"),
    [
        ("127.0.0.1", "evil.example:31000", 403),
        ("127.0.0.1", "localhost:31000", 200),
        ("127.0.0.1", "[::1]:31000", 200),
        ("::1", "evil.example", 403),
        ("10.0.0.4", "engine.models.svc", 200),  # a network of trusted machines, in which a browser gets no further
    ],
)
async def test_a_page_of_a_site_whose_name_points_here_reads_nothing(server: str, host: str, status: int) -> None:
    engine = StubEngine()
    app = create_app(engine, secret="")  # type: ignore[arg-type]

    async def arrived(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "server": (server, 31000)}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=arrived), base_url="http://engine") as client:
        assert (await client.get("/model_info", headers={"host": host})).status_code == status
        assert (await client.get("/health", headers={"host": host})).status_code == 200
    assert engine.reached == ["info"] * (status == 200)
    async with _client(engine, "right") as client:
        known = {"authorization": "Bearer right", "host": host}
        assert (await client.get("/model_info", headers=known)).status_code == 200


class SayingEngine(StubEngine):
    """Samples one token for any request."""

    async def submit(self, request: GenerateRequest, receive: Callable[[Event], None]) -> EngineJob:
        job = EngineJob(request, SimpleNamespace(number=3), receive, output=[5])
        receive(Event((), {"type": "stop"}))
        return job

    def abort(self, job: EngineJob) -> None:
        pass

    def text(self, ids: Sequence[int]) -> str:
        return ""


@pytest.mark.parametrize(("rid", "turn"), [("a" * 32, "turn_" + "a" * 32), ("gen_1", "")])
async def test_the_line_about_a_turn_names_it(
    rid: str, turn: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    shown: list[str] = []
    monkeypatch.setattr(caplog.handler, "emit", lambda record: shown.append(JsonLines("engine").format(record)))
    async with _client(SayingEngine()) as client:
        answer = await client.post("/generate", json={"input_ids": [1], "rid": rid, "sampling_params": {}})
        assert answer.status_code == 200
    found = [msgspec.json.decode(line) for line in shown]
    about = [(line["turn"], line["version"]) for line in found if "sampled" in line["message"]]
    assert about == [(turn, 3)] * bool(turn)


async def test_a_url_with_the_secret_opens_the_engine_and_no_message_shows_it() -> None:
    assert authorization("http://bearer:ri%2Fght@127.0.0.1:1") == {"authorization": "Bearer ri/ght"}
    assert authorization("http://x:y@127.0.0.1:1") == {"authorization": httpx.BasicAuth("x", "y")._auth_header}
    assert authorization("http://127.0.0.1:1") == {}
    endpoint = EngineEndpoint("http://bearer:right@127.0.0.1:1", 0.0)
    assert endpoint.url == "http://127.0.0.1:1"
    with pytest.raises(EngineError) as raised:
        await endpoint.get("/model_info")
    assert "right" not in str(raised.value)
