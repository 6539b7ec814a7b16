"""Wishes for another tone: "please be nicer to her", "a bit more warmth", "say something kind first".

Each pattern spans the whole clause and ends in people who read the answer, so that "say something nice to my
grandmother" and "be gentle with the washing machine" stay tasks.
"""

from __future__ import annotations

import re
from typing import Literal

from openclaw_rl.learner.judge.rules.form import READER, WORK, any_of, words
from openclaw_rl.shared.text_reading import reads_text

_LONGEST = 160  # characters
_LEAD = (
    r"(?:(?:please|just|but|and|so|then|now|next time|again|also|at least|maybe|can you|could you|would you|will you"
    r"|can we|could we|would you mind|do you mind|i wish you (?:would|could)|how about|why not|why don't you"
    r"|would it be possible to|is it possible to|you (?:should|could|must|need to|have to|might)|try to|remember to"
    r"|don't forget to|make sure (?:to|you)|i(?:'d| would) (?:like|prefer|want) (?:it|that|this|you)(?: to)?"
    r"|i (?:want|need) (?:it|that|this|you) to|(?:it|that|this|your \w+|the \w+) (?:should|could|must|needs? to"
    r"|has to|ought to)|don't|do not|never|stop|not|i asked (?:you|for it) to)[,:]? )*"
)
_DEGREE = (
    r"(?:(?:a (?:bit|little|tad|touch)|a little bit|slightly|somewhat|much|more|less|most|very|really|so|far|way|rather"
    r"|not|too|quite|even|a lot|as|that|this|extra) )*"
)
_WORDS = words("manners")
MANNER = rf"{_DEGREE}(?>{_WORDS}\b)(?:(?:,? (?:and|but|or|yet|while)|,) {_DEGREE}(?>{_WORDS}\b))*"
_NOUN = words("warmth")
_NICE_THING = any_of(
    rf"(?:something|anything|a thing|some things|things) {MANNER}",
    rf"{MANNER} (?:words?|tone|language|voice|sentences?|remarks?|style|wording|phrases?|things?|manner|feedback)",
    _NOUN,
)
_SOME = (
    r"(?:(?:a|an|the|some|any|one|one or two|a few|a couple of|more|less|a (?:bit|little|touch|dose|hint)(?: of| more"
    r"| less)?|a little bit(?: of| more)?|much more|much less|much|lots of|a lot (?:of|more)|way more|way less|no|not"
    r" so much|several|only) )?"
)
_OBJECT = (
    rf"(?: (?:it|this|that|these|everything|things|all (?:of )?(?:it|this|that)|the same(?: thing)?|your"
    rf" (?:answers?|comments?|feedback|repl(?:y|ies)|response)|the (?:answer|comment|feedback|reply|response|text)"
    rf"|(?:to |for )?{READER}))*"
)
_TAIL = (
    rf"(?:,? (?:please|first(?: of all)?|too|as well|instead|again|now|next time|this time|from now on|here|always"
    rf"|at (?:first|least|the (?:start|beginning|end))|in between|for once|if (?:possible|you can)|thanks|thank you"
    rf"|a (?:bit|little)|when you \w+(?: (?:to )?{READER}|\s{WORK})?|than (?:that|this)|(?:to|for|with|towards?)"
    rf" {READER}|about {WORK}|(?:in|with) (?:your|the|all|these|those) (?:\w+ )?(?:answers?|comments?|feedback"
    rf"|repl(?:y|ies)|responses?|tone|wording)|in(?:to)? (?:it|this|that|there)))*"
)
_NICE = (
    r"(?: (?:would (?:be (?:nice|good|great|better|lovely|appreciated)|help|do)|wouldn't hurt|would do (?:him|her|them)"
    r" good|is (?:missing|needed)|please|pls))"
)
_SO = (
    rf"so (?:that )?(?:it|he|she|they|i|we|{READER}) (?:can|could|will|would|doesn't|does not|don't|won't|isn't"
    rf"|feels?|understands?|is|are|stays?)\b.{{1,40}}"
)

_MANNER_WISHES = tuple(
    re.compile(rf"^(?:{pattern})$")
    for pattern in (
        rf"{_LEAD}(?:be|being|sound|sounding|come across(?: as)?) {MANNER}{_TAIL}",
        rf"{_LEAD}(?:say|tell|write|rewrite|put|phrase|rephrase|word|reword|explain|express|formulate|answer|reply"
        rf"|respond|talk|speak|comment|correct|do){_OBJECT} (?:{MANNER}|(?:in|with) an? {MANNER} (?:way|tone|manner"
        rf"|voice|style|fashion|spirit)|(?:in|with) {MANNER} (?:words|language|terms|sentences)|with {_SOME}{_NOUN}"
        rf"|{_SO}|(?:as if|as though|like) (?:you|i|he|she|they|we)(?:'re| are| were| was| is|'d"
        rf"| would)\b.{{1,50}}){_TAIL}",
        rf"{_LEAD}(?:make|keep|have|get) (?:it|this|that|them|everything|the tone|your tone|your (?:answers?|comments?"
        rf"|feedback)|the (?:answer|comment|feedback|reply)) (?:sound |more )*{MANNER}{_TAIL}",
        rf"{_LEAD}(?:use|using|find|choose|try|add|include|put(?: in)?|bring|start(?: it| this| that)? with|begin with"
        rf"|open with|lead with|end with|finish with|close with) {_SOME}{_NICE_THING}{_TAIL}",
        rf"{_LEAD}(?:say|tell|mention|write)(?: {READER})? {_SOME}(?:(?:something|things?) {MANNER}|{MANNER} (?:words?"
        rf"|things?))(?: (?:to|for) {READER}| about {WORK}| first| too| as well| at (?:the start|first)){_TAIL}",
        rf"(?:{_LEAD}(?:use )?)?{_SOME}{_NICE_THING}(?: (?:for|to) {READER}| in it)?{_NICE}{_TAIL}",
        rf"{_LEAD}(?:soften|sweeten|warm up|lighten(?: up)?|loosen up|liven up|cheer up|humani[sz]e|tone down"
        rf"|ease)(?:ing)?(?: (?:it|that|this|things|your (?:\w+ )?\w+|the (?:\w+ )?(?:tone|wording|language|comment"
        rf"|answer|feedback)))(?: (?:up|down))?{_TAIL}|{_LEAD}tone (?:it|that|this) down{_TAIL}",
        rf"(?:still )?not {_DEGREE}{_WORDS} enough{_TAIL}|{_LEAD}{MANNER}{_TAIL} (?:please|pls)|(?:more"
        rf"|less) {_NOUN}{_TAIL}"
        rf"|(?:a|an|some) {MANNER} (?:tone|voice|style|wording)(?: (?:please|instead|would be .*))+",
        rf"(?:still |again |just )*(?:sounds?|reads?|comes across(?: as)?"
        rf"|you sound)(?: still)? {MANNER}{_TAIL}(?<!nice)(?<!natural)(?<!friendly)(?<!professional)(?<!kind)",
    )
)
_ADDRESSED = re.compile(
    rf"^{_LEAD}(?:(?:encourage|praise|comfort|reassure|motivate|compliment|console|acknowledge|cheer) (?:{READER}"
    rf"|{WORK})(?: (?:up|on))?|(?:say|tell|mention|point out|name|show|(?:start|begin|open|lead|end|close"
    rf"|finish) with)(?: {READER})? (?:what (?:is|was|went) (?:good|right|nice|fine|well done|well)(?: already)?"
    rf"|what (?:he|she|they|(?:the|my) \w+) (?:did|does|do|got|has done|have done) (?:well|right|correctly"
    rf"|already))(?: before .{{1,40}})?){_TAIL}$"
)
_LACK = re.compile(
    rf"^(?:(?:and|still|again|but|so) )*(?:no|not (?:a|one|a single|even an?|any)|without (?:a|any|one|a single)"
    rf"|where(?:'s| is) (?:the|your)|there(?:'s| is) (?:still )?no) (?:single )?{_NICE_THING}(?: (?:at all|again|in it"
    rf"|anywhere|whatsoever|for {READER}))*$"
)
_TREATS = re.compile(rf"^{_LEAD}(?:be|being) {MANNER} (?:with|to|towards?|on|at|about|when|if|while|during|in)\b")
COMPARATIVE = re.compile(
    r"\b(?:more|less|still|too|enough|again|instead|don't|stop|nicer|kinder|gentler|warmer|friendlier|politer|softer)\b"
)
"""Words of a wish that measures the answer against another: "kinder", "less formal"."""
_COMPARES = re.compile(
    r"\b(?:more|less|still|too|enough|again|instead|don't|stop|not|first|nicer|kinder|gentler|warmer|friendlier|politer"
    r"|softer|sweeter|it|that|this|be|sound)\b"
)


@reads_text()
def wish(words: str) -> Literal["manner", "address"] | None:
    """Whether a clause asks for another tone: by a `manner` ("be kinder"), or by what to tell the reader ("encourage
    her", an `address`), which alone could be a task. `words` are plain."""
    if len(words) > _LONGEST:
        return None
    words = words.replace(", please", " please")
    if _LACK.match(words) or any(pattern.match(words) for pattern in _MANNER_WISHES):
        return "manner"
    if _ADDRESSED.match(words):
        return "address"
    head, joint, rest = words.partition(" and ")
    if joint and wish(head) and wish(rest):
        return "manner"
    return None


@reads_text()
def concerns_others(words: str) -> bool:
    """Whether a clause tells how to treat somebody or something that reads no answers: "be gentle with the car"."""
    return _TREATS.match(words) is not None and wish(words) is None


@reads_text()
def looks_back(words: str) -> bool:
    """Whether a wish for another tone can only be about the answer before it."""
    return _LACK.match(words) is not None or _COMPARES.search(words) is not None
