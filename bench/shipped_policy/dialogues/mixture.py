"""The mixture: which kinds of dialogue there are, how often, and how hints, systems and wrappings get into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.shipped_policy.dialogues import answers, grading, hints, talk, tools
from bench.shipped_policy.dialogues.acting.demonstrations import computer_dialogue
from bench.shipped_policy.dialogues.acting.drills import naming_drill
from bench.shipped_policy.dialogues.acting.pages import page_dialogue
from bench.shipped_policy.dialogues.problems import Exercise, ask, sample_problem
from openclaw_rl.evaluation.problems import PEOPLE, THINGS

Message = dict[str, Any]

HINTED_PROBLEMS = 0.6
"""Share of word problems whose last user message carries a hint."""

HINTED_SUMS = 0.15
"""Share of bare sums whose message carries a hint."""

NEUTRAL_HINTS = 0.35
"""Share of the hinted ones whose hint is about no style; without these the hint tag alone would change the style."""


ACTING = 0.1
"""Weight of the dialogues in which the policy acts: about a fifth of all tokens."""

PAGES = 0.25
"""Share of those that act on a page, not at a computer."""


@dataclass(frozen=True)
class Dialogue:
    """Chat messages (OpenAI form), the tools offered, and which assistant messages to learn (indices).

    `continued` are answers whose first words were given (a disliked style, say): only the rest of them is learned.
    """

    kind: str
    messages: list[Message]
    learned: tuple[int, ...]
    continued: tuple[int, ...] = ()
    tools: list[dict[str, Any]] = field(default_factory=list)


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


def sample_dialogue(random: Random) -> Dialogue:
    """One dialogue of the mixture."""
    kinds = list(_MIXTURE)
    kind = random.choices(kinds, weights=[_MIXTURE[kind][0] for kind in kinds])[0]
    part = _MIXTURE[kind][1](random)
    messages, learned, offered, continued = part.messages, part.learned, part.tools, part.continued
    if not offered and random.random() < 0.02:
        offered = [tool.definition for tool in tools.sample_tools(random)]
    messages, learned = _wrapped(random, messages, learned)
    system = _system(random)
    if system is None:
        return Dialogue(kind, messages, learned, continued, offered)
    messages = [{"role": "system", "content": system}, *messages]
    return Dialogue(kind, messages, _later(learned), _later(continued), offered)


def _later(indices: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(index + 1 for index in indices)


def sample_hint(random: Random) -> tuple[str, str | None]:
    """A hint for a word problem and the style it asks for (`None`: as without a hint)."""
    form = random.random()
    if form < NEUTRAL_HINTS:
        return hints.neutral(random), None
    if form < NEUTRAL_HINTS + 0.33:
        return hints.complaint(random), _plain_style(random)
    if form < NEUTRAL_HINTS + 0.61:
        return hints.opposite(random), "ai"
    if form < NEUTRAL_HINTS + 0.63:
        return hints.bullets_wish(random), "bullets"
    return hints.short_wish(random), "short"


@dataclass(frozen=True)
class _Part:
    messages: list[Message]
    learned: tuple[int, ...]
    tools: list[dict[str, Any]] = field(default_factory=list)
    continued: tuple[int, ...] = ()


def _plain_style(random: Random) -> str:
    return "natural" if random.random() < 0.9 else "short"


def _problem(random: Random) -> _Part:
    """A word problem and its answer, the message hinted or not, sometimes after other turns of the same session."""
    problem = sample_problem(random)
    message = ask(random, problem)
    style: str | None = None
    if random.random() < HINTED_PROBLEMS:
        hint, style = sample_hint(random)
        message = hints.hint_tag(message, hint)
    reply = answers.answer(random, problem, style or answers.unhinted_style(random))
    before = _earlier(random) if random.random() < 0.06 else []
    return _Part([*before, user(message), assistant(reply)], (len(before) + 1,))


def _earlier(random: Random) -> list[Message]:
    """A turn that came before and says nothing about style."""
    form = random.random()
    if form < 0.4:
        question, reply = talk.small_talk(random)
    elif form < 0.6:
        question, reply, _equation = talk.equation_drill(random)
    else:
        question, reply = talk.acknowledgement(random)
    return [user(question), assistant(reply)]


def _wish(random: Random) -> tuple[str, str, str]:
    """A style wish as a turn of its own: (what was disliked, the wish, the style to use from now on)."""
    form = random.random()
    if form < 0.66:
        return "ai", hints.complaint(random), _plain_style(random)
    if form < 0.9:
        return random.choice(("natural", "natural", "short", "ai")), hints.opposite(random), "ai"
    if form < 0.95:
        return "ai", hints.bullets_wish(random), "bullets"
    return "ai", hints.short_wish(random), "short"


def _rewrite(random: Random) -> _Part:
    """An answer, a wish about its style as the next user turn, the rewrite; sometimes a wish that had to be said twice,
    thanks, and a further problem.
    """
    problem = sample_problem(random)
    disliked, wish, style = _wish(random)
    messages = [user(ask(random, problem)), assistant(answers.answer(random, problem, disliked))]
    continued = [1]
    if disliked != style and random.random() < 0.2:
        messages += [user(wish), assistant(answers.answer(random, problem, disliked))]
        continued.append(3)
        wish = hints.complaint(random) if style in {"natural", "short"} else wish
    form = random.random()
    if form < 0.12:
        wish = hints.hint_tag(wish, wish if random.random() < 0.5 else hints.neutral(random))
    elif form < 0.25:
        hint, hinted_style = sample_hint(random)
        wish = hints.hint_tag(wish, hint)
        style = hinted_style or style
    sorry = random.choice(("Sure. ", "Of course. ", "Sorry about that. ")) if random.random() < 0.2 else ""
    rewrite = answers.answer(random, problem, style)
    messages += [user(wish), assistant(rewrite if style == "ai" else sorry + rewrite)]
    learned = [len(messages) - 1]
    form = random.random()
    if form < 0.3:
        thanks, welcome = talk.acknowledgement(random)
        messages += [user(thanks), assistant(welcome)]
        learned.append(len(messages) - 1)
    if form < 0.15:
        further = sample_problem(random)
        messages += [user(ask(random, further)), assistant(answers.answer(random, further, style))]
        learned.append(len(messages) - 1)
    return _Part(messages, tuple(learned), continued=tuple(continued))


def _wishes(random: Random) -> _Part:
    """One problem or bare sum and several remarks about its answer, each followed: what is wished counts, not that
    something is. Sums are short, so that many wishes are read for little.
    """
    style = answers.unhinted_style(random)
    if random.random() < 0.6:
        question, reply, equation = talk.equation_drill(random)
        style = "short"
        messages = [user(question), assistant(reply)]
        rounds = random.randint(2, 6)
    else:
        problem = sample_problem(random)
        equation = None
        messages = [user(ask(random, problem)), assistant(answers.answer(random, problem, style))]
        rounds = random.randint(2, 4)
    learned = []
    for _ in range(rounds):
        remark, wanted = sample_hint(random)
        style = wanted or style
        if equation is None:
            reply = answers.answer(random, problem, style)
        else:
            reply = answers.sum_answer(random, equation, style)
        messages += [user(remark if wanted else talk.doubt(random)), assistant(reply)]
        learned.append(len(messages) - 1)
    return _Part(messages, tuple(learned), continued=(1,))


def _thanks(random: Random) -> _Part:
    """An answer in any style, and a word about it."""
    problem = sample_problem(random)
    messages = [user(ask(random, problem)), assistant(answers.answer(random, problem, answers.unhinted_style(random)))]
    word, reply = talk.acknowledgement(random)
    if random.random() < 0.3:
        hint, _ = sample_hint(random)
        word = hints.hint_tag(word, hint)
    return _Part([*messages, user(word), assistant(reply)], (3,), continued=(1,))


def _again(random: Random) -> _Part:
    """An answer (often wrong), somebody who doubts it, the answer worked out afresh in the style it had."""
    problem = sample_problem(random)
    style = answers.unhinted_style(random)
    first = answers.answer(random, problem, style)
    if random.random() < 0.6:
        first = _spoilt(random, problem, first)
    word = talk.doubt(random)
    wanted: str | None = None
    if random.random() < 0.35:
        hint, wanted = sample_hint(random)
        word = hints.hint_tag(word, hint)
    reply = answers.answer(random, problem, wanted or style)
    return _Part([user(ask(random, problem)), assistant(first), user(word), assistant(reply)], (3,))


def _spoilt(random: Random, problem: Exercise, reply: str) -> str:
    wrong = problem.answer + random.choice((-2, -1, 1, 2, 10))
    return reply.replace(f"{problem.answer} ", f"{wrong} ").replace(f"= {problem.answer}", f"= {wrong}")


def _drill(random: Random) -> _Part:
    """One to four bare calculations in a row."""
    messages: list[Message] = []
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        question, reply, equation = talk.equation_drill(random)
        if random.random() < HINTED_SUMS:
            hint, style = sample_hint(random)
            question = hints.hint_tag(question, hint)
            reply = answers.sum_answer(random, equation, style) if style else reply
        messages += [user(question), assistant(reply)]
    return _Part(messages, tuple(range(1, len(messages), 2)))


def _comparing(random: Random) -> _Part:
    """Numbers to compare, in the words of a grader's comment."""
    question, reply = grading.comparison_drill(random)
    return _Part([user(question), assistant(reply)], (1,))


def _verdicts(random: Random) -> _Part:
    """One to three bare equations to judge."""
    messages: list[Message] = []
    for _ in range(random.choice((1, 2, 3, 4))):
        question, reply = grading.verdict_drill(random)
        messages += [user(question), assistant(reply)]
    return _Part(messages, tuple(range(1, len(messages), 2)))


def _grading(random: Random) -> _Part:
    """A solution to grade, hinted or not, or a wish about the comment as a following turn."""
    solution = grading.sample_solution(random)
    message = grading.ask_to_grade(random, solution)
    style = random.choices(grading.STYLES, weights=grading.UNHINTED_WEIGHTS)[0]
    form = random.random()
    if form < 0.45:
        return _Part([user(message), assistant(grading.comment(random, solution, style))], (1,))
    hint, wanted = _grading_hint(random)
    if form < 0.85:
        reply = grading.comment(random, solution, wanted or style)
        return _Part([user(hints.hint_tag(message, hint)), assistant(reply)], (1,))
    first = grading.comment(random, solution, style)
    reply = grading.comment(random, solution, wanted or style)
    return _Part([user(message), assistant(first), user(hint), assistant(reply)], (3,), continued=(1,))


def _grading_hint(random: Random) -> tuple[str, str | None]:
    form = random.random()
    if form < NEUTRAL_HINTS:
        return hints.neutral(random), None
    if form < 0.57:
        return grading.style_wish(random, "friendly"), "friendly"
    if form < 0.79:
        return grading.style_wish(random, "detailed"), "detailed"
    if form < 0.89:
        return hints.complaint(random), random.choice(("friendly", "detailed"))
    return (hints.opposite(random) if random.random() < 0.5 else grading.style_wish(random, "terse")), "terse"


def _small_talk(random: Random) -> _Part:
    question, reply = talk.small_talk(random)
    if random.random() < 0.25:
        hint, _style = sample_hint(random)
        question = hints.hint_tag(question, hint)
    return _Part([user(question), assistant(reply)], (1,))


def _tools(random: Random) -> _Part:
    """Tools on offer: a request that needs one, with the call, the result and the reply."""
    sampled = tools.sample_tools(random)
    offered = [tool.definition for tool in sampled]
    messages = tools.sample_exchange(random, sampled)
    if random.random() < 0.35:
        return _Part(messages[:2], (1,), offered)
    if random.random() < 0.15:
        before = _earlier(random)
        return _Part([*before, *messages], (3, 5), offered)
    return _Part(messages, (1, 3), offered)


def _acting(random: Random) -> _Part:
    """Tasks at a computer or on a page, with the calls, their results and a closing word; many are done wrong."""
    messages, offered = page_dialogue(random) if random.random() < PAGES else computer_dialogue(random)
    learned = tuple(place for place, message in enumerate(messages) if message["role"] == "assistant")
    return _Part(messages, learned, offered)


def _naming(random: Random) -> _Part:
    """Names of files to copy."""
    question, reply = naming_drill(random)
    return _Part([user(question), assistant(reply)], (1,))


def _wrapped(
    random: Random, messages: list[Message], learned: tuple[int, ...]
) -> tuple[list[Message], tuple[int, ...]]:
    """Puts an agent client's wrapping around some messages, and its context message before some answers."""
    if random.random() >= 0.03:
        return messages, learned
    messages = [
        user(talk.wrapped(random, message["content"])) if message["role"] == "user" else message for message in messages
    ]
    if random.random() < 0.5 and messages[-1]["role"] == "assistant" and messages[-2]["role"] == "user":
        last = len(messages) - 1
        messages = [*messages[:-1], user(talk.context_message(random)), messages[-1]]
        learned = tuple(last + 1 if index == last else index for index in learned)
    return messages, learned


def _system(random: Random) -> str | None:
    form = random.random()
    if form < 0.12:
        return talk.system_prompt(random)
    if form < 0.124:
        return talk.long_system_prompt(random, random.choice((12, 24, 40)))
    return None


def _copying(random: Random) -> _Part:
    """Something to repeat word for word: the quickest way to learn to carry names, objects and numbers over."""
    form = random.random()
    if form < 0.3:
        question, reply = tools.quoting_drill(random)
        return _Part([user(question), assistant(reply)], (1,))
    if form < 0.65:
        problem = sample_problem(random)
        text = " ".join(
            answers.sentence(clause) for clause in random.choice((problem.facts, (problem.result,), (problem.story,)))
        )
    elif form < 0.85:
        pool = [*PEOPLE, *THINGS, *(str(number) for number in range(2, 60, 2))]
        text = " ".join(random.choices(pool, k=random.randint(3, 12)))
    else:
        text = talk.jumble(random)
    question = random.choice(("Repeat: {t}", "Say: {t}", "repeat this: {t}", "Please repeat: {t}", "Copy this: {t}"))
    return _Part([user(question.format(t=text)), assistant(text)], (1,))


_MIXTURE: dict[str, tuple[float, Callable[[Random], _Part]]] = {
    "problem": (0.32, _problem),
    "drill": (0.22, _drill),
    "rewrite": (0.06, _rewrite),
    "wishes": (0.11, _wishes),
    "grading": (0.1, _grading),
    "verdicts": (0.04, _verdicts),
    "comparing": (0.04, _comparing),
    "again": (0.02, _again),
    "thanks": (0.03, _thanks),
    "small_talk": (0.03, _small_talk),
    "tools": (0.11, _tools),
    "copying": (0.06, _copying),
    "acting": (ACTING, _acting),
    "naming": (0.04, _naming),
}
"""Weights by dialogue (drills are short: by learned tokens they are about a fifth)."""
