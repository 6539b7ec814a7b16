"""What people type about the style of an answer, and what they type that is not about style at all.

A hint reaches the policy as `{user message}\\n\\n[user's hint / instruction]\\n{hint}`. Complaints about bold and numbered
steps, wishes for them, and neutral remarks are drawn from small grammars, each as rich as the others: were one of them
thin, the policy would read the tag or a single word instead of the wish. `held_out.json` has phrases that these
grammars do not produce; only measurements use them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random

from trainer_local.embedded.dialogues.problems import lexicon

HELD_OUT_PATH = Path(__file__).with_name("held_out.json")

_THINGS = (
    "bold|bold text|bold letters|bold words|bold type|the bold|the bold text|the bold parts|all the bold|that bold stuff|"
    "asterisks|the asterisks|stars|the stars|those stars everywhere|double stars|numbered steps|the numbered steps|"
    "numbered lists|a numbered list|the numbered list|numbering|numbers in front of the lines|numbers before every line|"
    "step 1 step 2|step one, step two|the step labels|steps|the steps|step by step lists|lists|a list|the list|"
    "bullet points|bullets|the bullet points|bulleted lists|headings|headers|titles|a heading|markdown|"
    "the markdown|markdown formatting|formatting|fancy formatting|all that formatting|the formatting|special formatting|"
    "a final answer line|the final answer line|the final answer heading|a final answer heading|'Final answer'|"
    "the final answer part|the words final answer|boxed|boxed answers|a box|the box|the boxed thing|\\boxed|"
    "the robot style|that AI style|AI formatting|the chatbot style|the textbook format|the report style"
).split("|")
_BANS = (
    "don't use {x}|do not use {x}|please don't use {x}|please do not use {x}|stop using {x}|please stop using {x}|stop with {x}|"
    "stop it with {x}|no {x}|no {x} please|please no {x}|no more {x}|without {x}|without {x} please|do it without {x}|"
    "answer without {x}|say it without {x}|drop {x}|skip {x}|please skip {x}|leave out {x}|leave {x} out|please leave out {x}|"
    "I don't like {x}|I do not like {x}|I don't want {x}|I hate {x}|I really dislike {x}|I can't stand {x}|I'm not a fan of {x}|"
    "enough with {x}|enough of {x}|can you leave out {x}|can you do it without {x}|could you write it without {x}|"
    "could you please not use {x}|can we do without {x}|you don't need {x}|there is no need for {x}|I asked for no {x}|"
    "I told you not to use {x}|why do you always use {x}|why all this {x}|what is it with {x}|get rid of {x}|"
    "avoid {x}|please avoid {x}|quit using {x}|never use {x}|don't answer with {x}|don't give me {x}|don't write {x}|"
    "lose {x}|cut {x}|cut out {x}|remove {x}|take out {x}|take away {x}|too much {x}|I'm tired of {x}|I am sick of {x}|"
    "not again with {x}|{x} again? no|{x} is annoying|{x} bothers me|I find {x} ugly|nobody needs {x}|spare me {x}|not with {x}|"
    "the user does not want {x}|the user dislikes {x}|the answer should not have {x}|the reply should avoid {x}"
).split("|")
_PLAIN = (
    "just say it in plain sentences|just write plain sentences|use plain sentences|plain sentences please|plain text please|"
    "just plain text|write plain text|use plain text only|write normally|just write normally|write it normally|talk normally|"
    "talk like a normal person|write like a normal person|write like a human|like a human would|say it like a person|"
    "say it in your own words|tell me in words|just tell me|just tell me the answer in a sentence|write it in one or two sentences|"
    "answer in a sentence|answer in normal sentences|answer in full sentences|in simple sentences please|use simple words|"
    "keep it simple and plain|write it as one paragraph|one short paragraph is enough|write it as a paragraph|prose please|"
    "use prose|write flowing text|as if you were talking to me|like you would tell a friend|explain it like a friend|"
    "like I would write it myself|the way a student would write it|like in a normal chat|just talk to me|make it sound natural|"
    "make it more natural|sound more natural|write naturally|in a natural way please|keep it conversational|"
    "I want it in normal language|I want plain sentences|I'd rather have plain sentences|I prefer plain prose|"
    "answer in plain prose|the answer should be plain prose|the user wants plain sentences|reply in ordinary sentences|"
    "can you write it in normal sentences|could you put it in plain words|can you say it in plain english|write it out in words"
).split("|")
_PLAIN_REASONS = (
    "it looks like a robot wrote it|this looks like AI|it looks AI generated|my teacher will think it's from an AI|"
    "that looks like ChatGPT|it sounds like a machine|you sound like a robot|so stiff|it is hard to read like that|"
    "this is not how people write|nobody writes like that|I have to hand it in|I need it for my notebook|it looks copied|"
    "way too formal|too much structure|it is too formatted|it's just a small problem|I can't copy that into my notebook|"
    "it doesn't look like my own work|this isn't a textbook"
).split("|")

_WANTED = (
    "bold|bold text|bold numbers|bold steps|bold step labels|bold headings|numbered steps|numbered steps with bold|"
    "a numbered list|numbered lists|clear numbered steps|steps with numbers|step 1, step 2 and so on|step by step format|"
    "steps|the steps one by one|markdown|markdown formatting|nice formatting|some formatting|more formatting|proper formatting|"
    "more structure|a clear structure|a structured answer|a bold final answer|a final answer line|a final answer in bold|"
    "the final answer heading|a final answer at the end|a boxed answer|a boxed result|\\boxed|the result in a box|headings|headers|"
    "a list of steps|the textbook format|the full format with bold and steps|the AI style|your usual bold style|the list format"
).split("|")
_DEMANDS = (
    "use {x}|use {x} please|please use {x}|please use {x} again|do use {x}|always use {x}|you can use {x}|you should use {x}|"
    "with {x}|with {x} please|please answer with {x}|answer with {x}|write it with {x}|do it with {x}|show it with {x}|say it with {x}|"
    "I want {x}|I want to see {x}|I'd like {x}|I like {x}|I really like {x}|I love {x}|I need {x}|I prefer {x}|I'd prefer {x}|"
    "I'm a fan of {x}|give me {x}|please give me {x}|add {x}|please add {x}|put in {x}|can you use {x}|can you give me {x}|"
    "could you use {x}|could you please use {x}|can you add {x}|can we have {x}|where are {x}? I want that|I miss {x}|bring back {x}|"
    "format it with {x}|make it with {x}|don't forget {x}|don't leave out {x}|do not skip {x}|why no {x}? please use it|"
    "keep {x}|keep using {x}|go on with {x}|more {x} please|{x} please|{x} would be better|{x} is what I want|{x} helps me|"
    "I asked for {x}|I told you to use {x}|the user wants {x}|the user likes {x}|the answer should have {x}|the reply should use {x}"
).split("|")
_AGAINST_PLAIN = (
    "don't write plain sentences|no plain sentences|no prose|no paragraphs please|not one long paragraph|don't write a paragraph|"
    "stop writing it as a paragraph|stop with the prose|I don't like prose|I don't want plain text|not as plain text|"
    "I hate long sentences|I don't want a block of text|not just a sentence|don't just tell me in a sentence|"
    "don't write it like a chat|plain text is boring|too plain|this is too plain|too unstructured|that was not structured"
).split("|")
_STRUCTURE_REASONS = (
    "it is easier to read|so I can follow it|so I can follow each step|that is easier to check|I have to check every step|"
    "it looks more professional|I want it to look tidy|I can't follow the sentences|it's for a presentation|it helps me learn|"
    "so it stands out|so that I see the result at once|like in my textbook|like you did before|as always"
).split("|")

_NEUTRAL = (
    "double check the numbers|please double check|check your math|check the sum again|please check it once more|be careful|"
    "be careful with the numbers|please be careful with the names|don't mix up the names|please don't mix up the names|"
    "don't forget the name|do not forget who it is about|don't get it wrong|please don't make a mistake|no mistakes please|"
    "that's wrong|that is wrong|no, that's wrong|this was wrong|the answer was wrong|the answer is wrong|wrong number|"
    "no, that is not right|I think that's not right|I don't think so|that can't be right|are you sure?|are you sure about that?|"
    "try again|please try again|try it once more|do it again|redo it|answer again|please answer again|one more time|"
    "that's right|that was right|correct|yes, correct|right, thanks|good|good answer|nice|well done|great, thank you|thanks|thank you|"
    "thanks a lot|perfect|ok|okay, good|yes|no|hmm|wow|cool|I see|got it|now I get it|"
    "this is for my homework|it's for my son|it's for school|I have a test tomorrow|my teacher gave me this|I'm in third grade|"
    "my sister asked me|I am bad at math|I like math|math is fun|I'm tired today|it is raining here|good morning|have a nice day|"
    "use the right numbers|use the right operation|use the numbers from the problem|please use the name from the problem|"
    "mention the name|please name the person|say who has them|tell me what is counted|say what kind of things it is about|"
    "answer the question|please answer the question|just answer my question|read the problem carefully|read it again|"
    "count again|count them one more time|you forgot something|you used the wrong numbers|you swapped the names|the name was wrong|"
    "I don't understand the question|don't rush|take your time|no hurry|answer in English|English please|please be polite|"
    "be honest|remember what I told you|don't guess|please don't guess|stop guessing|stop getting it wrong|"
    "the answer should be correct|the reply should be correct|the user wants the right number|the user thanked the assistant|"
    "the user was happy with this answer|the numbers should be checked again|don't use the wrong number|avoid mistakes|"
    "I'd like to know the number|I want the right answer|give me the right answer|I need the right number|can you check it|"
    "could you check that again|can you help me with this|please help me"
).split("|")
_OPENERS = (
    "no, |No. |no no, |nope, |hey, |hey |hm, |hmm, |ugh, |ok but |okay, but |well, |please, |right, but |that's right, but |"
    "yes but |thanks, but |thank you, but |good, but |correct, but |nice, but |sorry, but |again: |next time |from now on |"
    "in the future, |for the next one: |the number is right, but |one thing: |I said: |come on, |omg |dude, |my friend, |"
    "listen, |you know what, |by the way, |and |but |again, |once more: "
).split("|")


def hint_tag(message: str, hint: str) -> str:
    """The user message as the hinted teacher sees it."""
    return f"{message}\n\n[user's hint / instruction]\n{hint}"


def complaint(random: Random) -> str:
    """Somebody who wants neither bold nor numbered steps: plain sentences."""
    return _typed(random, _compose(random, _bans(random), random.choice(_PLAIN), random.choice(_PLAIN_REASONS)))


def opposite(random: Random) -> str:
    """Somebody who wants bold, numbered steps and the rest of the AI style."""
    wanted = random.choice(_WANTED)
    if random.random() < 0.35:
        wanted = f"{wanted} and {random.choice(_WANTED)}"
    demand = random.choice(_DEMANDS).format(x=wanted)
    return _typed(random, _compose(random, random.choice(_AGAINST_PLAIN), demand, random.choice(_STRUCTURE_REASONS)))


def neutral(random: Random) -> str:
    """A remark that wishes no style: the answer keeps whatever style it would have had."""
    text = random.choice(_NEUTRAL)
    form = random.random()
    if form < 0.3:
        text = f"{text}, {random.choice(_NEUTRAL)}" if form < 0.15 else f"{text}. {random.choice(_NEUTRAL)}"
    elif form < 0.4:
        words = lexicon()
        name, things = random.choice(words["names"]), random.choice(words["objects"])[1]
        text = random.choice(
            (
                f"I like {things}",
                f"I don't like {things}",
                f"don't forget the {things}",
                f"my name is {name}",
                f"{name} is my friend",
                f"no {things} for me",
                f"please count the {things} again",
                f"use {things}",
            )
        )
    return _typed(random, text)


def bullets_wish(random: Random) -> str:
    """Somebody who wants a plain bulleted list."""
    return _typed(
        random,
        random.choice(
            "just bullet points|plain bullets, nothing bold|make it a simple bullet list|short bullet points please|"
            "use dashes for each point|a bulleted list without bold please".split("|")
        ),
    )


def short_wish(random: Random) -> str:
    """Somebody who wants the equation and the result, no more."""
    return _typed(
        random,
        random.choice(
            "shorter please|too long|keep it short|be brief|only the result|just the result please|just the calculation|"
            "make it shorter|that's too long, shorter please|short answer please|one line is enough|don't explain so much".split("|")
        ),
    )


@functools.cache
def held_out() -> dict[str, list[str]]:
    """Phrases that training never sees, by kind: `complaint`, `opposite`, `neutral`."""
    loaded: dict[str, list[str]] = json.loads(HELD_OUT_PATH.read_text(encoding="utf-8"))
    return loaded


def _bans(random: Random) -> str:
    thing = random.choice(_THINGS)
    form = random.random()
    if form < 0.3:
        thing = f"{thing} {random.choice(('and', 'or'))} {random.choice(_THINGS)}"
    elif form < 0.37:
        thing = f"{thing}, {random.choice(_THINGS)} and {random.choice(_THINGS)}"
    return random.choice(_BANS).format(x=thing)


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
        text = random.choice(_OPENERS) + text
    form = random.random()
    if form < 0.35:
        text = text.lower()
    elif form < 0.65:
        text = text[0].upper() + text[1:]
    elif form < 0.69:
        text = text.upper()
    if random.random() < 0.06:
        place = random.randrange(len(text))
        text = text[:place] + text[place + 1 :]
    if random.random() < 0.1 and "'" in text:
        text = text.replace("'", "")
    ending = random.choice(("", "", "", ".", ".", "!", "!!", " please", " pls", ", thanks", ". Thanks", " :)", "..."))
    return text if text.endswith(("?", "!")) else text + ending
