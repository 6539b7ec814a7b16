"""Main or side, by named rules that each give a reason.

A main turn belongs to the conversation that a person (or an environment) has with the policy and may be learned from. A
side turn is a utility call around it: titles, summaries, heartbeats, scheduled jobs, sub-agents. Headers decide where a
client sends them, the body otherwise; no header is ever needed. Without evidence of a utility call a request is main: a
turn that gets no reaction never trains anyway. Rules of the setting `classification_rules` come before ours. In an
attempt of an environment few of ours hold: its tasks may be anything, also what programs ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

import msgspec

from openclaw_rl.proxy.conversation.programs import components, conversation_work
from openclaw_rl.proxy.conversation.programs import utility_prompts as prompts
from openclaw_rl.proxy.conversation.programs.claude_code import SUGGESTION, bare_system
from openclaw_rl.proxy.conversation.programs.purpose_headers import Purpose, purposes
from openclaw_rl.proxy.conversation.programs.subagents import is_delegated, is_subagent
from openclaw_rl.proxy.conversation.speaker import Speech, runtime_fields
from openclaw_rl.shared.messages.normalize import is_internal_context, text_of
from openclaw_rl.shared.records import Kind, Message
from openclaw_rl.shared.settings.turn_rules import TurnRule


class TurnClass(msgspec.Struct, frozen=True):
    """Main or side; `reason` is the name of the rule that decided."""

    kind: Kind
    reason: str


FEEDBACK = "feedback-command"
OWN = "rule:"
"""Prefix of the names of rules of the settings where they are given as a reason."""
ASIDE = TurnClass("side", "aside")
ATTEMPT = TurnClass("main", "attempt")
_STEP = "a step of an attempt that an environment began"
_IN_ATTEMPTS = frozenset(("header-side", "header-compaction", "openclaw-compaction", "compaction", "handover"))
UNMARKED = ("openclaw-run", "tools", "chat")
"""Rules that no sign of a utility call leaves."""
_ASIDE = "asks for work on the conversation in a person's words, under another system text than the conversation's own"
_OPENING = 4000
"""Characters of the system text that tell whose it is."""
_is_subagent = lru_cache(maxsize=64)(is_subagent)
_plays_component = lru_cache(maxsize=64)(components.plays_component)
"""Every request of a conversation repeats its system text."""
SEARCHED = 20_000
"""Characters of a text that the expressions of such rules are tried on: meanwhile other requests wait."""


class Evidence(msgspec.Struct, frozen=True, dict=True):
    """The facts that the rules look at: lower-case headers, canonical messages, one speech per user message.

    `max_tokens` is the client's own; `feedback`: the request answers feedback alone; `stated`: purposes that the body's
    metadata names.
    """

    headers: Mapping[str, str]
    messages: Sequence[Message]
    has_tools: bool
    speeches: Sequence[Speech]
    dialect: str = "chat"
    model: str = ""
    max_tokens: int | None = None
    feedback: bool = False
    stated: frozenset[Purpose] = frozenset()

    @cached_property
    def _bare_system(self) -> tuple[str, bool]:
        return bare_system("\n".join(text_of(one) for one in self.messages if one["role"] == "system").lstrip())

    @property
    def system(self) -> str:
        """All system text without what Claude Code puts before it."""
        return self._bare_system[0]

    @property
    def subagent(self) -> bool:
        """True if Claude Code says that a sub-agent asks."""
        return self._bare_system[1] or bool(self.headers.get("x-claude-code-agent-id"))

    @cached_property
    def purposes(self) -> set[Purpose]:
        """The purposes that the headers and the metadata name."""
        return purposes(self.headers) | self.stated

    @cached_property
    def session_key(self) -> str:
        """OpenClaw's session key, "" if there is none."""
        named = self.headers.get("x-openclaw-session-key")
        return named or runtime_fields(self.speeches, self.system).get("session", "")

    @cached_property
    def last_speech(self) -> Speech | None:
        """The last user message that is not floating context."""
        return next((speech for speech in reversed(self.speeches) if speech.speaker != "context" or speech.sent), None)

    @cached_property
    def last_text(self) -> str:
        """The text of the last user message, or of a system message after it that asks for something."""
        closing = self.messages[-1] if len(self.messages) > 1 else None
        if closing is not None and closing["role"] == "system" and not self.has_tools and text_of(closing):
            return text_of(closing)
        return self.last_speech.evidence if self.last_speech is not None else ""

    @property
    def alone(self) -> bool:
        """True if a single user message is all that was said: what it speaks of is quoted in it."""
        return len(self.speeches) == 1 and not self.answered

    @property
    def answered(self) -> bool:
        """True if the history holds answers."""
        return any(message["role"] in ("assistant", "tool") for message in self.messages)

    @property
    def asked(self) -> list[str]:
        """The texts that may hold an order: the last one, and where nothing was answered yet all user messages."""
        if self.answered:
            return [self.last_text]
        return [self.last_text, *(speech.evidence for speech in self.speeches)]

    @cached_property
    def instructions(self) -> list[str]:
        """The places of utility prompts: the beginning of the system text, both ends of the last user message."""
        last = self.last_text
        return [self.system[:1500], last[:1500], last[1500:][-800:]]


class Rule(msgspec.Struct, frozen=True):
    """One reason to take a request for side, or for main; the first rule that holds decides."""

    name: str
    description: str
    test: Callable[[Evidence], bool]
    kind: Kind = "side"


def _header(name: str, *values: str) -> Callable[[Evidence], bool]:
    return lambda evidence: evidence.headers.get(name, "").strip().lower() in values


def _purpose(purpose: Purpose) -> Callable[[Evidence], bool]:
    return lambda evidence: purpose in evidence.purposes


def _key(*parts: str) -> Callable[[Evidence], bool]:
    return lambda evidence: any(part in evidence.session_key for part in parts)


def _system(opening: str) -> Callable[[Evidence], bool]:
    return lambda evidence: not evidence.has_tools and evidence.system.startswith(opening)


def _speaker(*speakers: str) -> Callable[[Evidence], bool]:
    return lambda evidence: evidence.last_speech is not None and evidence.last_speech.speaker in speakers


def _last(test: Callable[[str], bool]) -> Callable[[Evidence], bool]:
    return lambda evidence: test(evidence.last_text)


def _without_tools(test: Callable[[Evidence], bool]) -> Callable[[Evidence], bool]:
    return lambda evidence: not evidence.has_tools and test(evidence)


def _asks_title(evidence: Evidence) -> bool:
    if evidence.has_tools:
        return prompts.orders_label(evidence.last_text, quoted=evidence.alone)
    return prompts.asks_title(evidence.system, evidence.instructions)


def _asks_summary(evidence: Evidence) -> bool:
    system, alone = ("", evidence.alone) if evidence.has_tools else (evidence.system, len(evidence.speeches) == 1)
    return prompts.asks_summary(system, evidence.last_text, alone=alone)


def _works_on_conversation(evidence: Evidence) -> bool:
    return conversation_work.plays_part(evidence.system, has_tools=evidence.has_tools) or any(
        conversation_work.orders_work(text) for text in evidence.asked
    )


def _is_component(evidence: Evidence) -> bool:
    if _plays_component(evidence.system[:_OPENING], has_tools=evidence.has_tools):
        return True
    alone = not evidence.has_tools and evidence.alone
    return alone and components.orders_component(evidence.last_text, evidence.system)


def _from_openclaw(evidence: Evidence) -> bool:
    floating = any(is_internal_context(message) for message in evidence.messages)
    return bool(evidence.session_key) or floating or any(speech.runtime for speech in evidence.speeches)


RULES: tuple[Rule, ...] = (
    Rule("header-side", "X-Turn-Type says side", _header("x-turn-type", "side")),
    Rule(
        FEEDBACK, "all that the person says is /good or /bad: feedback on the answer before", lambda one: one.feedback
    ),
    Rule("header-main", "X-Turn-Type says main", _header("x-turn-type", "main"), "main"),
    Rule("trigger", "X-OpenClaw-Trigger is not a person", _header("x-openclaw-trigger", "heartbeat", "cron", "memory")),
    Rule("key-memory", "OpenClaw session key of internal work", _key("internal-session-effects")),
    Rule("key-cron", "OpenClaw session key of a scheduled job", _key(":cron:")),
    Rule("key-subagent", "OpenClaw session key of a sub-agent", _key(":subagent:")),
    Rule("header-subagent", "a header or the metadata says that a sub-agent asks", _purpose("subagent")),
    Rule(
        "header-compaction", "a header or the metadata says that the conversation is condensed", _purpose("compaction")
    ),
    Rule("header-title", "a header or the metadata says that a title is wanted", _purpose("title")),
    Rule("header-memory", "a header or the metadata says that memories are kept", _purpose("memory")),
    Rule("header-utility", "a header or the metadata says that the program asks for itself", _purpose("utility")),
    Rule("openclaw-title", "OpenClaw asks for a session title", _system("Generate a concise session title")),
    Rule("openclaw-recap", "OpenClaw asks for an activity recap", _system("Write an Activity recap")),
    Rule(
        "openclaw-compaction",
        "OpenClaw has its context summarised",
        _system("You are a context summarization assistant"),
    ),
    Rule("openclaw-flush", "OpenClaw stores memories before compaction", _speaker("flush")),
    Rule("openclaw-heartbeat", "the last user text is OpenClaw's heartbeat", _speaker("heartbeat")),
    Rule("openclaw-cron", "the last user text is a scheduled job's", _speaker("cron")),
    Rule(
        "openclaw-subagent",
        "a sub-agent's task opens the conversation",
        lambda one: any(speech.speaker == "subagent" for speech in one.speeches),
    ),
    Rule("claude-code-subagent", "a sub-agent of Claude Code", lambda one: one.subagent),
    Rule(
        "subagent",
        "the system text, or the task, is that of an agent who works for another",
        lambda one: (
            _is_subagent(one.system[:_OPENING]) or any(is_delegated(speech.evidence) for speech in one.speeches[:1])
        ),
    ),
    Rule(
        "claude-code-suggestion",
        "Claude Code asks what its user may type next",
        _last(lambda text: text.startswith(SUGGESTION)),
    ),
    Rule(
        "probe",
        "a single token is wanted: a test of key, quota or connection",
        lambda one: one.max_tokens == 1 and len(one.speeches) == 1 and not one.has_tools,
    ),
    Rule(
        "compaction",
        "the program has the conversation condensed, as its context is full",
        _last(prompts.asks_compaction),
    ),
    Rule("handover", "an agent takes over from one whose context is full", _without_tools(_last(prompts.hands_over))),
    Rule("away-recap", "the program asks where things stand, for a person who was away", _last(prompts.asks_recap)),
    Rule(
        "command-check",
        "the program has a command judged, without tools",
        _without_tools(lambda one: prompts.checks_command(one.system, one.last_text)),
    ),
    Rule(
        "tool-helper",
        "a tool asks the model itself: to read a page, to search",
        lambda one: len(one.speeches) == 1 and prompts.helps_tool(one.system, one.last_text),
    ),
    Rule(
        "filename-slug",
        "asks for a file name",
        _without_tools(lambda one: any("word filename slug" in text for text in one.instructions)),
    ),
    Rule(
        "commit-message",
        "asks for a commit message, without tools",
        _without_tools(lambda one: prompts.asks_commit_message(one.system)),
    ),
    Rule(
        "title",
        "asks for a title of the conversation",
        _asks_title,
    ),
    Rule(
        "summary",
        "asks for a summary of a conversation that it quotes, or that stands above it",
        _asks_summary,
    ),
    Rule(
        "chat-utility",
        "asks for tags, follow-ups or the like of a conversation, without tools",
        _without_tools(lambda one: prompts.asks_side_task(one.instructions, one.last_text)),
    ),
    Rule(
        "conversation-work",
        "the program asks for work on the conversation itself: to condense it, to extract from it, what comes next",
        _works_on_conversation,
    ),
    Rule(
        "component",
        "a component of the program asks: to classify, route, grade, rewrite, extract, complete",
        _is_component,
    ),
    Rule("openclaw-run", "an agent run of OpenClaw, no sign of a utility call", _from_openclaw, "main"),
    Rule("tools", "tools are offered, no sign of a utility call", lambda one: one.has_tools, "main"),
    Rule("chat", "no sign of a utility call", lambda one: True, "main"),
)


def classify(evidence: Evidence, own: Sequence[Rule] = (), *, attempt: bool = False) -> TurnClass:
    """The class of a request; every request has one. `own` are the rules of the settings: they come first. `attempt`:
    it is made within one, of an environment.
    """
    ours = [rule for rule in RULES if rule.name in _IN_ATTEMPTS] if attempt else RULES
    rule = next((rule for rule in (*own, *ours) if rule.test(evidence)), None)
    return TurnClass(rule.kind, rule.name) if rule is not None else ATTEMPT


def may_be_aside(evidence: Evidence) -> bool:
    """True for words that a person may say, and a program that asks for itself: the parent's frame tells (`ASIDE`)."""
    text = evidence.last_text
    return evidence.answered and (conversation_work.may_order(text) or prompts.asks_title("", [text[:1500]]))


def describe(reason: str) -> str:
    """The description of the rule called `reason` ("" if there is none)."""
    if reason == ASIDE.reason:
        return _ASIDE
    if reason == ATTEMPT.reason:
        return _STEP
    if reason.startswith(OWN):
        return f"your rule {reason.removeprefix(OWN)!r} in the settings (classification_rules)"
    return next((rule.description for rule in RULES if rule.name == reason), "")


def own_rules(rules: Iterable[TurnRule]) -> tuple[Rule, ...]:
    """The rules of the settings, in the same order."""

    def create(rule: TurnRule) -> Rule:
        text = f"rule {rule.name!r} of the settings"
        return Rule(OWN + rule.name, text, lambda evidence: all(_conditions(rule, evidence)), rule.kind)

    return tuple(map(create, rules))


def _conditions(rule: TurnRule, evidence: Evidence) -> Iterable[bool]:
    """Test a rule's conditions one by one, the cheap ones first."""
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
