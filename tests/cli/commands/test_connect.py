"""`openclaw-rl connect` with a running service and files in a temporary home."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.connect.clients import CLIENTS
from openclaw_rl.cli.connect.recipes import RECIPES
from openclaw_rl.cli.main import app
from openclaw_rl.shared.errors import ConfigError
from tests.processes import Proxy


@pytest.fixture
def connect(service: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR", "OPENCLAW_HOME"):
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
    assert "  + models: {" in shown and service.key not in shown
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


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("before", [None, '{"mine": 1}\n'], ids=["no file", "a file"])
def test_every_client_is_connected_and_put_back(
    connect: Callable[..., str], service: Proxy, tmp_path: Path, name: str, before: str | None
) -> None:
    path = tmp_path / "client.json"
    if before is not None:
        path.write_text(before)
    assert f"connect {name} --undo" in connect(name, "--config", str(path), "--yes")
    assert service.url in path.read_text() and service.key in path.read_text()
    assert "nothing to change" in connect(name, "--config", str(path))
    assert connect(name, "--config", str(path), "--undo") == f"{path} is as it was\n"
    assert (path.read_text() if path.exists() else None) == before
    assert [other.name for other in tmp_path.iterdir() if other.name.startswith("client")] == ["client.json"] * bool(
        before
    )


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_printed(connect: Callable[..., str], service: Proxy, name: str) -> None:
    recipe = connect(name)
    assert service.url in recipe and service.key in recipe
    with pytest.raises(ConfigError, match="by hand"):
        connect(name, "--undo")


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
        "providers",
        "modelPresets",
        "agents",
    ]
    undone = json.loads(connect("nanobot", "--undo", "--json"))
    assert undone == {"file": str(tmp_path / ".nanobot" / "config.json"), "undone": True, "changes": []}


def test_without_a_name_it_says_how(connect: Callable[..., str], service: Proxy) -> None:
    recipe = connect()
    assert f"OPENAI_BASE_URL={service.url}/v1 OPENAI_API_KEY={service.key}" in recipe
    assert f"ANTHROPIC_BASE_URL={service.url} " in recipe
    with pytest.raises(ConfigError, match="emacs is none of openclaw, nanobot"):
        connect("emacs")


def test_for_a_file_that_is_no_json_it_prints_the_recipe(connect: Callable[..., str], service: Proxy) -> None:
    recipe = connect("codex")
    assert f'base_url = "{service.url}/v1"' in recipe and f"OPENCLAW_RL_API_KEY={service.key}" in recipe
    assert 'wire_api = "responses"' in recipe


@pytest.fixture
def openclaw_file(tmp_path: Path) -> Path:
    path = tmp_path / ".openclaw" / "openclaw.json"
    path.parent.mkdir()
    return path


def test_a_file_that_was_changed_since_is_put_back_only_when_that_is_confirmed(
    connect: Callable[..., str], service: Proxy, openclaw_file: Path
) -> None:
    before = '{"gateway": {"port": 1}}'
    openclaw_file.write_text(before)
    connect("openclaw", "--yes")
    since = json.dumps(json.loads(openclaw_file.read_text()) | {"channels": {"telegram": {"botToken": "secret"}}})
    openclaw_file.write_text(since)
    shown = connect("openclaw", "--undo")
    assert "has been changed since, so nothing was put back" in shown
    assert '  - channels: {"telegram": {"botToken": "…"}}' in shown and "  - models: {" in shown
    assert service.key not in shown and "add --yes" in shown
    answered = json.loads(connect("openclaw", "--undo", "--json"))
    assert answered["undone"] is False and "channels" in [change["place"] for change in answered["changes"]]
    assert openclaw_file.read_text() == since
    assert connect("openclaw", "--undo", "--yes") == f"{openclaw_file} is as it was\n"
    assert openclaw_file.read_text() == before
    assert openclaw_file.with_name("openclaw.json.before-openclaw-rl.2").read_text() == since


def test_no_secret_of_the_file_is_shown(connect: Callable[..., str], service: Proxy, openclaw_file: Path) -> None:
    model = {"id": "policy", "name": "mine", "headers": {"Authorization": "secret-1"}}
    provider = {"baseUrl": "http://x/v1", "apiKey": "secret-2", "models": [model]}
    openclaw_file.write_text(json.dumps({"models": {"providers": {"clawrl": provider}}}))
    for shown in (connect("openclaw", "--dry-run"), connect("openclaw", "--json")):
        assert "models.providers.clawrl.models" in shown
        assert "secret-" not in shown and service.key not in shown


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"models": []}, r"models is no object but \[\]; mend or remove it first, nothing was changed"),
        ({"plugins": "x"}, 'plugins is no object but "x"'),
        ({"agents": {"defaults": {"model": None}}}, "agents.defaults.model is no object but null"),
        ({"models": {"providers": {"clawrl": "x"}}}, 'models.providers.clawrl is no object but "x"'),
        ({"models": {"providers": {"clawrl": {"models": {}}}}}, "models.providers.clawrl.models is no list"),
        ({"plugins": {"allow": "x"}}, 'plugins.allow is no list but "x"; mend or remove it first'),
        ({"agents": {"defaults": {"modelPolicy": {"allow": "x"}}}}, "agents.defaults.modelPolicy.allow is no list"),
        ({"models": {"providers": {"clawrl": None}}, "agents": {"entries": [], "list": {}}}, ""),
        ({"models": {"providers": {"clawrl": {}}}, "agents": {"entries": {"a": "x"}, "list": ["x"]}}, ""),
    ],
)
def test_odd_values_are_named_and_nothing_is_lost(
    connect: Callable[..., str], openclaw_file: Path, content: Any, message: str
) -> None:
    openclaw_file.write_text(json.dumps(content))
    if message:
        with pytest.raises(ConfigError, match=message):
            connect("openclaw", "--yes")
        assert [path.name for path in openclaw_file.parent.iterdir()] == ["openclaw.json"]
    else:
        connect("openclaw", "--yes")
        connect("openclaw", "--undo")
    assert json.loads(openclaw_file.read_text()) == content


def test_a_folder_is_no_configuration(connect: Callable[..., str], openclaw_file: Path) -> None:
    openclaw_file.mkdir()
    for flag in ("--yes", "--undo"):
        with pytest.raises(ConfigError, match=r"openclaw\.json cannot be read: Is a directory|was not changed by"):
            connect("openclaw", flag)


def test_nanobots_own_keys_stay(connect: Callable[..., str], service: Proxy, tmp_path: Path) -> None:
    path = tmp_path / ".nanobot" / "config.json"
    path.parent.mkdir()
    provider = {"display_name": "mine", "api_key": "${RL_KEY}", "extraHeaders": {"X-RL-Train": "never"}}
    before = json.dumps({"providers": {"clawrl": provider}, "modelPresets": {"clawrl": {"reasoningEffort": "low"}}})
    path.write_text(before)
    assert "providers.clawrl.api_key names a secret kept elsewhere and stays" in connect("nanobot", "--yes")
    content = json.loads(path.read_text())
    assert content["providers"]["clawrl"] == provider | {"apiBase": f"{service.url}/v1"}
    preset = content["modelPresets"]["clawrl"]
    assert (preset["reasoningEffort"], preset["temperature"]) == ("low", 1.0)
    connect("nanobot", "--undo")
    assert path.read_text() == before
