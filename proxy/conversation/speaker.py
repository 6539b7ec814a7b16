"""The speaker of a message of the user's role, and what is left of it: a person, or a program around the conversation.

What OpenClaw and Claude Code write there is in `openclaw` and `claude_code`, what other programs do by kind in
`program_text` and `conversation_work`. Works on canonical messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from openclaw_rl.proxy.conversation.programs import conversation_work
from openclaw_rl.proxy.conversation.programs.claude_code import unwrap
from openclaw_rl.proxy.conversation.programs.openclaw import (
    Program,
    cut_context,
    cut_runtime,
    cut_stamps,
    program_of,
    runtime_in,
)
from openclaw_rl.proxy.conversation.programs.program_text import is_notice, is_result, own_words
from openclaw_rl.proxy.conversation.programs.utility_prompts import asks_compaction
from openclaw_rl.shared.messages.normalize import text_of
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.text_reading import reads_text

Speaker = Literal["person", "environment", "context", "command", Program]

_COMMAND = re.compile(r"\A/[a-z][a-z0-9_-]{0,31}(?:@\w+)?(?:[ \t].*)?\Z", re.DOTALL | re.IGNORECASE)
_FEEDBACK = re.compile(r"\A/\s*(good|bad)(?:@\w+)?(?:\s+(.*))?\Z", re.DOTALL | re.IGNORECASE)
"""As OpenClaw reads a command: in any case, with any space."""
_OBSERVATIONS = (
    # mini-swe-agent
    "<returncode>",
    "<exception>",
    "Format error:\n\n<error>",
    "Tool call error:\n\n<error>",
    "Please always provide EXACTLY ONE action",
    "Your previous response reached the output token limit",
    # Terminus-2
    "New Terminal Output:",
    "Current Terminal Screen:",
    "Current terminal state:",
    "Previous response had warnings:",
    "Previous response had parsing errors:",
    "ERROR!! NONE of the actions",
)
"""The output of commands that these agents write into their text, as they get it back in the user's role. It is a next
state, but no person's reaction. What others write has no fixed words: `program_text`."""


class Speech(msgspec.Struct, frozen=True):
    """A user message without its wrapping. `runtime` holds the fields of OpenClaw's `Runtime:` line at its end, `sent`
    the text with what other programs wrote into it ("" if nothing was taken away).
    """

    speaker: Speaker
    text: str
    runtime: dict[str, str] = {}
    sent: str = ""

    @property
    def evidence(self) -> str:
        """The text that tells what a request is for: an order may stand in a program's block."""
        return self.sent or self.text


@reads_text(lambda read, text: read({"role": "user", "content": text}))
def read_user(message: Message) -> Speech:
    """The speech in a user message."""
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
    if body.startswith(_OBSERVATIONS):
        return Speech("environment", body, runtime)
    if conversation_work.orders_work(body) or conversation_work.continues(body) or asks_compaction(body):
        return Speech("notice", body, runtime)
    read = own_words(body)
    body, sent = (read.words, body) if read.changed else (body, "")
    if sent and not body:
        return Speech("context", "", runtime, sent)
    if is_result(body):
        return Speech("environment", body, runtime, sent)
    if is_notice(body):
        return Speech("notice", body, runtime, sent)
    if _COMMAND.match(body) or _FEEDBACK.match(body):
        return Speech("command", body, runtime)
    if not body and whole.strip():
        return Speech("context", "", runtime)
    return Speech("person", body, runtime, sent)


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
