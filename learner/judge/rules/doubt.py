"""Doubt, and what somebody holds against an answer: "are you sure? i think it's 8".

Doubt alone is a question. Together with a claim of one's own it rejects the answer, and so does a claim that can only
contradict ("shouldn't it be 15?"), unless it repeats what the answer said.
"""

from __future__ import annotations

import re

from openclaw_rl.shared.text_reading import reads_text

_NUMBER = (
    r"(?:[-−$€£]?\d[\d.,/:]*%?|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen"
    r"|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty)"
)
_IT = (
    r"(?:it|that|this|they|there|the (?:correct |right |real )?(?:answer|result|sum|total|number|difference|product|one"
    r"|value|solution|date|name|capital|price|count|year))"
)
_ABOUT = r"(?:(?:actually|rather|really|more like|about|exactly|only|at least|just|in fact) )*"
_END = r"(?: \w+)?(?:,? (?:though|no|right|rather than .{1,20}|not .{1,20}|and not .{1,20}|instead(?: of .{1,20})?))?$"
_SOURCE = (
    r"(?:my|the) (?:\w+ )?(?:calculator|spreadsheet|book|textbook|docs?|documentation|manual|solution|answer key"
    r"|teacher|map)"
)

DOUBT = re.compile(
    r"^(?:(?:but|wait|hmm+|and|really) )*(?:(?:are )?you (?:(?:really|quite|absolutely|totally|100%|so|completely"
    r"|very) )?(?:sure|certain|positive)(?: (?:about|of) (?:that|this|it))?(?: (?:it|that|this)(?:'s| is) (?:right"
    r"|correct|true|so))?|is (?:that|this|it) (?:(?:really|actually) )?(?:right|correct|true|so|accurate)|(?:sure"
    r"|really|seriously|hmm+|how so)(?: about that)?|did you (?:double[- ]?)?check(?: (?:it|that|this))?)$"
)
CLAIM = re.compile(
    rf"^(?:(?:because|as|but|well|for me) )*(?:(?:i|we) (?:(?:would|'d) )?(?:think|thought|believe|guess|get|got"
    rf"|make it|make that|have|count|counted|calculate|calculated|say|said|remember|learned|read|found|come to"
    rf"|came to)(?: that)?\b.{{1,80}}|{_IT}(?:'s| is| was| are| should be| must be| has to be| ought to be)\b.{{1,60}}"
    rf"|(?:{_SOURCE}|google|wikipedia|excel|python|everybody|everyone|wolfram ?alpha) (?:says?|said|shows?|gives?|gave"
    rf"|tells? me|told me|has)\b.{{1,80}}|(?:pretty|quite|fairly) (?:sure|certain)\b.*)"
)
CONTRADICTION = re.compile(
    rf"^(?:(?:but|well|because|and) )*(?:should(?:n't| not) {_IT} (?:be|have been) {_ABOUT}(?!ready|done|here|possible"
    rf"|open|over|free|allowed|fun|easy|able|enough|better|easier|a problem)(?:(?:the|a|an|in|at"
    rf"|on) )?[\w'.,:%$€-]+{_END}|(?:isn't|wasn't|ain't|aren't) {_IT} {_ABOUT}{_NUMBER}{_END}|(?:i'm |i am )?(?:pretty"
    rf"|quite|fairly|very|almost|rather|100%|absolutely) (?:sure|certain)(?: that)? {_IT}(?:'s| is| was| are| should be"
    rf"| must be) (?!fine|ok|okay|right|correct|good|great|enough|him|her|them|raining).{{1,60}}|(?:i|we) (?:get|got"
    rf"|make it|make that|counted|count|calculated|come to|came to) {_ABOUT}{_NUMBER}(?: instead| too| though"
    rf"| not {_NUMBER})?$|(?:i|we) (?:think|thought|believe|guess|would say|'d say)(?: that)? {_IT}(?:'s| is| was"
    rf"| should be| must be) {_ABOUT}{_NUMBER}$|{_IT} (?:should|must|has to|ought to)(?: have)? (?:be"
    rf"|been) {_ABOUT}{_NUMBER}{_END}|{_IT}(?: isn't| wasn't| is not| was not|'s not) {_ABOUT}{_NUMBER}\b.{{0,40}}$"
    rf"|(?:{_SOURCE}|google|wikipedia|excel|wolfram ?alpha) (?:says?|said|shows?|gives?|gave) {_ABOUT}{_NUMBER}{_END})"
)


@reads_text(lambda read, text: (read(text, text, doubted=True), read("no", text, doubted=False)))
def contradicts(words: str, answer: str, *, doubted: bool) -> bool:
    """Whether a clause holds something against `answer`. `doubted`: doubt was said before it. `words` are plain."""
    if not (CONTRADICTION.match(words) or (doubted and CLAIM.match(words))):
        return False
    claimed, said = _numbers(words), _numbers(answer)
    return not (claimed and said and claimed[-1] == said[-1])


def _numbers(text: str) -> list[str]:
    return [number.replace(",", "").rstrip(".") for number in re.findall(r"\d[\d.,]*", text)]
