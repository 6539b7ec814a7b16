"""The adapter process: begun by the first call, begun again when it dies, gone with the proxy."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from openclaw_rl.proxy.dialects.process import AdapterProcess, _remove_left_folders
from openclaw_rl.shared.errors import RequestError
from openclaw_rl.shared.process import alive
from tests.processes import Proxy

HELLO: dict[str, Any] = {"model": "policy", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello."}]}


def adapters(proxy: Proxy) -> list[int]:
    """Process ids of the proxy's children."""
    return [child.pid for child in psutil.Process(proxy.process.pid).children()]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def ask(proxy: Proxy) -> httpx.Response:
    with proxy.client() as client:
        return client.post("/v1/messages", json=HELLO, timeout=100.0)


def test_its_life(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(key_concurrency=1)
    assert proxy.chat([{"role": "user", "content": "Hello."}]).status_code == 200
    assert adapters(proxy) == [], "chat needs no adapter"
    assert ask(proxy).status_code == 200
    [first] = adapters(proxy)
    os.kill(first, signal.SIGKILL)
    assert until(lambda: adapters(proxy) not in ([], [first])), "it was not begun again by itself"
    assert ask(proxy).status_code == 200
    [second] = adapters(proxy)
    proxy.process.kill()
    assert until(lambda: not alive(second)), "it outlived its proxy"


def test_a_proxy_that_ends_takes_it_along_even_while_it_loads(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()

    def asked() -> bool:
        with proxy.client() as client, pytest.raises(httpx.TimeoutException):
            client.post("/v1/messages", json=HELLO, timeout=0.5)
        return adapters(proxy) != []

    assert until(asked)
    [adapter] = adapters(proxy)
    proxy.process.terminate()
    assert proxy.process.wait(15.0) == 0
    assert not alive(adapter)


def test_folders_of_proxies_that_were_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, own, other = (
        tmp_path / f"openclaw-rl-{name}" for name in (f"adapter-{ended.pid}-x", f"adapter-{os.getpid()}-x", "x")
    )
    for folder in (left, own, other):
        folder.mkdir()
        (folder / "0.sock").touch()
    _remove_left_folders()
    assert not left.exists() and (own / "0.sock").exists() and (other / "0.sock").exists()


async def test_without_a_module_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openclaw_rl.proxy.dialects.process.NEEDED", ("a_missing_module",))
    with pytest.raises(RequestError, match=r"a_missing_module.*pip install -e '\.\[dialects\]'") as refused:
        await AdapterProcess().ready()
    assert refused.value.status == 501
