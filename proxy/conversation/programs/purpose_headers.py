"""Headers, and fields of a body's metadata, by which clients say what a request is for: one table of name and value.

A header may hold several fields, as a JSON object or as `name=value; name=value`; each is read as if it were a header.
So is each field of the metadata, in which people also write what a request is about: there a purpose is a short label,
and names no document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from openclaw_rl.proxy.http.body import METADATA

Purpose = Literal["subagent", "compaction", "title", "memory", "utility"]

_NO = frozenset(["", "0", "false", "no", "off", "none", "null", "undefined", "main", "root", "primary", "user", "-"])
"""Values that mean: none."""
_TOP = frozenset(["main", "primary"])
_PARENT = re.compile(r"(?:^|-)parent-?agent(?:-?(?:id|key))?$")
"""The name of one whose parent is the main agent."""
_FLAG = r"\A(?:1|true|yes|on)\Z"
_SUBAGENT = r"\bsub[-_ ]?agent\b"
_PURPOSE = (
    r"(?:interaction|turn|request|call|task|thread|session|message|agent|run|query|invocation|operation|generation|prompt"
    r"|trace|span|node|step|job|stage|workflow|chain|component)"
    r"-(?:type|kind|source|purpose|role|mode|name|origin|category)|purpose|trigger|intent|initiator|use-?case|operation"
    r"|feature|activity|thread-source|source|task|kind|langgraph-node|call-site|node|step|stage|phase|component"
)
"""Names whose value is a purpose."""
_LABELLED = r"agent|caller|turn|invocation|(?:request|call|turn)-(?:tag|label)"
"""Names whose value may be one."""
_TRACED = re.compile(r"(?:^|-)parent-?(?:task|run)(?:-?(?:id|key))?$")
"""Names that tracers write into the metadata of every call."""
_LABEL = re.compile(r"[\w:/.@-]{1,60}(?:[ ][\w:/.@-]{1,40}){0,2}")
_ABOUT = re.compile(
    r"\b(?:articles?|documents?|docs?|texts?|pages?|e?-?mails?|reports?|meetings?|videos?|pdfs?|files?|news|papers?"
    r"|tickets?|reviews?|books?|products?|jobs?|posts?|blogs?|invoices?|contracts?|letters?|stor(?:y|ies)|calls?)\b"
    r"|\.(?:pdf|md|txt|docx?|html?|csv|json|py|js|ts)\b",
    re.IGNORECASE,
)
"""Objects of work that people ask for."""
_TAG = re.compile(
    r"(?:(?:purpose|task|type|kind|feature|operation|task-?name)[:=/])?(?:auto-?)?"
    r"(?:(?:chat|conversation|session|thread|context|history)[-:/ ])?"
    r"(?:title|compaction|compact|summary|summari[sz](?:e|er|ation)|condens(?:e|er|ation)|memory|sub-?agent(?:[:/][\w-]+)?|utility|heartbeat"
    r"|follow-?ups?|suggestions?|background)(?:[-:/ ](?:generation|generator|extraction|update|task|call|request))?",
    re.IGNORECASE,
)
_LISTS = frozenset(["tags", "labels"])


def _row(purpose: Purpose, name: str, value: str) -> tuple[Purpose, re.Pattern[str], re.Pattern[str]]:
    return purpose, re.compile(rf"(?:^|-)(?:{name})$"), re.compile(value, re.IGNORECASE)


_TABLE = (
    # the name says it, whatever the value
    _row("subagent", r"(?:is-?)?(?:sub-?agent|child-agent)(?:-(?:id|name|type|kind|label|depth))?", r"."),
    _row("subagent", r"parent-?(?:session|agent|thread|task|run|conversation)(?:-?(?:id|key))?", r"."),
    _row("subagent", r"(?:session|agent|thread)-parent(?:-id)?|(?:spawned|delegated)-by|(?:is-?)?delegated", r"."),
    # the name says it of a value that is a flag, or a number
    _row("subagent", r"(?:agent|spawn|delegation)-depth", r"\A[1-9]\d*\Z"),
    _row("compaction", r"(?:auto|context|history|conversation|is)-?(?:compact\w*|summary|summari[sz]\w+)", _FLAG),
    _row("compaction", r"compaction(?:-(?:request|call|turn))?", _FLAG),
    _row("title", r"is-?title|(?:title|thread-title)-(?:generation|request|call)|session-naming", _FLAG),
    _row("utility", r"(?:is-?)?(?:heartbeat|cron|utility|background)(?:-(?:request|call|turn|task|job))?", _FLAG),
    # the value says it, where the name asks for an agent, or for a label, and the value is nothing else
    _row("subagent", r"agent|caller|type|mode|origin|role", rf"\A\W*(?:[\w-]+[:/])?{_SUBAGENT}(?:[:/][\w-]+)?\W*\Z"),
    _row("compaction", _LABELLED, r"\A(?:auto-?)?(?:compaction|compacter|compactor|summari[sz](?:er|ation))\Z"),
    _row("title", _LABELLED, r"\A(?:title|titler|titling|title-generat\w+)\Z"),
    # the value says it, where the name asks for a purpose
    _row("subagent", _PURPOSE, rf"{_SUBAGENT}|\bsub[-_ ]?task\b|\bchild[-_ ]agent\b|\bdelegat(?:e|ed|ion)\b"),
    _row("compaction", _PURPOSE, r"\b(?:auto-?)?(?:compact\w*|summar\w+|condens\w+|compress\w*)\b"),
    _row("title", _PURPOSE, r"\b(?:title\w*|titling|naming|session-name|slug|headline)\b"),
    _row("memory", _PURPOSE, r"\b(?:memory|memories|memor[iy][sz]\w*|dream\w*|recall)\b"),
    _row(
        "utility",
        _PURPOSE,
        r"\b(?:heartbeat|cron|scheduled?|suggestions?|follow-?ups?|tags?|probe|background|utility|side)\b",
    ),
)
_STANDARD = frozenset(["authorization", "cookie", "user-agent", "accept", "content-type", "referer", "x-title"])
_LONGEST = 8000
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LIST = re.compile(r"\s*([\w.-]+)\s*=\s*\"?([^;,\"]*)\"?\s*(?:[;,]|$)")


def purposes(headers: Mapping[str, str]) -> set[Purpose]:
    """The purposes other than the conversation itself that the headers (lower-case names) name."""
    found: set[Purpose] = set()
    for name, value in headers.items():
        if value and name not in _STANDARD and len(value) <= _LONGEST:
            found.update(purpose for field, text in _fields(name, value) for purpose in _of(field, text))
    return found


def metadata_purposes(body: Mapping[str, Any]) -> set[Purpose]:
    """The purposes that the metadata of a body names."""
    found: set[Purpose] = set()
    for field in METADATA:
        for name, text in _members(body.get(field)):
            if len(text) > _LONGEST or _TRACED.search(name):
                continue
            for inner, value in _fields(name, text):
                if _is_identity(inner) or (
                    _LABEL.fullmatch(value.strip()) and not _ABOUT.search(value.replace("_", "-"))
                ):
                    found.update(_of(inner, value))
    return found


def _is_identity(name: str) -> bool:
    return any(pattern.search(name) for _, pattern, value in _TABLE if value.pattern == ".")


def _of(name: str, value: str) -> Iterator[Purpose]:
    if value.strip().lower() in (_NO - _TOP if _PARENT.search(name) else _NO):
        return
    words = _HUMPS.sub("-", value).replace("_", "-")
    for purpose, name_pattern, value_pattern in _TABLE:
        if name_pattern.search(name) and value_pattern.search(words):
            yield purpose


def _fields(name: str, value: str) -> Iterator[tuple[str, str]]:
    """A header's own name and value, or the fields in it."""
    if value.lstrip().startswith("{"):
        try:
            yield from _members(msgspec.json.decode(value))
            return
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            pass
    elif "=" in value:
        yield from ((_plain(field), text) for field, text in _LIST.findall(value))
    yield _plain(name), value


def _members(value: Any, within: str = "", depth: int = 4) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or not depth:
        return
    for name, member in value.items():
        named = _plain(f"{within}-{name}" if within else name)
        if isinstance(member, dict):
            yield from _members(member, named, depth - 1)
            yield named, " ".join(map(str, member)) or "none"
        elif isinstance(member, list) and name.lower() in _LISTS:
            yield from (("purpose", label) for label in member if _is_tag(label))
        elif isinstance(member, str | bool | int | float):
            yield named, str(member)


def _is_tag(label: Any) -> bool:
    """True for a label that is a purpose and nothing else: tags say many things."""
    return isinstance(label, str) and _TAG.fullmatch(label.strip().replace("_", "-")) is not None


def _plain(name: str) -> str:
    return _HUMPS.sub("-", name).replace("_", "-").replace(".", "-").lower()
