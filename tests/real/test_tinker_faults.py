"""A whole service on Tinker, with a proxy that fails on demand between it and an independent server: chat goes on or is
told why not, nothing is trained twice, and status says what is wrong in words.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.settings import EMBEDDED_POLICY
from tests.cli.test_serve import Served, serving
from tests.rigs.fault_proxy import FaultProxy, Seen
from tests.rigs.tinker_server import KEY, TinkerServer, run_tinker_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

STEP = "/api/v1/optim_step"
PASS = "/api/v1/forward_backward"
TRAINING_SECONDS = 45.0
BATCH = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    with run_tinker_server(EMBEDDED_POLICY, tmp_path_factory.mktemp("tinker")) as running:
        yield running


@pytest.fixture(scope="module")
def faults(server: TinkerServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def seen(faults: FaultProxy) -> list[Seen]:
    """Every request that reached the proxy."""
    return faults.record()


@pytest.fixture(scope="module")
def service(
    server: TinkerServer, faults: FaultProxy, seen: list[Seen], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    flags = {
        "backend": "tinker",
        "model": server.base_model,
        "tinker-api-key": KEY,
        "tinker-base-url": faults.url,
        "method": "binary",
        "lora-rank": "8",
        "learning-rate": "1e-3",
        "batch-size": str(BATCH),
        "guard": "off",
        "audit-fraction": "0",
        "cloud-timeout": str(TRAINING_SECONDS),
        "cloud-patience": "20",
        "max-output-tokens": "32",
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name}", value)]
    with serving(tmp_path_factory.mktemp("service") / "data", *arguments) as served:
        talking = Service(served)
        talking.learn()  # compiles what it needs, which takes its time
        yield talking


@pytest.fixture(autouse=True)
def healthy(faults: FaultProxy) -> Iterator[None]:
    faults.clear()
    yield
    faults.clear()


class Service:
    """Talks to a running service."""

    def __init__(self, served: Served) -> None:
        card = served.card()
        headers = {"Authorization": f"Bearer {card['key']}"}
        self._http = httpx.Client(base_url=card["url"], headers=headers, timeout=180.0, trust_env=False)
        self._said = 0

    def chat(self) -> httpx.Response:
        """One chat of its own."""
        self._said += 1
        body = {"model": "policy", "messages": [{"role": "user", "content": f"What is {self._said} + 4?"}]}
        return self._http.post("/v1/chat/completions", json=body)

    def praise(self, count: int = BATCH) -> None:
        """Chats that somebody liked."""
        for number in range(count):
            answer = self.chat()
            assert answer.status_code == 200, answer.text
            body = {"turn_id": answer.json()["id"], "score": 1 if number % 2 else -1}
            assert self._http.post("/rl/feedback", json=body).status_code == 200

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get("/rl/status").json()
        return found

    def version(self) -> int:
        """The live one."""
        versions = self._http.get("/rl/versions").json()["versions"]
        return next(int(one["number"]) for one in versions if one["state"] == "live")

    def rejected(self) -> int:
        return sum(one["state"] == "rejected" for one in self._http.get("/rl/versions").json()["versions"])

    def learn(self, seconds: float = 400.0) -> int:
        """Praise, and wait for the version that comes of it."""
        before = self.version()
        self.praise()
        until(lambda: self.version() > before, seconds, self)
        return self.version()

    def told(self) -> str:
        """What status says, in one piece."""
        return str(self.status())


def until(condition: Callable[[], Any], seconds: float, service: Service) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, service.told()
        time.sleep(0.5)


def steps_of(seen: list[Seen], begun: int) -> Counter[str]:
    """How many optimizer steps each model in training was asked for since."""
    return Counter(one.json()["model_id"] for one in seen[begun:] if one.path == STEP)


def test_a_rate_limit_is_waited_for_as_long_as_it_says(service: Service, faults: FaultProxy, seen: list[Seen]) -> None:
    begun = len(seen)
    limits = [faults.answer(429, on=path, times=2, headers={"Retry-After": "1"}) for path in (PASS, STEP)]
    sampling = faults.answer(429, on="asample", times=1, headers={"Retry-After": "1"})
    service.learn()
    assert sampling.met == 1 and all(rule.met == 2 for rule in limits)
    accepted = Counter(one.path for one in seen[begun:] if one.answer == 200)
    assert accepted[PASS] == accepted[STEP] == 1


@pytest.mark.parametrize("path", [PASS, STEP], ids=["a pass", "a step"])
def test_a_server_that_fails_costs_a_step_that_is_made_again(
    service: Service, faults: FaultProxy, seen: list[Seen], path: str
) -> None:
    begun = len(seen)
    rule = faults.answer(500, on=path, times=1)
    service.learn()
    assert rule.met == 1
    surviving = seen[-1:] and [one for one in seen[begun:] if one.path == STEP and one.answer == 200][-1]
    assert steps_of(seen, begun)[surviving.json()["model_id"]] == 1
    assert service.rejected() == 0


@pytest.mark.parametrize("path", [PASS, STEP], ids=["a pass", "a step"])
def test_what_was_done_and_whose_answer_was_lost_is_not_trained_twice(
    service: Service, faults: FaultProxy, seen: list[Seen], path: str
) -> None:
    begun = len(seen)
    lost = faults.reset(on=path, times=1, after=True)
    service.learn()
    assert lost.met == 1
    # The model that was stepped with a lost answer is given up; the one that survives was stepped once.
    counts = steps_of(seen, begun)
    assert len(counts) == (2 if path == STEP else len(counts)) and set(counts.values()) == {1}
    passes = Counter(one.path for one in seen[begun:] if one.answer == 200)
    assert passes[PASS] <= 2 and service.rejected() == 0


def test_a_connection_that_is_reset_while_a_result_is_waited_for_does_no_harm(
    service: Service, faults: FaultProxy, seen: list[Seen]
) -> None:
    begun = len(seen)
    lost = faults.reset(on="retrieve_future", times=6, after=True)
    service.learn()
    assert lost.met == 6
    assert set(steps_of(seen, begun).values()) == {1} and service.rejected() == 0


def test_chat_goes_on_while_training_stalls_for_ten_minutes(
    service: Service, faults: FaultProxy, seen: list[Seen]
) -> None:
    before, begun = service.version(), len(seen)
    stalled = faults.stall(600.0, on=STEP, times=1)
    service.praise()
    stalled.wait(seconds=120.0)
    for _ in range(3):
        assert service.chat().status_code == 200
    until(lambda: "did not answer within" in service.told(), TRAINING_SECONDS + 90, service)
    assert service.chat().status_code == 200
    faults.clear()
    until(lambda: service.version() > before, 400, service)
    assert service.version() == before + 1 and service.rejected() == 0
    surviving = [one for one in seen[begun:] if one.path == STEP and one.answer == 200][-1].json()["model_id"]
    assert steps_of(seen, begun)[surviving] == 1


def test_an_expired_key_is_told_in_words_and_nothing_is_lost(service: Service, faults: FaultProxy) -> None:
    before = service.version()
    service.praise(BATCH - 1)
    faults.answer(401, body='{"detail": "the key has expired"}')
    refused = service.chat()
    assert refused.status_code == 503 and "TINKER_API_KEY" in refused.text, refused.text
    until(lambda: "TINKER_API_KEY" in service.told(), 60, service)
    faults.clear()
    until(lambda: service.chat().status_code == 200, 120, service)
    service.praise(1)
    until(lambda: service.version() > before, 400, service)
    assert service.rejected() == 0


def test_a_key_that_expires_while_a_step_is_made_leaves_its_batch_waiting(service: Service, faults: FaultProxy) -> None:
    before = service.version()
    expired = faults.answer(401, on=STEP, body='{"detail": "the key has expired"}')
    service.praise()
    expired.wait(seconds=120.0)
    until(lambda: "TINKER_API_KEY" in service.told(), 60, service)
    assert service.chat().status_code == 200
    faults.clear()
    until(lambda: service.version() > before, 400, service)
    assert service.rejected() == 0


def test_an_account_without_credit_is_told_and_waits(service: Service, faults: FaultProxy) -> None:
    before = service.version()
    broke = faults.answer(402, on=PASS, body='{"detail": "add a payment method"}')
    service.praise()
    broke.wait(seconds=120.0)
    until(lambda: "credit" in service.told(), 60, service)
    assert service.chat().status_code == 200
    faults.clear()
    until(lambda: service.version() > before, 400, service)


def test_a_server_that_cannot_be_reached_is_told_and_comes_back(service: Service, faults: FaultProxy) -> None:
    faults.refuse()
    refused = service.chat()
    assert refused.status_code == 503 and "cannot be reached" in refused.text, refused.text
    faults.clear()
    until(lambda: service.chat().status_code == 200, 120, service)
    service.learn()


def test_versions_come_out_of_the_chats_that_made_them(service: Service) -> None:
    """After all of it: every sample is in one version, and none was lost."""
    status = service.status()
    assert service.rejected() == 0
    assert "quarantined" not in str(status.get("samples", {})) or not status["samples"].get("quarantined")


def test_the_data_folder_holds_no_key(tmp_path_factory: pytest.TempPathFactory, service: Service) -> None:
    for folder in Path(tmp_path_factory.getbasetemp()).glob("service*"):
        for file in folder.rglob("*.log"):
            assert KEY not in file.read_text(errors="replace")
