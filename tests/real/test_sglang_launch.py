"""`openclaw-rl serve` with the real SGLang, started by our launcher: it takes our command line, begins with the live
version, and is started again without a request lost.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from openclaw_rl.shared.engine.http_client import authorization, without_secret
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion, Turn
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.cli.commands.test_serve import Served, serving, until
from tests.rigs.sglang_cpu import START_SECONDS, sglang_command
from tests.trainer_local.serving import Reference, close_to, write_adapter

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

ASKED = [{"role": "user", "content": "What is 12 + 30?"}]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose live version is an adapter, 3."""
    data = tmp_path_factory.mktemp("serve") / "data"
    data.mkdir()
    write_adapter(EMBEDDED_POLICY, data / "checkpoints" / "3" / "served", seed=3)
    with contextlib.closing(Journal(str(data / "journal.db"))) as journal:
        journal.commit_version(PolicyVersion(number=0, parent=None, state="retired", checkpoint=""))
        checkpoint = str(data / "checkpoints" / "3")
        journal.commit_version(PolicyVersion(number=3, parent=0, state="live", checkpoint=checkpoint))
    return data


@pytest.fixture(scope="module")
def served(data: Path) -> Iterator[Served]:
    flags = ["--backend", "megatron", "--device", "cpu", "--only", "engine", "--only", "proxy", "--lora-rank", "8"]
    flags += ["--sglang-command", sglang_command("--lora-backend", "torch_native")]
    with serving(data, *flags, seconds=START_SECONDS) as service:
        yield service


@pytest.fixture(scope="module")
def reference(data: Path) -> Reference:
    return Reference(EMBEDDED_POLICY, data / "checkpoints" / "3" / "served")


def chat(served: Served, **body: Any) -> httpx.Response:
    card = served.card()
    with httpx.Client(base_url=card["url"], headers={"authorization": f"Bearer {card['key']}"}, timeout=600) as client:
        sent = {"model": "policy", "messages": ASKED, "max_tokens": 12, **body}
        return client.post("/v1/chat/completions", json=sent)


def turn_of(data: Path, reply: httpx.Response) -> Turn:
    assert reply.status_code == 200, reply.text
    with contextlib.closing(Journal(str(data / "journal.db"))) as journal:
        turn = journal.turn(reply.headers["x-openclaw-rl-turn"])
    assert turn is not None
    return turn


def check(turn: Turn, reference: Reference) -> None:
    assert [span.version for span in turn.versions] == [3] and not turn.untrainable
    assert close_to(turn.logprobs, reference.score(turn.prompt_ids, turn.response_ids))


def test_the_live_version_serves_from_the_start(served: Served, data: Path, reference: Reference) -> None:
    check(turn_of(data, chat(served)), reference)


def test_other_programs_and_users_of_the_machine_get_nothing_from_it(served: Served, data: Path) -> None:
    secret = (data / "engine_secret").read_text().strip()
    url = json.loads((data / "run" / "engine.json").read_text())["url"]
    assert url.startswith(f"http://bearer:{secret}@127.0.0.1:")
    sent = {"text": "1 + 1 =", "sampling_params": {"max_new_tokens": 1}}
    for known, status in ({}, 401), ({"authorization": "Bearer other"}, 401), (authorization(url), 200):
        with httpx.Client(base_url=without_secret(url), headers=known, timeout=60) as client:
            assert client.post("/generate", json=sent).status_code == status
            assert client.get("/model_info").status_code == status
            assert client.get("/health").status_code == 200
    assert not [process for process in served.children() if secret in " ".join(process.cmdline())]


def test_requests_wait_while_sglang_is_started_again(served: Served, data: Path, reference: Reference) -> None:
    (server,) = [process for process in served.children() if "serve.py" in " ".join(process.cmdline())][:1]
    replies: list[httpx.Response] = []
    server.kill()
    threads = [threading.Thread(target=lambda: replies.append(chat(served))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(START_SECONDS)
    assert len(replies) == 3
    for reply in replies:
        check(turn_of(data, reply), reference)
    assert not psutil.pid_exists(server.pid)
    until(lambda: "engine ended" in served.text(), what="the word of its end")
