"""Measure judges on labelled reactions: how often a judge reads the next message as a careful reader does.

    python -m bench.judge [--judge rules] [--judge engine:FOLDER] [--judge PROVIDER/MODEL] [--votes 1] [--likeliest]
                          [--json]

`--judge` takes what the setting `judge` takes, less `policy` and `auto`, and may be repeated. The default is `rules`
and `engine:smollm2`; where SmolLM2 is not fetched, a line says how to fetch it, and the rules are measured alone. For
`engine:FOLDER` (or `engine:smollm2`) an engine is started on this machine.

The figures at the top are those of the built-in set's held-out half; the other half may be used for tuning and is
reported under `development`. `--reactions FILE` measures your own JSONL instead, with `answer`, `text`, `score`, and
perhaps `hint` (true, false or null) and `role` (user or tool).

`--likeliest` measures each engine a second time, without an answer: its verdict is the score whose `\\boxed{…}` the
model finds likeliest right after the judge's question. A model that fails in this too lacks more than the format.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.program import log, parser, report, run
from openclaw_rl.cli.model_files import local_folder
from openclaw_rl.evaluation import reactions
from openclaw_rl.evaluation.reactions import Confusion, LabelledReaction
from openclaw_rl.evaluation.service import own_service
from openclaw_rl.learner.judge.create import create
from openclaw_rl.learner.judge.prompt import JudgePrompt
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.shared.backends import create_engine, own_engine
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import ConfigError, JudgeAway
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import NOT_UNDERSTOOD, Judgement, NextState, Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.model_reference import AUTO, read_model
from openclaw_rl.shared.settings.named_models import SMOLLM2, find_named
from openclaw_rl.shared.settings.settings import Settings

AT_ONCE = 8
ENGINE_SECONDS = 900.0
"""Longest wait for a vote of an engine started here, which may share one core with others."""
LIKELIEST = "likeliest score"
SCORES = (1, 0, -1)
LOGGED_EVERY = 20
FIGURES = ("accuracy", "false_negative", "false_positive", "not_understood", "failed", "hint_recall", "hint_precision")
COLUMNS = ("judge", *(figure.replace("_", " ") for figure in FIGURES))


class ReactionVerdict(NamedTuple):
    """Score (`None` without one), whether the judge gives a hint (`None`: it never does), whether it understood."""

    score: float | None
    hint: bool | None
    understood: bool


class KeptVerdicts:
    """Verdicts in a JSONL file, by judge and reaction, so that an interrupted run continues; without a file, none."""

    def __init__(self, path: Path | None) -> None:
        """Raises `ConfigError` for a file of something else."""
        self._path = path
        self._known: dict[str, ReactionVerdict] = {}
        if path is not None and path.exists():
            try:
                for line in path.read_text("utf-8").splitlines():
                    key, *verdict = json.loads(line)
                    self._known[key] = ReactionVerdict(*verdict)
            except (OSError, ValueError, TypeError) as error:
                raise ConfigError(f"{path} holds no verdicts of this program: {error}") from error

    def find(self, name: str, reaction: LabelledReaction) -> ReactionVerdict | None:
        """The judge's verdict of an earlier run."""
        return self._known.get(_key(name, reaction))

    def add(self, name: str, reaction: LabelledReaction, verdict: ReactionVerdict) -> None:
        """Keep a verdict."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([_key(name, reaction), *verdict]) + "\n")


def _key(name: str, reaction: LabelledReaction) -> str:
    content = hashlib.sha256(msgspec.json.encode(reaction)).hexdigest()
    return f"{name} {content[:16]}"


class LikeliestScore:
    """A judge that reads the model's probabilities instead of its words. Every answer is `\\boxed{SCORE}`."""

    def __init__(self, engine: Engine, folder: str) -> None:
        """`folder` has the model that `engine` serves."""
        self._engine = engine
        self._prompter = Prompter(folder)
        self._prompt = JudgePrompt.from_settings(Settings())
        self._answers = {score: self._prompter.tokenizer.encode(f"\\boxed{{{score}}}") for score in SCORES}

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        question = self._prompt.fill(turn, next_state)
        prompt = await self._prompter.render_async(ChatInput(messages=[{"role": "user", "content": question}]))
        logprobs = {
            score: sum((await self._engine.score(prompt.ids(), ids)).logprobs) for score, ids in self._answers.items()
        }
        return Judgement(turn_id=turn.turn_id, score=float(max(logprobs, key=lambda score: logprobs[score])))

    async def close(self) -> None:
        await self._engine.close()


def chosen(judges: Sequence[str] | None) -> list[str]:
    """The judges to measure: `judges`; without any the rules and SmolLM2, or the rules alone if it is not fetched."""
    if judges:
        return list(judges)
    name = f"engine:{SMOLLM2.name}"
    try:
        if SMOLLM2.path.is_dir():
            return ["rules", name]
    except ConfigError:  # without a cache folder, nothing is fetched
        pass
    log.print(f"{name} is left out, because it is not on this machine: `openclaw-rl fetch {SMOLLM2.name}` fetches it")
    return ["rules"]


@asynccontextmanager
async def judges_of(name: str, options: argparse.Namespace) -> AsyncIterator[dict[str, Judge]]:
    """The judge that `judge = name` makes; with `--likeliest` also the one that reads its engine's probabilities. A
    folder gets an engine. Raises `ConfigError`.
    """
    if name == AUTO:
        raise ConfigError(f"judge = {AUTO} depends on the policy, and there is none here: name a judge")
    model = read_model(name, "judge")
    asking = Settings(votes=options.votes, judge_concurrency=AT_ONCE, judge_max_tokens=options.max_tokens)
    if model.kind != "engine" or model.url:
        async with closing({name: create(asking.replace(judge=name))}) as made:
            yield made
        return
    folder = local_folder(str(Path(model.name).expanduser()), setting="judge")
    title = model.title if find_named(folder) else f"engine:{Path(folder).name}"
    log.print(f"starting an engine for {title} …")
    async with own_service({"model": folder, "train": False}, only=("engine", "proxy")) as service:
        card = read_json(service.data / "run" / "engine.json") if service.data else None
        assert card is not None  # an engine that answers has written it
        at = model.at(name=folder, url=card["url"])
        asking = asking.replace(judge=at, judge_timeout=ENGINE_SECONDS, request_timeout=ENGINE_SECONDS)
        judges: dict[str, Judge] = {title: create(asking)}
        if options.likeliest:
            engine = create_engine(own_engine(asking, folder, url=card["url"]))
            judges[f"{title}, {LIKELIEST}"] = LikeliestScore(engine, folder)
        async with closing(judges):
            yield judges


@asynccontextmanager
async def closing(judges: dict[str, Judge]) -> AsyncIterator[dict[str, Judge]]:
    """Close judges after the block."""
    try:
        yield judges
    finally:
        for judge in judges.values():
            await judge.close()


async def read_all(
    name: str, judge: Judge, labelled: Sequence[LabelledReaction], kept: KeptVerdicts
) -> list[ReactionVerdict]:
    """The judge's verdict on each reaction. Raises `ConfigError` for a judge that cannot be asked."""
    slots = asyncio.Semaphore(AT_ONCE)
    done = 0

    async def read(reaction: LabelledReaction) -> ReactionVerdict:
        nonlocal done
        if (known := kept.find(name, reaction)) is not None:
            return known
        async with slots:
            try:
                judgement = await judge.judge(reaction.turn(), reaction.next_state())
            except JudgeAway as error:
                raise ConfigError(f"the judge cannot be asked: {error}") from error
        done += 1
        if done % LOGGED_EVERY == 0:
            log.print(f"{name}: {done} of {len(labelled)}")
        hint = None if isinstance(judge, LikeliestScore) else judgement.hint is not None
        verdict = ReactionVerdict(judgement.score, hint, not judgement.reason.startswith(NOT_UNDERSTOOD))
        kept.add(name, reaction, verdict)
        return verdict

    return await asyncio.gather(*(read(reaction) for reaction in labelled))


def measures(labelled: Sequence[LabelledReaction], verdicts: Sequence[ReactionVerdict]) -> dict[str, Any]:
    """Figures of all reactions, and the accuracy on those of each language and kind."""

    def figures(attribute: str = "", value: str = "") -> dict[str, Any]:
        confusion = Confusion()
        for reaction, verdict in zip(labelled, verdicts, strict=True):
            if not attribute or getattr(reaction, attribute) == value:
                confusion.add(reaction, verdict.score, hint=verdict.hint, understood=verdict.understood)
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
        held_out = reactions.load(reactions.HELD_OUT)
        development = [] if options.held_out else reactions.load(reactions.DEVELOPMENT)
    found: dict[str, dict[str, Any]] = {}
    kept = KeptVerdicts(options.verdicts)
    for text in chosen(options.judge):
        async with judges_of(text, options) as judges:
            for name, judge in judges.items():
                known = KeptVerdicts(None) if name == "rules" else kept  # the rules are quick, and change
                verdicts = await read_all(name, judge, [*held_out, *development], known)
                found[name] = measures(held_out, verdicts[: len(held_out)])
                if development:
                    found[name]["development"] = measures(development, verdicts[len(held_out) :])
                log.print(f"{name}: accuracy {found[name]['accuracy']:.2f}")
    result = {
        "reactions": len(held_out) + len(development),
        "held_out": 0 if options.reactions is not None else len(held_out),
        "judges": found,
    }
    title = f"{len(held_out)} reactions" + (" (held-out half)" if result["held_out"] else "")
    report(options, title, COLUMNS, rows(found), result)


def rows(judges: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The table of these judges, under `COLUMNS`."""
    return [[name, *(_text(found[figure]) for figure in FIGURES)] for name, found in judges.items()]


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def main() -> int:
    """Run the program; returns the exit code."""
    options = parser(__doc__)
    options.add_argument(
        "--judge", action="append", help="as the setting judge; may be repeated (default: rules, engine:smollm2)"
    )
    options.add_argument("--votes", type=int, default=1, help="votes per reaction of a language model (default: 1)")
    options.add_argument("--max-tokens", type=int, default=256, help="longest vote of an engine (default: 256)")
    options.add_argument("--likeliest", action="store_true", help="also measure the scores that engines find likeliest")
    options.add_argument("--held-out", action="store_true", help="ask about the held-out half only")
    options.add_argument("--verdicts", type=Path, metavar="FILE", help="keep verdicts here, and take those kept before")
    options.add_argument("--reactions", type=Path, metavar="FILE", help="JSONL file of your own labelled reactions")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
