"""The rules of the setting `classification_rules` as rules that requests are tried on, before our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from openclaw_rl.proxy.conversation.classify import OWN, Evidence, Rule
from openclaw_rl.shared.settings.turn_rules import TurnRule

SEARCHED = 20_000
"""Characters of a text that a rule's expression is tried on: it runs while others wait."""


def own_rules(rules: Iterable[TurnRule]) -> tuple[Rule, ...]:
    """One rule for each, in the same order; its name says that it is the user's."""
    return tuple(Rule(OWN + rule.name, rule.kind, f"rule {rule.name!r} of the settings", _test(rule)) for rule in rules)


def _test(rule: TurnRule) -> Callable[[Evidence], bool]:
    return lambda evidence: all(holds for holds in _conditions(rule, evidence))


def _conditions(rule: TurnRule, evidence: Evidence) -> Iterable[bool]:
    """Whether each of a rule's conditions holds, the cheap ones first."""
    if rule.tools is not None:
        yield rule.tools == evidence.has_tools
    if rule.dialect is not None:
        yield rule.dialect == evidence.dialect
    if rule.max_tokens_at_least is not None:
        yield evidence.max_tokens is not None and evidence.max_tokens >= rule.max_tokens_at_least
    if rule.max_tokens_at_most is not None:
        yield evidence.max_tokens is not None and evidence.max_tokens <= rule.max_tokens_at_most
    for name, pattern in rule.header.items():
        yield name in evidence.headers and bool(pattern.search(evidence.headers[name]))
    for one, text in (
        (rule.user_agent, evidence.headers.get("user-agent", "")),
        (rule.model, evidence.model),
        (rule.system, evidence.system[:SEARCHED]),
        (rule.last_user, evidence.last_text[:SEARCHED]),
    ):
        if one is not None:
            yield bool(one.search(text))
