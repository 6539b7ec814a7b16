"""Doubt, and what somebody holds against an answer: "are you sure? i think it's 8".

Doubt alone is a question. Together with a claim of one's own it rejects the answer, and so does a claim that can only
contradict ("shouldn't it be 15?"), unless it repeats what the answer said.
"""

from __future__ import annotations

import re

_NUMBER = (
    r"(?:[-−$€£]?\d[\d.,/:]*%?|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen"
    r"|fourteen|fifteen"
    r"|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty)"
)
_IT = (
    r"(?:it|that|this|they|there|the (?:correct |right |real )?(?:answer|result|sum|total|number|difference|product"
    r"|one|value"
    r"|solution|date|name|capital|price|count|year))"
)
_ABOUT = r"(?:(?:actually|rather|really|more like|about|exactly|only|at least|just|in fact) )*"
_END = r"(?: \w+)?(?:,? (?:though|no|right|rather than .{1,20}|not .{1,20}|and not .{1,20}|instead(?: of .{1,20})?))?$"
_SOURCE = (
    r"(?:my|the) (?:\w+ )?(?:calculator|spreadsheet|book|textbook|docs?|documentation|manual|solution|answer key"
    r"|teacher|map)"
)

DOUBT = re.compile(
    r"^(?:(?:but|wait|hmm+|and|really) )*(?:(?:are )?you (?:(?:really|quite|absolutely|totally|100%|so|completely"
    r"|very) )?(?:sure"
    r"|certain|positive)(?: (?:about|of) (?:that|this|it))?(?: (?:it|that|this)(?:'s| is) (?:right|correct|true|so))?"
    r"|is (?:that|this|it) (?:(?:really|actually) )?(?:right|correct|true|so|accurate)|(?:sure|really|seriously"
    r"|hmm+|how so)"
    r"(?: about that)?|did you (?:double[- ]?)?check(?: (?:it|that|this))?)$"
)
CLAIM = re.compile(
    rf"^(?:(?:because|as|but|well|for me) )*(?:(?:i|we) (?:(?:would|'d) )?(?:think|thought|believe|guess|get|got"
    rf"|make it|make that|have"
    rf"|count|counted|calculate|calculated|say|said|remember|learned|read|found|come to|came to)(?:"
    rf" that)?\b.{{1,80}}|{_IT}(?:'s| is"
    rf"| was| are| should be| must be| has to be| ought to be)\b.{{1,60}}|(?:{_SOURCE}|google|wikipedia|excel"
    rf"|python|everybody|everyone"
    rf"|wolfram ?alpha) (?:says?|said|shows?|gives?|gave|tells? me|told me|has)\b.{{1,80}}|(?:pretty|quite|fairly)"
    rf" (?:sure|certain)\b.*)"
)
CONTRADICTION = re.compile(
    rf"^(?:(?:but|well|because|and) )*(?:should(?:n't| not) {_IT} (?:be|have been) {_ABOUT}(?!ready|done|here"
    rf"|possible|open|over|free"
    rf"|allowed|fun|easy|able|enough|better|easier|a problem)(?:(?:the|a|an|in|at|on) )?[\w'.,:%$€-]+{_END}"
    rf"|(?:isn't|wasn't|ain't|aren't) {_IT} {_ABOUT}{_NUMBER}{_END}"
    rf"|(?:i'm |i am )?(?:pretty|quite|fairly|very|almost|rather|100%|absolutely) (?:sure|certain)(?: that)?"
    rf" {_IT}(?:'s| is| was| are"
    rf"| should be| must be) (?!fine|ok|okay|right|correct|good|great|enough|him|her|them|raining).{{1,60}}"
    rf"|(?:i|we) (?:get|got|make it|make that|counted|count|calculated|come to|came to) {_ABOUT}{_NUMBER}(?:"
    rf" instead| too| though"
    rf"| not {_NUMBER})?$"
    rf"|(?:i|we) (?:think|thought|believe|guess|would say|'d say)(?: that)? {_IT}(?:'s| is| was| should be| must"
    rf" be) {_ABOUT}{_NUMBER}$"
    rf"|{_IT} (?:should|must|has to|ought to)(?: have)? (?:be|been) {_ABOUT}{_NUMBER}{_END}"
    rf"|{_IT}(?: isn't| wasn't| is not| was not|'s not) {_ABOUT}{_NUMBER}\b.{{0,40}}$"
    rf"|(?:{_SOURCE}|google|wikipedia|excel|wolfram ?alpha) (?:says?|said|shows?|gives?|gave)"
    rf" {_ABOUT}{_NUMBER}{_END})"
)


def contradicts(words: str, answer: str, *, doubted: bool) -> bool:
    """Whether a clause holds something against `answer`. `doubted`: doubt was said before it. `words` are plain."""
    if not (CONTRADICTION.match(words) or (doubted and CLAIM.match(words))):
        return False
    claimed, said = _numbers(words), _numbers(answer)
    return not (claimed and said and claimed[-1] == said[-1])


def _numbers(text: str) -> list[str]:
    return [number.replace(",", "").rstrip(".") for number in re.findall(r"\d[\d.,]*", text)]
