"""Requests for work on the conversation itself: to condense it, to extract from it, to say what comes next in it.

Programs ask for that, in the system text or in a message of the user's role, with or without tools. People ask for
summaries too ("Summarize our conversation"). So a message needs the order, its object (the conversation), and one mark
of a program: it speaks of "the user", of the context's size, of the one who will read the result, or in markup. Other
languages than English are in `languages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from openclaw_rl.proxy.conversation.programs import languages
from openclaw_rl.shared.text_reading import any_of, mentions, reads_text

_OPENING, _ENDING = 900, 600
"""Characters at both ends of a text where an order stands."""


_WORDS = (
    *("summar", "condens", "compress", "compact", "distil", "recap", "consolidat", "snapshot", "checkpoint", "handoff"),
    *(
        "hand-off",
        "digest",
        "takeaway",
        "continuing",
        "extract",
        "memor",
        "user m",
        "user is likely",
        "user w",
        "user c",
    ),
    *("context is", "context will", "next role", "next agent", "user could", "user may", "if the user "),
    *("next speaker", "speak next", "respond next", "act next", "go next", "talk next", "standalone", "stand-alone"),
    *("side question", "history above", "history so far", "preferences", "facts", "learnings", "messages above"),
)
"""One of these is in every such request: a quick test before the patterns."""

_DECISIVE = any_of(
    # only programs write this
    r"<state_snapshot>",
    r"\bprior to (?:context )?compaction\b",
    r"\b(?:conversation|chat|message) history (?:above|so far)\b",
    r"\bcontext (?:checkpoint )?compaction\b",
    r"\bautomated summari[sz]ation request\b",
    r"\b(?:reached|hit|exceeded|approaching|near(?:ing)?|at) (?:the |your |its |our )?context (?:window )?"
    r"(?:limit|length|size)\b[^\n?]{0,10}\s[^\n?]{0,60}\b(?:summari[sz]e|summary|hand-?off|snapshot|checkpoint)\b",
    r"\b(?:messages|history|turns|conversation) (?:above )?(?:is|are|will be|(?:is|are) going to be) (?:removed|dropped"
    r"|cleared|deleted|discarded|truncated) from (?:the|your|our) context\b",
    r"\bsummary (?:will|is going to) (?:replace|be used (?:instead|in place) of|stand in for) (?:the|this|our|your|all)"
    r" (?:[\w-]+ )?(?:conversation|history|messages|context|transcript)\b",
    r"\bcontext (?:window )?(?:is|will be) (?:about to be |soon |nearly |almost )*(?:reset|cleared|full|truncated"
    r"|compacted|lost)\b"
    r"[^\n?]{0,10}\s[^\n?]{0,80}\b(?:write|summari[sz]e|save|store|note|record|list)\b",
    r"\bprogressively summari[sz]e the lines of conversation\b",
)
_WORK = any_of(
    # condense
    r"\b(?:summar(?:y|ies|i[sz]\w*)|condens\w+|compress\w*|compact\w*|distil\w*|recap\w*|consolidat\w+|digest)\b",
    r"\b(?:snapshot|checkpoint|hand-?off|takeaways?)\b|\bprompt for continuing\b",
    # extract
    r"\bextract\w*|\b(?:store|stor(?:ing)|save|sav(?:ing)|record|remember|organi[sz]e|collect|manage|update"
    r"|scan\w*)\b"
    r"[^\n]{0,60}\b(?:memor(?:y|ies)|facts?|preferences|learnings)\b|\bmemory (?:extract|manage|keep|updat|writ)\w+",
)
_CONVERSATION = any_of(
    r"\b(?:conversations?|dialog(?:ue)?s?|transcripts?|chat|(?:chat|message|event) (?:history|log)s?)\b",
    r"\b(?:the|this|our|entire|whole|current|coding|previous) (?:[\w-]+ )?(?:session|thread|exchange|discussion)\b",
    r"\b(?:this|the|conversation|internal|agent) context\b|\bcontext (?:summar|extract|compact|compress|condens)\w+",
    r"\b(?:messages|events|history|turns) (?:above|below|so far)\b",
    r"\b(?:above|previous|earlier|following|list of|history of (?:previous )?) ?(?:messages|events|turns)\b",
)
_LEAD_INS = r"(?:(?:please|now|important|note|kindly|first|then|finally|task|next|carefully|briefly|urgent)[\W_]++)*+"
_ORDER = re.compile(
    rf"\W*(?:<\w+>\W*)?{_LEAD_INS}"
    r"(?:(?:(?:based on|given|in order to|using|from) |the (?:above|following"
    r"|messages?)\b)[^,]{0,80}(?<![\W_])[\W_]++"
    rf"{_LEAD_INS}){{0,2}}"
    r"(?:your?\b|you're\b|i (?:need|want)\b|we need\b|this is\b|an? automated\b|summary\b|generate|create|write"
    r"|provide"
    r"|produce|give|make|output|return|reply|respond|develop|prepare|perform|do\b|analy[sz]e|review|read|look"
    r"|scan|extract"
    r"|summari[sz]e|condense|compress|compact|distil|recap|consolidate|update|save|store|identify|progressively"
    r"|context\b)",
    re.IGNORECASE,
)
"""The beginning of a sentence that gives an order, or a part to play."""
_IDENTITY = re.compile(r"\W*(?:<\w+>\W*)?(?:your?\b|you're\b|act as\b|context\b)", re.IGNORECASE)
_ARTIFACT = any_of(
    r"\b(?:prompts?(?! for continuing)|apps?|applications?|functions?|scripts?|code|class|components?|features?|bots?"
    r"|endpoints?|methods?|tests?|modules?|plugins?|pages?|buttons?|story|essay|e-?mail|post|article|book|program"
    r"|hook)\b"
)
"""What people want made, where it stands before the work: "Write a function that summarizes the conversation"."""
_OTHER_OBJECT = any_of(
    r":|\b(?:articles?|texts?|essays?|papers?|documents?|books?|e-?mails?|pages?|stor(?:y|ies)|meetings?|videos?"
    r"|lectures?"
    r"|reports?|poems?|blog|readme|chapters?)\b"
)
_SOMEONE_ELSES = any_of(
    r"\b(?:meeting|call|interview|podcast|video|lecture|customers?|support|slack|whatsapp|teams|zoom|phone) (?:\w+ )?"
    r"(?:conversations?|transcripts?|chat|thread|discussion)\b",
    r"\b(?:conversations?|transcripts?|chat|thread|discussion)s? (?:of|with|between|among) (?:my|me|our|a|an|two"
    r"|the (?:customer|client|team))\b",
)
"""Conversations that people have elsewhere, and ask about here."""
_NEAR = 100
"""Characters between the work and its object."""
_MARKS = any_of(
    # it speaks about the two who talk
    r"\bthe (?:user|assistant|human|ai|model|agent)(?:['’]s)?\b",
    # about the one who reads the result
    r"\b(?:another|next|new|future|different|resuming|continuing|fresh) (?:[\w-]+ )?(?:language model|llm|ai|agent"
    r"|assistant|instance|session|model|context)\b|\bhand-?off\b|\bcontinu(?:e|ing) (?:the|this|our|your) "
    r"(?:work|task|conversation|development|session)\b|\b(?:for|to preserve|serve as)\b[^\n.]{0,40}\bcontext\b",
    # about what becomes of the context
    r"\bbefore (?:it|they|(?:the|this|our) (?:conversation|history|context|chat|session))"
    r" (?:is|are|gets?|will be) (?:compact|summari[sz]|truncat|clear|delet|condens|los)\w*"
    r"|\bcontext (?:window|limit|length|budget|size|usage)\b|\btoken (?:limit|budget|count)\b|\bout of context\b",
    # in markup
    r"</?[a-z]+(?:[_-][a-z]+)*(?: [a-z]+=\"[^\"\n]*\")?>|\[archived context summary\]",
    # about the manner of the answer
    r"\b(?:do not|don't|never|without) (?:call|use|invoke|calling|using)\b[^\n]{0,20}\btools?\b|\btext only\b"
    r"|\b(?:do not|don't) (?:respond to|answer|continue|reply to|add any introductory)\b"
    r"|\b(?:respond|reply|return|output|answer)\b[^\n]{0,20}\bonly\b",
)
_IN_SYSTEM = any_of(
    # "the user" is usual in any system text
    r"\bcontext (?:window|limit|length|budget|overflow)\b|\bout of context\b|\bcompaction\b|<state_snapshot>"
    r"|\b(?:another|next|future|resuming) (?:[\w-]+ )?(?:language model|llm|agent|assistant|instance)\b",
    r"\byou (?:are|will be) (?:given|provided)\b[^\n]{0,40}\b(?:conversation|transcript|history|messages)\b",
)
_NEXT = any_of(
    # who speaks next, and what
    r"\bwho should (?:logically )?(?:speak|respond|act|go|talk) next\b|\bdetermine the next speaker\b"
    r"|\bselect the next (?:role|speaker|agent)\b",
    r"\b(?:predict|suggest|guess|propose|write|generate)\b[^\n]{0,60}\b(?:the |that )user (?:may|might|will|would"
    r"|could|is likely"
    r" to)[^\n]{0,20}\b(?:type|say|ask|write|send|want|do)\b",
    r"\bif the user (?:revealed|mentioned|said|expressed|shared|stated|gave)\b[^\n]{0,80}\b(?:output|return"
    r"|reply|respond|save|store|write)\b",
    # a question that stands by itself, for a search
    r"\b(?:rephrase|rewrite|reformulate|turn)\b[^\n]{0,120}\bstand-?alone (?:question|query|message)\b",
    # aside
    r"\A\W*this is a side question from the user\b",
)
_CONTINUES = any_of(
    r"\bcontinue the conversation from where (?:we|it|you) left (?:it )?off\b",
    r"\bcontinue if you have next steps\b|\bplease continue working on the task on whatever approach\b",
    r"\b(?:response|output|message|answer|turn)\b[^\n.]{0,40}\b(?:token|output|length|max\w*) ?(?:tokens )?limit\b",
    r"\bcontinue\b[^\n]{0,80}\b(?:do not|don't|without) (?:repeat|recap|apologi[sz]|acknowledg|asking the user)\w*",
)


@reads_text()
def orders_work(text: str) -> bool:
    """A message of the user's role in which a program orders work on the conversation."""
    ends = _ends(text)
    if languages.orders_work(text):
        return True
    if not mentions(ends, _WORDS):
        return False
    if _DECISIVE.search(ends) or _NEXT.search(ends):
        return True
    return any(_is_order(sentence) for sentence in _sentences(ends)) and bool(_MARKS.search(text, 0, 12_000))


@reads_text()
def may_order(text: str) -> bool:
    """An order of work on the conversation that a person may give as well."""
    ends = _ends(text)
    if languages.orders_work(text, marked=False):
        return True
    return mentions(ends, _WORDS) and any(_is_order(sentence) for sentence in _sentences(ends))


@reads_text(lambda read, text: read(text, has_tools=False))
def plays_part(system: str, *, has_tools: bool) -> bool:
    """System text whose part is to work on the conversation. With tools it has to say more than its part: agents may
    summarise conversations among other things.
    """
    opening = system[:_OPENING]
    if languages.plays_part(system, has_tools=has_tools):
        return True
    if not mentions(opening, _WORDS):
        return False
    if has_tools and not _IN_SYSTEM.search(system, 0, 4000):
        return False
    if _DECISIVE.search(opening) or (_NEXT.search(opening) and not has_tools):
        return True
    first = [sentence for sentence in _sentences(opening[:500]) if re.search(r"\w{2}", sentence)][:3]
    return any(_is_order(sentence, _IDENTITY if place else _ORDER) for place, sentence in enumerate(first))


@reads_text()
def continues(text: str) -> bool:
    """A program has the agent continue, after a compaction or a cut-off answer. A person says "continue"."""
    return "continu" in text[:2000].lower() and len(text) > 40 and bool(_CONTINUES.search(text, 0, 2000))


def _is_order(sentence: str, beginning: re.Pattern[str] = _ORDER) -> bool:
    order = beginning.match(sentence)
    work = _WORK.search(sentence) if order else None
    if order is None or work is None or not _near_conversation(sentence):
        return False
    return bool(_IDENTITY.match(sentence)) or not _ARTIFACT.search(sentence, 0, work.start())


def _near_conversation(sentence: str) -> bool:
    """True if the work is on the conversation at hand, and on nothing else that stands between the words."""
    for talk in _CONVERSATION.finditer(sentence):
        if _SOMEONE_ELSES.search(sentence[max(0, talk.start() - 30) : talk.end() + 30]):
            continue
        for work in _WORK.finditer(sentence):
            first, last = sorted([(work.start(), work.end()), (talk.start(), talk.end())])
            between = sentence[first[1] : last[0]]
            if len(between) <= _NEAR and not _OTHER_OBJECT.search(between):
                return True
    return False


def _sentences(text: str) -> Iterator[str]:
    return (sentence for sentence in re.split(r"[.!?]\s|\n", text) if sentence.strip())


def _ends(text: str) -> str:
    return text if len(text) <= _OPENING + _ENDING else f"{text[:_OPENING]}\n{text[-_ENDING:]}"
