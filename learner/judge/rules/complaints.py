"""Complaints with a shape of their own: insults, terse orders to do it over, a preference for how it was before.

Each pattern spans the whole clause: "undo that" rejects the answer, "undo the last commit in git" is a task, and so is
"fix it: the login page returns 500", which says what to work on next.
"""

from __future__ import annotations

import re
from typing import Literal

from openclaw_rl.learner.judge.rules import form
from openclaw_rl.learner.judge.rules.form import any_of, words
from openclaw_rl.shared.text_reading import reads_text

_BAD = words("bad")
_TRASH = words("trash")
_WORK = words("work")
_MUCH = (
    r"(?:(?:so|such|really|very|just|fucking|totally|completely|still|an?|the|absolutely|pretty|utterly|truly"
    r"|kind of) )*"
)

INSULT = re.compile(
    "^"
    + any_of(
        rf"(?:what an? |such an? |the |very |so |really |just |another |that's an? |this is an? )*{_BAD}(?:"
        rf" {_BAD})* {_WORK}(?: ever)?",
        rf"you(?:'re|r| are) {_MUCH}(?:{_BAD}|{_TRASH}|drunk|broken|insane|hallucinating|lying|off by \w+|no help"
        r"|wasting my time|getting worse|worse than \w+)(?: (?:at this|today|again|ever|i think|here))?",
        rf"your (?:\w+ ){{1,2}}(?:is|are|was|were|looks?|seems?) {_MUCH}(?:{_BAD}|{_TRASH}|off|false|incorrect|mistaken"
        rf"|nowhere near)(?: (?:here|again|i think))?",
        rf"(?:(?:this|that|it|you|your (?:\w+ )?\w+|the (?:\w+ )?{_WORK}) )?(?:(?:really|just|still|totally|kind of"
        rf"|honestly) )*(?:sucks?|sucked|blows|stinks)(?: at (?:this|\w+))?(?: (?:lol|man|honestly|big time))?",
        r"(?:wtf|what the (?:hell|fuck|heck)) (?:is|was|are) (?:this|that|you (?:doing|saying))|(?:screw|fuck) (?:you"
        r"|this|off)|shut up|bullshit|lame|boring|(?:big |epic |total )?fail(?:ed|ure)?|pathetic|ridiculous|cringe",
        rf"(?:(?:complete|utter|total|pure|absolute|what an?|such an?|this is|that's|that is|that was|it's|just"
        rf"|an?(?= (?:complete|utter|total))) )*{_TRASH}",
        r"are you (?:even )?(?:kidding|joking|drunk|high|stupid|dumb|blind|deaf|broken|insane|crazy|serious|listening"
        r"|reading|trying)(?: me| to me| right now| what i (?:write|wrote|say|said|ask|asked))?",
        rf"(?:that|this|it|the {_WORK})(?:'s| is| was| looks| sounds| seems| feels) {_MUCH}(?:{_BAD}|{_TRASH}|confusing"
        rf"|inaccurate|outdated|made up|unclear)(?: (?:imo|honestly|to me|again|lol))?",
        r"(?:i )?(?:hate|can't stand) (?:you|this bot|this ai|talking to you)|what are you (?:even )?(?:talking"
        r" about|on about|doing)",
    )
    + r"$"
)

SIGH = re.compile(
    r"^(?:ugh|yikes|oof|smh|facepalm|bleh|gross|ffs|wtf|crap|shit|damn|for (?:fuck|god|christ)'?s sake|what the"
    r" (?:hell|fuck|heck))$"
)
"""Blame where it is all that somebody says; in front of something else it may be about that."""

_LEAD = (
    r"(?:(?:please|just|now|then|and|so|can you|could you|would you|will you|you (?:should|must|need to|have to|can)|go"
    r"|at least|again|first|then) )*"
)
_AGAIN = (
    r"(?: (?:again|now|first|properly|please|immediately|asap|right away|correctly|this time|carefully|next time"
    r"|for me))*"
)
_WAS = (
    r"(?: (?:to )?(?:how|what|the way|as|like) (?:it|that|this|they) (?:was|were|used to be)(?: before| earlier)?"
    r"| to (?:normal|before))?"
)
ORDER = re.compile(
    f"^{_LEAD}"
    + any_of(
        r"(?:fix|undo|redo|revert)(?: (?:it|this|that|them|those|yourself|your (?:mistakes?|errors?|answer)"
        r"|the (?:answer|mistakes?|errors?)))?",
        r"(?:correct|improve|repair|rework|reconsider|rethink) (?:it|this|that|them|yourself|your (?:mistakes?|errors?"
        r"|answer)|the (?:answer|mistakes?|errors?))",
        rf"(?:roll|put|change|turn|switch|set|take) (?:it|that|this|everything|them) (?:all )?back{_WAS}",
        r"(?:start|begin)(?: it| this| that)? (?:over|again|anew|from scratch)(?: from (?:scratch|the (?:beginning"
        r"|start|top)))?",
        r"(?:do|try)(?: it| that| this)?(?: (?:a (?:bit|little)|much))? (?:better|harder|properly|right|over)(?:"
        r" than (?:that|this))?",
        r"(?:make|get) (?:it|that|this) (?:right|better|work)",
        r"(?:answer|read|re-?read|look at)(?: to)? (?:the|my|what i)(?: (?:actual|original|whole|first"
        r"|last))? ?(?:questions?|messages?|prompt|instructions?|request|wrote|asked|said|text)",
        r"(?:pay attention|focus|concentrate|listen(?: to me)?|think(?: again| harder| twice)?|be serious|wake up"
        r"|try harder)",
        r"(?:re-?check|check|verify|recalculate|recount|redo) (?:your|the) (?:math|maths|work|facts|calculations?"
        r"|numbers?|results?|answer|sources?|arithmetic)",
        r"(?:re-?check|recalculate|recount|count|check)(?: it| that| this)? again|recalculate|recount",
    )
    + rf"{_AGAIN}$|^not (?:that|this)(?: one)?$|^(?:the )?wrong (?:one|way|person|file|thing|order|place|day|date)(?:"
    rf" again)?$"
)

_FAILING = r"(?:fail|crash|break|hang|error|freeze|loop)(?:s|es|ed|ing)?"
DEFECT = re.compile(
    "^"
    + any_of(
        r"(?:(?:that|this|it) )?(?:still |just |really )*(?:doesn't|does not|didn't|did not|won't) (?:really |even "
        r"|quite |seem to )?(?:work|help|make (?:any |much )?sense|look (?:right|correct|good)|sound (?:right|correct"
        r"|good)|seem right|feel right|add up|compile|run|match|fit|exist|answer (?:my|the|anything|it).*)(?: (?:to me"
        r"|for me|at all|either|anymore|any more|now|yet|again|here))*",
        r"(?:that|this|it|your \w+) (?:tells|says|explains|shows|told|said|explained) (?:(?:me|us|him|her|them|you) )?"
        r"(?:nothing|very little|little|not much)(?: at all| new)?",
        r"(?:(?:that|this|it) )?(?:makes|made) (?:no|zero|little) sense(?: (?:to me|at all|whatsoever))*",
        rf"(?:(?:it|that|this) )?(?:still |now |just |always |keeps? )+{_FAILING}(?: (?:now|again|for me))*|(?:it|that"
        rf"|this) {_FAILING}(?: (?:now|again|for me))*",
        r"(?:(?:still|again|exactly|it's|its|that's|there's) )*(?:the )?same (?:error|problem|issue|mistake|bug|crash"
        r"|nonsense|result)(?: (?:again|as before|as last time|still))*|still (?:not working|nothing|not (?:right|fixed"
        r"|it|there)|broken|the same)",
        r"(?:you(?:'re| are) |it's |it is |that's |the \w+ (?:is|are) )?(?:still )?off by .{1,25}",
        r"you (?:\w+ )?(?:mis\w+|confused|overlooked|left out|broke|messed up|screwed up|messed|failed|lied"
        r"|hallucinated|invented|made (?:that|this|it|stuff|things) up|contradict(?:ed)?)\b.*",
        r"(?:that|this) (?:[\w.]+ ){1,3}(?:doesn't|does not|didn't) (?:even )?exist|there(?:'s| is) no such"
        r" [\w-]+(?: [\w-]+)?",
        r"(?:(?:that|this|it)(?: is|'s| was)(?: not|n't)|(?:that|this|it) (?:wasn't|isn't)) (?:even )?(?:the|my|a|an"
        r"|any) (?:\w+ )?(?:question|answer|point|one|solution)(?: i (?:\w+ ?){1,3})?",
        r"you (?:completely |totally |just |still |always )*(?:miss(?:ed)?|avoid(?:ed)?|dodged|ignored?) (?:the|my"
        r"|what)\b.*",
        r"not even close|nowhere near|(?:so |very |really |totally )*confusing|could be better|not what i \w+(?:"
        r" \w+){0,3}",
        r"(?:that|this|it)(?:'s| is| was) not even .{1,30}",
    )
    + "$"
)
CONTRAST = re.compile(
    r"^i (?:clearly |just |actually )?(?:asked(?: (?:you )?(?:for|to|about))?|said|meant|wanted|told you|specified"
    r"|requested|needed)\b.{1,60}[ ,]+not\b.{1,50}$|^i (?:said|meant) (?!hi\b|hello|yes|no\b|thanks|goodbye|sorry|that"
    r"|i\b|to\b|it\b)[\w-]+$"
)
"""What was asked for against what came: "I said monday, not sunday"."""

_FORMER = r"(?:previous|old|earlier|first|last|original|former|initial|other)"
_THING = words("versions")
_BETTER = r"(?:better|nicer|clearer|easier to read|best|more \w+|shorter|simpler|friendlier)"
_FAR = r"(?:(?:so|much|way|a lot|far|actually|still|even) )*"
EARLIER = re.compile(
    "^"
    + any_of(
        rf"i (?:\w+ )?(?:liked|loved|preferred|miss|missed) (?:the |your |that )?(?:\w+ )?{_FORMER} {_THING}(?:"
        rf" (?:\w+ )?(?:better|more|best))?",
        rf"i (?:\w+ )?(?:like|love|prefer) (?:the |your )(?:\w+ )?{_FORMER} (?:style|way|format(?:ting)?|tone|wording"
        rf"|voice|layout|version)(?: (?:\w+ )?(?:better|more|best))?",
        r"i (?:\w+ )?(?:liked|loved|preferred|miss) (?:it |this )?(?:better |more )?(?:how|when|the way) (?:you|it"
        r"|your)\b.*",
        r"i (?:\w+ )?(?:liked|loved|preferred) (?:it|this|that)(?: \w+)? (?:better|more|before|earlier)(?: (?:before"
        r"|earlier|when .*|without .*|the (?:first|last) time))?",
        rf"(?:i think )?(?:the|your) (?:\w+ )?{_FORMER} {_THING} (?:was|were|looked|sounded|read"
        rf"|worked) {_FAR}(?:{_BETTER}|right|correct|fine)",
        rf"(?:the|your) (?:previous|old|earlier|original|former) {_THING} (?:is|are|looks?|reads?) {_FAR}{_BETTER}",
        rf"(?:it|this|that) (?:was|looked|sounded|read|worked|used to be) (?:(?:so|much|way|a lot|far) )*(?:{_BETTER}"
        rf"|fine|right|good) (?:before|earlier|the (?:first|last) time|last time|yesterday|previously)|(?:much "
        rf"|way )?better before|worse than before|(?:it|that|this)(?:'s| is| got| became"
        rf"| was) (?:\w+ )?worse(?: (?:than before|now|again))?",
        rf"(?:please )?(?:(?:go|get|come|turn) back|(?:switch|change|return|revert)(?: it| that"
        rf"| this)?(?: back)?) to (?:how you|the way you|(?:the |your |a )?(?:\w+ )?{_FORMER} (?:style|way"
        rf"|format(?:ting)?|tone|wording|voice|layout|version)|(?:the |your |being |a )?(?:\w+ )?"
        r"(?:normal|plain|short|shorter|simple|casual|informal|formal|friendly|natural|brief|concise)\b)(?: \w+){0,3}",
        r"(?:please )?bring back (?:the|your) [\w ]+",
    )
    + r"(?: please| next time)?$"
)
_MANNER = re.compile(r"\b(?:how|when|way) you\b|\bthe (?:\w+ )?way\b")


@reads_text(lambda read, text: read(text, announces=True))
def complaint(words: str, *, announces: bool) -> Literal["wish", "blame", "sigh", "task"] | None:
    """What a clause complains of, `None` where it does not. `announces`: it ends in a colon. `words` are plain."""
    if SIGH.match(words):
        return "sigh"
    if ORDER.match(words):
        return "task" if announces else "blame"
    if EARLIER.match(words):
        if form.TELLING_FORM.search(words) or _MANNER.search(words):
            return "wish"
        return None if words.removeprefix("please ").startswith("bring back") else "blame"
    if INSULT.match(words) or DEFECT.match(words) or CONTRAST.match(words):
        return "blame"
    return None
