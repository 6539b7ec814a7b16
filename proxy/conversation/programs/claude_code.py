"""Removes what Claude Code wraps around the words of a conversation.

Claude Code (2.1) puts its own reminders, local commands and their output into user messages, and
speaks in the user's role itself after a compaction or an interruption. Works on texts.
"""

from __future__ import annotations

import re
from typing import Literal

from openclaw_rl.shared.text_reading import reads_text

Wrapped = Literal["", "context", "command", "notice"]

CONTINUED = "This session is being continued from a previous conversation"
"""Beginning of the message that stands in place of a condensed conversation."""
SUGGESTION = "[SUGGESTION MODE:"
"""Beginning of a request for what its user may type next."""

_NOISE = (
    "system-reminder", "local-command-caveat", "local-command-stdout", "local-command-stderr",
    "bash-input", "bash-stdout", "bash-stderr", "task-notification", "user-prompt-submit-hook",
)  # fmt: skip
_COMMAND = ("command-name", "command-message", "command-args")
_INTERRUPTED = re.compile(r"(?<!\s)\s*\[Request interrupted by user[^\]\n]{0,40}\]")
_NOTICES = (CONTINUED, SUGGESTION)
_BILLING = re.compile(r"\Ax-anthropic-billing-header:(?:\s*[\w.-]+=[^;\n]{0,80};)*\s*")
_IDENTITY = re.compile(r"\AYou are (?:Claude Code|a Claude agent), [^.\n]{0,120}\.\s*")
_FROM_SYSTEM = "Operator note (not from the user): "
"""Beginning of a user message that LiteLLM makes of a system message in the middle."""
_SAID = ("Continue from where you left off.", "Tool loaded.")


@reads_text()
def unwrap(text: str) -> tuple[str, Wrapped]:
    """The text without the wrapping, and the kind of a message that is not a person's: only wrapping (`context`), a
    slash command with its prompt (`command`), or the program's words (`notice`).
    """
    if text.startswith(_NOTICES):
        return text, "notice"
    if text.startswith(_FROM_SYSTEM):
        return "", "context"
    if "<" not in text and "[Request" not in text and text.strip() not in _SAID:
        return text, ""
    local = "<local-command-" in text
    bare = _INTERRUPTED.sub("", _without(text, _NOISE))
    if "<command-name>" in bare:
        if not local:
            return bare.strip(), "command"
        bare = _without(bare, _COMMAND)
    if bare == text and bare.strip() not in _SAID:
        return text, ""
    bare = bare.strip()
    if not bare:
        return "", "context"
    return bare, "notice" if bare in _SAID or bare.startswith(_NOTICES) else ""


@reads_text()
def bare_system(text: str) -> tuple[str, bool]:
    """System text without what Claude Code puts before it, and whether that says that a sub-agent asks."""
    head = _BILLING.match(text)
    if head is None:
        return text, False
    return _IDENTITY.sub("", text[head.end() :]), "cc_is_subagent=true" in head[0]


def _without(text: str, tags: tuple[str, ...]) -> str:
    """The text without the elements of these names."""
    for tag in tags:
        text, _ = cut_between(text, f"<{tag}>", f"</{tag}>")
    return text


@reads_text(lambda read, text: read(text, "<a>", "</a>"))
def cut_between(text: str, opening: str, closing: str) -> tuple[str, list[str]]:
    """The text without the passages between two marks, and these passages with their opening mark."""
    kept: list[str] = []
    passages: list[str] = []
    position = 0
    while (start := text.find(opening, position)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[position:start])
        passages.append(text[start:end])
        position = end + len(closing)
    return ("".join([*kept, text[position:]]), passages) if passages else (text, passages)
