"""The rule judge: read a person's next message for a verdict on the answer before it.

Each clause is a wish about the form of answers (−1, and the wish becomes the hint), blame (−1), praise (+1), doubt
(which turns a following claim into blame), or something new. Blame and praise count until the first sentence that asks
for something new: "Thanks! Next one: …" praises, "How many are there? Thanks!" is only polite. A wish outranks blame,
blame outranks praise, and without any of these the score is 0. The rules read English: a message in another language
has no score, unless it holds a thumb or a wish that they know ("auf deutsch bitte"), or is only thanks ("merci!").

Vocabulary and patterns are in `form`, `phrases`, `praised`, `requested`, `tone`, `detail`, `excess`,
`complaints`, `doubt` and `reservation`, word tables in `words.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from openclaw_rl.learner.judge.rules import (
    complaints,
    detail,
    doubt,
    excess,
    form,
    phrases,
    praised,
    requested,
    reservation,
    tone,
)
from openclaw_rl.learner.judge.rules.form import READER
from openclaw_rl.learner.judge.rules.language import is_foreign, is_unknown
from openclaw_rl.learner.judge.tool_results import next_state_verdict
from openclaw_rl.shared.records import AGENT, NOT_UNDERSTOOD, Judgement, NextState, Turn, Vote
from openclaw_rl.shared.text_reading import reads_text

VERSION = "rules-v12"
NOT_READ = f"{NOT_UNDERSTOOD}: the rules read English only; a model reads other languages (the setting judge)"
LONGEST_HINT = 300
_OPENING_SENTENCES = 6
_LONGEST_REASON = 8  # words
_LONGEST_SENTENCE = 600  # characters; some patterns take the square of a sentence's length

_MOST_FOREIGN = 3  # words of a wish that names a quality only

_CONDITION = re.compile(r"^(?:and |but |so )?(?:if|when|whenever|while|before|after|once|as soon as|until|unless)\b")
_CUT = re.compile(r"\s*(?:[,!:]+|\s[–—-])\s*(?:but\b,?\s*)?|\s+but\s+")
_POLITE = re.compile(r"^(?:please )?(?:can|could|would|will) you (?:please )?")
_POINTS_BACK = re.compile(r"\b(?:that|this|it|these|those|too)\b")
_CONTRAST = re.compile(
    r",?\s+(?:but|however|though|yet)\b,?\s+"
    r"|(?<!n't)(?<!not)(?<! is)(?<! are)(?<!'s)(?<!'re)(?<!again)(?<!still)(?<!,),?\s+only\b,?\s+"
)
_BUT = re.compile(r"\b(?:but|however|though|only|yet)\b")
_OWN_TEXT = re.compile(
    r"\b(?:my|our) (?:\w+ )?(?:essay|letter|e-?mail|cv|resume|document|article|report|speech|invitation|application"
    r"|post|story|poem|paper|thesis|homework|draft|blog|newsletter|code|contract|presentation|notes?|text|message"
    r"|website|profile|bio|review|song|book|sentences?|paragraphs?)\b"
)
_HANDS_OVER = re.compile(r"\b(?:this|these|the following|my|our)\b[^:]*:$")
_MAKES = re.compile(
    r"^(?:write|draft|compose|create|send|prepare|design|make|give me|give us|invent|suggest|generate|sing|tell me)"
    r" (?:me |us )?(?:an?|some|one|two|three|another|several) "
)
_MADE_AGAIN = re.compile(
    r"\b(?:versions?|variants?|summary|overview|one|drafts?|attempt|alternative|recap|word|view|try|idea|feel)\b"
)
_FOR_OTHERS = re.compile(rf"\b(?:to|for) (?!{READER}\b)(?:this|the|my|our|his|her|their|an?) \w+")
_ONESELF = re.compile(
    r"^i(?:'d| would)? (?:\w+ )?(?:want|like|love|need|have|try|wish|hope|prefer) to (?:be|sound|become|feel|stay"
    r"|look)\b|\b(?:what|how|where|when) (?:can|could|should|do|would|shall|may) i\b"
)
_STEPS_OF = re.compile(r"\bsteps? (?:for|to|of|in) (?:\w+ing\b|an? |my |our )")
_SUBJECT = re.compile(r" about | (?:lists?|tables?|essays?|paragraphs?|sentences?) (?:of|with|on) ")

_SHORT_WORD = re.compile(r"(?<![\w'/.-])(?:" + "|".join(map(re.escape, form.WORDS["spelled_out"])) + r")(?![\w'/-])")
_ARE = re.compile(r"(?<![\w'-])r(?= (?:you|u)\b)|(?<=\bu )r\b|(?<=\byou )r\b")
_LETTERS = re.compile(r"[a-z]{3,}")
_DRAWN = re.compile(r"([a-z])\1{2,}")
_DOUBLED = frozenset(["good", "too", "boo", "cool", "all", "well", "call", "tell", "sweet", "see", "need", "speed"])

Meaning = Literal["wish", "blame", "praise", "doubt", "sigh", "task", "statement", "nothing"]
_REACTIONS: frozenset[Meaning] = frozenset(["wish", "blame", "praise", "doubt", "sigh"])


@dataclass(frozen=True)
class Reading:
    """The verdict of a message: a score of −1, 0 or +1, or `None` if the message is not understood; a hint or `None`;
    and the reason as text.
    """

    score: float | None
    hint: str | None
    reason: str
    thumb: bool = False
    """True for a message that is only a thumb: typed explicit feedback."""


_RESULTS = {
    "failed": Reading(-1.0, None, "the tool failed"),
    "worked": Reading(1.0, None, "the tool worked"),
    "open": Reading(0.0, None, "the result does not tell whether the tool worked"),
}
_CHOICE = re.compile(r"\b(?:languages?|formats?|styles?|tone|which|what|how (?:would|should|do|shall)|prefer|or)\b")
_OFFER = re.compile(r"\b(?:i|you|me|we)\b.*\b(?:details?|steps?|explain|explanation|walk|go through|break|elaborate)\b")
_LONGEST_REACTION = 60  # words; a longer message brings new work
_WORK = re.compile(
    r"```|(?im:^[^\w\n]*(?:\w+(?:'s)? ){0,2}(?:problem|question|solution|homework|task|exercise|answer|text|code|essay"
    r"|email)\W{0,3}:\s*\S)|:\s*\n|\d\s*[-+*/×÷x]\s*\d+\s*="
)
"""New work in a message: code, "Problem: …", a colon and a new line, a calculation."""


class Heard(msgspec.Struct, frozen=True):
    """The answer that a message reacts to. `asked`: it ends in a question, so that "no" rejects nothing;
    `offers_choice`: the question lets the user choose a language, a format or the like, so that naming one is no wish;
    `offers_detail`: the question offers more detail. `brings_work`: the message brings new work.
    """

    answer: str
    asked: bool
    offers_choice: bool
    offers_detail: bool
    brings_work: bool

    @classmethod
    def read(cls, answer: str, message: str) -> Heard:
        last = re.split(r"(?<=[.!?])\s+|\n", answer.rstrip())[-1][-_LONGEST_SENTENCE:].lower()
        asked = last.endswith("?")
        return cls(
            answer,
            asked,
            asked and _CHOICE.search(last) is not None,
            asked and _OFFER.search(last) is not None,
            _WORK.search(message) is not None or len(message.split()) > _LONGEST_REACTION,
        )

    def after(self, found: Sequence[object]) -> Heard:
        return msgspec.structs.replace(self, asked=False) if found and self.asked else self


class RuleJudge:
    """A judge without a model: deterministic, less than a millisecond per turn."""

    name = "rules"

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """One vote by rules. A tool result never gives a hint."""
        if next_state.role == "user":
            reading = read_message(next_state.text, answer=str(turn.answer.get("content") or ""))
        elif next_state.source == AGENT:
            reading = Reading(0.0, None, "another agent spoke")
        else:
            reading = _RESULTS[next_state_verdict(turn, next_state)]
        return Judgement(
            turn_id=turn.turn_id,
            score=reading.score,
            hint=reading.hint,
            votes=[
                Vote(text=reading.reason, score=reading.score, hint=reading.hint)
                if reading.score is not None
                else Vote(failure=reading.reason)
            ],
            judge=self.name,
            prompt_version=VERSION,
            signal="feedback" if reading.thumb else "judge",
            selection="rules" if reading.hint else "none",
            reason=reading.reason,
        )

    async def close(self) -> None:
        pass


@reads_text(lambda read, text: (read(text, answer="Four."), read("No, shorter.", answer=text)))
def read_message(text: str, *, answer: str = "") -> Reading:
    """The verdict of a user's message on `answer`, the text it reacts to."""
    message = strip_stamp(text)
    if not message:
        return Reading(0.0, None, "the message is empty")
    thumb = _thumb(message)
    if thumb and not _plain(phrases.PICTURE_PARTS.sub("", message)):
        return Reading(float(thumb), None, "the user typed a thumb", thumb=True)
    heard = Heard.read(answer, text)
    found: list[tuple[Meaning, str]] = []
    for sentence in _sentences(message):
        found.extend(_read_sentence(sentence, heard.after(found), found))
    relevant = _about_the_answer(found)
    meanings = {meaning for meaning, _ in relevant}
    if "wish" in meanings:
        hint = " ".join(_sentence_case(words) for meaning, words in relevant if meaning == "wish")
        return Reading(-1.0, hint[:LONGEST_HINT].strip(), "the user asks for something else")
    verdict = not meanings.isdisjoint(("blame", "praise")) or {meaning for meaning, _ in found} == {"sigh"}
    if _is_unread(message, heard, verdict=verdict):
        return Reading(float(thumb), None, "the user typed a thumb") if thumb else Reading(None, None, NOT_READ)
    if "blame" in meanings or thumb < 0 or (verdict and "praise" not in meanings):
        return Reading(-1.0, None, "the user rejects the answer")
    if "praise" in meanings or thumb > 0:
        return Reading(1.0, None, "the user is content")
    return Reading(0.0, None, "the message says nothing about the answer")


def _is_unread(message: str, heard: Heard, *, verdict: bool) -> bool:
    """Whether a message, or what stands beside borrowed thanks in a message with a verdict, is not in English."""
    rest = phrases.BORROWED.sub(" ", message) if verdict else message
    if is_foreign(rest):
        return True
    return (not verdict or rest != message) and is_unknown(rest, answer=heard.answer)


def _about_the_answer(found: list[tuple[Meaning, str]]) -> list[tuple[Meaning, str]]:
    """The parts that speak of the answer: all up to the first new request; after a mere statement only wishes about
    form; after the request only wishes that say they are old ones ("no bold this time")."""
    relevant: list[tuple[Meaning, str]] = []
    stage: Meaning = "nothing"
    stated = ""
    for place, (meaning, words) in enumerate(found):
        if (
            meaning == "wish"
            and detail.ASKS_WHICH.match(_plain(words))
            and not _REACTIONS.issuperset(m for m, _ in found[:place])
        ):
            continue
        if meaning in ("task", "statement"):
            stage = "task" if "task" in (meaning, stage) else "statement"
            stated = f"{stated} {words.lower()}"
        elif stage == "nothing" or (meaning == "wish" and _outlasts(words.lower(), stage, stated)):
            relevant.append((meaning, words))
    return relevant


def _outlasts(words: str, stage: Meaning, stated: str) -> bool:
    """Whether a wish that comes after a statement or a new request (what was `stated`) still speaks of the answer."""
    plain = _plain(words)
    if toned := tone.wish(plain):
        about_form = tone.looks_back(plain) if toned == "manner" else _POINTS_BACK.search(stated) is not None
    else:
        about_form = form.STRONG_FORM.search(words) is not None or requested.is_requested(plain) or detail.wish(plain)
    return about_form and (stage == "statement" or phrases.STANDING.search(words) is not None)


@reads_text()
def strip_stamp(text: str) -> str:
    """The message without a leading time stamp, quoted lines and code blocks."""
    text = phrases.TIME_STAMP.sub("", text)
    text = re.sub(r"```.*?(?:```|$)", " ", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^[^\S\n]*>.*$", " ", text)
    return text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').strip()


def _thumb(message: str) -> int:
    """+1 or −1 for a message that is, or ends or begins with, a thumb or a face; 0 otherwise."""
    bare = phrases.PICTURE_PARTS.sub("", message).strip().lower()
    edges = f"{bare[:3]} {bare[-3:]}"
    if phrases.THUMB_DOWN.search(edges):
        return -1
    return 1 if phrases.THUMB_UP.search(edges) and len(bare.split()) <= 12 else 0


def _sentences(message: str) -> list[str]:
    """The first sentences of a message; a reaction stands at its beginning."""
    parts = re.split(r"(?<=[.!?…])[\"')]*\s+|\n+|;\s+|(?<=:)\s+|(?<![^\S\n])[^\S\n]+[–—-]\s+|\.{2,}\s*", message)
    said = [part for part in parts if re.search(r"\w|[^\x00-\x7f]", part)][:_OPENING_SENTENCES]
    return [part.strip()[:_LONGEST_SENTENCE] for part in said]


def _read_sentence(sentence: str, heard: Heard, before: Sequence[tuple[Meaning, str]]) -> list[tuple[Meaning, str]]:
    """Meanings of a sentence's parts; `before` are those of the sentences before it."""
    whole = _plain(sentence)
    if whole.startswith("no") and phrases.POSITIVE.search(whole) and not _is_wish(whole):
        return [("praise", sentence)]
    if complaints.CONTRAST.search(whole) and not _is_wish(whole):
        return [("blame", sentence)]
    found: list[tuple[Meaning, str]] = []

    def doubted() -> bool:
        return any(meaning == "doubt" for meaning, _ in [*before, *found])

    rest = sentence
    while True:
        head, rest_after = _first_clause(rest)
        if not rest_after:
            break
        meaning = _reaction(head, heard.after(found), doubted=doubted())
        if meaning == "nothing" and _praised_beside(head, [*found, ("nothing", rest_after)], sentence):
            meaning = "praise"
        if meaning == "nothing":
            break
        if meaning == "wish" and _plain(rest_after) in ("please", "pls", "plz"):
            return _joined([*found, (meaning, rest)])
        found.append((meaning, head))
        rest = rest_after
    head, after = _first_clause(rest)
    if (
        after
        and phrases.BETTER.search(_plain(head))
        and _reaction(after, heard.after(found), doubted=doubted()) == "blame"
    ):
        return _joined([*found, ("blame", rest)])
    parted = reservation.SPLIT.split(rest, maxsplit=1)
    if _meaning(parted[0], heard.after(found), doubted=doubted()) != "praise":
        parted = [rest]
    for piece in (piece for part in parted for piece in _CONTRAST.split(part) if piece.strip()):
        if _praised_beside(piece, found, sentence):
            found.append(("praise", piece))
            continue
        for part in _parted(piece, heard):
            meaning = _meaning(part, heard.after(found), doubted=doubted())
            if meaning in ("nothing", "statement"):
                meaning, part = _reserved(part, meaning, heard, before=before, found=found)
            found.append((meaning, part.strip(" ,")))
    return _joined(found)


def _reserved(
    part: str,
    meaning: Meaning,
    heard: Heard,
    *,
    before: Sequence[tuple[Meaning, str]],
    found: Sequence[tuple[Meaning, str]],
) -> tuple[Meaning, str]:
    """The meaning of a part after praise: a fault or an exception is blame, and so is blame behind "however"."""
    so_far = {meaning for meaning, _ in [*before, *found]}
    if "praise" not in so_far or not so_far <= {"praise", "nothing", "sigh"}:
        return meaning, part
    if found and found[-1][0] == "praise" and reservation.is_exception(_plain(part)):
        return "blame", part
    bare = reservation.without_marker(part)
    if bare != part and (alone := _meaning(bare, heard, doubted=False)) in ("wish", "blame"):
        return alone, bare
    question = part.rstrip(" \"')").endswith("?")
    return ("blame" if not question and reservation.is_fault(_plain(bare)) else meaning), part


def _praised_beside(clause: str, beside: Sequence[tuple[Meaning, str]], sentence: str) -> bool:
    """Whether a clause is a mere list of qualities ("short and clear") in a sentence that praises and has no "but"."""
    if not praised.QUALITIES.match(_plain(clause)) or _BUT.search(sentence.lower()):
        return False
    return any(
        meaning == "praise"
        or praised.praises(_plain(words), clause=words)
        or (phrases.POSITIVE.search(_plain(words)) and not _is_wish(_plain(words)))
        for meaning, words in beside
    )


def _parted(piece: str, heard: Heard) -> list[str]:
    """A piece cut before the wish that stands behind a comma ("this is for my boss, make it more professional")."""
    for comma in re.finditer(r",\s+", piece):
        before, after = piece[: comma.start()], piece[comma.end() :]
        if phrases.TASK.search(_plain(before)) or _CONDITION.match(before.lower()):
            break
        wished = _plain(after)
        if (tone.wish(wished) or detail.wish(wished)) and _shaped_wish(wished, heard) == "wish":
            return [before, after]
    return [piece]


def _joined(found: Sequence[tuple[Meaning, str]]) -> list[tuple[Meaning, str]]:
    """The parts of a sentence, with those that belong to one wish ("be nice, she is only nine years old") in one."""
    joined: list[tuple[Meaning, str]] = []
    for meaning, words in found:
        reason = meaning == "statement" and len(words.split()) <= _LONGEST_REASON
        if joined and joined[-1][0] == "wish" and (meaning in ("wish", "nothing") or reason):
            joined[-1] = ("wish", f"{joined[-1][1]}, {words}")
        else:
            joined.append((meaning, words))
    return joined


def _first_clause(text: str) -> tuple[str, str]:
    """A sentence cut at its first comma, exclamation mark or "but": the clause and what follows."""
    polite = re.match(r"\W*\w+,\s*", text) if phrases.NOTHING_REJECTED.search(_plain(text)) else None
    match = _CUT.search(text, polite.end() if polite else 0)
    if match is None or match.start() == 0:
        return text, ""
    return text[: match.start()], text[match.end() :].strip()


def _shaped(clause: str, words: str, heard: Heard, *, doubted: bool) -> Meaning | None:
    """The meaning of a clause whose shape alone tells it."""
    if phrases.WORK_ON_TALK.match(words) or (_HANDS_OVER.search(clause.lower().rstrip()) and _is_wish(words)):
        return "task"
    if doubt.DOUBT.match(words) and ("you" in words or clause.rstrip(" \"')").endswith("?")):
        return "doubt"
    if praised.praises(words, clause=clause):
        return "praise"
    if praised.WITHOUT_WISH.match(words):
        return "nothing"
    wish = _shaped_wish(words, heard)
    if wish is not None:
        return wish
    shaped = excess.complaint(words) or complaints.complaint(words, announces=clause.rstrip().endswith(":"))
    if shaped is None and not heard.asked and doubt.contradicts(words, heard.answer, doubted=doubted):
        return "blame"
    return shaped


def _shaped_wish(words: str, heard: Heard) -> Meaning | None:
    """Whether a clause whose shape alone makes it a wish is one here; `None` where its shape does not."""
    if requested.is_requested(words):
        return "nothing" if heard.offers_choice else "wish"
    toned, detailed = tone.wish(words), detail.wish(words)
    if not toned and not detailed:
        return None
    if heard.offers_detail if detailed else heard.offers_choice:
        return "nothing"
    return "task" if heard.brings_work and not tone.COMPARATIVE.search(words) else "wish"


def _reaction(clause: str, heard: Heard, *, doubted: bool) -> Meaning:
    """Whether a short clause is a reaction by itself; `nothing` for everything else."""
    words = _plain(clause)
    shaped = _shaped(clause, words, heard, doubted=doubted)
    if shaped is not None:
        return shaped
    if len(words.split()) > 7 or _is_wish(words):
        return "nothing"
    if phrases.NOTHING_REJECTED.search(words):
        return "nothing"
    if phrases.POSITIVE.search(words):
        return "praise"
    if phrases.NEGATIVE.search(words) or phrases.BLAME_ANYWHERE.search(words):
        return "nothing" if heard.asked and words in ("no", "nope", "nah") else "blame"
    return "nothing"


def _meaning(clause: str, heard: Heard, *, doubted: bool) -> Meaning:
    words = _plain(clause)
    question = clause.rstrip(" \"')").endswith("?")
    shaped = _shaped(clause, words, heard, doubted=doubted)
    if shaped is not None:
        return shaped
    if _is_wish(words) and not _is_new_task(words):
        return "wish"
    if phrases.NOTHING_REJECTED.search(words):
        return "praise" if re.search(r"\b(?:problem|worries|doubt)\b", words) else "nothing"
    if not question or len(words.split()) <= 3:
        if phrases.POSITIVE.search(words):
            return "praise"
        if phrases.NEGATIVE.search(words):
            return "nothing" if heard.asked and words in ("no", "nope", "nah") else "blame"
    if phrases.ONCE_MORE.search(words):
        return "blame"
    if not question and phrases.BLAME_ANYWHERE.search(words):
        return "blame"
    if form.STRONG_FORM.search(words) and not _is_new_task(words):
        return "nothing"
    if question or phrases.TASK.search(words):
        return "task"
    return "statement" if len(words.split()) >= 5 else "nothing"


def _is_wish(words: str) -> bool:
    """Whether a clause wishes answers to look or sound otherwise."""
    if phrases.POSITIVE.search(words) and not phrases.ASKS_FOR_CHANGE.search(words):
        return False
    if phrases.STANDING_WISH.search(words):
        return True
    if not form.FORM.search(words) or tone.concerns_others(words) or _ONESELF.search(words):
        return False
    rest = form.FORM.sub(" ", words)
    if all(word in form.FILLER or not word.isalpha() for word in re.findall(r"[\w']+", rest)):
        return (form.TELLING_FORM.search(words) is not None and len(words.split()) > 1) or form.QUALITY.search(
            words
        ) is not None
    if not form.STRONG_FORM.search(words) and (not form.QUALITY.search(words) or _foreign(words) > _MOST_FOREIGN):
        return False
    return any(pattern.search(words) for pattern in phrases.WISHES)


def _is_new_task(words: str) -> bool:
    """Whether a clause with words of form in it asks for something new ("Write a poem without bold words")."""
    if not phrases.TASK.search(words):
        return False
    if _OWN_TEXT.search(words) or _STEPS_OF.search(words):
        return True
    order = _POLITE.sub("", words)
    makes = _MAKES.match(order.removeprefix("please ")) is not None and not _MADE_AGAIN.search(words)
    if makes and _FOR_OTHERS.search(words):
        return True
    if phrases.BACK.search(order) or phrases.STANDING_WISH.search(words):
        return False
    return _foreign(words) >= (1 if makes or _SUBJECT.search(words) else 2)


def _foreign(words: str) -> int:
    """The number of words that are neither about form nor filler: what a new request is about."""
    return sum(
        word not in form.FILLER and not word.isdigit() for word in re.findall(r"[\w']+", form.FORM.sub(" ", words))
    )


def _plain(clause: str) -> str:
    """Lower case, spelled out, single spaces, no pictures, no quotation marks, no "ok, " or "hmm, " in front."""
    bare = phrases.THUMB_DOWN.sub(" ", phrases.THUMB_UP.sub(" ", clause.lower()))
    words = re.sub(r"\s+", " ", bare.replace('"', "")).strip(" ,.!?:;-()")
    return form.OTHER_LISTS.sub("errand", phrases.INTERJECTIONS.sub("", spelled_out(words)))


def _sentence_case(words: str) -> str:
    trimmed = words.strip(" ,;:-")
    return trimmed if trimmed.endswith((".", "!", "?", "…")) else f"{trimmed}."


@reads_text()
def spelled_out(words: str) -> str:
    """The words with "u", "pls", "dont" and the like spelled out, and drawn-out letters ("nooo") shortened."""
    words = _ARE.sub("are", words)
    words = _SHORT_WORD.sub(lambda found: form.WORDS["spelled_out"][found[0]], words)
    return _LETTERS.sub(_shortened, words)


def _shortened(found: re.Match[str]) -> str:
    word = found[0]
    if word.startswith("www"):
        return word
    doubled = _DRAWN.sub(r"\1\1", word)
    return doubled if doubled in _DOUBLED else _DRAWN.sub(r"\1", word)
