"""The speaker of a message of the user's role, and what is left of it: a person, or a program around the conversation.

What OpenClaw and Claude Code write there is in `openclaw` and `claude_code`, what other programs do by kind in
`program_text` and `conversation_work`. Works on canonical messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from openclaw_rl.proxy.conversation.compacted import gives_summary, hands_over_summary
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
from openclaw_rl.proxy.conversation.programs.templates import json_message
from openclaw_rl.proxy.conversation.programs.utility_prompts import asks_compaction
from openclaw_rl.shared.messages.normalize import text_of
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.text_reading import any_of, reads_text

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


_HEADING = re.compile(
    r"\A\s*([#*_ ]{0,8}(?:[\w'’-]+ ){0,3}?"
    r"(?:task|question|request|query|message|instructions?|prompt|user|human|problem|goal|objective|issue)\W{0,6})"
    r"[ \t]*\n",
    re.IGNORECASE,
)
"""A first line that says of what comes next that it was asked for."""


_CALL = any_of(
    r"^[ \t]{0,8}(?:[\[{]|[\w ]{0,20}\b(?:action|command|tool|call|code)\w{0,12}\b[^\n:]{0,20}:)",
    r"^[ \t]{0,8}[\w.]{1,60}\(.*\)[ \t]*$",
    r"</?[a-z][\w-]*/?>",
)
"""Part of an answer that may call something by its text."""
_BLOCK = re.compile(r"^[ \t]{0,8}```", re.MULTILINE)
_SENTENCE = re.compile(r"[.!?…。！？](?:\W|\Z)")
_SPOKEN = 20
"""Characters of an answer that says something, in a sentence."""
_FORM = re.compile(
    r"\b(?:pars(?:e|ed|ing)|(?:in)?valid\w*|formats?|schema|json|malformed|guardrail|(?:tool|function) calls?"
    r"|code block|actions?|response|answer|reply|i ran (?:this|the following)|exit ?(?:code|status))\b",
    re.IGNORECASE,
)
"""A report is about the answer itself, about a command of the person's, or a harness's own: it needs no call."""
_LABEL = re.compile(r"\W{0,4}[\w ]{2,40}[:\n]")


class Speech(msgspec.Struct, frozen=True):
    """A user message without its wrapping. `runtime` holds the fields of OpenClaw's `Runtime:` line at its end, `sent`
    the text with what other programs wrote into it ("" if nothing was taken away), `typed` the words at the end of the
    text, where the output of a program stands before them ("" if the text is all words).
    """

    speaker: Speaker
    text: str
    runtime: dict[str, str] = {}
    sent: str = ""
    typed: str = ""

    @property
    def words(self) -> str:
        """The words, without the output of a program before them."""
        return self.typed or self.text

    @property
    def evidence(self) -> str:
        """The text that tells what a request is for: an order may stand in a program's block."""
        return self.typed or self.sent or self.text


class OpeningWords(msgspec.Struct, frozen=True):
    """The `heading` above the `words` of the message that opened a conversation."""

    heading: str
    words: str


def opening_of(speech: Speech) -> OpeningWords | None:
    """The heading and the words of the first message of a conversation, `None` if it has no heading."""
    found = _HEADING.match(speech.text) if speech.speaker == "person" else None
    if found is None or not (found[1].startswith("#") or found[1].rstrip(" *_").endswith(":")):
        return None
    return OpeningWords(found[1].strip(), speech.text[found.end() :].strip())


@reads_text(lambda read, text: read({"role": "user", "content": text}, OpeningWords("# Task:", text)))
def read_user(message: Message, opening: OpeningWords | None = None) -> Speech:
    """The speech in a user message. `opening` is that of its conversation: a program that wrote the heading above the
    person's words there writes it again where more of them come, be it behind the output of a tool.
    """
    speech = _read(text_of(message))
    words = _below(opening, speech.sent or speech.text) if opening is not None else ""
    inner = _read(words) if words else speech
    if inner is speech or inner.speaker not in ("person", "notice"):
        return speech
    return msgspec.structs.replace(speech, speaker=inner.speaker, typed=inner.text)


@reads_text(lambda read, text: read(Speech("environment", text), text, native=False, before=text))
def is_pasted(speech: Speech, answer: str, *, native: bool, before: str) -> bool:
    """True for a result that no call can have had: the `answer` before it says something, and calls nothing. A person
    wrote or pasted it. `native`: calls of this conversation are no text. `before` is the user's message before it: a
    program labels every result alike.
    """
    if speech.speaker != "environment" or speech.typed or speech.text.startswith(_OBSERVATIONS):
        return False
    label = _LABEL.match(speech.text[:80])
    if (label is not None and before.startswith(label[0])) or _FORM.search(speech.text[:300]):
        return False
    ends = answer if len(answer) <= 4000 else f"{answer[:2000]}\n{answer[-2000:]}"
    if _CALL.search(ends) or (not native and _BLOCK.search(ends)):
        return False
    return len(ends.strip()) >= _SPOKEN and _SENTENCE.search(ends) is not None


def _below(opening: OpeningWords, text: str) -> str:
    """The words below the last line that is the heading; "" if there are none, or only those of the opening."""
    _, found, words = f"\n{text}".rpartition(f"\n{opening.heading}\n")
    words = words.strip()
    return words if found and not opening.words.startswith(words) else ""


def _read(whole: str) -> Speech:
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
    if (packed := json_message(body)) is not None:
        return Speech(packed.speaker, packed.words or body, runtime, body if packed.words else "")
    if gives_summary(body):  # which may quote what a person has said
        return Speech("notice", body, runtime)
    read = own_words(body)
    body, sent = (read.words, body) if read.changed else (body, "")
    if sent and not body:
        return Speech("context", "", runtime, sent)
    if is_result(body):
        return Speech("environment", body, runtime, sent)
    if is_notice(body) or hands_over_summary(body):
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
