"""Other names for the policy in the settings: in a file, a variable, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.model_aliases import ModelAlias, parse_aliases
from openclaw_rl.shared.settings.sources import load


def test_names_patterns_and_versions() -> None:
    assert parse_aliases(" claude-*=policy ,gpt-4o = policy@3,", "policy") == (
        ModelAlias("claude-*", None),
        ModelAlias("gpt-4o", 3),
    )
    assert parse_aliases("", "policy") == ()


def test_a_table_in_the_file_and_a_line_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "openclaw-rl.toml"
    file.write_text('[model_aliases]\n"claude-*" = "mine"\n"openai/gpt-4o" = "mine@2"\n')
    settings, sources = load(environ={"OPENCLAW_RL_MODEL_NAME": "mine"}, file=file)
    assert sources["model_aliases"] == "openclaw-rl.toml"
    line, _ = load({"model-aliases": "claude-*=mine,openai/gpt-4o=mine@2", "served-model-name": "mine"}, environ={})
    read = [parse_aliases(one.serve.model_aliases, "mine") for one in (settings, line)]
    assert read[0] == read[1] == (ModelAlias("claude-*", None), ModelAlias("openai/gpt-4o", 2))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("claude-*", "write NAME=policy"),
        ("=policy", "write NAME=policy"),
        ("gpt-4o=gpt-5", "'gpt-4o' stands for 'gpt-5', which is not served"),
        ("gpt-4o=policy@latest", "which is not served"),
        ("a b=policy", "is no model name"),
        ("policy@3=policy", "own name"),
        ("a=policy,a=policy@1", "there twice"),
    ],
)
def test_an_unreadable_alias_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"model-aliases": text}, environ={})
    assert str(caught.value).startswith("model_aliases = ") and why in str(caught.value)


@pytest.mark.parametrize("table", ['"gpt-4o" = 3', '"a,b" = "policy"', '"a=b" = "policy"'])
def test_a_table_of_something_else(tmp_path: Path, table: str) -> None:
    file = tmp_path / "openclaw-rl.toml"
    file.write_text(f"[model_aliases]\n{table}\n")
    with pytest.raises(ConfigError, match="must be a name"):
        load(environ={}, file=file)
