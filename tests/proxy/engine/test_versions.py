"""The serving version: making another one live, and the versions that clients can ask for."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.settings.settings import Settings
from tests.processes import Engine, Proxy, run_proxy

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def restore_base_version(engine_server: Engine) -> Iterator[None]:
    """Leave the engine, which all tests share, as it was."""
    yield
    load(engine_server, 0, str(engine_server.policy), live=True)


def load(engine: Engine, number: int, path: str, *, live: bool) -> None:
    """Load a version into the engine, as the learner does."""

    async def send() -> None:
        client = create_engine(Settings(model=str(engine.policy), engine_url=engine.url))
        await client.load(number, path, live=live)
        await client.close()

    asyncio.run(send())


@pytest.fixture
def learned(start_proxy: Callable[..., Proxy], engine_server: Engine, policy_folder: Path, tmp_path: Path) -> Proxy:
    """A proxy whose journal has versions 0 to 4: 1 retired, 2 rejected, 3 pruned, 4 live. No learner is there."""
    proxy = start_proxy()
    journal = proxy.journal()
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    for number, parent in ((1, 0), (2, 1), (3, 1), (4, 3)):
        folder = tmp_path / "data" / "checkpoints" / str(number)
        if number in (1, 4):
            shutil.copytree(policy_folder, folder / "served")
        state: Any = "rejected" if number == 2 else "candidate"
        guard = {"passed": number != 2, "reason": "it stutters" if number == 2 else ""}
        made = PolicyVersion(
            number=number, parent=parent, state=state, checkpoint="" if number == 2 else str(folder), guard=guard
        )
        journal.commit_version(made)
        if number != 2:
            journal.set_version_state(number, "live")
    load(engine_server, 4, str(tmp_path / "data" / "checkpoints" / "4" / "served"), live=True)
    return proxy


def serving(proxy: Proxy) -> str:
    return str(proxy.chat(HELLO).json()["system_fingerprint"])


def test_an_older_version_serves_at_once_and_the_journal_says_so(learned: Proxy) -> None:
    assert serving(learned) == "version-4"
    with learned.client() as client:
        answer = client.post("/rl/versions/1/promote").json()
        assert answer == {
            "live": 1,
            "before": 4,
            "pinned": None,
            "engine": "serves it",
            "released": 0,
            "rolled_back": 0,
        }
        assert serving(learned) == "version-1"
        states = {row["number"]: row["state"] for row in client.get("/rl/versions").json()["versions"]}
        assert states == {0: "retired", 1: "live", 2: "rejected", 3: "retired", 4: "retired"}
        assert client.post("/rl/versions/0/promote").json()["before"] == 1
        assert serving(learned) == "version-0"
        assert client.post("/v1/rl/versions/4/promote").json()["live"] == 4
        assert serving(learned) == "version-4"
        again = client.post("/rl/versions/4/promote").json()
        assert again == {"live": 4, "before": 4, "pinned": None, "engine": "serves it", "released": 0, "rolled_back": 0}


def test_only_available_versions_are_listed_answer_and_can_be_promoted(learned: Proxy) -> None:
    refusals = [
        ("2", 409, "was rejected and never serves: it stutters. Available: 0, 1, 4."),
        ("3", 409, "files of version 3 are gone"),
        ("9", 404, "There is no version 9. Available: 0, 1, 4."),
        ("x", 400, "no version number"),
    ]
    with learned.client() as client:
        rows = client.get("/rl/versions").json()["versions"]
        assert [row["number"] for row in rows if row["available"]] == [0, 1, 4]
        for number, status, message in refusals:
            answer = client.post(f"/rl/versions/{number}/promote")
            assert answer.status_code == status and message in answer.json()["error"]["message"]
            live = learned.journal().live_version()
            assert live is not None and live.number == 4
        found = {number: client.get(f"/v1/models/policy@{number}").status_code for number in (0, 1, 2, 3, 4, 9)}
        asked = {
            number: client.post(
                "/v1/chat/completions", json={"model": f"policy@{number}", "messages": HELLO, "max_tokens": 1}
            ).status_code
            for number in found
        }
    assert found == asked == {0: 200, 1: 200, 2: 404, 3: 404, 4: 200, 9: 404}


def test_without_a_learner_there_is_nothing_to_go_back_to(start_proxy: Callable[..., Proxy]) -> None:
    with start_proxy().client() as client:
        answer = client.post("/rl/versions/0/promote")
    assert answer.status_code == 404 and "None is available yet" in answer.json()["error"]["message"]


def test_an_engine_that_is_away_takes_the_version_when_it_is_back(learned: Proxy) -> None:
    engine = Engine("http://127.0.0.1:9", 9, Path(learned.settings.engine.model), learned.process, learned.log)
    with run_proxy(engine, learned.data, ready="/healthz") as proxy, proxy.client() as client:
        answer = client.post("/rl/versions/1/promote").json()
    assert answer["live"] == 1 and answer["engine"] != "serves it"
    live = learned.journal().live_version()
    assert live is not None and live.number == 1


def test_a_candidate_being_probed_and_a_rejected_one_serve_no_client(
    learned: Proxy, engine_server: Engine, policy_folder: Path
) -> None:
    for number in (2, 5):  # the engine holds both; 5 is not in the journal yet
        load(engine_server, number, str(policy_folder), live=False)
    with learned.client() as client:
        names = [model["id"] for model in client.get("/v1/models").json()["data"]]
    assert "policy@4" in names and "policy@2" not in names and "policy@5" not in names
    for number in (2, 5):
        answer = learned.chat(HELLO, model=f"policy@{number}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
