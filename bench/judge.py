"""Measure judges on labelled reactions: how often a judge reads the next message as a careful reader does.

    python -m bench.judge [--judge rules] [--judge engine:FOLDER] [--judge PROVIDER/MODEL] [--votes 1] [--json]

`--judge` takes what the setting `judge` takes, and may be repeated; the default is `rules`. For `engine:FOLDER` an
engine is started on this machine. The figures at the top are those of the built-in set's held-out half; the other half
may be used for tuning and is reported under `development`. `--reactions FILE` measures your own JSONL instead, with
`answer`, `text`, `score`, and perhaps `hint` (true, false or null) and `role` (user or tool).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.program import log, parser, report, run
from openclaw_rl.evaluation import reactions
from openclaw_rl.evaluation.reactions import Confusion, LabelledReaction
from openclaw_rl.evaluation.service import own_service
from openclaw_rl.learner.judge.create import create
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.shared.errors import ConfigError, JudgeAway
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.settings.model_reference import read_model
from openclaw_rl.shared.settings.settings import Settings

AT_ONCE = 4
FIGURES = ("accuracy", "false_negative", "false_positive", "not_understood", "hint_recall", "hint_precision")


@asynccontextmanager
async def judge_of(name: str, votes: int) -> AsyncIterator[Judge]:
    """The judge that `judge = name` makes, with an engine for a folder. Raises `ConfigError`."""
    model = read_model(name, "judge")
    if model.kind != "engine" or model.url:
        made = create(Settings(judge=name, votes=votes, judge_concurrency=AT_ONCE))
        try:
            yield made
        finally:
            await made.close()
        return
    log.print(f"starting an engine for {model.name} …")
    async with own_service({"model": model.name, "train": False}, only=("engine", "proxy")) as service:
        card = read_json(service.data / "run" / "engine.json") if service.data else None
        assert card is not None  # an engine that answers has written it
        async with judge_of(model.at(url=card["url"]), votes) as made:
            yield made


async def read_all(judge: Judge, labelled: Sequence[LabelledReaction]) -> list[tuple[float | None, bool]]:
    """Score of each reaction, `None` without one, and whether the judge gives a hint. Raises `ConfigError` for a judge
    that cannot be asked.
    """
    slots = asyncio.Semaphore(AT_ONCE)

    async def read(reaction: LabelledReaction) -> tuple[float | None, bool]:
        async with slots:
            try:
                judgement = await judge.judge(reaction.turn(), reaction.next_state())
            except JudgeAway as error:
                raise ConfigError(f"the judge cannot be asked: {error}") from error
        return judgement.score, judgement.hint is not None

    return await asyncio.gather(*(read(reaction) for reaction in labelled))


def measures(labelled: Sequence[LabelledReaction], verdicts: Sequence[tuple[float | None, bool]]) -> dict[str, Any]:
    """Figures of all reactions, and those of each language and kind."""

    def figures(attribute: str = "", value: str = "") -> dict[str, Any]:
        confusion = Confusion()
        for reaction, (score, hint) in zip(labelled, verdicts, strict=True):
            if not attribute or getattr(reaction, attribute) == value:
                confusion.add(reaction, score, hint=hint)
        return confusion.measures()

    def by(attribute: str) -> dict[str, float]:
        values = sorted({getattr(reaction, attribute) for reaction in labelled} - {""})
        return {value: figures(attribute, value)["accuracy"] for value in values}

    return figures() | {"by_language": by("language"), "by_kind": by("kind")}


async def measure(options: argparse.Namespace) -> None:
    """Ask every judge about every reaction. Raises `ConfigError`."""
    if options.reactions is not None:
        held_out, development = reactions.load(options.reactions), []
    else:
        held_out, development = reactions.load(reactions.HELD_OUT), reactions.load(reactions.DEVELOPMENT)
    judges: dict[str, dict[str, Any]] = {}
    for name in options.judge or ["rules"]:
        async with judge_of(name, options.votes) as judge:
            verdicts = await read_all(judge, [*held_out, *development])
        judges[name] = measures(held_out, verdicts[: len(held_out)])
        if development:
            judges[name]["development"] = measures(development, verdicts[len(held_out) :])
        log.print(f"{name}: accuracy {judges[name]['accuracy']:.2f}")
    result = {
        "reactions": len(held_out) + len(development),
        "held_out": len(held_out) if development else 0,
        "judges": judges,
    }
    rows = [[name, *(_text(found[figure]) for figure in FIGURES)] for name, found in judges.items()]
    title = f"{len(held_out)} reactions" + (" (held-out half)" if development else "")
    report(options, title, ["judge", *(figure.replace("_", " ") for figure in FIGURES)], rows, result)


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def main() -> int:
    """Run the program; returns the exit code."""
    options = parser(__doc__)
    options.add_argument("--judge", action="append", help="as the setting judge; may be repeated (default: rules)")
    options.add_argument("--votes", type=int, default=1, help="votes per reaction of a language model (default: 1)")
    options.add_argument("--reactions", type=Path, metavar="FILE", help="JSONL file of your own labelled reactions")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
