"""Text that programs put around a person's words in a user message, or send in the user's role.

By kind: tagged blocks, headings before the words, rules after them, quoted files; and messages without any words of a
person: results of commands and tools, complaints about the form of an answer, notices. Works on texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from openclaw_rl.proxy.conversation.programs import languages, program_voice
from openclaw_rl.proxy.conversation.programs.templates import words_in_template
from openclaw_rl.shared.text_reading import reads_text


def _beginning(*alternatives: str) -> re.Pattern[str]:
    return re.compile(r"[\s>*#-]{0,20}(?:" + "|".join(alternatives) + ")", re.IGNORECASE)


# Tags

_TAG = re.compile(r"<([A-Za-z][\w-]{1,48})((?:\s[^<>\n]{0,200})?)>")
_NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SAID = frozenset([
    "query", "message", "request", "input", "prompt", "question", "feedback", "comment", "reply", "utterance",
    "instruction", "text", "words", "answer", "turn",
])  # fmt: skip
_OWNER = frozenset(
    ["user", "human", "customer", "client", "player", "sender", "new", "latest", "current", "incoming", "chat"]
)
"""A name of an owner and of what was said is that of a block that holds all that the person typed."""
_WRAPPED_WORDS = frozenset(
    ["task", "query", "question", "request", "prompt", "message", "answer", "input", "goal", "comment", "utterance"]
)
"""Names of blocks that may hold it, next to other words."""
_SINGLE = frozenset([
    "context", "instructions", "attachments", "attachment", "reminder", "environment", "workspace", "memory",
    "memories", "rules", "skills", "todos", "notice", "timestamp", "editor", "selection", "diagnostics",
    "caveat", "documents", "page", "constraints", "knowledge", "persona", "profile", "preferences", "history",
    "sources", "references", "hints", "hint", "guidelines", "cwd",
])  # fmt: skip
"""Names of one word of blocks that programs write."""
_PROGRAM_WORDS = frozenset([
    "context", "environment", "instructions", "reminder", "system", "workspace", "editor", "attached",
    "attachments", "memory", "memories", "details", "info", "data", "state", "notice", "notification", "rules",
    "skills", "todo", "todos", "history", "hook", "file", "files", "date", "datetime", "time", "session",
    "mode", "aborted", "turn", "interrupted", "metadata", "settings", "budget", "usage", "git", "repo",
    "project", "selection", "diagnostics", "caveat", "policy", "additional", "current", "permissions", "tabs",
    "cwd", "recently", "agents", "search", "retrieved", "documents", "document", "page", "open", "opened",
    "terminal", "style", "chat", "note", "map", "device", "app", "ide", "persona", "profile", "preferences",
    "format", "schema", "constraints", "knowledge", "references", "available", "relevant", "active", "cursor",
    "location", "webpage", "website", "tools",
])  # fmt: skip
"""A name of several words with one of these is a program's."""

_HISTORY_WORDS = frozenset(["summary", "snapshot", "compacted", "handoff", "checkpoint"])
"""Such a block stands in place of a history: it is no wrapping."""

# Around the words

_HEADING_OF_BLOCK = re.compile(
    r"^#{1,3} [^\n]{0,200}(?:\.md\b|instructions|context|rules|environment|memory)[^\n]{0,200}\n\s*\Z", re.I | re.M
)
_REQUEST_HEADING = re.compile(
    r"^#{1,4} (?:my|the user'?s?|user'?s?|current) (?:request|message|prompt|question|task|input)\b[^\n]{0,40}$",
    re.I | re.M,
)
_RULES = re.compile(
    r"^#{1,3} [^\n]{0,60}\b(?:block\*?|edit(?:ing)?|diff|output|response|answer|format\w*|tool use|reply|listing)\b"
    r"[^\n]{0,40}\b(?:rules?|instructions?|guidelines?|reminder|requirements?)\b"
    r"|^#{1,3} (?:reminder: instructions\b|task_progress\b|todo list\b[^\n]{0,40}\brequired)"
    r"|^to suggest changes to a file you must\b",
    re.IGNORECASE | re.MULTILINE,
)
"""The line with which a program begins to add its rules."""
_QUOTED_FILES = (
    ("--- Content from referenced files ---", "--- End of content ---"),
    ("[BEGIN ATTACHED FILES]", "[END ATTACHED FILES]"),
)

# Whole messages

_RESULT = _beginning(
    # what agents get back that write their calls as text
    r"(?:call id: \S+\s+)?observations?\b[^\n:]{0,40}:",
    r"\[[\w. -]{1,60}(?: for '[^'\n]{0,200}')?\] result:",
    r"(?:\[|<)?(?:tool|function)[ _-](?:result|results|response|output|call result)s?\b[^\n]{0,80}(?:[:\]>]|\n)",
    r"(?:here (?:is|are) )?the (?:result|output)s? of (?:the |your )?(?:tool|function|command|code|call"
    r"|last)\b[^\n]{0,80}[:\n]",
    r"(?:code )?execution (?:result|output|log)s?\b[^\n:]{0,20}:",
    r"exit ?code: ?-?\d+\b|exit status: ?\d+\b",
    # what a program ran for the person
    r"i ran (?:this|the following) (?:command|code|script)\b[^\n]{0,40}:[ \t\r]*\n"
    r"[\s\S]{0,2000}?\band got this output\b",
)
_MALFORMED = _beginning(
    # the validators' own words
    r"\d+ validation errors?\b|validation (?:error|errors|feedback|failed)\b[^\n]{0,60}:",
    r"(?:output|response|schema|json|pydantic) (?:validation|parsing|parse) (?:error|failed|failure)\b[^\n]{0,60}:",
    r"(?:could not|failed to|unable to|cannot) parse (?:the |your )?(?:llm|model|json) (?:output|response|action)\b",
    r"plain text responses are not permitted\b|no (?:valid )?(?:tool call|action|code block)s?\b[^\n]{0,40}\bfound",
    r"\[error\] you did not use a tool\b|i encountered an error while trying to use the tool\b",
    r"guardrail\b[^\n]{0,60}\bfailed\b|i did it wrong\. tried to\b",
    # an error of the agent's own code
    r"(?:call id: \S+\s+)?(?:error|exception)(?: in [^\n:]{0,60})?:\s*\n",
)
_COMPLAINT = _beginning(
    r"invalid (?:json|format|response|output|tool call|function call|action|or incomplete response)\b",
    r"(?:error: )?(?:your|the) (?:last |previous )?(?:response|output|reply|answer|json|(?:tool|function) call)\b"
    r"[^\n.]{0,60}\b(?:could not be parsed|(?:is|was) (?:not |in)valid|did not match|does not match|must be valid"
    r"|failed (?:the )?(?:validation|schema)|(?:is|was) missing|did not (?:contain|include|use|call))",
)
"""A person may write that too: a program gives the details behind a colon, or orders to try again."""
_DETAILS = re.compile(r":[ \t]*\S[^\n]{15,}|:\s*\n|```")
_RETRY = re.compile(
    r"\b(?:fix the errors? and try again|recall the function correctly|now let'?s retry|take care not to repeat"
    r" previous errors|(?:retry|try again) with (?:a )?(?:valid|tool|corrected)|respond with (?:a )?valid json)\b",
    re.IGNORECASE,
)
_RETRY_WORDS = ("try again", "retry", "recall the function", "valid json", "repeat previous errors")
_NOTICE = _beginning(
    r"i committed the changes with git hash\b|i (?:have )?\*?(?:added|updated) (?:these|the) \*?files\b",
    r"i updated your \*?files\b|here are summaries of some files present in my git repo\b",
    r"(?:here is|this is|the following is|below is) (?:a|the) (?:\w+ )?summary of (?:the|our|this|your"
    r"|a) (?:\w+ ){0,2}"
    r"(?:conversation|chat|session|discussion|work|history)\b",
    r"another (?:language model|llm|agent|ai) (?:has )?(?:started|began|begun)\b[^\n]{0,80}\bsummary\b",
    r"(?:the )?(?:conversation |chat |message )?history (?:has been|was) (?:summari[sz]ed|condensed|compacted)\b",
    r"<(?:[a-z]+_)?(?:summary|snapshot|compacted_history)>",
    r"\[(?:system|automated|auto|notice|reminder|info)\b[^\]\n]{0,80}\]\s*:?[^\n]*\Z",
)


class ReadText(NamedTuple):
    """The words of a person in a text ("" if there are none), and `changed`: something was taken away."""

    words: str
    changed: bool


@reads_text()
def own_words(text: str) -> ReadText:
    """The text without what a program put around the words."""
    words = text
    if "<" in words:
        words = _without_blocks(words)
    for opening, closing in _QUOTED_FILES:
        start = words.find(opening)
        if start >= 0:
            end = words.find(closing, start)
            words = words[:start] + (words[end + len(closing) :] if end >= 0 else "")
    inner = words_in_template(words)
    if inner is not None:
        words = inner
    if "#" in words and (headings := list(_REQUEST_HEADING.finditer(words))) and words.lstrip().startswith("#"):
        words = words[headings[-1].end() :]
    rules = _RULES.search(words) if "#" in words or "To suggest changes to a file" in words else None
    if rules is not None and words[: rules.start()].strip():
        words = words[: rules.start()]
    return ReadText(text, False) if words == text else ReadText(words.strip(), True)


@reads_text()
def is_result(text: str) -> bool:
    """True if a program speaks in the user's role about what a call or an answer came to."""
    if _RESULT.match(text) or _MALFORMED.match(text) or languages.is_result(text) or program_voice.is_report(text):
        return True
    lowered = text[:8000].lower()
    retry = any(word in lowered for word in _RETRY_WORDS) and _RETRY.search(lowered) is not None
    return (retry and "\n" in text.strip()) or bool(
        _COMPLAINT.match(text) and (retry or _DETAILS.search(text, 0, 2000))
    )


@reads_text()
def is_notice(text: str) -> bool:
    """True if a program tells in the user's role what it did."""
    return bool(_NOTICE.match(text)) or languages.replaces_history(text) or program_voice.is_order(text)


def _without_blocks(text: str) -> str:
    """The text without the blocks of programs, and without the tags around words."""
    kept: list[str] = []
    persons: list[str] = []
    position = 0
    blocks = list(_blocks(text))
    if not blocks:
        return text
    outside = "".join(
        text[before:after]
        for before, after in zip(
            [0, *(block.end for block in blocks)], [block.start for block in blocks] + [len(text)], strict=True
        )
    )
    spoken = bool(outside.strip()) and not _MARKUP.search(outside)
    for block in blocks:
        if block.known or (spoken and _is_apart(text, block)):
            kept.append(text[position : block.start])
            inner = text[block.inner : block.inner_end]
            if _holds_words(block.name):
                persons.append(inner.strip())
            elif block.name in _WRAPPED_WORDS:
                kept.append(inner)
            else:
                kept[-1] = _HEADING_OF_BLOCK.sub("", kept[-1])
            position = block.end
    if not position:
        return text
    return "\n\n".join(persons) if persons else "".join([*kept, text[position:]])


class _Block(NamedTuple):
    """A block: the words of its name, whether programs are known to write it, and its places."""

    name: str
    known: bool
    start: int
    inner: int
    inner_end: int
    end: int


_MARKUP = re.compile(
    r"\b(?:xml|html|svg|jsx|css|tags?|markup|elements?|attributes?|parse|parses|valid|convert|snippet|component"
    r"|config\w*|node|page|bold|code"
    r"|this|these|here)\b|[;{}]",
    re.IGNORECASE,
)
"""Someone speaks of markup."""
_HTML = frozenset(
    [
        "a",
        "abbr",
        "article",
        "aside",
        "audio",
        "b",
        "blockquote",
        "body",
        "br",
        "button",
        "canvas",
        "caption",
        "code",
        "col",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "em",
        "fieldset",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "i",
        "iframe",
        "img",
        "input",
        "label",
        "legend",
        "li",
        "link",
        "main",
        "meta",
        "nav",
        "ol",
        "option",
        "p",
        "path",
        "pre",
        "script",
        "section",
        "select",
        "small",
        "span",
        "strong",
        "style",
        "sub",
        "summary",
        "sup",
        "svg",
        "table",
        "tbody",
        "td",
        "template",
        "textarea",
        "tfoot",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
        "var",
        "video",
        "think",
        "thinking",
    ]
)


def _is_apart(text: str, block: _Block) -> bool:
    """True if a block of an unknown name stands on lines of its own, and holds no data in markup."""
    tag = text[block.start + 1 : block.inner]
    of_person = block.name.startswith(("my-", "our-")) or (tag[0].isupper() and not tag.isupper())
    if block.name in _HTML or of_person or (block.start and text[block.start - 1] != "\n"):
        return False
    after = text[block.end : block.end + 1]
    nested = "-" not in block.name and "</" in text[block.inner : block.inner_end]
    return after in ("", "\n", "<") and not nested


def _blocks(text: str) -> Iterator[_Block]:
    """The blocks that are not inside of others."""
    position = 0
    unclosed: set[str] = set()
    while (tag := _TAG.search(text, position)) is not None:
        position = tag.end()
        if tag[1] in unclosed:
            continue
        words = [word.lower() for word in _NAME_WORDS.findall(tag[1])]
        name = "-".join(words)
        known = _holds_words(name) or name in _WRAPPED_WORDS or _by_program(words)
        apart = known or not (tag.start() and text[tag.start() - 1] != "\n")
        if not apart or (name in _HTML and not known):
            continue
        closing = text.find(f"</{tag[1]}>", position)
        if closing < 0:
            unclosed.add(tag[1])
        elif known or _HISTORY_WORDS.isdisjoint(words):
            position = closing + len(tag[1]) + 3
            yield _Block(name, known, tag.start(), tag.end(), closing, position)


def _holds_words(name: str) -> bool:
    owner, _, said = name.rpartition("-")
    return name == "feedback" or (said in _SAID and owner.rpartition("-")[2] in _OWNER)


def _by_program(words: list[str]) -> bool:
    if words[:1] in (["my"], ["our"]):
        return False
    if len(words) == 1:
        return words[0] in _SINGLE
    return _HISTORY_WORDS.isdisjoint(words) and not _PROGRAM_WORDS.isdisjoint(words)
