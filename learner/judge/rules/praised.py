"""Praise that names a quality: "so clear and detailed", "very kind of you", "that is detailed enough".

The same words are wishes in other places ("please be detailed", "not detailed enough"), so that each pattern spans the
whole clause and has no word that asks for change.
"""

from __future__ import annotations

import re

from openclaw_rl.learner.judge.rules.form import READER, any_of, words
from openclaw_rl.shared.text_reading import reads_text

_LONGEST = 160  # characters
_VERY = (
    r"(?:(?:so|very|really|super|pretty|quite|truly|extremely|wonderfully|just|now|already|perfectly|still|such|all"
    r"|totally|absolutely|incredibly|beautifully|surprisingly) )*"
)
_STRONGLY = r"(?:so|very|really|super|truly|extremely|wonderfully|perfectly|absolutely|incredibly|beautifully|how)"
GOOD = words("good")
_WELL = words("well")
_NEUTRAL = words("neutral")
_BAD = r"(?:stiff|cold|dry|harsh|rude|strict|wordy|vague|robotic|complicated|verbose|bossy|chatty|childish|stern|blunt)"
_BETTER = words("better")
_NOUN = words("praised_things")
_FORMER = r"(?:previous|old|older|earlier|first|last|original|former|initial|other)"
_SUBJECT = any_of(
    r"(?:that|this|it|these|those|they|everything|all (?:that|this|of it))(?: one)?",
    rf"(?:the|your|this|that|each|every) (?:(?!{_FORMER}\b)\w+ )?{_NOUN}(?: of (?:detail|detailedness|formality"
    rf"|depth|explanation))?",
)
_IS = (
    r"(?:(?:'s|'re)|(?: (?:is|are|was|were|sounds?|sounded|looks?|looked|reads?|feels?|felt|seems?|turned out"
    r"|came across as)))"
)
_MORE = (
    r"(?:,? (?:thanks?|thank you|indeed|now|again|as always|this time|imo|i think|i must say|to me|already|too|as well"
    r"|today|of you|of it|for once|to read|to follow|for (?:this|that|now|my needs|my purposes)|(?:for|to|with) "
    rf"{READER}|than (?:before|the (?:last|first|previous) (?:one|time)|last time|i (?:expected|thought|hoped))))*"
)
_GOODS = rf"(?>{GOOD}\b)(?:(?:,? (?:and|yet|but|&)|,) {_VERY}(?>(?:{GOOD}|{_NEUTRAL})\b))*"
_FINE = (
    r"(?:perfect|great|fine|lovely|ideal|wonderful|excellent|just right|spot on|exactly right|good|right|brilliant"
    r"|exactly (?:what|how) .{1,40})"
)

_PRAISES = tuple(
    re.compile(rf"^(?:(?:this time|at last|finally|today),? )?(?:{pattern})$")
    for pattern in (
        rf"{_SUBJECT}{_IS} {_VERY}{_GOODS}{_MORE}",
        rf"(?:{_SUBJECT}{_IS} )?(?:just|exactly|precisely) (?:what|how|as|the way) (?:i|we|he|she|they|(?:my|the) \w+)"
        rf" (?:needs?|needed|wants?|wanted|likes?|liked|meant|had in mind|was looking for|hoped)(?: for| it| to \w+)?"
        rf"{_MORE}",
        rf"{_VERY}(?:great|good|nice|lovely|excellent|wonderful|perfect|beautiful|fantastic|amazing|fine)"
        rf" (?:{_NOUN}|details?){_MORE}",
        rf"{_SUBJECT}{_IS} (?:{_VERY}|(?:so much|much|way|far|a lot|even|already|definitely) ){_BETTER}{_MORE}",
        rf"{_SUBJECT}{_IS} {_VERY}{_FINE}{_MORE}",
        rf"(?:{_SUBJECT}{_IS} )?{_VERY}(?:{GOOD}|{_NEUTRAL}) enough{_MORE}",
        rf"{_STRONGLY} {_VERY}{_GOODS}(?: {_NOUN})?{_MORE}",
        rf"(?:what an?|such an?|an? (?:really|very|truly|so)"
        rf"|{_SUBJECT}{_IS} (?:such )?an?) {_VERY}{_GOODS} {_NOUN}{_MORE}",
        rf"(?:(?:so much|much|way|far|a lot|even|already|definitely) )+{_BETTER} (?:than (?:before|(?:the|your) (?:last"
        rf"|first|previous|other) (?:one|time|try|answer|version)|last time)|now){_MORE}",
        rf"{_SUBJECT}{_IS} (?:just |exactly |every bit )?as (?:{GOOD}|{_NEUTRAL}) as (?:i|we|he|she|they)"
        rf" (?:had )?(?:hoped|wanted|need|needed|expected|asked|like|liked|want)(?: for| it)?{_MORE}",
        rf"you(?:'ve| have)? (?:put|said|explained|wrote|phrased|worded|described|did|handled|expressed|written|told)"
        rf" (?:it|that|this|everything|him|her|them|it all) {_VERY}{_WELL}(?: and {_VERY}{_WELL})?{_MORE}",
        rf"(?:that(?:'s| is| was) |how )?{_VERY}(?:kind|nice|sweet|thoughtful|lovely|considerate|patient|generous|good"
        rf"|helpful|friendly|polite) of you(?: to .{{1,60}})?{_MORE}",
        rf"(?:you(?:'re| are|'ve been| have been| were)) {_VERY}{_GOODS}{_MORE}",
        r"(?:he|she|they|(?:the|my|our|his|her|your) \w+|everybody|everyone)(?:'ll| will| is going to| are going to)"
        r" (?:(?:really|surely|so|certainly|definitely|probably) )*(?:love|like|enjoy|appreciate|understand"
        r"|be (?:\w+ )?"
        r"(?:happy|glad|pleased|delighted|thrilled|proud) (?:about|with)) (?:that|this|it|these|them)(?: now)?",
        r"you (?:(?:really|just|even|also|always) )*(?:explained|showed|helped|named|described|mentioned|found|solved"
        r"|wrote|said|put|made|did|went through|answered|got)\b(?!.*(?:\b(?:not|but|wrong|too)\b"
        r"|n't)).{0,80},? (?:thanks?|thx|thank you|cheers)(?: (?:so|very) much| a lot)?",
        rf"(?:thanks?|thank you) (?:so much |very much |a lot )?for (?:being|sounding|staying) {_VERY}{_GOODS}{_MORE}",
    )
)
_LIKED = (
    r"(?:great|good|neat|beautiful|perfect|wonderful|excellent|lovely|nice|fine|sweet|brilliant|superb?|fantastic"
    r"|amazing|well \w+)"
)
_ONE = any_of(
    rf"{_VERY}(?:{GOOD}|{_NEUTRAL}|{_LIKED})",
    rf"(?:not|neither|nor|no longer) (?:too |overly |so |as )?(?:{GOOD}|{_NEUTRAL}|{_BAD})(?: any ?more| now)?",
    r"in (?:(?:full|great|much) )?detail|(?:step|line) by (?:step|line)",
)
QUALITIES = re.compile(rf"^(?>{_ONE}\b)(?:(?:,? (?:and|yet|but|nor|&)|,) (?>{_ONE}\b))*$")
"""Mere lists of qualities ("short and clear"): praise next to praise, and nothing alone."""
_NICE_AND = re.compile(rf"^{_VERY}{_LIKED}(?: and|,|,? but) {_ONE}$")
_UNDERSTOOD = re.compile(
    rf"^(?:ok(?:ay)?,? |ah,? |oh,? |and |so )*(?:(?:now|finally|this way|that way|thanks to that) (?:i|we|he|she"
    rf"|they) (?:can |could |will |also |really |finally |actually )*(?:know|see|understand|get|follow"
    rf"|understood)\b(?!.* you\b)(?!.*(?:\bnot\b|n't\b|\bthan\b|\bless\b|\bnothing\b))|(?:that|this|it) (?:really "
    rf"|clearly |already )?(?:tells|shows|told|showed) {READER} (?:exactly |clearly )?(?:which|where|what|why"
    rf"|how)\b(?!.* you\b)).*$"
)
WITHOUT_WISH = re.compile(
    r"^(?:there(?:'s| is) )?no need (?:for|to add|to give) (?:any )?(?:more|further|additional|other)\b"
    r"|^(?:many )?(?:thanks|thank you|thx) in advance\b"
)
"""Words of form that wish for nothing: "no need for more detail", "thanks in advance for …"."""


@reads_text(lambda read, text: read(text, clause=text))
def praises(words: str, *, clause: str) -> bool:
    """Whether a clause praises a quality of the answer, or says that something is understood now. `words` are plain;
    `clause` is as it was typed ("now I see", where "now" counts)."""
    if clause.rstrip(" \"')").endswith("?") or len(words) > _LONGEST:
        return False
    typed = clause.lower().strip(" ,.!")
    if _UNDERSTOOD.match(typed) or _NICE_AND.match(words):
        return True
    return any(pattern.match(words) for pattern in _PRAISES)
