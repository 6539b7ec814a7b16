"""Wishes for more detail: "go through every step", "explain exactly where the mistake is", "don't just say wrong".

What is to be told in detail has to be the answer itself, its steps or its mistakes: with one word of another subject
("explain every step of the French Revolution") it is a task.
"""

from __future__ import annotations

import re

from openclaw_rl.learner.judge.rules.form import WORDS
from openclaw_rl.shared.text_reading import reads_text

_LONGEST = 200  # characters
_LEAD = (
    r"(?:(?:please|just|but|and|so|then|now|next time|again|also|at least|maybe|first|can you|could you|would you"
    r"|will you|can we|could we|let's|would you mind|i wish you (?:would|could)|you (?:should|could|must|need to"
    r"|have to)|try to|i(?:'d| would) like you to"
    r"|i (?:want|need) you to|i asked you to|(?:in|for) (?:each|every) (?:single )?(?:step|line|part),?)[,:]? )*"
)
_TELL = re.compile(
    rf"^{_LEAD}(?:explain|describe|tell|say|show|state|name|identify|write(?: (?:it|this|that|everything|them))?(?: out"
    r"| down)?|spell(?: (?:it|this|that))? out|go (?:through|over|into|step by step)|(?:walk|talk|take|lead|guide"
    r"|run)(?: (?:me|us|him|her|them|the \w+))? through|comment|point(?: (?:out|to|at))?|break|elaborate|give|discuss"
    r"|mention|mark|justify|prove|check|list|add|include|note|specify|clarify|indicate|highlight|underline|be|do)\b"
)
_STEP = (
    r"(?:steps?|lines?|parts?|calculations?|equations?|mistakes?|errors?|verdicts?|claims?|judge?ments?|grades?"
    r"|points?)"
)
_IN_DETAIL = re.compile(
    rf"\bin (?:(?:more|full|greater?|much|some|a (?:bit|little) more|a lot more) )*(?:details?|depth|full)\b"
    rf"|\bstep[- ]by[- ]step\b|\b(?:one|line) (?:by|at a) (?:one|line|time)\b|\bmore (?:about|precise|specific"
    rf"|detailed)\b|\b(?:each|every|all(?: of)? the|all) (?:single )?(?:\w+ )?{_STEP}|\b(?:each|every) (?:one"
    rf"|of (?:them|the))\b|\b(?:which|what) (?:\w+ )?{_STEP}\b|\b(?:exactly|precisely) (?:where|what|which|why|how)\b"
    rf"|\bwhere (?:exactly )?(?:the|his|her|their|my) (?:\w+ )?{_STEP}\b|\b(?:slowly|thoroughly|precisely|separately)\b"
    rf"|\bbreak (?:it|this|that) down\b|\bthe (?:wrong|right|correct|first|exact) {_STEP}\b|\bto (?:the|each"
    rf"|every) {_STEP}|\b(?:longer|fuller|full|detailed|complete) (?:explanation|comment|reasoning|answer)\b|\b(?:spell"
    rf"|point|write) out (?:the|his|her|their|each|every|all) (?:\w+ )?{_STEP}|\bmore than\b|\bwhat(?:'s| is"
    rf"| was) (?:right|good|correct|wrong) and (?:what(?:'s| is| was) )?(?:right|wrong|not|incorrect)\b|\bnot (?:just"
    rf"|only|merely) (?:that|the|an?|whether|if)\b"
)
_WORKING = frozenset(WORDS["answer_and_steps"].split())
_TELLING = r"(?:tell|telling|say|saying|give|giving|write|writing|show|showing|answer|answering|state|stating|put)"
_NOT_ONLY = re.compile(
    rf"^(?:(?:please|but|and|so|you can't|you cannot) )*(?:don't|do not|never|not|stop) (?:just|only|merely"
    rf"|simply) {_TELLING}(?: (?:me|us))?\b(?! (?:him|her|them)$)(?P<what>.+)$|^(?:just|only|simply"
    rf"|merely) {_TELLING}(?: (?:me|us|it))?\b(?P<alone>.*?) (?:doesn't|does not|won't|isn't|is not)"
    r" (?:really )?(?:help|tell|explain|say|enough|useful|helpful)\b.*$|^(?:an? |the |your )?(?:(?:bare|mere"
    r"|single) )?(?:verdicts?|labels?|words?|numbers?|results?)(?: alone)? (?:doesn't|does not|don't|isn't|is not"
    r"|aren't) (?:really )?(?:help|tell|explain|say|enough|useful)\b.*$|^(?:that's|that is|this is|it's|you gave me"
    r"|you give me) (?:only|just|merely|nothing but) an? (?:verdict|label|word|grade)$|^(?:(?:again|still|once more"
    r"|it's|just) )*(?:only|just|nothing but) (?:an? |one )?(?:verdict|label|word|grade)s?(?: again)?$|^not (?:just"
    r"|only) (?:the|a) (?:verdict|label|grade)s?$|^(?:i|we) (?:need|want|expect|asked for) more than (?:just )?(?:an? "
    r"|the )?(?:verdict|label|word|grade|number)s?$"
)
_UNCLEAR = re.compile(
    r"^(?:(?:but|and|so|sorry) )*(?:i|we|she|he|they) (?:(?:still|really|just|simply|even|also) )*(?:can't|cannot"
    r"|can not|couldn't|don't|do not|didn't|doesn't|am unable to) (?:(?:really|even|quite|still) )*(?:see|tell|know"
    r"|understand|find|make out|figure out|get|follow)\b.*\b(?:which|where|what|why)\b|^(?:(?:but|and|so"
    r"|sorry) )*(?:that|this|it|you|your \w+|the \w+) (?:(?:still|really|just) )*(?:doesn't|does not|don't|do not"
    r"|didn't|did not|never) (?:(?:really|even) )*(?:tell|show|say|explain|mention|name|point out)\b.*\b(?:which|where"
    r"|what|why)\b"
)
ASKS_WHICH = re.compile(
    rf"^(?:so |and |but )*(?:(?:which|what) {_STEP} (?:exactly )?(?:(?:do|did) you mean|are you talking about)"
    rf"|(?:which|what) {_STEP} exactly|where exactly (?:is|are|was|were) (?:the|his|her|their|my) (?:\w+ )?{_STEP}"
    r"|what exactly (?:is|was) (?:wrong|right)(?! with (?!(?:it|that|this|step|line|part)\b))|what did (?:he|she"
    r"|they) do wrong exactly)\b"
)
"""Questions which step is meant; one about what came before it in the message says nothing."""
_WANTS_TO_SEE = re.compile(
    r"^(?:(?:please|but|and|so|just) )*(?:i|we)(?:'d| would)? (?:(?:really|just|also|still) )*(?:like|love|want|need"
    r"|have) to (?:see|know|understand|read|hear|be told)\b"
)
_VERDICT = re.compile(rf"\b(?:{_STEP}|wrong|right|correct)\b")
_ABOUT_STEPS = re.compile(rf"\b{_STEP}\b")


@reads_text()
def wish(words: str) -> bool:
    """Whether a clause asks for more detail, or says that the answer lacks it. `words` are plain."""
    if len(words) > _LONGEST:
        return False
    found = _NOT_ONLY.match(words)
    if found:
        return _foreign(found["what"] or found["alone"] or "") == 0
    if _foreign(words):
        return False
    if ASKS_WHICH.match(words) or (_UNCLEAR.match(words) and _ABOUT_STEPS.search(words)):
        return True
    if _WANTS_TO_SEE.match(words):
        return _IN_DETAIL.search(words) is not None and _VERDICT.search(words) is not None
    return _TELL.match(words) is not None and _IN_DETAIL.search(words) is not None


def _foreign(words: str) -> int:
    """The number of words that speak of something else than an answer and its steps."""
    return sum(word not in _WORKING and not word.isdigit() for word in re.findall(r"[\w']+", words))
