"""The wording of requests about a conversation that are not part of it: titles, summaries, tags, probes.

It is looked for at the beginning of the system text and in user messages. Single words are weak evidence, so each
pattern needs several at once: the label, its object, and how short it shall be. What asks for work on the conversation
itself, in any wording, is in `conversation_work`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from openclaw_rl.proxy.conversation.programs import languages
from openclaw_rl.shared.text_reading import any_of, mentions, reads_text

_MAKE = (
    r"(?:generate|create|write|provide|produce|suggest|give|come up with|return|output|make|propose|summari[sz]e"
    r"|(?:reply|respond|answer) with)"
)
_LABEL = r"(?:title|headline|subject line|slug|short name|thread name|topic label|tags?\b)"
_TALK = (
    r"(?:conversation|chat|session|thread|discussion|message|dialogue|"
    r"user'?s? (?:request|query|question|prompt|input))"
)
_OF_TALK = (  # of other words a session may be one of yoga, a discussion one of tonight
    r"(?:(?:above|following|current|previous|whole|entire|given|provided|quoted|ongoing|first|last|latest|initial"
    r"|opening"
    r"|user(?:['’]s)?|chat|ai|agent|assistant|coding|customer|new|earlier|group) ){0,2}"
)
_THIS_TALK = (  # people want titles for "my thread" and "a session"; programs for the conversation at hand
    rf"(?:\b(?:the|this|following|above|previous|current|whole|entire)\s{_OF_TALK}"
    rf"{_TALK}(?!\s(?:tonight|tomorrow|next|about|on \w+day)\b)|\bour\s{_TALK}|\buser'?s?\s(?:first\s)?(?:request"
    rf"|query|question|prompt|input|message)|"
    r"\b(?:conversation|chat|session|thread)['’]?s?[\s-](?:title|name|history|log|transcript)\b)"
)
_BREVITY = (
    r"(?:concise|short|brief|succinct|or (?:less|fewer)|max(?:imum)?\b|under \d+|no more than|at most|"
    r"\b(?:\d+|one|two|three|four|five|six|ten)\b[\w\s,-]{0,12}words?)"
)


_TITLE = any_of(
    rf"\b{_MAKE}\b[^\n]{{0,80}}\b{_LABEL}",
    r"\b(?:give|find)\b[^\n]{0,20}\b(?:conversation|chat)\b[^\n]{0,20}\ba name\b",
    r"\ba name (?:for|of) (?:this|the) (?:conversation|chat)\b",
    r"\b(?:name|title|label|describe) (?:this|the|our) (?:conversation|chat|session|thread)\b",
    r"\bdescription of (?:this|the) (?:conversation|chat|session|thread)\b",
)
_BRIEF = any_of(_BREVITY)
_NEAR_TITLE = (any_of(_THIS_TALK), _BRIEF)
_NEAR_TITLE_IN_SYSTEM = (any_of(_TALK), _BRIEF)
_FORMAL = any_of(r"\b(?:generate|produce|output|return|respond with|reply with)\b")
"""Verbs of orders that people do not give in a conversation."""
_MANNER = any_of(
    r"\b(?:only|just|nothing but)\b[^\n.]{0,20}\b(?:title|name|tags?|text|json|phrase|label)\b",
    r"\b(?:title|name|tags?|text|json|phrase|label)\b[^\n.]{0,20}\b(?:only|alone|and nothing else)\b"
    r"|\bnothing else\b",
    r"\b(?:no|without|avoid|omit) (?:any )?"
    r"(?:quot\w+|punctuation|markdown|explanations?|preamble|formatting|prefix|emojis?)\b",
    r"\b(?:do not|don't|never) (?:use|call|include|add|answer|respond|explain|wrap|invoke)\b",
    r"\bplain text\b|\bin json\b|\bjson:|\bthe user(?:['’]s)?\b|</?title>",
    r"^#{1,4} (?:task|output|guidelines|instructions)\b",
)
"""Marks of a program, next to such an order."""
_TITLE_TOOL = any_of(
    r"\b(?:use|call|with|using) (?:the )?[`'\"]?\w*(?:title|rename|name)\w*[`'\"]?(?: tool"
    r"| function|\()"
)
_LEAD_IN = any_of(
    r"(?:\A|[.!?:\n])\W*(?:(?:please|now|finally|next|then|first|task|your (?:task|job) is to|you (?:must|should"
    r"|will)"
    r"|(?:based on|given|from|using|for|after reading) (?:the|this|these|all)\b[^.\n]{0,80}?[,:])\W+){0,3}\Z"
)
"""Stands before an order."""
_BUILT = any_of(
    r"\b(?:apps?|applications?|functions?|scripts?|code|class(?:es)?|components?|features?|bots?|endpoints?"
    r"|methods?|tests?"
    r"|modules?|plugins?|pages?|buttons?|apis?|databases?|fields?|columns?|hooks?|repo(?:sitory)?|\w+\.(?:py|js"
    r"|ts|md|go|rs))\b"
)
"""Things that people have built."""
_OURS = any_of(rf"\b(?:our|my) (?:[\w-]+ ){{0,2}}{_TALK}")
_QUOTED_PROMPT = any_of(
    r"^\W*(?:the )?(?:user'?s?(?: first)? (?:prompt|message|request|query|input|task)|conversation|transcript|chat"
    r"|first (?:user )?message|messages)\W{0,3}:",
    r"<(?:user_)?(?:prompt|message|request|query|input|conversation|transcript|chat|session)>",
)
_TITLER = any_of(
    r"\A\W*you (?:are|act as|will act as) an? [\w\s-]{0,40}"
    r"(?:title|headline|slug|tag)s?[\w\s-]{0,20}(?:generator|assistant|writer|bot|maker)",
    rf"\A\W*you are (?:naming|titling) (?:an?|the|this)\s(?:[\w-]+\s){{0,2}}{_TALK}\b",
    r"\banaly[sz]e (?:if|whether) this message indicates a new (?:conversation )?topic\b",
)
_SUMMARY_SYSTEM = any_of(
    rf"\A\W*you(?:r| are)\b[^\n.]{{0,80}}\bsummari[sz](?:e|es|ing|ation)\b[^\n.]{{0,60}}{_TALK}",
    rf"\A\W*(?:briefly\W{{1,4}})?summari[sz]e\b[^\n.]{{0,60}}{_TALK}",
    rf"\A\W*write\b[^\n.]{{0,40}}\b(?:summary|recap)\b[^\n.]{{0,40}}{_TALK}",
    r"\bsummari[sz]es? internal (?:chat )?history\b",
)
_SUMMARY = any_of(
    rf"\A\W*(?:briefly\W{{1,4}})?summari[sz]e\b[^\n.]{{0,60}}{_TALK}",
    rf"\A\W*write\b[^\n.]{{0,40}}\b(?:summary|recap)\b[^\n.]{{0,40}}{_TALK}",
)
_TRANSCRIPT = any_of(
    r"<(?:conversation|chat_history|transcript|messages|session)>",
    r"^[ \t]{0,8}(?:user|human)[ \t]{0,8}:",
    r"^[ \t#*]{0,8}messages to summari[sz]e\b",
)
_ABOVE = any_of(
    # A program's line ends with a colon, after which it expects nothing but the summary; people end otherwise.
    rf"\A\W*{_MAKE}\b[^\n]{{0,40}}\bsummary of (?:the|this|our) (?:(?:chat|conversation|discussion"
    rf"|messages?)\W+above\b"
    r"|above (?:chat|conversation|discussion|messages?)\b)[^\n]{0,40}:[ \t]*$",
    r"\A\W*(?:distil+|condense|compress) the (?:above|previous|earlier) (?:chat|conversation|messages)\b[^\n]{0,40}"
    r"\b(?:single|summary message|future)\b",
    r"\bextend the summary by taking into account the new messages\b",
    r"\A\W*summari[sz]e the (?:discussion|conversation|chat)\b[^\n]{0,100}\bprompt for future context\b",
)
_COMPACTION = any_of(
    rf"\b(?:{_MAKE}|your task is to)\b[^\n]{{0,80}}\bsummary of (?:the|this|our) (?:entire |whole )?"
    r"(?:conversation|chat|session|work)\b[^\n]{0,20}\b(?:so far|above|to date|until now)\b",
    r"\bcontext checkpoint compaction\b",
    r"\bhand(?:ing)? off your work to another (?:AI )?(?:agent|LLM|model)\b[\s\S]{0,200}\bsummary\b",
    r"\bhandoff summary for another (?:AI |LLM )?(?:agent|LLM|model)?\b",
    r"\bgenerate the <state_snapshot>",
    r"\A\W*create a compact (?:replacement )?checkpoint for this session\b",
)
_BY_PROGRAM = any_of(
    r"<(?:analysis|summary|state_snapshot)>",
    r"\b(?:do not|don't|never|without) (?:call|use|invoke|calling|using)\b[^\n]{0,20}\btools?\b",
    r"\btext only\b",
    r"\[archived context summary\]",
    r"\banother (?:AI |LLM )?(?:agent|LLM|model)\b",
)
_HANDOFF = any_of(
    r"\A\W*you are picking up work from a previous (?:AI )?agent\b",
    r"\A\W*the next agent has a few questions for you\b",
)
_TASK = any_of(
    rf"\A\W*(?:task:?\s+)?{_MAKE}\b[^\n]{{0,60}}"
    rf"\b(?:tags?|follow-?up questions?|search quer(?:y|ies)|autocomplet\w+|emoji)\b[^\n]{{0,160}}{_THIS_TALK}",
    r"\A\W*(?:task:?\s+)?you are an? autocompletion system\b",
    r"\byour task is to (?:choose and return the correct tool|reflect the speaker'?s likely facial expression)",
)
_TASK_HEAD = any_of(r"\A#{1,6} task:")
_HISTORY = any_of(r"<chat_history>", r"^#{1,6} chat history:")
_CHECKS = ("agent wants to run", "any file paths that this command reads or modifies", "<policy_spec>")
_HELPER = any_of(
    r"\A\W*web ?page content:[ \t]*\n",
    r"\A\W*you are an assistant for performing an? web search tool use\b",
    r"\A\W*perform a web search for the query\b",
)
_COMMIT = any_of(r"\b(?:generates?|writes?)\b[^\n]{0,60}\bgit commit messages?\b[^\n]{0,80}\b(?:diffs?|changes)\b")
_LABELS = ("title", "headline", "subject line", "slug", "name", "label", "descri", "tag")
_SUMMARIES = ("summar", "recap", "distil", "condense", "compress", "compaction", "snapshot")
_PROGRAM_WORDS = ("<analysis>", "<summary>", "<state_snapshot>", "tool", "text only", "another", "[archived")
_TASKS = ("tag", "follow", "search", "autocomplet", "emoji", "your task is")
_AWAY = any_of(r"\bthe user stepped away and is coming back\b", r"\A\W*recap\b[^\n]{0,40}\bin under \d+ words\b")


@reads_text(lambda read, text: read(text, [text]))
def asks_title(system: str, instructions: Iterable[str]) -> bool:
    """A title, a name or a label of a conversation is wanted."""
    instructions = list(instructions)
    if any(languages.orders_title(text, quoted=True) for text in instructions):
        return True
    if mentions(system[:4000], (*_LABELS, "new conversation topic", "new topic")) and _TITLER.search(system[:4000]):
        return True
    for text in instructions:
        if not mentions(text, _LABELS):
            continue
        found = _TITLE.search(text)
        near = text[max(0, found.start() - 300) : found.end() + 300] if found else ""
        wanted = _NEAR_TITLE_IN_SYSTEM if system and system.startswith(text) else _NEAR_TITLE
        if found and all(pattern.search(near) for pattern in wanted):
            return True
        if found and _BRIEF.search(near) and _QUOTED_PROMPT.search(text, found.end()):
            return True
    return False


@reads_text(lambda read, text: read(text, quoted=False))
def orders_label(text: str, *, quoted: bool) -> bool:
    """A program orders a title or tags of a conversation, which is `quoted` in the text or stands above it. People ask
    for them too, in other words, or have them built.
    """
    ends = text if len(text) <= 3000 else f"{text[:1500]}\n{text[-1500:]}"
    if languages.orders_title(text, quoted=quoted):
        return True
    if not mentions(ends, (*_LABELS, *_TASKS)):
        return False
    if asks_side_task([ends], text):
        return quoted or bool(_MANNER.search(ends) and not _OURS.search(ends))
    found = _TITLE.search(ends)
    if found is not None and _TITLE_TOOL.search(ends) and _FORMAL.search(found[0]):
        return True
    if found is None or not _LEAD_IN.search(ends[: found.start()]) or not asks_title("", [ends]):
        return False
    sentence = re.split(r"[.!?]\s|\n", ends[found.start() :], maxsplit=1)[0]
    if _BUILT.search(sentence) or _OURS.search(sentence):
        return False
    return quoted or bool(_FORMAL.search(found[0]) or _MANNER.search(ends))


@reads_text(lambda read, text: (read(text, text, alone=True), read("", text, alone=False)))
def asks_summary(system: str, last: str, *, alone: bool) -> bool:
    """A summary is wanted, of a conversation that is quoted (`alone`: there is no other user message) or above."""
    if mentions(system[:1000], _SUMMARIES) and _SUMMARY_SYSTEM.search(system[:1000]):
        return True
    ends = last if len(last) <= 4000 else last[:2000] + "\n" + last[-2000:]
    if not mentions(ends, _SUMMARIES):
        return False
    if _ABOVE.search(ends):
        return True
    return alone and bool(_SUMMARY.search(last[:1000]) or _COMPACTION.search(ends)) and bool(_TRANSCRIPT.search(last))


@reads_text()
def asks_compaction(last: str) -> bool:
    """The program wants the conversation condensed. A person would not prescribe its markup, or forbid tools."""
    text = last if len(last) <= 12_000 else last[:6000] + "\n" + last[-6000:]
    if not (mentions(text, ("summary", "compaction", "snapshot", "checkpoint")) and mentions(text, _PROGRAM_WORDS)):
        return False
    return bool(_BY_PROGRAM.search(text) and _COMPACTION.search(text))


@reads_text()
def hands_over(last: str) -> bool:
    """An agent takes over from one whose context is full, or is asked about that."""
    return bool(_HANDOFF.search(last[:400]))


@reads_text(lambda read, text: read([text], text))
def asks_side_task(instructions: Iterable[str], last: str) -> bool:
    """Tags, follow-ups, search queries or the like are wanted, of a conversation that is quoted."""
    if any(mentions(text, _TASKS) and _TASK.search(text) for text in instructions):
        return True
    return bool(_TASK_HEAD.search(last[:40]) and _HISTORY.search(last))


@reads_text(lambda read, text: read(text, text))
def checks_command(system: str, last: str) -> bool:
    """A command that an agent wants to run is to be judged."""
    return mentions(system[:4000], _CHECKS) or mentions(last[:4000], _CHECKS)


@reads_text(lambda read, text: read(text, text))
def helps_tool(system: str, last: str) -> bool:
    """A tool asks the model itself: to read a page, to search."""
    return bool(_HELPER.search(last[:200]) or _HELPER.search(system[-400:]))


@reads_text()
def asks_commit_message(system: str) -> bool:
    """A commit message for a change is wanted."""
    return mentions(system[:1500], ("commit message",)) and bool(_COMMIT.search(system[:1500]))


@reads_text()
def asks_recap(last: str) -> bool:
    """The program asks where things stand, for a person who was away."""
    return mentions(last[:600], ("stepped away", "recap")) and bool(_AWAY.search(last[:600]))
