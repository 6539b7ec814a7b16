"""Real processes for tests: the embedded engine and the proxy, each in a subprocess on a free port."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from openclaw_rl.shared.backends import engine_command
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings, to_environment

ROOT = Path(__file__).resolve().parent.parent
KEY = "test-key"
START_SECONDS = 240.0
ANSWER_SECONDS = 240.0
"""For an answer: a real engine's first image takes long on a busy CPU."""
TLS = ssl.create_default_context()
"""Of all clients: to load the certificates takes each of them 25 ms."""
HTTP = httpx.Client(verify=TLS, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
"""For single requests."""
COVERAGE = os.environ.get("PROXY_COVERAGE", "")
"""Folder for the coverage of proxies, "" for none. Engines and learners are covered in-process."""


@dataclass
class Engine:
    """A running engine."""

    url: str
    port: int
    policy: Path
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class Proxy:
    """A running proxy; `url` has no path. `journal()` opens its journal in this process."""

    url: str
    key: str
    data: Path
    settings: Settings
    process: subprocess.Popen[bytes]
    log: Path
    seconds_to_ready: float = 0.0
    _journals: list[Journal] = field(default_factory=list)

    def journal(self) -> Journal:
        """The journal, open in this process until the proxy ends."""
        if not self._journals:
            self._journals.append(Journal(self.settings.serve.journal_path))
        return self._journals[0]

    def client(self, **headers: str) -> httpx.Client:
        """An HTTP client with the key."""
        return httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.key}", **headers},
            timeout=ANSWER_SECONDS,
            verify=TLS,
        )

    def async_client(self, **headers: str) -> httpx.AsyncClient:
        """An asynchronous HTTP client with the key."""
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.key}", **headers},
            timeout=ANSWER_SECONDS,
            verify=TLS,
        )

    def chat(
        self, messages: list[dict[str, Any]], headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        """One chat request; short answers by default."""
        sent = {"model": "policy", "messages": messages, "max_tokens": 8, **body}
        with self.client() as client:
            return client.post("/v1/chat/completions", json=sent, headers=headers or {})


@contextmanager
def run_engine(policy: Path, folder: Path, **changes: Any) -> Iterator[Engine]:
    """A real engine process until the block ends."""
    port = claim_port("127.0.0.1", 0, setting="engine_port")
    settings = Settings(model=str(policy), engine_port=port, data=folder, device="cpu", **changes)
    command = engine_command(settings)
    assert command is not None
    log = folder / "engine.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/health", process, log)
        yield Engine(f"http://127.0.0.1:{port}", port, policy, process, log)
    finally:
        end(process)


def _without_slipcover() -> dict[str, str]:
    """The environment without what tells the tests' own workers where to leave their coverage: a process that ends
    clears that folder.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("SLIPCOVER_")}


def _measured() -> list[str]:
    """Arguments with which a process reports the lines it ran, when it ends by itself or by SIGTERM."""
    return ["-m", "slipcover", "--json", "--out", f"{COVERAGE}/{uuid.uuid4().hex}.json"] if COVERAGE else []


@contextmanager
def run_proxy(
    engine: Engine, data: Path, *, ready: str = "/readyz", measured: bool = False, **changes: Any
) -> Iterator[Proxy]:
    """A real proxy process until the block ends; yields once the path `ready` answers 200. `measured` adds its lines to
    the coverage, which more than doubles the cost of its start: for proxies that many tests share.
    """
    port = claim_port("127.0.0.1", 0, setting="port")
    values: dict[str, Any] = {
        "model": str(engine.policy),
        "engine_url": engine.url,
        "port": port,
        "api_key": KEY,
        "data": data,
        "max_output_tokens": 16,
    }
    program = [*(_measured() if measured else []), "-m", "openclaw_rl.proxy.main"]
    settings = Settings(**(values | changes))
    data.mkdir(parents=True, exist_ok=True)
    log = data / "proxy.log"
    started = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, *program],
            cwd=ROOT,
            env=_without_slipcover() | to_environment(settings),
            stdout=output,
            stderr=output,
        )
    proxy = Proxy(f"http://127.0.0.1:{port}", settings.serve.api_key, data, settings, process, log)
    try:
        wait_until_ready(f"{proxy.url}{ready}", process, log)
        proxy.seconds_to_ready = time.monotonic() - started
        yield proxy
    finally:
        end(process)
        for journal in proxy._journals:
            journal.close()


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = START_SECONDS) -> None:
    """Poll until `url` answers 200; fails with the log when the process ends or the time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"exit code {process.returncode}:\n{log.read_text()[-4000:]}")
        try:
            if HTTP.get(url, timeout=2.0).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"{url} was not ready within {seconds:.0f} s:\n{log.read_text()[-4000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL for one that does not listen."""
    process.terminate()
    try:
        process.wait(15.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def write_random_policy(folder: Path) -> Path:
    """A Qwen3 folder with the shipped tokenizer and small random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    for file in EMBEDDED_POLICY.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    entries = len(tokenizer["model"]["vocab"]) + len(tokenizer["added_tokens"])
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=-(-entries // 64) * 64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder
