"""Main or side, by named rules that each give a reason.

A main turn belongs to the conversation that a person (or an environment) has with the policy and may be learned from. A
side turn is a utility call around it: titles, summaries, heartbeats, scheduled jobs, sub-agents. Headers decide where a
client sends them, the body otherwise; no header is ever needed. Without evidence of a utility call a request is main:
one that nobody answers never trains anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from proxy.openclaw import Speech, runtime_fields
from shared.normalize import text_of
from shared.records import Kind, Message


class Evidence(msgspec.Struct, frozen=True):
    """What the rules look at: lower-case headers, canonical messages, whether tools are offered, and what OpenClaw's
    body tells.

    `system` is all system text; `speeches` has one entry per user message, in order; `session_key` is OpenClaw's, from
    header or `Runtime:` line ("" if neither).
    """

    headers: Mapping[str, str]
    system: str
    has_tools: bool
    speeches: Sequence[Speech]
    session_key: str

    @classmethod
    def of(
        cls, headers: Mapping[str, str], messages: Sequence[Message], has_tools: bool, speeches: Sequence[Speech]
    ) -> Evidence:
        """The evidence in a chat request with these canonical messages."""
        system = "\n".join(text_of(message) for message in messages if message["role"] == "system").lstrip()
        key = headers.get("x-openclaw-session-key") or runtime_fields(speeches).get("session", "")
        return cls(headers, system, has_tools, speeches, key)

    @property
    def last_speech(self) -> Speech | None:
        """The last user message that is not floating context."""
        return next((speech for speech in reversed(self.speeches) if speech.speaker != "context"), None)


class Rule(msgspec.Struct, frozen=True):
    """One reason to take a request for main or side; the first rule whose test holds decides."""

    name: str
    kind: Kind
    description: str
    test: Callable[[Evidence], bool]


class Verdict(msgspec.Struct, frozen=True):
    """What a request was taken for; `reason` is the name of the rule."""

    kind: Kind
    reason: str


_MAKE = r"(?:generate|create|write|provide|produce|suggest|give|come up with|return|output|make)"
_LABEL = r"(?:title|headline|subject line|slug|short name|thread name|topic label|tags?\b)"
_TALK = (
    r"(?:conversation|chat|session|thread|discussion|message|dialogue|"
    r"user'?s? (?:request|query|question|prompt|input))"
)
_BREVITY = (
    r"(?:concise|short|brief|succinct|or (?:less|fewer)|max(?:imum)?\b|under \d+|no more than|at most|"
    r"\b(?:\d+|one|two|three|four|five|six|ten)\b[\w\s,-]{0,12}words?)"
)


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE | re.MULTILINE)


_TITLE = _pattern(rf"\b{_MAKE}\b[^\n]{{0,80}}\b{_LABEL}")
_NEAR_TITLE = (_pattern(_TALK), _pattern(_BREVITY))
_TITLER = _pattern(
    r"\A\W*you (?:are|act as|will act as) an? [\w\s-]{0,40}"
    r"(?:title|headline|slug|tag)s?[\w\s-]{0,20}(?:generator|assistant|writer|bot|maker)",
    r"\banaly[sz]e (?:if|whether) this message indicates a new (?:conversation )?topic\b",
)
_SUMMARY = _pattern(
    rf"\A\W*you(?:r| are)\b[^\n.]{{0,80}}\bsummari[sz](?:e|ing|ation)\b[^\n.]{{0,60}}{_TALK}",
    rf"\A\W*summari[sz]e\b[^\n.]{{0,60}}{_TALK}",
    rf"\A\W*write\b[^\n.]{{0,40}}\b(?:summary|recap)\b[^\n.]{{0,40}}{_TALK}",
)
_TASK = _pattern(
    rf"\A\W*(?:task:?\s+)?{_MAKE}\b[^\n]{{0,60}}"
    rf"\b(?:tags?|follow-?up questions?|search quer(?:y|ies)|autocomplet\w+|emoji)\b[^\n]{{0,160}}{_TALK}"
)
_TRANSCRIPT = _pattern(r"<(?:conversation|chat_history|transcript|messages)>", r"^\s*(?:user|human)\s*:")


def _header(name: str, *values: str) -> Callable[[Evidence], bool]:
    return lambda evidence: evidence.headers.get(name, "").strip().lower() in values


def _key(*parts: str) -> Callable[[Evidence], bool]:
    return lambda evidence: any(part in evidence.session_key for part in parts)


def _system(opening: str) -> Callable[[Evidence], bool]:
    return lambda evidence: not evidence.has_tools and evidence.system.startswith(opening)


def _speaker(*speakers: str) -> Callable[[Evidence], bool]:
    return lambda evidence: evidence.last_speech is not None and evidence.last_speech.speaker in speakers


def _is_subagent(evidence: Evidence) -> bool:
    return any(speech.speaker == "subagent" for speech in evidence.speeches)


def _is_slug(evidence: Evidence) -> bool:
    return not evidence.has_tools and any("filename slug" in text for text in _instructions(evidence))


def _is_title(evidence: Evidence) -> bool:
    if evidence.has_tools:
        return False
    if _TITLER.search(evidence.system[:4000]):
        return True
    for text in _instructions(evidence):
        found = _TITLE.search(text)
        near = text[max(0, found.start() - 300) : found.end() + 300] if found else ""
        if found and all(pattern.search(near) for pattern in _NEAR_TITLE):
            return True
    return False


def _is_summary(evidence: Evidence) -> bool:
    if evidence.has_tools:
        return False
    if _SUMMARY.search(evidence.system[:1000]):
        return True
    last = evidence.last_speech
    if last is None or len(evidence.speeches) != 1:
        return False
    return bool(_SUMMARY.search(last.text[:1000]) and _TRANSCRIPT.search(last.text))


def _is_task(evidence: Evidence) -> bool:
    return not evidence.has_tools and any(_TASK.search(text) for text in _instructions(evidence))


def _instructions(evidence: Evidence) -> list[str]:
    """Where utility prompts stand: the beginning of the system text, and of the only or last user message, long ones at
    the end too.
    """
    last = evidence.last_speech
    texts = [evidence.system[:1500]]
    if last is not None:
        texts += [last.text[:1500], last.text[1500:][-800:]]
    return texts


def _from_openclaw(evidence: Evidence) -> bool:
    return bool(evidence.session_key) or any(
        speech.speaker == "context" or speech.runtime for speech in evidence.speeches
    )


RULES: tuple[Rule, ...] = (
    Rule("header-side", "side", "X-Turn-Type says side", _header("x-turn-type", "side")),
    Rule("header-main", "main", "X-Turn-Type says main", _header("x-turn-type", "main")),
    Rule(
        "trigger",
        "side",
        "X-OpenClaw-Trigger is not a person",
        _header("x-openclaw-trigger", "heartbeat", "cron", "memory"),
    ),
    Rule("key-memory", "side", "OpenClaw session key of internal work", _key("internal-session-effects")),
    Rule("key-cron", "side", "OpenClaw session key of a scheduled job", _key(":cron:")),
    Rule("key-subagent", "side", "OpenClaw session key of a sub-agent", _key(":subagent:")),
    Rule("openclaw-title", "side", "OpenClaw asks for a session title", _system("Generate a concise session title")),
    Rule("openclaw-recap", "side", "OpenClaw asks for an activity recap", _system("Write an Activity recap")),
    Rule(
        "openclaw-compaction",
        "side",
        "OpenClaw has its context summarised",
        _system("You are a context summarization assistant"),
    ),
    Rule("openclaw-flush", "side", "OpenClaw stores memories before compaction", _speaker("flush")),
    Rule("openclaw-heartbeat", "side", "the last user text is OpenClaw's heartbeat", _speaker("heartbeat")),
    Rule("openclaw-cron", "side", "the last user text is a scheduled job's", _speaker("cron")),
    Rule("openclaw-subagent", "side", "a sub-agent's task opens the conversation", _is_subagent),
    Rule("filename-slug", "side", "asks for a file name", _is_slug),
    Rule("title", "side", "asks for a title of a conversation, without tools", _is_title),
    Rule("summary", "side", "asks for a summary of a conversation, without tools", _is_summary),
    Rule("chat-utility", "side", "asks for tags, follow-ups or the like of a conversation, without tools", _is_task),
    Rule("openclaw-run", "main", "an agent run of OpenClaw, no sign of a utility call", _from_openclaw),
    Rule("tools", "main", "tools are offered, no sign of a utility call", lambda evidence: evidence.has_tools),
    Rule("chat", "main", "no sign of a utility call", lambda evidence: True),
)


def classify(evidence: Evidence) -> Verdict:
    """What a request is; every request gets a verdict."""
    rule = next(rule for rule in RULES if rule.test(evidence))
    return Verdict(rule.kind, rule.name)


def describe(reason: str) -> str:
    """The description of the rule called `reason` ("" if there is none)."""
    return next((rule.description for rule in RULES if rule.name == reason), "")
