"""The wording of messages that stand in place of a history, after a client had it summarised."""

from __future__ import annotations

import re

from openclaw_rl.proxy.conversation.programs import languages
from openclaw_rl.proxy.conversation.programs.claude_code import CONTINUED
from openclaw_rl.proxy.conversation.programs.openclaw import COMPACTED
from openclaw_rl.shared.text_reading import any_of, reads_text

_READ = 600
"""Characters at both ends of a message where it says so."""
_TALK = r"(?:conversation|chat|session|discussion|dialogue|thread|messages?|history|context|work|turns|exchanges?)"
_EARLIER = r"(?:previous|prior|earlier|older|past|preceding|above)"
_MADE = r"(?:summari[sz]ed|compacted|compressed|condensed)"


_ORDERS = any_of(
    # the reader is to continue from the summary
    r"\b(?:resume|continue|proceed|carry on|pick up)\b[^\n.]{0,60}\b(?:using|from|based on|with|where)\b[^\n.]{0,20}"
    r"\bthe summary (?:above|below|leaves off|left off|ends)\b",
    r"\b(?:do not|don't|never) (?:acknowledge|mention|repeat|recap) (?:the|this) summary\b",
    r"\A\W*you are (?:continuing|resuming|taking over|picking up) (?:the |a |some )?"
    rf"(?:work|task|conversation|session)\b[^\n]{{0,40}}\b(?:another|{_EARLIER}) (?:\w+ )?"
    r"(?:agent|assistant|model|instance|session|context)\b",
    # the summary is for what came before
    rf"^\W*(?:the|this) (?:following )?summary\b[^\n.]{{0,30}}\b(?:covers|replaces|represents|stands (?:in )?for"
    rf"|takes the place of)\b[^\n.]{{0,60}}\b{_TALK}\b",
    rf"^\W*(?:the )?(?:{_EARLIER} {_TALK}|{_TALK} (?:history )?(?:before|above|so far))\b[^\n.]{{0,40}} (?:were|was"
    r"|has been|have been) (?:automatically )?"
    r"(?:replaced (?:by|with)|summari[sz]ed (?:in|to|as|because|for)|condensed (?:in|to))\b",
    rf"^\W*this {_TALK} (?:is being |was |has been |is )?(?:continu(?:es|ed|ation)|resum(?:es|ed|ption)) (?:of |from )?"
    rf"(?:an? |the )?{_EARLIER} (?:one|{_TALK})\b",
    rf"^\W*context from (?:the |an? )?{_EARLIER} {_TALK}\b[^\n]{{0,40}}\b{_MADE}\b",
    # a heading in brackets, lines or tags
    rf"^\W*\[(?:(?:{_EARLIER} )?{_TALK} (?:history )?summary|summary of (?:the |our |this )?(?:{_EARLIER} )?{_TALK}"
    rf"|{_TALK} (?:was |has been )?{_MADE})\b[^\]\n]{{0,60}}\]",
    rf"^[-=*_]{{3,}} ?(?:(?:{_EARLIER} )?{_TALK} (?:history )?summary|summary of (?:the )?(?:{_EARLIER} )?{_TALK})\b",
    r"\A\W*<(?:[a-z]+[_-]){0,3}(?:conversation|session|history|context|chat|compact(?:ed|ion)?|previous|prior|handoff)"
    r"[_-](?:summary|snapshot|history)\b[^>\n]{0,60}>",
)
"""Only programs write this, around or above the summary itself."""
_GIVEN = re.compile(r"<[a-z_-]{0,30}(?:summary|snapshot)>", re.IGNORECASE)
"""Holds a summary."""
_WORDS = (
    "summar",
    "compact",
    "condens",
    "compress",
    "snapshot",
    "handoff",
    "history",
    "continu",
    "resum",
    "taking over",
    "picking up",
)
"""One of these is in every such message: a quick test before the patterns."""
_CERTAIN = any_of(
    r"\banother (?:language )?model started to solve this problem\b",
    r"<(?:state_snapshot|conversation_summary|compacted_history|context_summary)>",
    rf"\b{_TALK}(?: history)?(?: (?:before|prior to|up to|until) (?:this|that|here)(?: \w+)?)?"
    rf" (?:has been|was|were|have been) (?:automatically )?{_MADE}\b",
    r"\[archived context summary\]",
    rf"\A\W*{_TALK}(?: history)? {_MADE}(?: successfully)?\W*\Z",
)
"""Programs write this. People do in a complaint, which no history follows."""
_LIKELY = any_of(
    r"\A\W*what did we do so far\?\W*\Z",
    rf"\bsummary of (?:the|our|this|your|my|all)\s(?:[\w-]+ ){{0,2}}{_TALK}\b",
    rf"\A\W*(?:<summary>|(?:{_EARLIER} )?{_TALK} (?:history )?summary\b)",
    r"\A\W*here(?:['’]s| is) what (?:we|was|has been|you)\b[^\n.]{0,40}\bso far:",
    rf"\A\W*{_EARLIER}(?:ly)? in (?:this|our|the) {_TALK}:",
)
"""People may write this too, but not before their own next message."""
_HEADED = any_of(
    rf"^\W{{0,8}}(?:{_EARLIER} |running |current )?(?:{_TALK} )?(?:history )?summary\b[^\n:.]{{0,60}}(?::|\W{{0,3}}$)"
)
"""The heading of a section of a system text."""


@reads_text(lambda read, text: read(text, last=True))
def replaces_history(text: str, *, last: bool) -> bool:
    """True for a message that stands for a history. `last`: nothing that a person may have written comes after it."""
    if text.startswith((COMPACTED, CONTINUED)) or hands_over_summary(text):
        return True
    head = text[:_READ]
    return bool(_CERTAIN.search(head)) or (
        not last and (bool(_LIKELY.search(head)) or languages.replaces_history(text))
    )


@reads_text()
def has_summary(system: str) -> bool:
    """True for a system text with a section that may hold a summary of what was said."""
    return "summary" in system.lower() and _HEADED.search(system) is not None


@reads_text()
def hands_over_summary(text: str) -> bool:
    """True if a program gives a summary in place of the history, and says so around it."""
    ends = text if len(text) <= 2 * _READ else f"{text[:_READ]}\n{text[-_READ:]}"
    lowered = ends.lower()
    for word in _WORDS:
        if word in lowered:
            return bool(_ORDERS.search(ends))
    return False


@reads_text()
def gives_summary(text: str) -> bool:
    """True if a program says that the history was summarised, and gives the summary as an element."""
    return "summar" in text[:_READ].lower() and bool(_CERTAIN.search(text[:_READ]) and _GIVEN.search(text))
