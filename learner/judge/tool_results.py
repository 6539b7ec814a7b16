"""Detect failed tool calls from the text of their results."""

from __future__ import annotations

import re

_FAILURE = re.compile(
    r"^\s*(?:error|failed|failure|exception|traceback|fatal|panic|denied|cannot|could not|unable to|invalid"
    r"|unknown (?:tool|command|option))\b|\btraceback \(most recent call last\)|\b\w*(?:error|exception): |\berror:"
    r"|\bfatal: |\berror \[?[a-z]*\d+\]?|\bcommand not found\b|\bno such file or directory\b|\bpermission denied\b"
    r"|\bsegmentation fault\b|\btimed out\b|\btime-?out exceeded\b|\bis not recognized as\b"
    r"|\bexit(?:ed)?(?: with)?(?: (?:code|status))?:? *[1-9]\d*\b|\bexit[_ ]?code\"?: *[1-9]"
    r"|\bhttp[/ ]?\d?\.?\d? ?[45]\d\d\b|\bstatus(?: code)?\"?:? *[45]\d\d\b|\"(?:is_?error|failed)\": *true"
    r"|\"(?:success|ok)\": *false|\"status\": *\"(?:error|failed|failure|denied|forbidden)\"|\"error\": *(?:\"[^\"]|\{)"
    r"|\b[1-9]\d* (?:failed|errors?)\b|\bnot found\s*$|\bENOENT\b|\bEACCES\b|\bconnection refused\b",
    re.IGNORECASE | re.MULTILINE,
)
_SEARCHED = 20_000


def tool_failed(text: str) -> bool:
    """True if any of the results reports an error. Only the beginning and end of a long text are read."""
    if len(text) > 2 * _SEARCHED:
        text = f"{text[:_SEARCHED]}\n{text[-_SEARCHED:]}"
    return _FAILURE.search(text) is not None
