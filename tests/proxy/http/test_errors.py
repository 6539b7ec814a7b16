"""The engine gone, the disk full, the proxy killed: reported honestly, nothing acknowledged lost, and well again
afterwards.
"""

from __future__ import annotations

import json
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openclaw_rl.proxy.http.errors import to_request_error
from openclaw_rl.shared.errors import EngineError, JournalError, MissingRecord, OpenClawRLError, RequestError
from tests.processes import Engine, Proxy, run_engine, run_proxy

HELLO = [{"role": "user", "content": "hello"}]


@contextmanager
def full_disk(proxy: Proxy) -> Iterator[None]:
    """No file of the proxy can grow while the block runs, as on a full disk."""
    pid = proxy.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_full_disk_is_reported_and_survived(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    acknowledged = [proxy.chat(HELLO).headers["x-openclaw-rl-turn"]]
    with full_disk(proxy):
        for stream in (False, True, False, True):
            failed = proxy.chat(HELLO, stream=stream)
            if failed.status_code == 200:  # the stream had begun before the disk said no
                assert "[DONE]" not in failed.text
                last = json.loads(failed.text.strip().rpartition("data: ")[2])
                assert last["error"]["code"] == "insufficient_storage"
            else:
                assert failed.status_code == 507
                assert failed.json()["error"]["code"] == "insufficient_storage"
        assert proxy.chat(HELLO, stream=True).status_code == 507  # known by now: nothing is streamed first
        with proxy.client() as client:
            wait_for(lambda: client.get("/readyz").status_code == 503)
            feedback = client.post("/rl/feedback", json={"turn_id": acknowledged[0], "score": 1})
            assert feedback.status_code == 507
        private = proxy.chat(HELLO, headers={"x-rl-train": "never"})
        assert private.status_code == 200
    for stream in (True, False, True):
        well = proxy.chat(HELLO, stream=stream)
        assert well.status_code == 200
        acknowledged.append(well.headers["x-openclaw-rl-turn"])
    assert all(proxy.journal().turn(turn) is not None for turn in acknowledged)
    with proxy.client() as client:
        wait_for(lambda: client.get("/readyz").status_code == 200)


def test_without_an_engine_clients_are_asked_to_come_back(
    policy_folder: Path, engine_server: Engine, tmp_path: Path
) -> None:
    absent = Engine("http://127.0.0.1:9", 9, policy_folder, engine_server.process, engine_server.log)
    with run_proxy(absent, tmp_path / "data", ready="/healthz", request_timeout=1.5) as proxy:
        with proxy.client() as client:
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["ready"]) == (503, False)
            assert client.get("/rl/status").json()["processes"]["engine"]["alive"] is False
            assert client.get("/v1/models").json()["data"][0]["id"] == "policy"
        for stream in (False, True):
            response = proxy.chat(HELLO, stream=stream)
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["code"] == "engine_unavailable"


@pytest.mark.slow
def test_an_engine_that_dies_in_the_middle_cuts_the_answer_honestly(policy_folder: Path, tmp_path: Path) -> None:
    with run_engine(policy_folder, tmp_path) as engine, run_proxy(engine, tmp_path / "data") as proxy:
        body = {"model": "policy", "messages": HELLO, "stream": True, "max_tokens": 20_000, "ignore_eos": True}
        with proxy.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()
            next(line for line in lines if '"content":"' in line and '"role"' not in line)
            engine.process.kill()
            rest = [line for line in lines if line]
            turn_id = response.headers["x-openclaw-rl-turn"]
        assert "error" in json.loads(rest[-1].removeprefix("data: "))
        turn = proxy.journal().turn(turn_id)
        assert turn is not None
        assert (turn.status, turn.finish_reason) == ("error", "abort")
        assert 0 < len(turn.response_ids) == len(turn.logprobs)
        assert "broke off" in turn.error


def test_a_killed_proxy_remembers_what_it_acknowledged(engine_server: Engine, tmp_path: Path) -> None:
    with run_proxy(engine_server, tmp_path / "data") as proxy:
        first = proxy.chat(HELLO)
        proxy.process.send_signal(signal.SIGKILL)
        proxy.process.wait()
    with run_proxy(engine_server, tmp_path / "data") as proxy:
        turn_id = first.headers["x-openclaw-rl-turn"]
        assert proxy.journal().turn(turn_id) is not None
        answer = first.json()["choices"][0]["message"]
        second = proxy.chat([*HELLO, answer, {"role": "user", "content": "no, wrong"}])
        assert second.headers["x-openclaw-rl-session"] == first.headers["x-openclaw-rl-session"]
        state = proxy.journal().next_state(turn_id)
        assert state is not None and state.text == "no, wrong"


def test_an_answer_that_takes_too_long_is_given_up(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(request_timeout=0.3)
    body = {"max_tokens": 20_000, "ignore_eos": True}
    plain = proxy.chat(HELLO, **body)
    assert (plain.status_code, plain.json()["error"]["code"]) == (504, "timeout")
    streamed = proxy.chat(HELLO, stream=True, **body)
    assert "[DONE]" not in streamed.text
    assert json.loads(streamed.text.strip().rpartition("data: ")[2])["error"]["code"] == "timeout"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineError("x", status=500), 502, "engine_error"),
        (EngineError("x", status=400), 400, "invalid_value"),
        (EngineError("x", status=404), 404, "model_not_found"),
        (EngineError("x", status=429), 503, "engine_unavailable"),
        (EngineError("x"), 503, "engine_unavailable"),
        (JournalError("x"), 507, "insufficient_storage"),
        (MissingRecord("the journal has no turn x"), 404, "not_found"),
        (OpenClawRLError("x"), 500, None),
    ],
)
def test_failures_have_statuses_that_clients_act_on(error: OpenClawRLError, status: int, code: str | None) -> None:
    refusal = to_request_error(error)
    assert (refusal.status, refusal.code) == (status, code)
    assert refusal.type == ("server_error" if status >= 500 else "invalid_request_error")
    assert to_request_error(RequestError("as it is", status=418)).status == 418
