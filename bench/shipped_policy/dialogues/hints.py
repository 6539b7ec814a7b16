"""What people type about the style of an answer, and what they type that is not about style at all.

A hint reaches the policy as `{user message}\\n\\n[user's hint / instruction]\\n{hint}`. Complaints about bold and
numbered steps, wishes for them, and neutral remarks are drawn from small grammars, each as rich as the others: were one
of them thin, the policy would read the tag or a single word instead of the wish. `held_out.json` has phrases that these
grammars do not produce; only measurements use them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random
from typing import Any

from bench.shipped_policy.dialogues.problems import phrases
from openclaw_rl.evaluation.problems import PEOPLE, THINGS

HELD_OUT_PATH = Path(__file__).with_name("held_out.json")


def hint_tag(message: str, hint: str) -> str:
    """The user message as the hinted teacher sees it."""
    return f"{message}\n\n[user's hint / instruction]\n{hint}"


def complaint(random: Random) -> str:
    """Somebody who wants neither bold nor numbered steps: plain sentences."""
    style = phrases()["style"]
    if random.random() < 0.3:
        return _typed(random, random.choice(style["complaints"]))
    if random.random() < 0.2:
        return _typed(random, _contrast(random, style["things"], style["plain_nouns"]))
    reason = random.choice(style["plain_reasons"])
    return _typed(random, _compose(random, _bans(random), random.choice(style["plain"]), reason))


def opposite(random: Random) -> str:
    """Somebody who wants bold, numbered steps and the rest of the AI style."""
    style = phrases()["style"]
    if random.random() < 0.3:
        return _typed(random, random.choice(style["wishes"]))
    if random.random() < 0.2:
        return _typed(random, _contrast(random, style["plain_nouns"], style["wanted"]))
    wanted = random.choice(style["wanted"])
    if random.random() < 0.35:
        wanted = f"{wanted} and {random.choice(style['wanted'])}"
    demand = random.choice(style["demands"]).format(x=wanted)
    against = random.choice(style["against_plain"])
    return _typed(random, _compose(random, against, demand, random.choice(style["structure_reasons"])))


def neutral(random: Random) -> str:
    """A remark that wishes no style: the answer keeps whatever style it would have had."""
    remarks = phrases()["neutral"]["remarks"]
    text = random.choice(remarks)
    form = random.random()
    if form < 0.3:
        text = f"{text}, {random.choice(remarks)}" if form < 0.15 else f"{text}. {random.choice(remarks)}"
    elif form < 0.4:
        name, things = random.choice(PEOPLE), random.choice(THINGS)
        text = random.choice(phrases()["neutral"]["about_things"]).format(name=name, things=things)
    return _typed(random, text)


def bullets_wish(random: Random) -> str:
    """Somebody who wants a plain bulleted list."""
    return _typed(random, random.choice(phrases()["style"]["bullets"]))


def short_wish(random: Random) -> str:
    """Somebody who wants the equation and the result, no more."""
    return _typed(random, random.choice(phrases()["style"]["short"]))


@functools.cache
def held_out() -> dict[str, Any]:
    """What training never draws: `hints` and `free` by kind (`complaint`, `opposite`, `neutral`), and requests for
    `tools` of which the policy knows neither name nor purpose.
    """
    loaded: dict[str, Any] = json.loads(HELD_OUT_PATH.read_text(encoding="utf-8"))
    return loaded


def _bans(random: Random) -> str:
    style = phrases()["style"]
    thing = random.choice(style["things"])
    form = random.random()
    if form < 0.3:
        thing = f"{thing} {random.choice(('and', 'or'))} {random.choice(style['things'])}"
    elif form < 0.37:
        thing = f"{thing}, {random.choice(style['things'])} and {random.choice(style['things'])}"
    return str(random.choice(style["bans"])).format(x=thing)


def _contrast(random: Random, disliked: list[str], liked: list[str]) -> str:
    """The same words for either wish: only which stands where tells them apart."""
    form = str(random.choice(phrases()["style"]["contrasts"]))
    return form.format(x=random.choice(disliked), y=random.choice(liked))


def _compose(random: Random, against: str, wish: str, reason: str) -> str:
    """What one does not want, what one wants, or both, sometimes with a reason."""
    joint = random.choice((", ", ". ", ", ", " and ", "; ", " - ", " "))
    form = random.random()
    if form < 0.35:
        return f"{against}{joint}{wish}"
    if form < 0.45:
        return f"{wish}{random.choice((', ', '. '))}{against}"
    if form < 0.6:
        return against
    if form < 0.8:
        return wish
    if form < 0.87:
        return f"{reason}{random.choice((', ', '. '))}{wish}"
    if form < 0.94:
        return f"{against}, {reason}"
    return f"{wish}, {reason}"


def _typed(random: Random, text: str) -> str:
    """The text as somebody types it: openers, capitals or none, end marks, a slip of the finger."""
    if random.random() < 0.3:
        text = random.choice(phrases()["style"]["openers"]) + text
    form = random.random()
    if form < 0.35:
        text = text.lower()
    elif form < 0.65:
        text = text[0].upper() + text[1:]
    elif form < 0.7:
        text = text.upper()
    if random.random() < 0.06:
        place = random.randrange(len(text))
        text = text[:place] + text[place + 1 :]
    if random.random() < 0.2 and "'" in text:
        text = text.replace("'", "")
    ending = random.choice(("", "", "", ".", ".", "!", "!!", " please", " pls", ", thanks", ". Thanks", " :)", "..."))
    return text if text.endswith(("?", "!")) else text + ending
