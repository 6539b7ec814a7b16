"""System texts that tell an agent that it works for another agent."""

from __future__ import annotations

import re

from openclaw_rl.shared.text_reading import reads_text

_SEARCHED = 4000

_WORD = r"(?:(?!(?:that|which|who|whose|can|could|with|to|and|for|of|in|on|able|has|have|uses?)\b)[\w/'’,-]+ )"
_PARENT = (
    r"(?:parent|main|lead|primary|calling|root|outer|top-level|orchestrat\w+|coordinat\w+|supervis\w+|manager)"
    r"(?: (?:ai|coding))? agent\b"
)
_SUBAGENT = re.compile(
    # what it is
    rf"\byou(?:['’]re| are)(?: now| currently)?(?: running as| acting as)? (?:an?|the) {_WORD}{{0,6}}?"
    r"(?:sub-?agent|child agent)\b(?! (?:orchestrat|manag|coordinat|design|creat|build|architect|expert))"
    r"|\A\W*(?:\[|# ?|<)?sub-?agent (?:context|instructions|task|mode)\b"
    # whom it works for
    rf"|\b(?:(?:work(?:ing)?|act(?:ing)?) (?:for|on behalf of)|(?:spawned|launched|created|started|invoked|called"
    rf"|dispatched|delegated|assigned)(?: to you)? by) (?:an?|the|another|your) {_PARENT}"
    # whom it reports to
    r"|(?:\A|[.!?:\n]\W*)(?:(?:then|finally|always|you (?:must|should|will)) )?(?:report|return|respond|hand|answer)\b"
    rf"[^\n.]{{0,80}}\bto (?:the|your) {_PARENT}",
    re.IGNORECASE,
)


@reads_text()
def is_subagent(system: str) -> bool:
    """True if the system text is a sub-agent's."""
    opening = system[:_SEARCHED]
    lowered = opening.lower()
    return "agent" in lowered and _SUBAGENT.search(opening) is not None
