"""Wishes for a form by its name: a language ("in spanish please"), a format ("as json"), units, or the bare answer.

Each pattern spans the whole clause: "Write an email in Spanish to my landlord" is a task, and no wish.
"""

from __future__ import annotations

import re

from openclaw_rl.learner.judge.rules.form import words
from openclaw_rl.shared.text_reading import reads_text

_LANGUAGES = words("languages")
_FORMATS = words("formats")
_LEAD = (
    r"(?:(?:please|just|now|only|again|next time|from now on|and|also|but|no|can you|could you|would you|will you"
    r"|you (?:should|can|could|must)|i want (?:it|that|this|you to)|i(?:'d| would) (?:like|prefer|rather have) (?:it"
    r"|that|this|you to)|i need (?:it|that|this)|(?:answer|reply|respond|write|speak|talk|continue|carry on|stay"
    r"|keep going|stick|comment)(?: to me| with me| back| it| that| this)?|(?:say|do|put|explain|repeat|rewrite|redo"
    r"|give|show|send|return|output|print|format|make|try|have|want|need)(?: me)?(?: it| that| this| the same"
    r"| everything| your answers?| the answer)?(?: to me| again)?|it|that|this|the same|everything|the answer"
    r"|your answers?|always|rather)[,:]? )*"
)
_TAIL = (
    r"(?: please| instead| only| from now on| next time| this time| now| again| thanks| thank you| always| with me"
    r"| to me| for me| if (?:possible|you can)| would be (?:better|nice|great)| rather| not \w+| and not \w+)*$"
)
_UNITS = words("units")
_THE_ANSWER = (
    r"(?:the|your|final|short|plain|bare)(?: (?:final|short|plain|bare))?"
    r" (?:number|answer|result|code|command|facts?|essentials?|gist|bottom line)"
)

REQUESTED = tuple(
    re.compile(f"^(?:{pattern})")
    for pattern in (
        rf"{_LEAD}(?:in|on|to|into) {_LANGUAGES}{_TAIL}",
        rf"(?:(?:please|now|no|only|can you|could you|just) )*(?:speak|use|talk|switch to|stick to"
        rf"|try)(?: to me in)? {_LANGUAGES}{_TAIL}",
        rf"{_LANGUAGES} (?:please|only|instead|from now on|this time|next time|not \w+){_TAIL}",
        r"(?:(?:bitte|responde|réponds|antworte|rispondi|por favor) )?(?:en|auf|in|em|på|po|по|用) ?(?:español"
        r"|castellano|deutsch|français|francais|italiano|português|portugues|svenska|norsk|dansk|polsku|русски|中文"
        r"|日本語)(?:回答)?(?:,? (?:bitte|por favor|s'il (?:te|vous) pla[iî]t|per favore|tack|proszę|please))?$",
        rf"{_LEAD}(?:as|in|into) {_FORMATS}{_TAIL}",
        rf"(?:(?:please|always|next time|from now on|just|can you|could you|rather) )*(?:use|with|in|prefer"
        rf"|switch to) {_UNITS}(?: (?:instead|rather)(?: (?:of|than) [\w ]{{1,20}})?)?{_TAIL}",
        rf"(?:(?:please|can you|could you|next time|and) )*(?:just|only|simply) (?:(?:tell|give|say|show"
        rf"|send)(?: me)? )?{_THE_ANSWER}(?: (?:without|no|not|and nothing)\b[\w ,]*)?{_TAIL}",
        rf"{_THE_ANSWER} (?:only|alone)\b{_TAIL}",
        r"(?:(?:please|just|can you|could you) )*(?:(?:cut|get|come|skip) (?:straight )?to the (?:chase|point"
        r"|good part)|tl;?dr|eli ?\d+|dumb it down|in a nutshell|in layman'?s terms|simplify(?: it| that| this)?"
        r"|make it simple|keep it simple|less is more|be brief|in short|(?:in|with|use) (?:a )?(?:fewer|less) words"
        r"|elaborate|expand(?: on (?:it|that|this))?|go deeper|more depth|spell it out)(?: a (?:bit"
        r"|little))?(?: more)?(?: please| next time| this time)?$",
        r"(?:(?:please|just|can you|could you) )*(?:explain|say|tell|put|describe)(?: me)?(?: it| that"
        r"| this)?(?: to me)? like (?:i'm|i am|i were|to) an? ?(?:\w+ ?){1,4}(?:please)?$|(?:(?:please|just|can you"
        r"|could you) )*explain(?: it| that| this)?(?: to me)? like (?:i'm|i am|i were) (?:\d+|five|six|seven|ten"
        r"|twelve|dumb|stupid)(?: years old)?(?: please)?$",
    )
)


@reads_text()
def is_requested(words: str) -> bool:
    """Whether a clause asks for the answer in a language, format or length by name. `words` are plain."""
    return any(pattern.search(words) for pattern in REQUESTED)
