"""Everything around the work: greetings, thanks, bare sums, system prompts, and what clients wrap around a message."""

from __future__ import annotations

import json
from random import Random

from bench.shipped_policy.dialogues.problems import phrases
from openclaw_rl.evaluation.problems import PEOPLE, Step


def acknowledgement(random: Random) -> tuple[str, str]:
    """Thanks of some sort and a short reply."""
    talk = phrases()["talk"]
    return random.choice(talk["acknowledgements"]), random.choice(talk["welcomes"])


def doubt(random: Random) -> str:
    """A user who says that the answer is wrong or should be done again."""
    talk = phrases()["talk"]
    return str(random.choice(talk["doubts"]))


def small_talk(random: Random) -> tuple[str, str]:
    """A greeting or a question about the assistant, or a subject that is too hard for it, with the reply."""
    talk = phrases()["talk"]
    if random.random() < 0.25:
        topic = random.choice(talk["topics"])
        question = random.choice(talk["ask_topic"]).format(t=topic)
        return question, random.choice(talk["too_hard"]).format(t=topic)
    questions, replies = random.choice(talk["small_talk"])
    return random.choice(questions), random.choice(replies)


def equation_drill(random: Random) -> tuple[str, str, Step]:
    """Arithmetic without a story: typed as an equation, or (a third) as a person asks it; the plain answer; the sum."""
    operator = random.choices("+-×", weights=(4, 4, 3))[0]
    if operator == "+":
        left, right = (
            (random.randint(0, 45), random.randint(0, 20))
            if random.random() < 0.6
            else (random.randint(0, 20), random.randint(0, 20))
        )
        if random.random() < 0.3:
            left, right = right, left
    elif operator == "-":
        left = random.randint(2, 45)
        right = random.randint(0, min(left, 28))
        if random.random() < 0.3:  # as a grader compares: near each other, or below zero
            left = random.randint(2, 99)
            right = max(1, left + random.randint(-12, 12))
    else:
        left, right = random.randint(2, 9), random.randint(2, 9)
    equation = Step.correct(left, operator, right)
    told = str(equation)
    if random.random() < 0.35:
        name = {"+": ("plus", "and"), "-": ("minus", "minus"), "×": ("times", "times")}[operator]
        said = f"{left} {name[0]} {right}"
        question = random.choice(
            (
                "what is {s}?",
                "What is {s}?",
                "how much is {s}?",
                "What's {s}?",
                "{s}?",
                "what does {s} make",
                "Calculate {s}.",
                "tell me {s}",
                "and {s}?",
                "How much is {s}",
            )
        ).format(s=said)
        return (
            question,
            random.choice((f"{said} is {equation.result}.", f"{said} is {equation.result}.", told)),
            equation,
        )
    sign = random.choice(("×", "x", "*")) if operator == "×" else operator
    gap = "" if random.random() < 0.25 else " "
    question = f"{left}{gap}{sign}{gap}{right}" + random.choice((" =", "=", " = ?", "", "?"))
    return question, told, equation


def system_prompt(random: Random) -> str:
    """A system prompt: mostly a line, sometimes a page of rules and notes like an agent's."""
    talk = phrases()["talk"]
    if random.random() < 0.8:
        return str(random.choice(talk["short_systems"]))
    return long_system_prompt(random, random.choice((2, 3, 4, 6)))


def long_system_prompt(random: Random, sections: int) -> str:
    """Some 50 tokens a section: headings, rules, lists, files and filler prose."""
    talk = phrases()["talk"]
    parts = [random.choice(talk["short_systems"])]
    for _ in range(sections):
        heading = f"{random.choice(('#', '##', '##', '###'))} {random.choice(talk['sections'])}"
        form = random.random()
        if form < 0.4:
            body = "\n".join(f"- {rule}" for rule in random.sample(talk["rules"], random.randint(2, 6)))
        elif form < 0.6:
            body = " ".join(f"{rule}." for rule in random.sample(talk["rules"], random.randint(2, 5)))
        elif form < 0.8:
            body = " ".join(random.choices(talk["words"], k=random.randint(20, 60))).capitalize() + "."
        else:
            name = random.choice(("exec", "read", "write", "edit", "ls", "message", "cron", "search"))
            schema = {"type": "object", "properties": {}}
            body = json.dumps({"name": name, "description": random.choice(talk["rules"]), "parameters": schema})
        parts.append(f"{heading}\n{body}")
    return random.choice(("\n", "\n\n")).join(parts)


def jumble(random: Random) -> str:
    """A few words and marks in no order, some with a file's or an identifier's punctuation."""
    talk = phrases()["talk"]
    words = random.choices(talk["words"], k=random.randint(2, 8))
    return random.choice((" ", " ", "_", "/", "-", ", ")).join(words) + random.choice(
        ("", ".", ".txt", ".md", "?", "()")
    )


def wrapped(random: Random, message: str) -> str:
    """A message as an agent client sends it: a time before it, a line of run-time facts after it."""
    day = random.choice(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
    date = f"20{random.randint(24, 29)}-{random.randint(1, 12):02d}-{random.randint(1, 28):02d}"
    time = f"{random.randint(0, 23):02d}:{random.randint(0, 59):02d}"
    text = f"[{day} {date} {time} UTC] {message}" if random.random() < 0.8 else message
    if random.random() < 0.5:
        facts = random.sample(
            (
                "agent=main",
                "host=vm",
                "os=Linux",
                "channel=web",
                "shell=bash",
                "model=policy",
                f"session={random.randint(100, 999)}",
                "node=v22",
            ),
            4,
        )
        text += f"\n\nRuntime: {' | '.join(facts)}"
    return text


def context_message(random: Random) -> str:
    """What an agent client adds as a last user message of its own: state, not a question."""
    name = random.choice(PEOPLE)
    return random.choice(
        (
            "<<<STATE>>>\nFor information only:\nrunning sessions: none\n<<<END OF STATE>>>",
            "<<<STATE>>>\nFor information only:\nhelpers at work: none\nrunning sessions: none\n<<<END OF STATE>>>",
            f"<context>\nuser: {name}\nopen files: none\n</context>",
        )
    )
