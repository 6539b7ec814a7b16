"""What people type after an answer, as patterns over lower-cased English. `learner.judge.rules.rules` decides what they
mean together; `learner.judge.rules.form` has the words about the form of answers.
"""

from __future__ import annotations

import re

from openclaw_rl.learner.judge.rules.form import any_of, words
from openclaw_rl.learner.judge.rules.praised import GOOD

TIME_STAMP = re.compile(r"^\s*\[(?:[A-Za-z]{2,9},? )?\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?[^\]\n]*\]\s*")
"""A leading `[Fri 2026-11-20 09:54 UTC] ` such as agents put before what the user typed."""

THUMB_UP = re.compile(r"[👍👏🙏❤🎉💯✅😀😃😄😊🙂😍🥰]|(?<!\S)(?::-?\)|:d|\+1|<3)(?!\S)")
THUMB_DOWN = re.compile(r"[👎😠😡🤬😤😞🙁☹❌]|(?<!\S)(?::-?\(|-1)(?!\S)")
PICTURE_PARTS = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f\u200d]")

INTERJECTIONS = re.compile(
    r"^(?:(?:by the way|btw|lol|omf?g|bruh|bro|dude|jeez|geez|now|finally|honestly|got it|i see|understood|fine|no"
    r" offense|ok|okay|oh|ah|aha|wow|yes|yep|yeah|yay|hey"
    r"|hi|alright|and|well(?! done)|haha|man|hmm+|hm|ugh|sorry|um|uh|err|eh|but|actually|wait)[ ,!.]+|so[ ,!.]+(?!"
    + GOOD
    + r"\b))+"
)
"""What may stand before what is meant."""
_VERY = (
    r"(?:(?:so|very|really|much|just|exactly|absolutely|totally|pretty|even|far|way|quite|all|now|already|actually|a|an"
    r"|the|still|simply|completely|plain) )*"
)
_PRAISE = words("praise")
_BLAME = words("blame")
_BORROWED = words("borrowed")
BORROWED = re.compile(_BORROWED, re.IGNORECASE)
"""Thanks in other languages. They praise only where the rest of the message is English."""
_ABOUT = (
    r"(?:that|this|it|the (?:\w+ )?(?:answer|result|number|solution|reply|sum)|your (?:answer|result|reply|number))"
    r"(?:'s|s| is| was| looks| sounds| seems)?"
)
_END = r"(?=[\s.,!;:)]|$)"

NOTHING_REJECTED = re.compile(
    rf"^(?:no|nope|nah),? (?:problem|worries|need|rush|hurry|doubt|stress|thanks?|thank you|thx|{_BORROWED}|(?:more "
    r"|further |other )?questions?|idea|clue|wonder|matter|way|longer|one|i'm (?:good|fine|ok|okay|all set|done))\b"
)
"""A "no" that rejects nothing of the answer."""

POSITIVE = re.compile(
    "^"
    + any_of(
        r"(?:many |big )?thank(?:s| you| u)\b(?! for nothing)(?! in advance)|thx\b|tysm\b|ty\b|cheers\b"
        r"|much appreciated|i (?:really )?appreciate (?:it|that|this|the|your)",
        rf"{_ABOUT} {_VERY}{_PRAISE}{_END}",
        rf"you(?:'re| are|'ve been| have been| were) (?!not\b){_VERY}(?:great|right|helpful|good|the best"
        rf"|awesome|amazing|kind)\b",
        rf"{_VERY}(?:great|perfect|good|nice|excellent|awesome|amazing|wonderful|fantastic|brilliant|lovely"
        rf"|superb?|cool|sweet|neat|terrific|correct|exactly|right|better|"
        r"beautiful|bravo|bingo|spot on|impressive)(?: (?:job|work|one|answer|stuff|reply|explanation|comments?"
        r"|solution|response|now|like that|like this|that way))*(?=[.,!;:)]|$| thanks?\b| thx\b| so far| and thank)",
        rf"{_VERY}(?:clear|helpful|useful|concise|natural|thoughtful) (?:explanation|answer|reply|response"
        rf"|solution|comments?)\b(?= |[.,!]|$)",
        r"(?:the )?(?:good|great|best|nice|smart|clever|lovely|awesome|amazing) (?:bot|robot|ai|assistant|boy|girl"
        r"|computer)\b|you(?:'re|r| are)? (?:an? |the |my |such an? |absolute |real )*(?:genius|star|legend|life ?saver"
        r"|gem|hero|wizard|rock\b|best|goat)|you(?:'ve)? (?:totally |really )?(?:nailed it|got it(?: right)?(?=[.,!]|$)"
        r"|did it(?=[.,!]|$)|saved)",
        r"nailed it|life ?saver|chef's kiss|a\+|lgtm|kudos|hats off|(?:10|9) ?(?:/|out of) ?10(?=[.,!]|$)|(?:five"
        rf"|5) stars|saved (?:me|my)\b|{_BORROWED}",
        r"(?:that|this|it|which) (?:really |totally )?(?:did the trick|hit the spot|does it|nailed it|saved (?:me|my"
        r"|the))|(?:that|this|it)(?:'s| is) (?:the (?:one|spirit|ticket|stuff)|it)(?=[.,!]|$)",
        r"(?:(?:that|this|it)(?: one)? )?(?:works|worked) (?:like a charm|perfectly|great|fine|well|now)|(?:that"
        r"|this|it) one works",
        r"(?:that|this|it)(?:'s| is| was) (?:(?:so|really|very|super|pretty) )*(?:fast|quick|clever|smart|informative"
        r"|thoughtful|clean|crisp|insightful|a life ?saver|fun|interesting|genius)\b",
        r"(?:so much|much|way|far|a lot|this is (?:so much|much|way|far|a lot)|this reads (?:so much|much|way"
        r"|a lot)) (?:clearer|nicer|better|easier to (?:read|follow|understand))(?=[.,!]|$| now| than| thanks)",
        r"well done|good (?:job|work|answer)|not bad\b|nothing wrong\b|no complaints|can't complain|keep it up"
        r"|more like it|right on",
        r"(?:that|this|it|which) (?:really |totally |now |already )?(?:works|worked|helps|helped|makes sense"
        r"|did it)\b(?!.*\bnot\b)",
        r"(?:looks|sounds|reads) (?:great|good|nice|perfect|right|much better)\b",
        r"(?:i )?(?:really )?(?:love|like) (?:it|this|that|how|the way|your (?:answer|reply|style))\b(?!.*\bbut\b)",
        rf"(?:no|nope|nah),? (?:no,? )?(?:{_ABOUT}|all|everything|you're) ?(?:all\b|fine|good|great|perfect"
        rf"|okay?|it\b|right|correct|happy|done|set|enough)",
        rf"(?:exactly|just) like (?:that|this|i)|{_VERY}how i (?:like|want) it",
    )
)
ASKS_FOR_CHANGE = re.compile(
    r"\b(?:too|not|no|never|without|please|pls|plz|instead|more|less|shorter|longer|but|should|could|would|if"
    r"|next|prefer|rather|want|\w+n't|dont)\b"
)
"""Words without which praise is only praise ("that's easy to read")."""

NEGATIVE = re.compile(
    "^"
    + any_of(
        r"(?:no|nope|nah|naw)(?=[.,!?;:)]|$| (?:that|this|it|not|i|you|the|wait|again|sorry|still|way|way,"
        r"|don't|please|do|try|redo|check|count|wrong|good|it's|its|thats)\b)",
        rf"(?:still |all |just |plain |completely |totally |simply )*{_BLAME}(?: (?:answer|number|result"
        rf"|again|here|i think|one|way))*(?=[.,!;:)]|$| (?:i|the|it|please|try|do|again|that|should)\b)",
        r"(?:please |just |now |and |then |can you |could you |would you )*(?:redo|retry|do over|rewrite|(?:try|do"
        r"|solve|answer|check|count|calculate|write|think|look|start) (?:it |that |this |them )?(?:again|over"
        r"|once more))(?=[.,!?;:)]|$| (?:please|from|with|without|and|but|more|this time|now|properly|carefully|slowly"
        r"|it|that|you|i|until|because|the)\b)(?! the (?!answer|result|number|total|sum|question|same|last|first"
        r"|right)\w)",
        r"(?:please )?(?:once more|one more time|again|double[- ]check (?:it|that|this))(?: please"
        r"| pls)?(?=[.,!]|$)|stop(?: it| that| this)?(?=[.,!]|$)|boo+\b|meh\b|yuck\b|fail(?:ed)?\b",
        r"you (?:made|make|have made|'ve made) (?:a|an|some|the same|another) (?:\w+ )?(?:mistake|error)"
        r"|you(?:'re| are) (?:still )?(?:wrong|mistaken|not listening)",
        r"you (?:forgot|missed|misread|misunderstood|ignored|skipped|mixed|got (?:it|that|this|the \w+) wrong"
        r"|didn't|did not)\b",
        r"(?:there's|there is) (?:still )?(?:a|an|some) (?:\w+ )?(?:mistake|error|typo)\b|thanks for nothing\b",
        r"i (?:don't|do not|didn't) (?:like|want|need) (?:it|this|that)(?=[.,!]|$)|i (?:don't"
        r"|do not) think (?:so|(?:that|this|it)(?:'s| is) (?:right|correct|true))",
    )
)
BETTER = re.compile(r"\b(?:better|again|properly|correctly|once more|over|differently|right this time)$")
"""The end of an order to do the same as before: blame behind it is about that."""
ONCE_MORE = re.compile(
    r"^(?:can|could|would|will) you (?:please )?(?:re)?(?:do|try|solve|check|count|calculate|look at)\b"
    r".*\b(?:again|over|once more)$"
)
"""A question that asks for the same again."""

BLAME_ANYWHERE = re.compile(
    rf"\b{_ABOUT} {_VERY}{_BLAME}{_END}"
    r"|\b(?:it|that|this) (?:still )?(?:doesn't|does not|didn't|did not) (?:work|help|make sense|look right|sound right"
    r"|compile|run)\b|\b(?:that|this|it) (?:isn't|wasn't|ain't|can't be|cannot be|can not be) (?:right|correct|true"
    r"|good|helpful|what|it|how|working)\b|\b(?:that's|this is|that is|it's) not (?:what|how) i\b"
)

TASK = re.compile(
    r"^(?:(?:please|pls|now|next|then|and|so|ok|okay|also|hi|hey|hello|alright|first|second|finally|another one"
    r"|one more|next one|question|here is|can you|could you|would you|will you|can i|could i|i need you to"
    r"|i want you to|i'd like you to|help me|i need help|let's)[,:]? )*"
    + any_of(
        r"(?:write|list|give|show|tell|explain|summari[sz]e|translate|draft|create|make|generate|compare|describe|find"
        r"|calculate|compute|solve|grade|check|name|suggest|recommend|plan|read|open|search|run|fix|book|send|remind"
        r"|add|delete|rename|move|set|get|look|play|turn|schedule|design|build|implement|refactor|convert|sort|count"
        r"|draw|review|proofread|edit|answer|stop|start|cancel|install|order|praise|encourage|comfort|congratulate"
        r"|thank|invite|greet|warn|teach|go through|walk|guide|deploy|call|buy|pick|choose|help|think|imagine|pack|put"
        r"|remove|cut|drop|skip|format|use|keep|don't|do not|never)\b",
        r"(?:what|how|when|who|where|which|whose|why|is|are|was|were|do|does|did|can|could|should|would|will|has"
        r"|have|am|may)\b",
    )
)
"""The beginnings of a request for something new; a sentence that speaks of the answer just given is not one."""

WORK_ON_TALK = re.compile(
    r"^(?:(?:please|pls|now|then|and|so|ok|okay|also|finally|can you|could you|would you|will you|i want you to)"
    r"[,:]? )*(?:(?:summari[sz]e|sum up|recap|condense|wrap up|name|title|label) |(?:give|find|suggest|write|create"
    r"|make(?! (?:the|this|that|your)\b)|generate|extract|list|need|want) (?:\w+ ){0,8}?(?:summar\w+|recap|title"
    r"|name|headline|tags?|list|overview|takeaways?|notes?|minutes) (?:\w+ ){0,6}?(?:of|for|from|to|on) |(?:give|find)"
    r" (?=(?:\w+ ){1,4}(?:an? |some )))"
    r"(?:me )?(?:(?:this|our|the) (?:(?:whole|entire|last|current) )?)(?:conversation|chat|discussion|session|thread"
    r"|dialogue)\b(?! (?:better|again|properly|correctly|once more|this time|differently|right)\b)"
)
"""A new request about the conversation as a whole: its words of form say nothing about the answer before. To do it
better says that it was done badly.
"""

BACK = re.compile(
    r"\b(?:it|that|this|these|those|them|your|you|again|still|instead|always|everything|last|previous|above|before"
    r"|next time|from now on|in (?:the )?future|the (?:final answer|answer|reply|response|solution|result|text"
    r"|explanation|\w*formatting|steps?|bullets?|bold|list))\b"
)
"""Words that point back at the answer just given, or at all answers."""

STANDING = re.compile(
    r"\b(?:again|still|next time|from now on|going forward|in (?:the )?future|last time|always|before|stop"
    r"|no more|i (?:said|told|asked)|this time|either)\b"
)
"""Words by which a wish behind a new request still speaks of the answer before it."""

WISHES = tuple(
    re.compile(pattern)
    for pattern in (
        # What is unwanted: "no X", "don't use X", "stop the X", "I hate X", "enough X", "why all the X", "X is
        # annoying"; X is checked apart.
        r"^(?:(?:and|so|also|just|but|please|pls|next time|ok|from now on|again|really|the|i said|i asked for|can you"
        r"|could you|would you|could we|can we|only|do it|answer|say it|i'd like (?:it|this|that))[,:]? )*(?:(?:do|to"
        r"|please) )?(?:not|no|don't|dont|do not|never|without|stop|quit|avoid|drop|skip|lose|cut|remove|omit|leave"
        r"|take|get rid|ditch|spare|enough|less|fewer|minus|away with)\b",
        r"\b(?:i|i'd|we) (?:really |just |still )?(?:don't|dont|do not|never|didn't|hate|dislike|can't stand"
        r"|can't hand|am tired|am sick|am not a fan|loathe)\b",
        r"\b(?:i'm|im) (?:tired|sick|not a fan|annoyed)\b|\byou (?:don't|do not|needn't) (?:have to|need)"
        r"|\bthere(?:'s| is) no need\b|\bno need (?:for|to)\b",
        r"\b(?:without|instead of|rather than|less|fewer|not in|not as|no more|enough with|please no|stop with"
        r"|and no|or no|told you not)\b",
        r"^(?:why|what is it with|what's with|must you|do you have to|can we do without|where are)\b|\b(?:is"
        r"|are) (?:so )?(?:annoying|ugly|not for me|distracting|too)\b|\bbothers? me\b|\bnobody (?:needs|writes)\b",
        r"\b(?:too|so|way too|overly|not very|not) (?:many|much|few|little|short|long|formal|stiff|cold|dry|technical"
        r"|complicated|verbose|wordy|detailed|formatted|structured|plain|unstructured|robotic|vague|rude|harsh)\b",
        # What is wanted: "use X", "I'd prefer X", "make it X", "in X please", "X instead", "be more X", "you should
        # X"
        r"\b(?:i'd|i would|i|we'd|i'm) (?:much |really |rather |just |only )*(?:prefer|rather|like|want|wanted"
        r"|need|love|appreciate|wish|asked for|find|expect|fan)\b",
        r"\b(?:re)?(?:write|phrase|word|do|say|put|explain|make|keep|format|state|answer|tell|give|respond|reply"
        r"|show|talk|sound|speak|read|comment|add|use|using|try|bring|go(?! back\b))\b",
        r"\binstead\b|\bplease\b|\bpls\b|\bnext time\b|\bfrom now on\b|\bin (?:the )?future\b"
        r"|\bwould be (?:better|nicer|enough)\b|\b(?:is|are|will) (?:enough|fine|do|better)\b",
        r"^(?:just|only|in|with|like|as|be|more|simply|maybe)\b|\byou(?:r \w+)? (?:should|could|must|need to"
        r"|ought to|needs? to|have to)\b",
        r"\b(?:sounds?|reads?|looks?|feels?|it's|this is|you sound) (?:so |too |very |just |all "
        r"|really )*(?:like|stiff|robotic|copied|cold|formal|ai\b|copied)",
        r"\bthe user (?:wants|does|dislikes|likes|asked)\b|\bthe (?:answer|reply) should\b|\bhelps me\b"
        r"|\bis what i (?:want|like)\b|\bi miss\b",
    )
)
STANDING_WISH = re.compile(
    r"\b(?:from now on|going forward|in (?:the )?future|next time)\b,? (?!i\b)\w+|^(?:(?:and|please|so|just"
    r"|but) )*stop \w+ing\b|^(?:(?:and|please|so|just|but|can you|could you) )*(?:don't|dont|do not|never"
    r"|always) (?:call (?:me|us|yourself) (?!at\b|after|before|today|tomorrow|tonight|back|until|when|on\b|again|now|if"
    r"|by\b|during|or\b|and\b)\w+|use|write|say|start|end|begin|repeat|apologi[sz]e|lecture|explain|answer|include"
    r"|mention|add)\b|^(?:please )?(?:be|sound) (?:a (?:bit|little) )?(?:more|less) \w+|\bi'd (?:prefer|rather) (?:it "
    r"|that )?(?:if )?you\b|\btalk to me like\b"
)
"""Wishes that need no word of form."""
