"""`serve` with a provider that can, or cannot, be used. An HTTP server stands in for the provider."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl import trainer_cloud
from openclaw_rl.cli.commands import serve
from openclaw_rl.cli.service import preflight
from openclaw_rl.cli.service.plan import ROLES
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.shared.settings.sources import load
from tests.cli.commands.test_serve import command, environment, refused, serving
from tests.processes import HTTP, ROOT
from tests.trainer_cloud.stand_in import StandIn

NOWHERE = "http://127.0.0.1:9"  # discard: nothing listens


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("TINKER_", "FIREWORKS_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def ready(settings: Settings, *roles: str, flags: dict[str, str] | None = None) -> tuple[Settings, list[str]]:
    said: list[str] = []
    plan = preflight.ready(settings, roles or ROLES, flags or {}, said.append)
    return plan.settings, [line for line in said if not line.startswith("leaves this machine")]


def test_a_backend_on_this_machine_asks_no_provider() -> None:
    settings = Settings(tinker_base_url=NOWHERE)
    assert ready(settings) == (settings, [])


def test_a_provider_that_has_the_model_is_used(stand_in: StandIn) -> None:
    stand_in.has("Qwen/Qwen3-8B")
    settings = Settings(backend="cloud", model="Qwen/Qwen3-8B", tinker_api_key="tml-k", tinker_base_url=stand_in.url)
    assert ready(settings) == (settings.replace(backend="tinker"), [])
    assert len(stand_in.seen) == 1


@pytest.mark.parametrize(("roles", "asked"), [(("proxy",), False), (("engine",), True), (("learner",), True)])
def test_only_who_needs_the_provider_asks_it(stand_in: StandIn, roles: tuple[str, ...], asked: bool) -> None:
    stand_in.has("Qwen/Qwen3-8B")
    settings = Settings(backend="tinker", model="Qwen/Qwen3-8B", tinker_api_key="tml-k", tinker_base_url=stand_in.url)
    ready(settings, *roles)
    assert bool(stand_in.seen) == asked


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "tinker"}, r"set TINKER_API_KEY \(tinker_api_key\)"),
        ({"backend": "fireworks"}, r"set FIREWORKS_API_KEY \(fireworks_api_key\)"),
        ({"backend": "cloud"}, "set TINKER_API_KEY or FIREWORKS_API_KEY"),
        ({"backend": "tinker", "tinker_api_key": "tml-k"}, r"Tinker at http://127.0.0.1:9 \(tinker_base_url\) cannot"),
    ],
)
def test_a_provider_that_cannot_be_used_is_said_at_once(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ready(Settings(tinker_base_url=NOWHERE, **changes))


def test_two_keys_are_a_question_whatever_the_fallback() -> None:
    settings = Settings(backend="cloud", tinker_api_key="tml-k", fireworks_api_key="fw_k", backend_fallback="embedded")
    with pytest.raises(ConfigError, match="OPENCLAW_RL_BACKEND=tinker or OPENCLAW_RL_BACKEND=fireworks"):
        ready(settings)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[cloud\]'"):
        ready(Settings(backend="tinker", tinker_api_key="tml-k"))


def test_the_fallback_is_the_shipped_policy_with_a_folder_of_its_own(tmp_path: Path) -> None:
    flags = {
        **{"backend": "tinker", "model-path": "Qwen/Qwen3-8B", "tokenizer": "Qwen/Qwen3-8B", "data": "mine"},
        **{"backend-fallback": "embedded", "port": "30123", "resume": "/old"},
    }
    settings, _ = load(flags, environ={})
    assert settings.learning.learning_rate == 2.4e-4
    meanwhile, (said,) = ready(settings, flags=flags)
    assert (meanwhile.engine.backend, meanwhile.engine.model, meanwhile.engine.tokenizer) == (
        "embedded",
        str(EMBEDDED_POLICY),
        "",
    )
    assert (meanwhile.learning.learning_rate, meanwhile.learning.epochs, meanwhile.learning.lora_rank) == (2e-3, 8, 16)
    assert meanwhile.serve.data == tmp_path / "mine" / "fallback"
    assert meanwhile.serve.journal_path == str(meanwhile.serve.data / "journal.db") and not meanwhile.learning.resume
    assert (meanwhile.serve.port, meanwhile.serve.api_key) == (
        30123,
        (tmp_path / "mine" / "api_key").read_text().strip(),
    )
    assert "Tinker cannot be used" in said and "TINKER_API_KEY" in said
    assert str(meanwhile.serve.data) in said and "To return to tinker" in said and "\n" not in said


def test_the_fallback_keeps_the_keys_that_were_chosen() -> None:
    flags = {"backend": "tinker", "backend-fallback": "embedded", "api-key": "mine", "admin-key": "boss"}
    serve = ready(load(flags, environ={})[0], flags=flags)[0].serve
    assert (serve.api_key, serve.admin_key) == ("mine", "boss")


def test_a_part_alone_does_not_fall_back() -> None:
    settings = Settings(backend="tinker", backend_fallback="embedded")
    with pytest.raises(ConfigError, match="runs whole on one machine"):
        ready(settings, "engine")


def test_serve_says_what_leaves_before_anything_is_sent(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stand_in.fails(401)
    said: list[str] = []
    diagnose = trainer_cloud.preflight.diagnose

    def diagnose_later(settings: Settings) -> Any:
        said.append(capsys.readouterr().err)
        assert not stand_in.seen
        return diagnose(settings)

    monkeypatch.setattr(trainer_cloud.preflight, "diagnose", diagnose_later)
    with pytest.raises(ConfigError, match="refuses the key"):
        serve.run(
            Settings(
                backend="tinker",
                model="Qwen/Qwen3-8B",
                tinker_api_key="tml-k",
                tinker_base_url=stand_in.url,
                data=tmp_path,
            ),
            ROLES,
            {},
        )
    assert "leaves this machine: every prompt and answer of the policy" in said[0] and stand_in.seen


@pytest.mark.parametrize("key", ["", "tml-k"])
def test_serve_ends_within_seconds_and_starts_nothing(tmp_path: Path, key: str) -> None:
    started = time.monotonic()
    done = refused(
        "--backend", "tinker", "--data", str(tmp_path / "data"), "--tinker-api-key", key, "--tinker-base-url", NOWHERE
    )
    assert done.returncode == 2
    assert "openclaw-rl: Tinker cannot be used: " in done.stderr
    assert ("TINKER_API_KEY" if not key else "cannot be reached") in done.stderr
    assert "starting" not in done.stderr and not (tmp_path / "data").exists()
    assert time.monotonic() - started < 20


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode != 0,
    reason="this machine does not let us cut a network off (unshare -rn)",
)
@pytest.mark.parametrize("backend", ["tinker", "fireworks"])
def test_serve_with_the_network_cut(tmp_path: Path, backend: str) -> None:
    started = time.monotonic()
    flags = ["--backend", backend, "--tinker-api-key", "tml-k", "--fireworks-api-key", "fw_k", "--data", str(tmp_path)]
    done = subprocess.run(
        ["unshare", "-rn", *command("serve", *flags)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"({backend}_base_url) cannot be reached" in done.stderr and "is there a network?" in done.stderr
    assert time.monotonic() - started < 20


@pytest.mark.slow
def test_with_the_fallback_the_same_address_and_key_are_served(tmp_path: Path) -> None:
    flags = ["--backend", "tinker", "--model", "Qwen/Qwen3-8B", "--backend-fallback", "embedded"]
    data = tmp_path / "data"
    with serving(data, *flags, "--device", "cpu", "--api-key", "mine", "--no-train", shown=data / "fallback") as served:
        assert "Tinker cannot be used" in served.text() and str(data / "fallback") in served.text()
        card = served.card()
        assert card["client_key"] == "mine" and card["key"] == (data / "admin_key").read_text().strip()
        body: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        headers = {"authorization": "Bearer mine"}
        answer = HTTP.post(f"{card['url']}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200
        assert (data / "fallback" / "journal.db").exists() and not (data / "journal.db").exists()


def test_redaction_for_a_provider_needs_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "detect_secrets.plugins", None)
    monkeypatch.setitem(sys.modules, "detect_secrets.plugins.keyword", None)
    monkeypatch.setitem(sys.modules, "detect_secrets", None)
    monkeypatch.setitem(sys.modules, "detect_secrets.core", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[redact\]'"):
        ready(Settings(backend="tinker", tinker_api_key="tml-k", tinker_base_url=NOWHERE))
