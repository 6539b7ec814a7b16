"""`openclaw-rl connect` with a running service and files in a temporary home."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.connectable import CLIENTS, Offer, file_of
from cli.main import app
from shared.errors import ConfigError
from tests.processes import Proxy

PROVIDER = {"baseUrl": "u/v1", "models": [{"id": "policy", "contextWindow": 4096, "maxTokens": 512}]}
OFFER = Offer(url="u", key="k", provider=PROVIDER)


def wanted(name: str, config: dict[str, Any], offer: Offer = OFFER) -> dict[str, Any]:
    return {".".join(place): value for place, value in CLIENTS[name].wanted(config, offer).values.items()}


@pytest.fixture
def connect(service: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> str:
        line = ["connect", *arguments, "--url", service.url, "--key", service.key]
        result = CliRunner().invoke(app, line, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


def test_openclaw_is_connected_and_put_back(connect: Callable[..., str], service: Proxy, tmp_path: Path) -> None:
    path = tmp_path / ".openclaw" / "openclaw.json"
    path.parent.mkdir()
    before = "{ // hello\n  agents: { defaults: { model: { primary: 'x/y' } } }, gateway: { port: 18789 } }\n"
    path.write_text(before)
    shown = connect("openclaw", "--dry-run")
    assert path.read_text() == before
    assert '  ~ agents.defaults.model.primary: "x/y" → "clawrl/policy"' in shown
    assert "  + models.providers.clawrl: {" in shown and service.key not in shown
    assert "its comments are lost" in shown
    assert "written, the file as it was is openclaw.json.before-openclaw-rl" in connect("openclaw", "--yes")
    content = json.loads(path.read_text())
    provider = content["models"]["providers"]["clawrl"]
    assert (provider["baseUrl"], provider["apiKey"]) == (f"{service.url}/v1", service.key)
    assert provider["models"][0]["contextWindow"] == 32768
    assert content["models"]["mode"] == "merge"
    assert content["gateway"] == {"port": 18789}
    assert content["plugins"]["entries"]["openclaw-rl"] == {"enabled": True, "hooks": {"allowConversationAccess": True}}
    assert "nothing to change" in connect("openclaw")
    assert connect("openclaw", "--undo") == f"{path} is as it was\n"
    assert path.read_text() == before


def test_nothing_is_written_unasked(connect: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="add --yes"):
        connect("openclaw")
    assert not (tmp_path / ".openclaw").exists()


def test_for_programs_it_answers_in_one_line(connect: Callable[..., str], tmp_path: Path) -> None:
    looked = json.loads(connect("nanobot", "--json"))
    assert looked["written"] is False and not (tmp_path / ".nanobot").exists()
    written = json.loads(connect("nanobot", "--json", "--yes"))
    assert written == looked | {"written": True}
    assert [change["place"] for change in written["changes"]] == [
        "providers.clawrl",
        "modelPresets.clawrl",
        "agents.defaults.modelPreset",
    ]
    undone = json.loads(connect("nanobot", "--undo", "--json"))
    assert undone == {"file": str(tmp_path / ".nanobot" / "config.json"), "undone": True, "left": []}


def test_without_a_name_it_says_how(connect: Callable[..., str], service: Proxy) -> None:
    recipe = connect()
    assert f"OPENAI_BASE_URL={service.url}/v1 OPENAI_API_KEY={service.key}" in recipe
    assert f"ANTHROPIC_BASE_URL={service.url} " in recipe
    with pytest.raises(ConfigError, match="emacs is none of openclaw, nanobot"):
        connect("emacs")


def test_openclaws_file_is_where_it_looks_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    client = CLIENTS["openclaw"]
    for name in ("OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert file_of(client, "") == Path("~/.openclaw/openclaw.json")
    monkeypatch.setenv("OPENCLAW_STATE_DIR", "/state")
    assert file_of(client, "") == Path("/state/openclaw.json")
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", "/elsewhere.json5")
    assert file_of(client, "") == Path("/elsewhere.json5")
    assert file_of(client, "given.json") == Path("given.json")


def test_openclaws_own_choices_are_kept() -> None:
    config = {
        "models": {"mode": "replace"},
        "agents": {
            "defaults": {"model": "x/y", "modelPolicy": {"allow": ["x/*"]}},
            "entries": {"main": {}, "coder": {"model": "x/coder"}},
        },
        "plugins": {"allow": ["other"]},
    }
    values = wanted("openclaw", config)
    assert "models.mode" not in values
    assert values["agents.defaults.model"] == "clawrl/policy" and "agents.defaults.model.primary" not in values
    assert values["agents.defaults.modelPolicy.allow"] == ["x/*", "clawrl/policy"]
    assert values["plugins.allow"] == ["other", "openclaw-rl"]
    notes = CLIENTS["openclaw"].wanted(config, OFFER).notes
    assert any("agent coder has a model of its own (x/coder)" in note for note in notes)
    assert not any("main" in note for note in notes)
    assert "agents.defaults.modelPolicy.allow" not in wanted(
        "openclaw", {"agents": {"defaults": {"modelPolicy": {"allow": ["clawrl/*"]}}}}
    )


def test_without_the_extension_no_plugin_is_let_in() -> None:
    offer = Offer(url="u", key="k", provider=PROVIDER, extension=False)
    assert not [place for place in wanted("openclaw", {"plugins": {"allow": []}}, offer) if place.startswith("plugins")]


def test_nanobot_is_spoken_to_in_the_spelling_of_its_file() -> None:
    assert wanted("nanobot", {})["modelPresets.clawrl"] == {
        "model": "policy",
        "provider": "clawrl",
        "maxTokens": 512,
        "contextWindowTokens": 4096,
        "temperature": 1.0,
    }
    old = {"model_presets": {}, "agents": {"defaults": {"model_preset": "mine"}}}
    values = wanted("nanobot", old)
    assert values["agents.defaults.model_preset"] == "clawrl" and "model_presets.clawrl" in values
