"""The wording of messages that stand in place of a history, after a client had it summarised."""

from __future__ import annotations

import re

from openclaw_rl.proxy.conversation.programs.claude_code import CONTINUED
from openclaw_rl.proxy.conversation.programs.openclaw import COMPACTED
from openclaw_rl.shared.text_reading import reads_text

_READ = 600
"""Characters at the beginning of a message where it says so."""
_TALK = r"(?:conversation|chat|session|discussion|dialogue|thread|messages?|history|context|work)"
_MADE = r"(?:summari[sz]ed|compacted|compressed|condensed)"
_CERTAIN = re.compile(
    r"\banother (?:language )?model started to solve this problem\b"
    r"|<(?:state_snapshot|conversation_summary|compacted_history|context_summary)>"
    rf"|\b{_TALK}(?: history)?(?: (?:before|prior to|up to|until) (?:this|that|here)(?: \w+)?)?"
    rf" (?:has been|was|were|have been) (?:automatically )?{_MADE}\b"
    r"|\[archived context summary\]",
    re.IGNORECASE,
)
"""Only programs write this."""
_LIKELY = re.compile(
    r"\A\W*what did we do so far\?\W*\Z"
    rf"|\bsummary of (?:the|our|this|your|my|all)\s(?:[\w-]+ ){{0,2}}{_TALK}\b"
    rf"|\A\W*(?:<summary>|(?:previous |earlier |prior )?{_TALK} summary\b)",
    re.IGNORECASE,
)
"""People may write this too, but not before their own next message."""


@reads_text(lambda read, text: read(text, last=True))
def replaces_history(text: str, *, last: bool) -> bool:
    """True for a message that stands for a history. `last`: nothing that a person may have written comes after it."""
    if text.startswith((COMPACTED, CONTINUED)):
        return True
    head = text[:_READ]
    return bool(_CERTAIN.search(head)) or (not last and bool(_LIKELY.search(head)))
