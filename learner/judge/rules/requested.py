"""Wishes for a form by its name: a language ("in spanish please"), a format ("as json"), units, or the bare answer.

Each pattern spans the whole clause: "Write an email in Spanish to my landlord" is a task, and no wish.
"""

from __future__ import annotations

import re

from openclaw_rl.learner.judge.rules.form import any_of

_LANGUAGES = any_of(
    r"(?:british |american |plain |simple |proper |brazilian )?(?:english|spanish|french|german|italian|portuguese"
    r"|dutch|"
    r"polish|russian|ukrainian|turkish|arabic|hebrew|hindi|urdu|bengali|chinese|mandarin|cantonese|japanese|korean"
    r"|greek"
    r"|swedish|norwegian|danish|finnish|czech|slovak|hungarian|romanian|bulgarian|croatian|serbian|vietnamese|thai"
    r"|indonesian|malay|persian|farsi|swahili|catalan|latin|tagalog|tamil)",
)
_FORMATS = any_of(
    r"json|csv|yaml|xml|html|latex|markdown|plain ?text|code(?: block)?|pseudo-?code|a (?:\w+ )?(?:table|list|poem"
    r"|diff|code"
    r" block|single (?:line|sentence|paragraph)|one-?liner)|(?:bullet points|bullets|bullet form|prose|verse"
    r"|keywords)",
)
_LEAD = (
    r"(?:(?:please|just|now|only|again|next time|from now on|and|also|but|no|can you|could you|would you|will you"
    r"|you (?:should"
    r"|can|could|must)|i want (?:it|that|this|you to)|i(?:'d| would) (?:like|prefer|rather have) (?:it|that|this"
    r"|you to)"
    r"|i need (?:it|that|this)|(?:answer|reply|respond|write|speak|talk|continue|carry on|stay|keep going|stick"
    r"|comment)"
    r"(?: to me| with me| back| it| that| this)?|(?:say|do|put|explain|repeat|rewrite|redo|give|show|send|return"
    r"|output|print|"
    r"format|make|try|have|want|need)(?: me)?(?: it| that| this| the same| everything| your answers?| the"
    r" answer)?(?: to me"
    r"| again)?|it|that|this|the same|everything|the answer|your answers?|always|rather)[,:]? )*"
)
_TAIL = (
    r"(?: please| instead| only| from now on| next time| this time| now| again| thanks| thank you| always| with me|"
    r" to me| for"
    r" me| if (?:possible|you can)| would be (?:better|nice|great)| rather| not \w+| and not \w+)*$"
)
_UNITS = any_of(
    r"celsius|fahrenheit|metric(?: units)?|imperial(?: units)?|si units|kilomet(?:er|re)s|miles|kilograms?|pounds"
    r"|euros|dollars"
    r"|24[- ]hour (?:time|clock|format)|(?:british|american|us|uk) (?:spelling|english)|the metric system|iso dates",
)
_THE_ANSWER = (
    r"(?:the|your|final|short|plain|bare)(?: (?:final|short|plain|bare))?"
    r" (?:number|answer|result|code|command|facts?|essentials?|gist|bottom line)"
)

REQUESTED = tuple(
    re.compile("^" + pattern)
    for pattern in (
        rf"{_LEAD}(?:in|on|to|into) {_LANGUAGES}{_TAIL}",
        rf"(?:(?:please|now|no|only|can you|could you|just) )*(?:speak|use|talk|switch to|stick to|try)(?: to me"
        rf" in)? "
        rf"{_LANGUAGES}{_TAIL}",
        rf"{_LANGUAGES} (?:please|only|instead|from now on|this time|next time|not \w+){_TAIL}",
        r"(?:(?:bitte|responde|réponds|antworte|rispondi|por favor) )?(?:en|auf|in|em|på|po|по|用) ?(?:español"
        r"|castellano"
        r"|deutsch|français|francais|italiano|português|portugues|svenska|norsk|dansk|polsku|русски|中文|日本語)"
        r"(?:回答)?(?:,? (?:bitte|por favor|s'il (?:te|vous) pla[iî]t|per favore|tack|proszę|please))?$",
        rf"{_LEAD}(?:as|in|into) {_FORMATS}{_TAIL}",
        rf"(?:(?:please|always|next time|from now on|just|can you|could you|rather) )*(?:use|with|in|prefer|switch"
        rf" to) {_UNITS}"
        rf"(?: (?:instead|rather)(?: (?:of|than) [\w ]{{1,20}})?)?{_TAIL}",
        rf"(?:(?:please|can you|could you|next time|and) )*(?:just|only|simply) (?:(?:tell|give|say|show|send)(?:"
        rf" me)? )?{_THE_ANSWER}"
        rf"(?: (?:without|no|not|and nothing)\b[\w ,]*)?{_TAIL}",
        rf"{_THE_ANSWER} (?:only|alone)\b{_TAIL}",
        r"(?:(?:please|just|can you|could you) )*(?:(?:cut|get|come|skip) (?:straight )?to the (?:chase|point|good"
        r" part)|tl;?dr"
        r"|eli ?\d+|dumb it down|in a nutshell|in layman'?s terms|simplify(?: it| that| this)?|make it simple|keep"
        r" it simple|less"
        r" is more|be brief|in short|(?:in|with|use) (?:a )?(?:fewer|less) words|elaborate|expand(?: on (?:it|that"
        r"|this))?|go deeper|more depth|spell it out)"
        r"(?: a (?:bit|little))?(?: more)?(?: please| next time| this time)?$",
        r"(?:(?:please|just|can you|could you) )*(?:explain|say|tell|put|describe)(?: me)?(?: it| that| this)?(?:"
        r" to me)? like (?:i'm"
        r"|i am|i were|to) an? ?(?:\w+ ?){1,4}(?:please)?$|(?:(?:please|just|can you|could you) )*explain(?: it|"
        r" that| this)?"
        r"(?: to me)? like (?:i'm|i am|i were) (?:\d+|five|six|seven|ten|twelve|dumb|stupid)(?: years old)?(?:"
        r" please)?$",
    )
)


def is_requested(words: str) -> bool:
    """Whether a clause asks for the answer in a language, format or length by name. `words` are plain."""
    return any(pattern.search(words) for pattern in REQUESTED)
