"""Compare two places for a hint: after the user's message, as published, and in a message of its own before it.

    python -m bench.hint_places [--questions 24] [--json] [--save FILE]

SmolLM2 answers the training questions of the three people of bench.real_model, each with one of the person's complaints
as the hint, as the base does for a demonstration. An answer teaches if it ends within the limit of tokens, belongs to
its question (learner/rollouts/relevance.py) and respects the wish. The places were chosen with `brief` and with wishes
of nobody here; `plain` and `asking` had no part in it.
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
from openclaw_rl.learner.rollouts.relevance import relevant
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.rendering.prompter import Prompter

PLACES = {"after": False, "before": True}
MEASURES = ("ended", "belongs", "respects", "teaches")
COLUMNS = ("hint", "person", *MEASURES)


def main() -> int:
    options = program.parser(__doc__)
    options.add_argument("--questions", type=int, default=24, help="questions of each person (default: %(default)s)")
    return program.run(options, measure)


async def measure(options: argparse.Namespace) -> None:
    """Ask under both places of the hint, and report."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    async with lab({"model": "smollm2", "train": False}) as service:
        for place, before in PLACES.items():
            prompter = Prompter.from_settings(service.settings.replace(hint_before=before))
            found[place] = {name: await _shares(service, prompter, name, options.questions) for name in NAMES}
    title = f"SmolLM2-135M-Instruct under a hint, {options.questions} questions a person, shares of answers"
    result: dict[str, Any] = {"model": "SmolLM2-135M-Instruct", "questions": options.questions, "places": found}
    program.report(options, title, COLUMNS, rows(found), result)


def rows(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[list[str]]:
    """One table row per place and person."""
    return [
        [place, name, *(f"{shares[kind]:.2f}" for kind in MEASURES)]
        for place, people in found.items()
        for name, shares in people.items()
    ]


async def _shares(service: Lab, prompter: Prompter, name: str, count: int) -> dict[str, float]:
    rollouts = Rollouts(service.engine, prompter, service.settings)
    random = Random(name)

    async def answer(question: str) -> Sample | None:
        chat = ChatInput(messages=[{"role": "user", "content": question}])
        hinted = prompter.render(chat, hint=random.choice(PHRASES[name].complaints)).ids()
        tokens = await rollouts.generate(hinted, rollouts.sampling, version=0)
        if tokens is None or tokens.finish_reason != "stop":
            return None
        return sample_of(
            tokens, prompter.render(chat).ids(), origin="demonstration", policy=name, hinted_prompts=[hinted]
        )

    questions = take(Person(name, 1), "train", 1, count)
    ended = [one for one in await gather(*map(answer, questions)) if one is not None]
    belonging = await relevant(service.engine, prompter, ended)

    def respecting(samples: list[Sample]) -> int:
        return sum(CHECKS[name](prompter.decode(one.response_ids[:-1])) for one in samples)

    counts = (len(ended), len(belonging), respecting(ended), respecting(belonging))
    return {kind: round(number / count, 4) for kind, number in zip(MEASURES, counts, strict=True)}


if __name__ == "__main__":
    sys.exit(main())
