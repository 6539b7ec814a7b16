"""Whom an answer is read by or speaks of: "a child", "her", "my son". As parts of patterns over plain words."""

from __future__ import annotations

from openclaw_rl.learner.judge.rules.form import any_of

READER = any_of(
    r"him|her|them|me|us|every(?:one|body)|any(?:one|body)|people",
    r"(?:(?:the|a|an|my|our|his|her|their|such an?|this|these) )?(?:(?:little|small|young|tiny|poor|shy|nervous) )*"
    r"(?:child|children|kids?|students?|pupils?|learners?|beginners?|boys?|girls?|sons?|daughters?|class|readers?"
    r"|parents?|(?:little|small|young) ones?|(?:first|second|third|fourth|fifth)[- ]graders?|graders?|toddlers?"
    r"|teenagers?|teens?|schoolchild|schoolchildren|grand(?:son|daughter|child)|nephews?|nieces?"
    r"|[\w-]+[- ]year[- ]olds?)",
)
"""Readers of an answer. A grandmother, a team or a landlord is not among them: "be nice to my landlord" is a task."""
WORK = any_of(
    r"(?:(?:the|his|her|their|my|each|every|this|that) )?(?:\w+ )?(?:work|efforts?|attempts?|tr(?:y|ies)|solutions?"
    r"|mistakes?|errors?|homework|answers?|results?|steps?|problem|task)",
    r"it|this|that|what (?:he|she|they|(?:the|my) \w+) (?:did|does|do|got|tried|wrote|has done|have done)"
    r"(?: (?:well|right|correctly|already))?",
)
"""What an answer about somebody's work speaks of."""
