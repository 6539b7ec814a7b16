"""Results that do not tell whether their tool worked: empty, left out, deferred, without a hit, done in part.

They are no success and no failure, so they give no score. A sign of success next to them (an exit code of 0, a field
`success`) is read before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from openclaw_rl.shared.text_reading import any_of, reads_text

_SHORT_LINES, _SHORT = 6, 500


_EMPTY = re.compile(
    r"[\W_]*(?:<(\w+)>\s*</\1>|(?:(?:the |your )?(?:bash|tool|command|function|script|code|process|call|it"
    r"|execution)(?: call)?"
    r" (?:was |has )?(?:ran|run|produced|returned|completed|finished|executed|gave"
    r"|succeeded)(?: successfully)?(?: with(?:out)?)? ?(?:no |any )?"
    r"(?:output|content|results?|response|data|errors?)(?: or errors?| and errors?)?)"
    r"|no (?:output|content|data|response|result|return value|stdout)(?: (?:was )?(?:returned|produced|available"
    r"|captured|generated))?"
    r"|empty(?: (?:output|results?|response|string|list|set))?|none|null|nil|undefined|n/?a|unknown|nan"
    r"|(?:image|screenshot|binary|audio|video|file|base64|media)(?: (?:data|content|file))?(?: (?:omitted"
    r"|attached|removed|returned"
    r"|not shown))?"
    r"|(?:old |previous |earlier )?(?:tool )?(?:result|output|content|response)s?(?: content)?(?: (?:was|were"
    r"|has been|have been|is))?"
    r" (?:too (?:large|long|big)|truncated|omitted|cleared|removed|hidden|elided|trimmed|pruned|compacted|stored"
    r"|saved)\b"
    r"[^\n]{0,120})?[\W_]*",
    re.IGNORECASE,
)
_DEFERRED = any_of(
    r"\b(?:still|currently|now) (?:running|processing|pending|in progress|executing|working|queued|being \w+)\b",
    r"\b(?:running|started|launched|moved|executing|continues?|sent|placed)\b[^\n.]{0,40}\b(?:in"
    r"|to) (?:the )?background\b",
    r"\b(?:is|are|now|been submitted and is|currently) (?:in progress|pending|queued|processing|being processed)\b",
    r"\b(?:has been|was|were|is|been|successfully|request) (?:queued|enqueued"
    r"|scheduled for (?:later|execution)"
    r"|accepted for (?:later|processing|delivery))\b",
    r"\baccepted for (?:later |further )?(?:execution|processing|delivery)\b|^\W*(?:queued|pending|processing"
    r"|in progress|accepted"
    r"|waiting|loading)\b[^\n]{0,40}\Z",
    r"\b(?:await(?:s|ing)|wait(?:s|ing) (?:for|on)|pending|requires?|needs?) (?:[\w'’-]+ ){0,3}?(?:approval"
    r"|confirmation|review"
    r"|authori[sz]ation|permission|consent|response|input|sign-?off)\b",
    r"^\W*(?:your )?request (?:was |has been )?received\b|\b202 accepted\b|\b(?:approval|confirmation|review"
    r"|authori[sz]ation|permission|consent)"
    r" (?:is |was )?(?:required|needed|pending|requested)\b|\b(?:handed|delegated"
    r"|forwarded) (?:over )?to (?:agent|worker|another|the|a)\b"
    r"|^\W*(?:process|command|server|job|task|agent) is running\b",
    r"\byou(?:['’]ll| will) be (?:notified|informed|alerted)\b|\b(?:check|poll|query)\b[^\n.]{0,40}\b(?:status"
    r"|later|again|back"
    r"|progress)\b|\bstarted\b[^\n]{0,80}\b(?:later|progress|status|notif\w+)\b",
    r"\b(?:result|output|answer|report)s? (?:will be|is not|are not|not yet) (?:available|ready|sent|delivered"
    r"|posted)\b|\bnot (?:yet"
    r"|ready yet) (?:available|ready|finished|complete)\b|\beta\b[^\n]{0,20}\d",
)
_NO_HIT = re.compile(
    r"[\W_]*(?:sorry[,.:]? )?(?:(?:there (?:are|is|were|was) )?(?:no|0|zero)|found (?:no|0|zero)|nothing"
    r"|returned (?:no|0)"
    r"|i found (?:no|nothing)|(?:i |we )?(?:could(?: not|n['’]t)|did(?: not|n['’]t)) find (?:any"
    r"|anything))\b (?!such |(?:[\w-]+ )?(?:errors?|issues?|problems?|warnings?|failures?|bugs?|mistakes?)\b)"
    r"(?:[\w-]+ ){0,2}?(?:results?|match(?:es)?|hits?"
    r"|files?|documents?|entries|records?|rows?|memor(?:y|ies)|items?|events?|messages?|e-?mails?|pages?|data"
    r"|information|answers?"
    r"|occurrences?|references?|articles?|contacts?|products?|found|notes?|tasks?|tickets?|commits?|logs?|nodes?"
    r"|sources?)\b"
    r"(?! (?:with|had|have|has) errors?)[^\n]{0,80}\.?[\W_]*",
    re.IGNORECASE,
)
_PART = any_of(
    r"\bpartial(?:ly)? (?:success\w*|complet\w+|applied|done|results?|updated|processed)\b",
    r"\b(?P<some>\d{1,6}) (?:of|out of|/) (?P<all>\d{1,6})\b[^\n.]{0,40}\b(?:succeeded|completed|were|was|done"
    r"|processed|synced|sent"
    r"|updated|applied|saved|uploaded|imported|skipped)\b",
)
_ASIDE = any_of(
    r"\A\W*(?:your |the )?thoughts? (?:(?:has|have|was|were) )?(?:been )?(?:logged|recorded|noted|saved)\b",
    r"\A\W*(?:waited|slept|paused|sleeping)(?: for)? \d|\bthe user (?:did(?: not|n['’]t)|has(?: not"
    r"|n['’]t)) (?:yet )?(?:answer|respon"
    r"|repl|provid|select)\w*\b|\A\W*(?:skipped|no-?op|nothing (?:to do|happened|changed))\b[^\n]{0,80}\Z",
)
_PENDING = frozenset([
    "pending", "queued", "running", "in_progress", "inprogress", "in progress", "processing",
    "waiting", "requires_action", "requires_confirmation", "awaiting_approval",
    "unknown", "partial", "incomplete", "initializing", "starting", "in-progress", "working", "deferred", "skipped",
    "not_started", "paused", "ongoing",
])  # fmt: skip
_STATUSES = ("status", "state", "phase", "outcome", "job_status", "task_status")
_ASKED = frozenset(
    ["query", "q", "pattern", "took", "page", "limit", "offset", "next", "next_cursor", "has_more", "cursor"]
)


@reads_text()
def is_empty(text: str) -> bool:
    """True for a result without content: nothing at all, or a word in its place."""
    return len(text) <= _SHORT and _EMPTY.fullmatch(text.strip()) is not None


@reads_text()
def is_without_hit(text: str) -> bool:
    """True for a short result that says that nothing was found."""
    return len(text) <= _SHORT and _NO_HIT.fullmatch(text.strip()) is not None


@reads_text()
def says_nothing(text: str) -> bool:
    """True for a short result that says that the work is not done, or that there was nothing to give."""
    if len(text) > _SHORT or len(text.strip().splitlines()) > _SHORT_LINES:
        return bool(_DEFERRED.search(text[:200])) and "background" in text[:200]
    if _NO_HIT.fullmatch(text.strip()) or _DEFERRED.search(text) or _ASIDE.search(text):
        return True
    part = _PART.search(text)
    return part is not None and (part["some"] is None or part["some"] != part["all"])


def is_open(value: Any, *, hits: bool = False) -> bool:
    """True for an object whose status is open, or that holds nothing. `hits`: a search gave it, so that a sign of
    success says nothing about what was found.
    """
    if not isinstance(value, Mapping):
        return value is None or (isinstance(value, list) and not value)
    for name in _STATUSES:
        if str(value.get(name, "")).lower() in _PENDING:
            return True
    return _holds_nothing(value, hits, 3)


def _holds_nothing(value: Any, hits: bool, depth: int) -> bool:
    if isinstance(value, Mapping) and depth:
        held = [inner for name, inner in value.items() if not _is_aside(str(name).lower(), hits)]
        return all(_holds_nothing(inner, hits, depth - 1) for inner in held)
    return value in (None, "", 0, False) or value == [] or value == {}


def _is_aside(name: str, hits: bool) -> bool:
    return name in _ASKED or (hits and name in ("ok", "success", "status", "error"))
