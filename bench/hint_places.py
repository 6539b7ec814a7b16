"""Compare two places for a hint: after the user's message, as published, and in a message of its own before it.

    python -m bench.hint_places [--questions 24] [--json] [--save FILE]

SmolLM2 answers the training questions of the three people of bench.real_model, each with one of the person's complaints
as the hint, as the base does for a demonstration. Shares of the questions: whose answer `ended` within the limit of
tokens, also `belongs` to its question, and also `heeds` the hint (learner/rollouts/relevance.py): those are taught. The
last two are the shares of the ended and of the taught answers that respect the wish.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from random import Random
from typing import Any

from bench import program
from bench.learning.lab import Lab, lab
from bench.real_model.people import CHECKS, NAMES, PHRASES, Person
from openclaw_rl.evaluation.personas import take
from openclaw_rl.learner.rollouts.rehearsal import Rollouts, sample_of
from openclaw_rl.learner.rollouts.relevance import heeding, relevant
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sample

PLACES = {"after": False, "before": True}
MEASURES = ("ended", "belongs", "heeds")
RESPECTS = ("ended_respects", "taught_respects")
COLUMNS = ("hint", "person", *MEASURES, "ended: respect the wish", "taught: respect the wish")


def main() -> int:
    options = program.parser(__doc__)
    options.add_argument("--questions", type=int, default=24, help="questions of each person (default: %(default)s)")
    return program.run(options, measure)


async def measure(options: argparse.Namespace) -> None:
    """Ask under both places of the hint, and report."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    async with lab({"model": "smollm2", "train": False}) as service:
        for place, before in PLACES.items():
            found[place] = {name: await _shares(service, name, options.questions, before=before) for name in NAMES}
    title = f"SmolLM2-135M-Instruct under a hint, {options.questions} questions a person, shares of answers"
    result: dict[str, Any] = {"model": "SmolLM2-135M-Instruct", "questions": options.questions, "places": found}
    program.report(options, title, COLUMNS, rows(found), result)


def rows(found: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> list[list[str]]:
    """One table row per place and person."""
    return [
        [place, name, *("–" if share is None else f"{share:.2f}" for share in shares.values())]
        for place, people in found.items()
        for name, shares in people.items()
    ]


async def _shares(service: Lab, name: str, count: int, *, before: bool) -> dict[str, float | None]:
    prompter = service.prompter
    rollouts = Rollouts(service.engine, prompter, service.settings)
    random = Random(name)

    async def answer(question: str) -> Sample | None:
        chat = ChatInput(messages=[{"role": "user", "content": question}])
        hinted = prompter.render(chat, hint=random.choice(PHRASES[name].complaints), before=before).ids()
        tokens = await rollouts.generate(hinted, rollouts.sampling, version=0)
        if tokens is None or tokens.finish_reason != "stop":
            return None
        return sample_of(
            tokens, prompter.render(chat).ids(), origin="demonstration", policy=name, hinted_prompts=[hinted]
        )

    questions = take(Person(name, 1), "train", 1, count)
    ended = [one for one in await gather(*map(answer, questions)) if one is not None]
    belonging = await relevant(service.engine, prompter, ended)
    taught = await heeding(service.engine, belonging)

    def respecting(samples: list[Sample]) -> float | None:
        kept = [CHECKS[name](prompter.decode(one.response_ids, skip_special_tokens=True)) for one in samples]
        return round(sum(kept) / len(kept), 4) if kept else None

    shares = {
        kind: round(len(some) / count, 4) for kind, some in zip(MEASURES, (ended, belonging, taught), strict=True)
    }
    return shares | {kind: respecting(some) for kind, some in zip(RESPECTS, (ended, taught), strict=True)}


if __name__ == "__main__":
    sys.exit(main())
