"""Removes what OpenClaw wraps around the words of a conversation.

OpenClaw (2026.9) stamps user texts with the time, ends the first one with a `Runtime:` line that names the session,
appends a floating context message that it does not keep in its history, and speaks in the user's role itself
(heartbeats, cron, announcements). Works on canonical messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal
from urllib.parse import unquote

import msgspec

from openclaw_rl.proxy.conversation.programs.claude_code import cut_between
from openclaw_rl.shared.messages.normalize import INTERNAL_CONTEXT, text_of
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.text_reading import reads_text

Program = Literal["heartbeat", "cron", "subagent", "announcement", "flush", "notice"]
"""The parts of OpenClaw that speak in the user's role."""

COMPACTED = "The conversation history before this point was compacted"
_CONTEXT_END = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
_STAMP = re.compile(
    r"\A\s*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: [A-Za-z0-9+:/_-]{1,32})?\] ?"
)
_RUNTIME = "Runtime: "
_SESSION = " | session="
_SYSTEM_LINES = re.compile(r"\A(?:System: \[[^\]\n]*\][^\n]*(?:\n+|\Z))+")
_LINE_END = re.compile(r"\\n|\n")
"""Separates two events, which OpenClaw writes as one JSON string."""
_REACTION = re.compile(r"System: \[[^\][]{0,80}\] (\S{1,60} reaction added: (\S{1,60}) by (.{1,600}))")
_MESSAGE = re.compile(r"\A.* msg ([^\s\"\\]{1,200})")
"""The message that a channel names last; before it stand names that people chose."""
_MOST_REACTIONS = 50

_OPENINGS: tuple[tuple[str, Program], ...] = (
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
_ANY_OPENING = tuple(opening for opening, _ in _OPENINGS)

_LIKED = frozenset(
    ["👍", "❤", "🔥", "👏", "🎉", "💯", "😍", "🥰", "🙏", "🤩", "✅", "🏆", "👌", "😁", "+1", "thumbsup"]
)
_DISLIKED = frozenset(["👎", "💩", "😡", "🤬", "🤮", "😠", "❌", "😢", "😭", "🖕", "🥱", "-1", "thumbsdown"])
_SKIN_AND_VARIANT = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")


class ChannelReaction(msgspec.Struct, frozen=True):
    """A channel reaction to an answer: OpenClaw's line, with its time (so that two reactions differ), and its score.
    `turn_id` is the turn it means, "" where our extension did not send it.
    """

    line: str
    score: float
    turn_id: str = ""


@reads_text()
def program_of(body: str) -> Program | None:
    """The part of OpenClaw that wrote a text (without its wrapping), `None` for any other author."""
    if not body.startswith(_ANY_OPENING):
        return None
    return next(program for opening, program in _OPENINGS if body.startswith(opening))


@reads_text()
def cut_stamps(text: str) -> str:
    """The text without the time stamp and the system lines at its beginning."""
    return _SYSTEM_LINES.sub("", _STAMP.sub("", text, count=1), count=1)


@reads_text(lambda read, text: read([{"role": "user", "content": f"{INTERNAL_CONTEXT}{text}{_CONTEXT_END}"}], text))
def reactions(messages: Sequence[Message], turns: str = "") -> list[ChannelReaction]:
    """The reactions in the floating context at the end of a request, without emoji that say neither yes nor no.

    `turns` is the header `X-OpenClaw-Reactions`, which our extension sends with every such request: `message=turn;…`
    with messages percent-encoded, or `-`. With it, reactions that it does not name are left out: it is unknown which
    answer they are about.
    """
    pairs = (pair.partition("=") for pair in turns.split(";"))
    turn_of = {unquote(message.strip()): turn.strip() for message, _, turn in pairs if turn.strip()}
    found: list[ChannelReaction] = []
    for message in reversed(messages):
        if message["role"] != "user":
            break
        _, blocks = cut_context(text_of(message))
        if not blocks:
            break
        for line in (line for block in blocks for line in _LINE_END.split(block) if " reaction added: " in line):
            match = _REACTION.search(line)
            score = emoji_score(match[2]) if match else None
            if match is None or score is None or len(found) == _MOST_REACTIONS:
                continue
            message_id = _MESSAGE.match(match[3])
            turn_id = turn_of.get(message_id[1], "") if message_id else ""
            if turn_id or not turns.strip():
                found.append(ChannelReaction(match[1].strip().rstrip('"'), score, turn_id))
    return found


@reads_text()
def emoji_score(emoji: str) -> float | None:
    """+1 or −1 for an emoji with a clear meaning."""
    plain = _SKIN_AND_VARIANT.sub("", emoji).strip(":")
    if plain in _LIKED:
        return 1.0
    return -1.0 if plain in _DISLIKED else None


@reads_text()
def cut_context(text: str) -> tuple[str, list[str]]:
    """The text without OpenClaw's context blocks, and the blocks."""
    return cut_between(text, INTERNAL_CONTEXT, _CONTEXT_END)


@reads_text()
def cut_runtime(text: str) -> tuple[str, dict[str, str]]:
    """The text without a `Runtime:` line at its end, and the fields of that line. No line break comes before it after
    the summary of a compacted history, and after merged messages.
    """
    before, newline, line = text.rstrip().rpartition("\n")
    start = 0 if line.startswith(_RUNTIME) else line.find(f"{_RUNTIME}agent=")
    words, line = line[: max(start, 0)], line[max(start, 0) :]
    if start < 0 or "agent=" not in line or (words and _SESSION not in line):
        return text, {}
    before = before + newline + words if words else before
    fields: dict[str, str] = {}
    for item in line.removeprefix(_RUNTIME).split(" | "):
        name, equals, value = item.partition("=")
        if equals:
            fields.setdefault(name.strip(), value.strip())
    return before, fields


@reads_text()
def runtime_in(system: str) -> dict[str, str]:
    """The fields of the last `Runtime:` line of a system prompt; empty when there is none."""
    start = f"\n{system}".rfind(f"\n{_RUNTIME}agent=")
    return cut_runtime(system[start:].partition("\n")[0])[1] if start >= 0 else {}
