from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from openclaw_rl.proxy.http.auth import check_binding
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings, to_environment
from tests.processes import ROOT, Proxy


def test_the_proxy_is_light_and_ends_cleanly(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    assert psutil.Process(proxy.process.pid).memory_info().rss < 200e6
    assert proxy.seconds_to_ready < 20.0  # 1.7 s on two idle cores; the test only sees that nothing heavy is loaded
    proxy.process.send_signal(signal.SIGTERM)
    assert proxy.process.wait(15) == 0


def test_neither_torch_nor_litellm_is_loaded() -> None:
    code = (
        "import sys, proxy.main; print([name for name in ('torch', 'litellm', 'transformers') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_an_open_address_without_a_key_is_refused_at_start(policy_folder: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(policy_folder), host="0.0.0.0", engine_url="http://127.0.0.1:9", data=tmp_path)
    environment = os.environ | to_environment(settings)
    result = subprocess.run(
        [sys.executable, "-m", "openclaw_rl.proxy.main"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2
    assert "OPENCLAW_RL_API_KEY" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_every_address_but_loopback_needs_a_key(host: str) -> None:
    with pytest.raises(ConfigError):
        check_binding(host, "")
    check_binding(host, "key")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_none(host: str) -> None:
    check_binding(host, "")
