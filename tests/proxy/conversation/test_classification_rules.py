from __future__ import annotations

import json
from typing import Any

import pytest

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.classify import Evidence, TurnClass, classify, describe, own_rules
from openclaw_rl.shared.messages.normalize import normalize_chat
from openclaw_rl.shared.settings.turn_rules import parse_rules
from tests.fixtures.clients import CALLS, TOOLS

HEADERS = {"user-agent": "gardener/2.1 (linux)", "x-job": "Night shift"}
TALK = [
    {"role": "system", "content": "You keep a shed.\nYou answer in verse."},
    {"role": "user", "content": "Where is the rake?"},
]


def taken(*rules: dict[str, Any], messages: list[Any] = TALK, tools: bool = False, **more: Any) -> TurnClass:
    """Classify a request under these rules."""
    chat = normalize_chat({"messages": messages})
    fields = {"dialect": "messages", "model": "policy@3", "max_tokens": 40, **more}
    evidence = Evidence(HEADERS, chat.messages, tools, Chain(chat.messages).speeches, **fields)
    return classify(evidence, own_rules(parse_rules(json.dumps(rules))))


@pytest.mark.parametrize(
    "condition",
    [
        {"header": {"X-Job": "^night"}},
        {"user_agent": r"gardener/\d"},
        {"dialect": "messages"},
        {"model": "@3$"},
        {"system": "^you answer in verse"},
        {"last_user": "the RAKE"},
        {"tools": False},
        {"max_tokens_at_most": 40},
        {"max_tokens_at_least": 40},
        {"dialect": "messages", "tools": False, "max_tokens_at_least": 1, "max_tokens_at_most": 99},
    ],
    ids=lambda condition: "+".join(condition),
)
def test_a_rule_holds_by_its_conditions(condition: dict[str, Any]) -> None:
    assert taken({"name": "mine", "kind": "side", **condition}) == TurnClass("side", "rule:mine")


@pytest.mark.parametrize(
    "condition",
    [
        {"header": {"X-Job": "^day"}},
        {"header": {"X-Other": ""}} | {"header": {"X-Other": "."}},
        {"user_agent": "^linux"},
        {"dialect": "chat"},
        {"model": "@4$"},
        {"system": "prose"},
        {"last_user": "verse"},
        {"tools": True},
        {"max_tokens_at_most": 39},
        {"max_tokens_at_least": 41},
        {"tools": False, "dialect": "chat"},
    ],
    ids=lambda condition: "+".join(condition),
)
def test_a_rule_whose_conditions_do_not_all_hold_decides_nothing(condition: dict[str, Any]) -> None:
    assert taken({"name": "mine", "kind": "side", **condition}) == TurnClass("main", "chat")


def test_a_request_without_max_tokens_meets_no_bound() -> None:
    for bound in ("max_tokens_at_most", "max_tokens_at_least"):
        assert taken({"name": "mine", "kind": "side", bound: 1}, max_tokens=None).reason == "chat"


def test_the_first_rule_that_holds_decides() -> None:
    rules = [
        {"name": "no", "kind": "side", "tools": True},
        {"name": "first", "kind": "main", "last_user": "rake"},
        {"name": "second", "kind": "side", "last_user": "rake"},
    ]
    assert taken(*rules) == TurnClass("main", "rule:first")


def test_rules_of_the_settings_come_before_all_others() -> None:
    title = next(call for call in CALLS if call.name == "chat ui: title")
    assert taken(messages=title.messages).kind == "side"
    rule = {"name": "titles-too", "kind": "main", "last_user": "### Task"}
    assert taken(rule, messages=title.messages) == TurnClass("main", "rule:titles-too")
    everything = {"name": "all", "kind": "main", "header": {"user-agent": "."}}
    assert taken(everything, tools=bool(TOOLS)) == TurnClass("main", "rule:all")


def test_the_reason_of_a_rule_says_whose_it_is() -> None:
    assert describe("rule:mine") == "your rule 'mine' in the settings (classification_rules)"
