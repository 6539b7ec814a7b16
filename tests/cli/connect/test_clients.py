"""Values that `openclaw-rl connect` puts into a client's file, and the search for that file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.connect.clients import CLIENTS, ServiceAccess
from openclaw_rl.cli.connect.recipes import RECIPES

PROVIDER: dict[str, Any] = {
    "baseUrl": "http://u/v1",
    "apiKey": "k",
    "api": "openai-completions",
    "models": [{"id": "policy", "name": "RL policy", "contextWindow": 4096, "maxTokens": 512}],
}
OFFER = ServiceAccess(url="http://u", key="k", provider=PROVIDER)


def wanted(name: str, config: dict[str, Any], offer: ServiceAccess = OFFER) -> dict[str, Any]:
    return {".".join(place): value for place, value in CLIENTS[name].wanted(config, offer).values.items()}


def notes(config: dict[str, Any]) -> str:
    return "\n".join(CLIENTS["openclaw"].wanted(config, OFFER).notes)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR", "OPENCLAW_HOME", "OPENCLAW_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_openclaws_file_is_where_it_looks_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CLIENTS["openclaw"].file
    assert file(os.environ) == home / ".openclaw" / "openclaw.json"
    monkeypatch.setenv("OPENCLAW_PROFILE", "work")  # by itself it names a service, and moves nothing
    assert file(os.environ) == home / ".openclaw" / "openclaw.json"
    monkeypatch.setenv("OPENCLAW_HOME", "~/other")
    assert file(os.environ) == home / "other" / ".openclaw" / "openclaw.json"
    monkeypatch.setenv("OPENCLAW_STATE_DIR", " ~/state ")
    assert file(os.environ) == home / "other" / "state" / "openclaw.json"
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", "/elsewhere.json5")
    assert file(os.environ) == Path("/elsewhere.json5")


def test_openclaws_older_names_are_taken_where_the_newer_are_not_there(home: Path) -> None:
    for name in (".clawdbot/clawdbot.json", ".clawdbot/openclaw.json", ".openclaw/clawdbot.json"):
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        assert CLIENTS["openclaw"].file(os.environ) == path
    (home / ".openclaw" / "openclaw.json").write_text("{}")
    assert CLIENTS["openclaw"].file(os.environ) == home / ".openclaw" / "openclaw.json"


def test_openclaws_own_choices_are_kept() -> None:
    config = {
        "models": {"mode": "replace"},
        "agents": {
            "defaults": {"model": "x/y", "modelPolicy": {"allow": ["x/*"]}},
        },
        "plugins": {"allow": ["other"]},
    }
    values = wanted("openclaw", config)
    assert "models.mode" not in values
    assert values["agents.defaults.model"] == "clawrl/policy" and "agents.defaults.model.primary" not in values
    assert values["agents.defaults.modelPolicy.allow"] == ["x/*", "clawrl/policy"]
    assert values["plugins.allow"] == ["other", "openclaw-rl"]
    assert "agents.defaults.modelPolicy.allow" not in wanted(
        "openclaw", {"agents": {"defaults": {"modelPolicy": {"allow": ["clawrl/*"]}}}}
    )


@pytest.mark.parametrize(("context", "noted"), [(8192, True), (14_711, True), (14_712, False), (32_768, False)])
def test_a_context_that_openclaws_own_prompt_fills_is_noted(context: int, noted: bool) -> None:
    entry = {**PROVIDER, "models": [{**PROVIDER["models"][0], "contextWindow": context}]}
    found = CLIENTS["openclaw"].wanted({}, ServiceAccess(url="http://u", key="k", provider=entry)).notes
    said = [note for note in found if "context_length_exceeded" in note]
    assert bool(said) == noted
    assert not noted or f"the context has {context:,} tokens" in said[0]


def test_agents_with_a_model_of_their_own_are_noted() -> None:
    entries: dict[str, dict[str, Any]] = {
        "main": {},
        "ours": {"model": "clawrl/policy"},
        "coder": {"model": "x/coder"},
        "writer": {"model": {"primary": "x/writer", "fallbacks": []}},
        "careful": {"model": {"fallbacks": ["x/y"]}},
    }
    expected = [
        "agent coder keeps its own model (x/coder)",
        "agent writer keeps its own model (x/writer)",
    ]
    listed = [{"id": name} | entry for name, entry in entries.items()]
    for agents in ({"entries": entries}, {"list": listed}):
        assert [line for line in notes({"agents": agents}).splitlines() if line.startswith("agent ")] == expected


@pytest.mark.parametrize(
    ("allow", "after"),
    [
        (None, None),
        ([], None),
        ([" "], None),
        (["other"], ["other", "openclaw-rl"]),
        (["other", " OpenClaw-RL "], None),
        ({"$include": "./allow.json5"}, None),
    ],
)
def test_the_extension_is_let_in_where_a_list_keeps_it_out(allow: Any, after: list[str] | None) -> None:
    """An empty list lets every plugin in: one entry would lock the others out."""
    assert wanted("openclaw", {"plugins": {"allow": allow}}).get("plugins.allow") == after


def test_plugins_that_are_off_stay_off_and_it_says_so() -> None:
    config = {"plugins": {"enabled": False, "deny": ["openclaw-rl"]}}
    assert not {"plugins.enabled", "plugins.deny"} & wanted("openclaw", config).keys()
    assert "plugins.deny lists openclaw-rl: the extension does not load until you take it out there" in notes(config)
    assert "plugins.enabled is false: the extension does not load until you change that" in notes(config)
    assert "does not load" not in notes({"plugins": {"enabled": True, "deny": ["other"]}})


def test_of_an_entry_that_is_there_only_what_connects_is_set() -> None:
    side = {"id": "policy-side", "name": "side", "headers": {"X-Turn-Type": "side"}}
    mine = {"id": "policy", "name": "my own", "contextWindow": 1, "compat": {"supportsStore": False}}
    provider = {"apiKey": "older", "headers": {"X-RL-Train": "never"}, "models": [side, mine, "odd"]}
    values = wanted("openclaw", {"models": {"providers": {"clawrl": provider}}})
    assert {place: value for place, value in values.items() if place.startswith("models.providers.")} == {
        "models.providers.clawrl.baseUrl": "http://u/v1",
        "models.providers.clawrl.apiKey": "k",
        "models.providers.clawrl.api": "openai-completions",
        "models.providers.clawrl.models": [
            side,
            mine | {"contextWindow": 4096, "maxTokens": 512},
            "odd",
        ],
    }
    for models in ([side], [], None):
        values = wanted("openclaw", {"models": {"providers": {"clawrl": {"models": models}}}})
        assert values["models.providers.clawrl.models"] == [*(models or []), PROVIDER["models"][0]]


@pytest.mark.parametrize(
    ("key", "stays"),
    [
        ({"source": "env", "provider": "default", "id": "RL_KEY"}, True),
        ("${RL_KEY}", True),
        ("$RL_KEY", True),
        ("sk-$5", False),
        ("", False),
        (None, False),
    ],
)
def test_a_key_that_is_kept_elsewhere_stays_there(key: Any, stays: bool) -> None:
    config = {"models": {"providers": {"clawrl": {"baseUrl": "http://u/v1", "apiKey": key}}}}
    assert ("models.providers.clawrl.apiKey" not in wanted("openclaw", config)) is stays
    assert ("models.providers.clawrl.apiKey names a secret kept elsewhere and stays" in notes(config)) is stays


def test_a_model_that_goes_elsewhere_is_noted() -> None:
    model = {"id": "policy", "baseUrl": "http://elsewhere/v1", "api": "openai-completions"}
    config = {"models": {"providers": {"clawrl": {"models": [model]}}}}
    assert "policy has its own baseUrl (http://elsewhere/v1), which is used instead of ours" in notes(config)
    assert "its own api" not in notes(config)


def test_included_files_are_noted_and_not_overruled_by_defaults() -> None:
    config = {
        "models": {"$include": "./models.json5"},
        "plugins": {"$include": ["./a.json5", "./b.json5"], "allow": []},
        "agents": {
            "entries": {"coder": {"$include": "./coder.json5"}, "main": {"identity": {"$include": "./x.json5"}}}
        },
        "channels": {"$include": "./channels.json5"},
    }
    noted = notes(config)
    assert "models takes in ./models.json5, plugins takes in ./a.json5 and ./b.json5, " in noted
    assert "agents.coder takes in ./coder.json5 ($include), which connect does not read" in noted
    assert "channels" not in noted and "x.json5" not in noted
    values = wanted("openclaw", config)
    assert not {"models.mode", "plugins.allow"} & values.keys() and "models.providers.clawrl" in values
    assert "the file takes in ./all.json5" in notes({"$include": "./all.json5"})
    assert "$include" not in notes({})
    clawrl = {"models": {"$include": "./list.json5"}}
    assert "models.providers.clawrl.models" not in wanted("openclaw", {"models": {"providers": {"clawrl": clawrl}}})


def test_without_the_extension_no_plugin_is_let_in() -> None:
    offer = ServiceAccess(url="http://u", key="k", provider=PROVIDER, extension=False)
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


def test_claude_code_is_connected_by_its_variables() -> None:
    values = wanted("claude-code", {"env": {"OTHER": "x"}, "permissions": {}})
    assert values == {
        "env.ANTHROPIC_BASE_URL": "http://u",
        "env.ANTHROPIC_AUTH_TOKEN": "k",
        "env.ANTHROPIC_MODEL": "policy",
        "env.CLAUDE_CODE_MAX_CONTEXT_TOKENS": "4096",
    }
    assert "instead of the model" in CLIENTS["claude-code"].wanted({"model": "opus"}, OFFER).notes[0]


def test_opencode_gets_a_provider_and_keeps_its_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = wanted("opencode", {"provider": {"other": {}}})
    provider = values["provider.clawrl"]
    assert values["model"] == "clawrl/policy"
    assert provider["options"] == {"baseURL": "http://u/v1", "apiKey": "k"}
    assert provider["models"]["policy"]["limit"] == {"context": 4096, "output": 512}
    again = wanted("opencode", {"provider": {"clawrl": {**provider, "name": "mine", "timeout": 3}}})
    assert "provider.clawrl" not in again and "provider.clawrl.name" not in again
    monkeypatch.delenv("OPENCODE_CONFIG", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    file = CLIENTS["opencode"].file
    assert file(os.environ) == home / ".config" / "opencode" / "opencode.json"
    (home / ".config" / "opencode").mkdir(parents=True)
    (home / ".config" / "opencode" / "opencode.jsonc").write_text("{}")
    assert file(os.environ).name == "opencode.jsonc"
    monkeypatch.setenv("OPENCODE_CONFIG", "/elsewhere.json")
    assert file(os.environ) == Path("/elsewhere.json")


def test_qwen_code_gets_a_connection_and_its_model() -> None:
    assert wanted("qwen-code", {"model": {"name": "other", "maxSessionTurns": 3}}) == {
        "security.auth.selectedType": "openai",
        "security.auth.baseUrl": "http://u/v1",
        "security.auth.apiKey": "k",
        "model.name": "policy",
        "model.generationConfig.contextWindowSize": 4096,
    }


def test_cline_gets_a_provider_and_keeps_its_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLINE_PROVIDER_SETTINGS_PATH", "CLINE_DATA_DIR", "CLINE_DIR"):
        monkeypatch.delenv(name, raising=False)
    values = wanted("cline", {"providers": {"other": {}}})
    assert values.pop("providers.openai-compatible.updatedAt").endswith("Z")
    assert values == {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "providers.openai-compatible.settings": {
            "provider": "openai-compatible",
            "baseUrl": "http://u/v1",
            "apiKey": "k",
            "model": "policy",
            "contextWindow": 4096,
        },
    }
    known = {"providers": {"openai-compatible": {"settings": {"headers": {}}, "updatedAt": "2026-01-01T00:00:00Z"}}}
    again = wanted("cline", known)
    assert again["providers.openai-compatible.settings.model"] == "policy"
    assert not {"providers.openai-compatible.settings", "providers.openai-compatible.updatedAt"} & again.keys()
    file = CLIENTS["cline"].file
    assert file(os.environ) == Path("~/.cline/data/settings/providers.json")
    monkeypatch.setenv("CLINE_DIR", "/c")
    assert file(os.environ) == Path("/c/data/settings/providers.json")
    monkeypatch.setenv("CLINE_DATA_DIR", "/d")
    assert file(os.environ) == Path("/d/settings/providers.json")
    monkeypatch.setenv("CLINE_PROVIDER_SETTINGS_PATH", "/p.json")
    assert file(os.environ) == Path("/p.json")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_the_service_and_its_model(name: str) -> None:
    shown = RECIPES[name].format(url="http://u", key="k-4711", model="policy@3", context=4096)
    assert all(word in shown for word in ("http://u/v1", "k-4711", "policy@3" if name != "open-webui" else ""))
    assert "{" not in shown
