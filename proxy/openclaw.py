"""What OpenClaw wraps around the words of a conversation, taken off again.

OpenClaw (2026.9) stamps user texts with the time, ends the first one with a `Runtime:` line that names the session,
appends a floating context message that it does not keep in its history, and speaks in the user's role itself
(heartbeats, cron, announcements). Works on canonical messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from proxy.claude_code import unwrap
from proxy.observations import is_observation
from shared.normalize import INTERNAL_CONTEXT, text_of
from shared.records import Message

Speaker = Literal[
    "person", "environment", "context", "command", "heartbeat", "cron", "subagent", "announcement", "flush", "notice"
]  # fmt: skip

COMPACTED = "The conversation history before this point was compacted"
_CONTEXT_END = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
_STAMP = re.compile(
    r"\A\s*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: [A-Za-z0-9+:/_-]{1,32})?\] ?"
)
_RUNTIME = "Runtime: "
_SUMMARY_END = "</summary>"
_COMMAND = re.compile(r"\A/([a-z][a-z0-9_-]{0,31})(?:@\w+)?(?:[ \t]+(.*))?\Z", re.DOTALL)
_SYSTEM_LINE = re.compile(r"\ASystem: \[[^\]\n]*\][^\n]*(?:\n+|\Z)")
_REACTION = re.compile(r"System: \[[^\]\n]*\] (\S+ reaction added: (\S+) by [^\n\"]*)")

_OPENINGS: tuple[tuple[str, Speaker], ...] = (
    ("Follow the heartbeat monitor scratch", "heartbeat"),
    ("Read HEARTBEAT.md", "heartbeat"),
    ("[OpenClaw heartbeat poll]", "heartbeat"),
    ("[cron:", "cron"),
    ("[Subagent Context]", "subagent"),
    ("A background task completed.", "announcement"),
    ("A subagent task", "announcement"),
    ("Pre-compaction memory flush.", "flush"),
    ("Here are the answers the other agent provided.", "notice"),
    ("A new session was started via /new or /reset", "notice"),
    (COMPACTED, "notice"),
)

_LIKED = frozenset(["👍", "❤", "🔥", "👏", "🎉", "💯", "😍", "🥰", "🙏", "🤩", "✅", "🏆", "👌", "😁"])
_DISLIKED = frozenset(["👎", "💩", "😡", "🤬", "🤮", "😠", "❌", "😢", "😭", "🖕", "🥱"])
_SKIN_AND_VARIANT = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")


class Speech(msgspec.Struct, frozen=True):
    """Who speaks in a user message, and what is left of its text once the wrapping is off.

    `runtime` holds the fields of the `Runtime:` line, if the message ends with one.
    """

    speaker: Speaker
    text: str
    runtime: dict[str, str] = {}


class Reaction(msgspec.Struct, frozen=True):
    """A channel reaction to an answer: the line as OpenClaw wrote it (time included, so it tells two reactions apart)
    and its score.
    """

    line: str
    score: float


def read_user(message: Message) -> Speech:
    """What a user message says and who says it."""
    whole = text_of(message)
    text, blocks = _cut_context(whole)
    if blocks and not text.strip():
        return Speech("context", "")
    text, wrapped = unwrap(text)
    if wrapped:
        return Speech(wrapped, text.strip())
    text, runtime = _cut_runtime(text)
    text = _STAMP.sub("", text, count=1)
    while line := _SYSTEM_LINE.match(text):
        text = text[line.end() :]
    body = text.strip()
    for opening, speaker in _OPENINGS:
        if body.startswith(opening):
            return Speech(speaker, body, runtime)
    if is_observation(body):
        return Speech("environment", body, runtime)
    if _COMMAND.match(body):
        return Speech("command", body, runtime)
    if not body and whole.strip():
        return Speech("context", "", runtime)
    return Speech("person", body, runtime)


def runtime_fields(speeches: Iterable[Speech], system: str = "") -> dict[str, str]:
    """The fields of the first `Runtime:` line: `session` (its key), `sessionId`, `model`…; empty when there is none. It
    ends the first user message or, in Responses and Messages, the system prompt.
    """
    found = next((speech.runtime for speech in speeches if speech.runtime), None)
    if found is not None:
        return found
    start = f"\n{system}".rfind(f"\n{_RUNTIME}agent=")
    return _cut_runtime(system[start:].partition("\n")[0])[1] if start >= 0 else {}


def command_score(speech: Speech) -> tuple[float, str] | None:
    """Score and words of a typed `/good [words]` or `/bad [words]`, else `None`."""
    found = _COMMAND.match(speech.text) if speech.speaker == "command" else None
    score = {"good": 1.0, "bad": -1.0}.get(found[1]) if found else None
    return None if found is None or score is None else (score, (found[2] or "").strip())


def reactions(messages: Sequence[Message]) -> list[Reaction]:
    """The reactions told in the floating context at the end of a request; emoji that say neither yes nor no are left
    out.
    """
    found: list[Reaction] = []
    for message in reversed(messages):
        if message["role"] != "user":
            break
        _, blocks = _cut_context(text_of(message))
        if not blocks:
            break
        for block in blocks:
            for line, emoji in _REACTION.findall(block):
                score = emoji_score(emoji)
                if score is not None:
                    found.append(Reaction(line.strip(), score))
    return found


def emoji_score(emoji: str) -> float | None:
    """+1 or −1 for an emoji that clearly says so."""
    plain = _SKIN_AND_VARIANT.sub("", emoji)
    if plain in _LIKED:
        return 1.0
    return -1.0 if plain in _DISLIKED else None


def _cut_context(text: str) -> tuple[str, list[str]]:
    """The text without OpenClaw's context blocks, and the blocks."""
    kept: list[str] = []
    blocks: list[str] = []
    position = 0
    while (start := text.find(INTERNAL_CONTEXT, position)) >= 0 and (end := text.find(_CONTEXT_END, start)) >= 0:
        kept.append(text[position:start])
        blocks.append(text[start:end])
        position = end + len(_CONTEXT_END)
    return ("".join([*kept, text[position:]]), blocks) if blocks else (text, blocks)


def _cut_runtime(text: str) -> tuple[str, dict[str, str]]:
    """The text without a `Runtime:` line at its end, and the fields of that line. It follows the summary of a history
    that was compacted without a line break.
    """
    before, _, line = text.rstrip().rpartition("\n")
    if line.startswith(_SUMMARY_END):
        before, line = before + "\n" + _SUMMARY_END, line.removeprefix(_SUMMARY_END)
    if not line.startswith(_RUNTIME) or "agent=" not in line:
        return text, {}
    fields: dict[str, str] = {}
    for item in line.removeprefix(_RUNTIME).split(" | "):
        name, equals, value = item.partition("=")
        if equals:
            fields.setdefault(name.strip(), value.strip())
    return before, fields
