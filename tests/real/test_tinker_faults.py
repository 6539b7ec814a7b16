"""A whole service on Tinker, with a proxy that fails on demand between it and an independent server: chat continues
or gets the reason why not, nothing is trained twice, and status reports what is wrong in words.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tinker.proto import tinker_public_pb2 as pb

from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.cli.commands.test_serve import Served, serving
from tests.rigs.fault_proxy import FaultProxy, Seen
from tests.rigs.tinker_server import KEY, TinkerServer, run_tinker_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

STEP = "/api/v1/optim_step"
PASS = "/api/v1/forward_backward"
REQUEST_SECONDS = 90.0
"""Time limit of chats and of requests to the provider: more than the 60 s that a chat waits for an absent provider."""
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
        "request-timeout": str(REQUEST_SECONDS),
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
        self.rated = 0

    def chat(self) -> httpx.Response:
        """One chat of its own."""
        self._said += 1
        body = {"model": "policy", "messages": [{"role": "user", "content": f"What is {self._said} + 4?"}]}
        return self._http.post("/v1/chat/completions", json=body)

    def rate(self, count: int = BATCH) -> None:
        """Chats that a user liked, or did not."""
        for number in range(count):
            answer = self.chat()
            assert answer.status_code == 200, answer.text
            body = {"turn_id": answer.json()["id"], "score": 1 if number % 2 else -1}
            assert self._http.post("/rl/feedback", json=body).status_code == 200
            self.rated += 1

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get("/rl/status").json()
        return found

    def version(self) -> int:
        """The live one."""
        return next((int(one["number"]) for one in self.versions() if one["state"] == "live"), 0)

    def versions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._http.get("/rl/versions").json()["versions"]
        return found

    def taken(self) -> Counter[str]:
        """The number of versions that each sample is in."""
        return Counter(str(one) for version in self.versions() for one in version["sample_ids"])

    def rejected(self) -> int:
        return sum(one["state"] == "rejected" for one in self.versions())

    def learn(self, seconds: float = 400.0) -> int:
        """Rate, and wait for the version that comes of it."""
        before = self.version()
        self.rate()
        until(lambda: self.version() > before, seconds, self)
        return self.version()

    def status_text(self) -> str:
        """The status as one text."""
        return str(self.status())


def until(condition: Callable[[], Any], seconds: float, service: Service) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, service.status_text()
        time.sleep(0.5)


def gradient(body: bytes) -> bool:
    """Return whether a forward-backward request asks for gradients; forward passes come by the same route."""
    request = pb.ForwardBackwardRequest()
    request.ParseFromString(body)
    return not request.forward_only


def passes_of(seen: list[Seen], begun: int) -> Counter[str]:
    """The number of gradient passes that each model in training was sent since, and took."""
    taken: Counter[str] = Counter()
    for one in seen[begun:]:
        if one.path == PASS and one.answer in (0, 200) and gradient(one.body):
            request = pb.ForwardBackwardRequest()
            request.ParseFromString(one.body)
            taken[request.model_id] += 1
    return taken


def surviving(seen: list[Seen], begun: int) -> str:
    """The model that was stepped last."""
    return str([one for one in seen[begun:] if one.path == STEP and one.answer == 200][-1].json()["model_id"])


def steps_of(seen: list[Seen], begun: int) -> Counter[str]:
    """The number of optimizer steps that each model in training was asked for since."""
    return Counter(one.json()["model_id"] for one in seen[begun:] if one.path == STEP)


def test_a_rate_limit_is_waited_for_as_long_as_it_says(service: Service, faults: FaultProxy, seen: list[Seen]) -> None:
    begun = len(seen)
    limits = [faults.answer(429, on=path, times=2, headers={"Retry-After": "1"}) for path in (PASS, STEP)]
    limits[0].of = gradient
    sampling = faults.answer(429, on="asample", times=1, headers={"Retry-After": "1"})
    service.learn()
    assert sampling.met == 1 and all(rule.met == 2 for rule in limits)
    accepted = [one for one in seen[begun:] if one.path == STEP and one.answer == 200]
    assert len(accepted) == 1 and list(passes_of(seen, begun).values()) == [1]


@pytest.mark.parametrize("path", [PASS, STEP], ids=["a pass", "a step"])
def test_a_server_that_fails_costs_a_step_that_is_made_again(
    service: Service, faults: FaultProxy, seen: list[Seen], path: str
) -> None:
    begun = len(seen)
    rule = faults.answer(500, on=path, times=1)
    rule.of = gradient if path == PASS else rule.of
    service.learn()
    assert rule.met == 1
    model = surviving(seen, begun)
    assert steps_of(seen, begun)[model] == passes_of(seen, begun)[model] == 1
    assert service.rejected() == 0


@pytest.mark.parametrize("path", [PASS, STEP], ids=["a pass", "a step"])
def test_a_pass_or_step_whose_answer_was_lost_is_not_trained_twice(
    service: Service, faults: FaultProxy, seen: list[Seen], path: str
) -> None:
    begun = len(seen)
    lost = faults.reset(on=path, times=1, after=True)
    lost.of = gradient if path == PASS else lost.of
    service.learn()
    assert lost.met == 1
    # The model whose answer was lost is given up; the one that survives had one pass and one step.
    model = surviving(seen, begun)
    passes = passes_of(seen, begun)
    assert set(passes.values()) == {1} and len(passes) == 2 and steps_of(seen, begun)[model] == 1
    assert service.rejected() == 0


def test_a_connection_that_is_reset_while_a_result_is_waited_for_does_no_harm(
    service: Service, faults: FaultProxy, seen: list[Seen]
) -> None:
    begun = len(seen)
    lost = faults.reset(on="retrieve_future", times=6, after=True)
    service.learn()
    assert lost.met == 6
    assert set(steps_of(seen, begun).values()) == {1} and service.rejected() == 0


def test_chat_continues_while_training_stalls_for_ten_minutes(
    service: Service, faults: FaultProxy, seen: list[Seen]
) -> None:
    before, begun = service.version(), len(seen)
    stalled = faults.stall(600.0, on=STEP, times=1)
    service.rate()
    stalled.wait(seconds=120.0)
    for _ in range(3):
        assert service.chat().status_code == 200
    until(lambda: "did not answer within" in service.status_text(), REQUEST_SECONDS + 90, service)
    assert service.chat().status_code == 200
    faults.clear()
    until(lambda: service.version() > before, 400, service)
    assert service.version() == before + 1 and service.rejected() == 0
    assert steps_of(seen, begun)[surviving(seen, begun)] == 1


def test_an_expired_key_is_reported_in_words_and_nothing_is_lost(service: Service, faults: FaultProxy) -> None:
    before = service.version()
    service.rate(BATCH - 1)
    faults.answer(401, body='{"detail": "the key has expired"}')
    refused = service.chat()
    assert refused.status_code == 503 and "TINKER_API_KEY" in refused.text, refused.text
    until(lambda: "TINKER_API_KEY" in service.status_text(), 60, service)
    faults.clear()
    until(lambda: service.chat().status_code == 200, 120, service)
    service.rate(1)
    until(lambda: service.version() > before, 400, service)
    assert service.rejected() == 0


def test_a_key_that_expires_while_a_step_is_made_leaves_its_batch_waiting(service: Service, faults: FaultProxy) -> None:
    before = service.version()
    expired = faults.answer(401, on=STEP, body='{"detail": "the key has expired"}')
    service.rate()
    expired.wait(seconds=120.0)
    until(lambda: "TINKER_API_KEY" in service.status_text(), 60, service)
    assert service.chat().status_code == 200
    faults.clear()
    until(lambda: service.version() > before, 400, service)
    assert service.rejected() == 0


def test_an_account_without_credit_is_reported_and_waits(service: Service, faults: FaultProxy) -> None:
    before = service.version()
    broke = faults.answer(402, on=PASS, body='{"detail": "add a payment method"}')
    service.rate()
    broke.wait(seconds=120.0)
    until(lambda: "credit" in service.status_text(), 60, service)
    assert service.chat().status_code == 200
    faults.clear()
    until(lambda: service.version() > before, 400, service)


def test_a_server_that_cannot_be_reached_is_reported_and_comes_back(service: Service, faults: FaultProxy) -> None:
    faults.refuse()
    refused = service.chat()
    assert refused.status_code == 503 and "cannot be reached" in refused.text, refused.text
    faults.clear()
    until(lambda: service.chat().status_code == 200, 120, service)
    service.learn()


def test_after_all_of_it_every_answer_that_was_rated_is_in_one_version(service: Service) -> None:
    whole = service.rated - service.rated % BATCH
    until(lambda: len(service.taken()) >= whole, 120, service)
    assert len(service.taken()) == whole and set(service.taken().values()) == {1}
    assert service.rejected() == 0


def test_the_data_folder_holds_no_key(tmp_path_factory: pytest.TempPathFactory, service: Service) -> None:
    for folder in Path(tmp_path_factory.getbasetemp()).glob("service*"):
        for file in folder.rglob("*.log"):
            assert KEY not in file.read_text(errors="replace")
