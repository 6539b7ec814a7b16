"""Who speaks in a message of the user's role, and what is left of it: the person, or a program around the conversation.

What OpenClaw, Claude Code and the agents that wrap their observations write there is known to
`proxy.conversation.openclaw`,
`proxy.conversation.claude_code` and `proxy.conversation.observations`. Works on canonical messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from openclaw_rl.proxy.conversation.claude_code import unwrap
from openclaw_rl.proxy.conversation.observations import is_observation
from openclaw_rl.proxy.conversation.openclaw import (
    Program,
    cut_context,
    cut_runtime,
    cut_stamps,
    program_of,
    runtime_in,
)
from openclaw_rl.shared.messages.normalize import text_of
from openclaw_rl.shared.records import Message

Speaker = Literal["person", "environment", "context", "command", Program]

_COMMAND = re.compile(r"\A/[a-z][a-z0-9_-]{0,31}(?:@\w+)?(?:[ \t].*)?\Z", re.DOTALL | re.IGNORECASE)
_FEEDBACK = re.compile(r"\A/\s*(good|bad)(?:@\w+)?(?:\s+(.*))?\Z", re.DOTALL | re.IGNORECASE)
"""Read as OpenClaw reads a command: in any case, with any space."""


class Speech(msgspec.Struct, frozen=True):
    """Who speaks in a user message, and what is left of its text once the wrapping is off.

    `runtime` holds the fields of OpenClaw's `Runtime:` line, if the message ends with one.
    """

    speaker: Speaker
    text: str
    runtime: dict[str, str] = {}


def read_user(message: Message) -> Speech:
    """What a user message says and who says it."""
    whole = text_of(message)
    text, blocks = cut_context(whole)
    if blocks and not text.strip():
        return Speech("context", "")
    text, wrapped = unwrap(text)
    if wrapped:
        return Speech(wrapped, text.strip())
    text, runtime = cut_runtime(text)
    body = cut_stamps(text).strip()
    program = program_of(body)
    if program is not None:
        return Speech(program, body, runtime)
    if is_observation(body):
        return Speech("environment", body, runtime)
    if _COMMAND.match(body) or _FEEDBACK.match(body):
        return Speech("command", body, runtime)
    if not body and whole.strip():
        return Speech("context", "", runtime)
    return Speech("person", body, runtime)


def runtime_fields(speeches: Iterable[Speech], system: str = "") -> dict[str, str]:
    """The fields of the first `Runtime:` line: `session` (its key), `sessionId`, `model`…; empty when there is none. It
    ends the first user message or, in Responses and Messages, the system prompt.
    """
    found = next((speech.runtime for speech in speeches if speech.runtime), None)
    return runtime_in(system) if found is None else found


def command_score(speech: Speech) -> tuple[float, str] | None:
    """Score and words of a typed `/good [words]` or `/bad [words]`, else `None`."""
    found = _FEEDBACK.match(speech.text) if speech.speaker == "command" else None
    return None if found is None else ({"good": 1.0, "bad": -1.0}[found[1].lower()], (found[2] or "").strip())
