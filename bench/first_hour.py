"""A person's first hour with SmolLM2, as the page docs/first-hour.md shows it.

    python -m bench.first_hour [--url URL] [--json] [--save FILE] [--page]

Ten questions; a complaint where the answer has a list or bold, thanks where it has none; six other questions before the
first version and after it. Talks to the service of `make run` (its key in OPENCLAW_RL_ADMIN_KEY), or starts one. It is
a record of one run, not a measurement: `bench.real_model` measures.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import Any

from bench import program
from bench.pages import Section, result, table
from bench.real_model.people import degenerate, plain
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import ConfigError

RESULT = "first_hour.json"
TASKS = {
    "How can I sleep better?": "Please answer in plain sentences, without a list.",
    "What should I pack for a weekend in the mountains?": "Can you write that without bullet points? I'd rather read "
    "plain text.",
    "How do I start a small vegetable garden?": "No lists please, I read this aloud.",
    "Give me some ideas for a birthday dinner.": "Please write it as a text, not as a list.",
    "What are good habits for learning a language?": "Not a list please. Just plain sentences.",
    "How can I save money on my electricity bill?": "I'd like that as plain sentences, without numbers or bold.",
    "Name some games for a rainy afternoon.": "Too much formatting. Plain sentences without numbers please.",
    "How do I prepare for a job interview?": "Please don't use bullet points, write plain sentences.",
    "What should I check before I rent a flat?": "No lists please, write it the way you would say it.",
    "How do I take better photos with my phone?": "Drop the list and explain it in plain sentences.",
}
"""Each question with the complaint about a list in its answer."""
STILL = "Still a list. Plain sentences please."
THANKS = "Thanks, that reads well."
HELD_OUT = (
    "Give me five tips for baking bread at home.",
    "What should I bring to a picnic?",
    "How do I keep houseplants alive?",
    "Give me some tips for my first day at a new job.",
    "What are cheap ways to decorate a room?",
    "How do I get fit without a gym?",
)
MAX_TOKENS = 220
PATIENCE = 1800.0
"""Seconds within which the first version must be live."""
SHOWN = 400
"""Characters of an answer on the page."""


async def measure(options: argparse.Namespace) -> None:
    """Talk, wait for the first version, ask again. Raises `ConfigError` when no version comes."""
    async with (
        program.service(options, {"model": "smollm2"}) as service,
        ChatClient(service.url, service.key, timeout=600.0) as client,
    ):
        start = (await client.get("/rl/status"))["version"]["live"]
        before = [await _held_out(client, question) for question in HELD_OUT]
        talks = [await _talk(client, question, complaint) for question, complaint in TASKS.items()]
        waited = await _next_version(client, start)
        after = [await _held_out(client, question) for question in HELD_OUT]
        versions = (await client.get("/rl/versions"))["versions"]
    made = next(one for one in versions if one["number"] == start + 1)
    found = {
        "before": before,
        "talks": talks,
        "after": after,
        "wait_seconds": round(waited, 1),
        "step_seconds": round(made["metrics"]["seconds"], 1),
        "version": start + 1,
    }
    program.report(options, "a first hour with SmolLM2", ("", "found"), list(_short(found)), found)


async def _held_out(client: ChatClient, question: str) -> str:
    """The answer to a question that nothing is learned from."""
    messages = [{"role": "user", "content": question}]
    return (await client.chat(messages, headers={"X-RL-Train": "never"}, max_tokens=MAX_TOKENS)).text


async def _talk(client: ChatClient, question: str, complaint: str) -> dict[str, Any]:
    """A conversation: the question, what the person says of the answer, and what they say of a second try."""
    messages = [{"role": "user", "content": question}]
    answers: list[str] = []
    reactions: list[str] = []
    seconds: list[float] = []
    while True:
        begun = time.perf_counter()
        answer = (await client.chat(messages, max_tokens=MAX_TOKENS)).text
        seconds.append(time.perf_counter() - begun)
        if reactions and reactions[-1] in (THANKS, STILL):
            break
        answers.append(answer)
        reactions.append(THANKS if plain(answer) else STILL if reactions else complaint)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": reactions[-1]}]
    return {"question": question, "answers": answers, "reactions": reactions, "seconds": seconds}


async def _next_version(client: ChatClient, start: int) -> float:
    """Wait for a version after `start`; the seconds that it took. Raises `ConfigError` with what learning waits for."""
    begun = time.perf_counter()
    while (status := await client.get("/rl/status"))["version"]["live"] == start:
        if time.perf_counter() - begun > PATIENCE:
            raise ConfigError(f"no version within {PATIENCE:.0f} s: {status.get('learner')}; see `openclaw-rl status`")
        await asyncio.sleep(1.0)
    return time.perf_counter() - begun


def _short(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """The rows of the page's first table."""
    talks = found["talks"]
    first, second = ([talk["answers"][at] for talk in talks if len(talk["answers"]) > at] for at in (0, 1))
    seconds = [one for talk in talks for one in talk["seconds"]]
    sides = found["before"], found["after"]
    yield [f"first answers with a list or bold, of {len(first)}", _count(first)]
    yield [f"second tries with a list or bold, after {len(second)} complaints", _count(second)]
    yield [
        f"seconds of an answer of at most {MAX_TOKENS} tokens, on average",
        f"{sum(seconds) / max(1, len(seconds)):.0f}",
    ]
    yield ["seconds from the last answer until the first version was live", f"{found['wait_seconds']:.0f}"]
    yield ["seconds of the step", f"{found['step_seconds']:.0f}"]
    yield [
        f"answers with a list or bold to {len(HELD_OUT)} other questions, before and after",
        ", ".join(_count(side) for side in sides),
    ]
    yield [
        "answers that repeat themselves among these, before and after",
        ", ".join(str(sum(map(degenerate, side))) for side in sides),
    ]


def _count(answers: list[str]) -> str:
    return str(sum(not plain(answer) for answer in answers))


_HEAD = """
The record of one run in a fresh clone ({date}, commit {commit:.8}, {cores} CPU cores): `make run` served SmolLM2, and
`{command}`
talked to it as a person would: ten questions, a complaint where an answer had a list or bold, and thanks where it had
none. Six other questions were asked before and after. The answers are real, none was chosen, and long ones
end with […]. [start-cpu.md](start-cpu.md) explains the steps.

## In short

"""
_LIMITS = """
Six questions are an anecdote and no measurement; [methods.md](methods.md#measured-on-a-real-model) has one, with a
control. The model is small, and its answers are weak in content with and without training. The teacher is this model
with the complaint in its prompt. One version changes answers; the table says whether it changed the lists.

## Before
"""


def page() -> str:
    """The part of the page that the committed result gives."""
    found = result(RESULT)
    if found is None:
        return f"\nNothing yet: `python -m bench.first_hour --save bench/results/{RESULT}`.\n"
    head = _HEAD.format(
        date=found["date"],
        commit=found["commit"] or "unknown",
        cores=found["machine"]["cores"],
        command=found["command"],
    )
    parts = [head, table(("", ""), list(_short(found))), _LIMITS]
    parts += [_said(question, [(answer, "")]) for question, answer in zip(HELD_OUT, found["before"], strict=True)]
    parts.append("\n## The conversation\n")
    parts += [
        _said(talk["question"], list(zip(talk["answers"], talk["reactions"], strict=True))) for talk in found["talks"]
    ]
    parts.append(f"\n## After\n\nVersion {found['version']} was live:\n")
    parts += [_said(question, [(answer, "")]) for question, answer in zip(HELD_OUT, found["after"], strict=True)]
    return "".join(parts)


def _said(question: str, exchange: list[tuple[str, str]]) -> str:
    """A quotation: the question, and each answer with the reaction to it."""
    lines = [f"**{question}**"]
    for answer, reaction in exchange:
        lines += ["", *_shown(answer)]
        if reaction:
            lines += ["", f"**{reaction}**"]
    return "\n" + "\n".join(f"> {line}".rstrip() for line in lines) + "\n"


def _shown(answer: str) -> list[str]:
    """The lines of an answer, cut at a word, as wide as the page."""
    text = answer.strip()
    if len(text) > SHOWN:
        text = text[:SHOWN].rsplit(maxsplit=1)[0] + " […]"
    return [part for line in text.splitlines() for part in (textwrap.wrap(line.strip(), 117) or [""])]


SECTION = Section("first-hour.md", "first-hour", page)


def main() -> int:
    options = program.parser(__doc__, needs_service=True)
    options.add_argument("--page", action="store_true", help="write the page from the saved result, and nothing else")
    return program.run(options, lambda chosen: SECTION.write() if chosen.page else measure(chosen))


if __name__ == "__main__":
    sys.exit(main())
