from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings, to_environment
from openclaw_rl.shared.settings.sources import load
from openclaw_rl.shared.settings.turn_rules import CONDITIONS, parse_rules

FILE = """
batch_size = 4

[[classification_rules]]
name = "nightly"
kind = "side"
header = { X-Job = "night" }

[[classification_rules]]
name = "helper"
kind = "main"
user_agent = "^helper/"
tools = true
"""


def fails(*rules: Any) -> str:
    """The message for these rules."""
    with pytest.raises(ConfigError) as caught:
        load({"classification-rules": json.dumps(rules)}, environ={})
    assert str(caught.value).startswith("classification_rules = ")
    return str(caught.value).partition("--classification-rules): ")[2]


def test_rules_stand_in_the_file_as_tables_and_reach_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "openclaw-rl.toml"
    path.write_text(FILE)
    settings, sources = load(file=path, environ={})
    assert (sources["classification_rules"], settings.learning.batch_size) == ("openclaw-rl.toml", 4)
    child, _ = load(environ=to_environment(settings))
    for one in (settings, child):
        nightly, helper = parse_rules(one.serve.classification_rules)
        assert (nightly.name, nightly.kind, nightly.header["x-job"].pattern) == ("nightly", "side", "night")
        assert (helper.kind, helper.tools, helper.max_tokens_at_most) == ("main", True, None)


def test_no_rules_are_no_rules() -> None:
    assert parse_rules(Settings().serve.classification_rules) == ()


def test_a_bad_rule_is_named_with_what_is_allowed() -> None:
    good = {"name": "a", "kind": "side", "tools": False}
    assert fails({**good, "user_agnet": "x"}) == (
        "rule 1 ('a'): 'user_agnet' is no condition (did you mean user_agent?); allowed are " + ", ".join(CONDITIONS)
    )
    assert fails(good, {"name": "b", "kind": "sideways", "tools": True}) == (
        "rule 2 ('b'): kind is 'sideways'; it must be 'main' or 'side'"
    )
    assert fails({"name": "a", "kind": "main"}).startswith("rule 1 ('a') has no condition; give one of header, ")
    assert fails({"kind": "main", "tools": True}).startswith("rule 1: name is missing; it must be letters")
    assert fails({**good, "system": "(oops"}).startswith("rule 1 ('a'): system is '(oops', which is no regular")
    assert "dialect is 'grpc'; it must be one of chat, responses, messages" in fails({**good, "dialect": "grpc"})
    assert "tools is 'yes'; it must be true or false" in fails({**good, "tools": "yes"})
    assert "max_tokens_at_most is 0; it must be a whole number from 1" in fails({**good, "max_tokens_at_most": 0})
    assert "header is 'x'; it must map header names to patterns" in fails({**good, "header": "x"})
    assert fails(good, good).startswith("two rules are called 'a'")
    assert fails("a").startswith("rule 1 is no table")


def test_a_value_that_is_no_list_of_rules_is_refused() -> None:
    for text in ("{}", "[", "nightly"):
        with pytest.raises(ConfigError, match=r"docs/classification\.md"):
            load({"classification-rules": text}, environ={})
