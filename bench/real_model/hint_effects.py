"""Measure what a request changes in the likelihood of answers that were given without it, on SmolLM2-135M-Instruct.

    python -m bench.real_model.hint_effects [--json] [--questions 12] [--answers 4]

`learner.hints` holds a remembered hint against accepted answers. For each person the base answers held-out questions;
an answer that respects the wish counts as accepted, any other as criticized. Each answer is scored under three
complaints of the person, and under the unrelated request with which the learner compares: in nats of a whole answer,
against no request (`alone`) and against the unrelated one (`compared`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from random import Random
from statistics import pstdev
from typing import Any

from bench import program
from bench.cells.lab import Lab, lab
from bench.real_model.people import CHECKS, NAMES, PHRASES, PROMPTS
from openclaw_rl.evaluation.statistics import Interval, spread
from openclaw_rl.learner.hints import UNRELATED
from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sampling

COMPLAINTS = 3
COLUMNS = ("person", "answers", "count", "alone", "unrelated", "compared", "deviation", "likelier")


def main() -> int:
    options = program.parser(__doc__)
    options.add_argument("--questions", type=int, default=12, help="held-out questions a person (default: %(default)s)")
    options.add_argument("--answers", type=int, default=4, help="answers to each (default: %(default)s)")
    options.add_argument("--tokens", type=int, default=112, help="limit of an answer (default: %(default)s)")
    return program.run(options, measure)


async def measure(options: argparse.Namespace) -> None:
    """Measure all people and report."""
    people: dict[str, Any] = {}
    async with lab({"model": "smollm2", "train": False}) as service:
        for person in NAMES:
            people[person] = await _person(service, person, options)
    rows = [_row(person, kind, entry) for person, kinds in people.items() for kind, entry in kinds.items()]
    program.report(options, "nats of a whole answer, 95 % intervals over answers", COLUMNS, rows, {"people": people})


async def _person(service: Lab, person: str, options: argparse.Namespace) -> dict[str, Any]:
    random = Random(person)
    questions = random.sample(PROMPTS[person].held_out, options.questions)
    complaints = random.sample(PHRASES[person].complaints, COMPLAINTS)
    asked = [question for question in questions for _ in range(options.answers)]
    found = await gather(*(_answer(service, person, question, complaints, options.tokens) for question in asked))
    kinds: dict[str, list[list[float]]] = {"accepted": [], "criticized": []}
    for one in found:
        if one is not None:
            accepted, effects = one
            kinds["accepted" if accepted else "criticized"].append(effects)
    return {kind: _summary(effects) for kind, effects in kinds.items() if effects}


def _row(person: str, kind: str, entry: dict[str, Any]) -> list[str]:
    means = [str(Interval(*entry[name])) for name in ("alone", "unrelated", "compared")]
    return [person, kind, str(entry["count"]), *means, f"{entry['deviation']:.2f}", f"{entry['likelier']:.2f}"]


def _summary(effects: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Means over answers of their effects, of which the unrelated request's is the last; `deviation` is the standard
    deviation of `compared`, `likelier` the share above 0.
    """
    alone = [sum(one[:-1]) / COMPLAINTS for one in effects]
    unrelated = [one[-1] for one in effects]
    compared = [own - other for own, other in zip(alone, unrelated, strict=True)]
    return {
        "count": len(effects),
        "alone": spread(alone),
        "unrelated": spread(unrelated),
        "compared": spread(compared),
        "deviation": round(pstdev(compared), 4),
        "likelier": round(sum(one > 0 for one in compared) / len(compared), 4),
    }


async def _answer(
    service: Lab, person: str, question: str, complaints: Sequence[str], tokens: int
) -> tuple[bool, list[float]] | None:
    """An answer of the base: does it respect the wish, and what each request changes in its log-likelihood."""
    chat, prompter = ChatInput(messages=[{"role": "user", "content": question}]), service.prompter
    plain = prompter.render(chat).ids()
    sampling = Sampling(temperature=1.0, max_tokens=tokens, stop_ids=prompter.own_stop_ids)
    answer = await whole_answer(service.engine, plain, sampling)
    if answer is None or not answer.ids:
        return None
    prompts = [plain, *(prompter.render(chat, hint=hint).ids() for hint in (*complaints, UNRELATED))]
    scores = [sum((await service.engine.score(prompt, answer.ids)).logprobs) for prompt in prompts]
    text = prompter.tokenizer.decode(list(answer.ids), skip_special_tokens=True)
    return CHECKS[person](text), [score - scores[0] for score in scores[1:]]


if __name__ == "__main__":
    sys.exit(main())
