"""What OpenClaw wraps around the words of a conversation, taken off again.

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

from openclaw_rl.shared.messages.normalize import INTERNAL_CONTEXT, text_of
from openclaw_rl.shared.records import Message

Program = Literal["heartbeat", "cron", "subagent", "announcement", "flush", "notice"]
"""What of OpenClaw speaks in the user's role."""

COMPACTED = "The conversation history before this point was compacted"
_CONTEXT_END = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
_STAMP = re.compile(
    r"\A\s*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: [A-Za-z0-9+:/_-]{1,32})?\] ?"
)
_RUNTIME = "Runtime: "
_SESSION = " | session="
_SYSTEM_LINE = re.compile(r"\ASystem: \[[^\]\n]*\][^\n]*(?:\n+|\Z)")
_LINE_END = re.compile(r"\\n|\n")
"""Between two events, which OpenClaw writes as one JSON string."""
_REACTION = re.compile(r"System: \[[^\][]{0,80}\] (\S{1,60} reaction added: (\S{1,60}) by (.{1,600}))")
_MESSAGE = re.compile(r"\A.* msg ([^\s\"\\]{1,200})")
"""The last that a channel names; before it stand names that people chose."""
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


class Reaction(msgspec.Struct, frozen=True):
    """A channel reaction to an answer: the line as OpenClaw wrote it (time included, so it tells two reactions apart)
    and its score. `turn_id` is the turn it means, "" where our extension is not there to know it.
    """

    line: str
    score: float
    turn_id: str = ""


def program_of(body: str) -> Program | None:
    """Which part of OpenClaw a text without its wrapping comes from, `None` for any other author's."""
    if not body.startswith(_ANY_OPENING):
        return None
    return next(program for opening, program in _OPENINGS if body.startswith(opening))


def cut_stamps(text: str) -> str:
    """The text without the time before it and without the lines of the system at its beginning."""
    text = _STAMP.sub("", text, count=1)
    while line := _SYSTEM_LINE.match(text):
        text = text[line.end() :]
    return text


def reactions(messages: Sequence[Message], turns: str = "") -> list[Reaction]:
    """The reactions told in the floating context at the end of a request; emoji that say neither yes nor no are left
    out. `turns` is the header `X-OpenClaw-Reactions`, which our extension sends with every such request:
    `message=turn;…` with messages percent-encoded, or `-`. Where it is there, a reaction that it does not name is left
    out too: nobody knows which answer it is about.
    """
    pairs = (pair.partition("=") for pair in turns.split(";"))
    meant = {unquote(message.strip()): turn.strip() for message, _, turn in pairs if turn.strip()}
    found: list[Reaction] = []
    for message in reversed(messages):
        if message["role"] != "user":
            break
        _, blocks = cut_context(text_of(message))
        if not blocks:
            break
        for line in (line for block in blocks for line in _LINE_END.split(block) if " reaction added: " in line):
            told = _REACTION.search(line)
            score = emoji_score(told[2]) if told else None
            if told is None or score is None or len(found) == _MOST_REACTIONS:
                continue
            names = _MESSAGE.match(told[3])
            turn_id = meant.get(names[1], "") if names else ""
            if turn_id or not turns.strip():
                found.append(Reaction(told[1].strip().rstrip('"'), score, turn_id))
    return found


def emoji_score(emoji: str) -> float | None:
    """+1 or −1 for an emoji that clearly says so."""
    plain = _SKIN_AND_VARIANT.sub("", emoji).strip(":")
    if plain in _LIKED:
        return 1.0
    return -1.0 if plain in _DISLIKED else None


def cut_context(text: str) -> tuple[str, list[str]]:
    """The text without OpenClaw's context blocks, and the blocks."""
    kept: list[str] = []
    blocks: list[str] = []
    position = 0
    while (start := text.find(INTERNAL_CONTEXT, position)) >= 0 and (end := text.find(_CONTEXT_END, start)) >= 0:
        kept.append(text[position:start])
        blocks.append(text[start:end])
        position = end + len(_CONTEXT_END)
    return ("".join([*kept, text[position:]]), blocks) if blocks else (text, blocks)


def cut_runtime(text: str) -> tuple[str, dict[str, str]]:
    """The text without a `Runtime:` line at its end, and the fields of that line. It follows without a line break on
    the summary of a history that was compacted, and on messages that were put into one.
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


def runtime_in(system: str) -> dict[str, str]:
    """The fields of the last `Runtime:` line of a system prompt; empty when there is none."""
    start = f"\n{system}".rfind(f"\n{_RUNTIME}agent=")
    return cut_runtime(system[start:].partition("\n")[0])[1] if start >= 0 else {}
