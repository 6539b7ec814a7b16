"""`openclaw-rl eval`: how good a policy is, by suite, over seeds; versions, checkpoints and learning arms side by
side.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table

from openclaw_rl.cli.options import Data, Json, Key, Url, flags_of, print_json, service, settings_of
from openclaw_rl.cli.tables import console, table
from openclaw_rl.evaluation import charts, dataset, experiment, suites
from openclaw_rl.evaluation.evaluate import CONVERSATION, SUITES, Work, evaluate
from openclaw_rl.evaluation.experiment import Experiment
from openclaw_rl.evaluation.personas import NAMES
from openclaw_rl.evaluation.provenance import save
from openclaw_rl.evaluation.statistics import Interval
from openclaw_rl.evaluation.targets import Target, folder_of, own_target
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings

SECRETS = ("--key", "--user-api-key")


@dataclass(frozen=True)
class EvalOptions:
    """The command line, lists still as text."""

    data: Data = ""
    url: Url = ""
    key: Key = ""
    model_name: Annotated[str, typer.Option(help="Model to request at the URL; default: the first that it lists")] = ""
    versions: Annotated[str, typer.Option(help="Versions of the running service to compare: 1,5,9")] = ""
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "--model-path",
            help="A checkpoint or model folder, served during the evaluation; may be repeated",
        ),
    ] = None
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            "--eval-tasks",
            help="Suites, comma-separated: conversation, coding, tool-use; default: conversation",
        ),
    ] = ""
    persona: Annotated[
        str, typer.Option(help="Personas of the conversation suite, comma-separated: student, ta, teacher")
    ] = "student"
    seeds: Annotated[int, typer.Option(help="Number of runs, each with its own tasks and sampling seed")] = 3
    problems: Annotated[int, typer.Option(help="Held-out tasks per persona and seed; first replies are scored")] = 36
    sessions: Annotated[
        int,
        typer.Option(
            help="Maximum conversations until the persona is satisfied; the service learns from them; 0: none"
        ),
    ] = 0
    tasks: Annotated[
        list[Path] | None,
        typer.Option(help="JSONL file of your own tasks; adds a suite named after the file; may be repeated"),
    ] = None
    dataset: Annotated[Path | None, typer.Option(help="Your own word problems: JSON or JSONL with GSM8K's fields")] = (
        None
    )
    user: Annotated[str, typer.Option(help="LiteLLM model that plays the personas; default: built-in rules")] = ""
    user_api_base: Annotated[str, typer.Option(help="Base URL of the model in --user, if not its provider's")] = ""
    user_api_key: Annotated[str, typer.Option(help="Key of the model in --user, if not in its provider's variable")] = (
        ""
    )
    comment_words: Annotated[
        int,
        typer.Option(help="Minimum words of a detailed comment (ta); 0 fits the shipped policy, 100 large models"),
    ] = 0
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens of a reply in the conversation suite and arms")] = 512
    arms: Annotated[
        str,
        typer.Option(
            help="Measure learning; arms, comma-separated, each a service: trained, control, placebo, irrelevant"
        ),
    ] = ""
    interactions: Annotated[int, typer.Option(help="Reactions of the user in each arm")] = 24
    batch_size: Annotated[int, typer.Option(help="Judged turns per step in the arms")] = 8
    method: Annotated[str, typer.Option(help="Learning method of the arms; default: that of the setting method")] = ""
    device: Annotated[str, typer.Option(help="Device of the services that this command starts")] = "auto"
    out: Annotated[Path | None, typer.Option(help="Folder for eval.json and plots")] = None
    as_json: Json = False


@flags_of(EvalOptions)
def evaluate_policy(options: EvalOptions) -> None:
    """Evaluate, print a table (with `as_json` one JSON line instead), and write `eval.json` and pictures into `out`.

    Raises `ConfigError` for options that make no sense before anything runs, `ServiceError`, `ServiceFailed` and
    `UserError` for what fails on the way.
    """
    work = work_of(options)
    trial = experiment_of(options)
    for model in options.model or ():
        folder_of(model)  # a path that is no policy ends the command at once
    served = _served(options)
    notices = console(stderr=True, soft_wrap=True)
    result = asyncio.run(_run(options, work, trial, served, notices.print))
    pictures = _keep(options.out, result) if options.out else []
    if served and not options.url:
        remember(settings_of(options.data).serve.data, result)
    if options.as_json:
        print_json({name: content for name, content in result.items() if name != "curves"})
        return
    out = console(width=140)
    out.print(_title(result))
    if result["targets"]:
        out.print(_table(result))
    for persona, found in _arm_tables(result).items():
        out.print(f"{persona}, {result['interactions']} interactions")
        out.print(found)
    for path in pictures:
        out.print(f"written: {path}")


def work_of(options: EvalOptions) -> Work:
    """The requested work, checked. Raises `ConfigError`."""
    if min(options.seeds, options.problems, options.max_tokens) < 1 or min(options.sessions, options.comment_words) < 0:
        raise ConfigError("--seeds, --problems and --max-tokens are at least 1, --sessions and --comment-words 0")
    named = _names(options.suite or ("" if options.tasks else CONVERSATION), SUITES, "--suite")
    found: dict[str, Sequence[suites.SuiteTask]] = {
        name: suites.builtin(name) for name in named if name != CONVERSATION
    }
    for path in options.tasks or ():
        if path.stem in (*found, *SUITES):
            raise ConfigError(
                f"--tasks {path}: a suite is called after its file, and {path.stem!r} is taken; rename it"
            )
        found[path.stem] = suites.load(path)
    personas = _names(options.persona, NAMES, "--persona") if CONVERSATION in named or options.arms else []
    work = Work(
        seeds=range(1, options.seeds + 1),
        personas=personas,
        problems=options.problems,
        sessions=options.sessions,
        suites=found,
        dataset=dataset.load(options.dataset) if options.dataset else (),
        user=options.user,
        user_api_base=options.user_api_base,
        user_api_key=options.user_api_key,
        comment_words=options.comment_words,
        max_tokens=options.max_tokens,
    )
    for name in personas:
        work.person(name, 1)
        work.reader(name)
    return work


def experiment_of(options: EvalOptions) -> Experiment | None:
    """The learning arms, if any were asked for. Raises `ConfigError`."""
    if not options.arms:
        return None
    if len(options.model or ()) > 1:
        raise ConfigError("--arms begin with one policy: give --model at most once")
    settings: dict[str, str | int | float | bool] = {"device": options.device}
    for model in options.model or ():
        folder, base = folder_of(model)
        if base:
            raise ConfigError(f"--arms begin with a whole model, and {model} is an adapter; export it first")
        settings["model"] = str(folder)
    if options.method:
        settings["method"] = options.method
        try:
            Settings(**settings)
        except ValidationError as error:
            raise ConfigError(f"--method {options.method}: {error.errors()[0]['msg']}") from error
    trial = Experiment(
        arms=[name.strip() for name in options.arms.split(",") if name.strip()],
        interactions=options.interactions,
        batch=options.batch_size,
        settings=settings,
    )
    trial.check()
    return trial


async def _run(
    options: EvalOptions, work: Work, trial: Experiment | None, served: Sequence[Target], say: Callable[[str], None]
) -> dict[str, Any]:
    result: dict[str, Any] = {"seeds": options.seeds, "problems": options.problems, "user": options.user or "built-in"}
    result["targets"] = []
    for target in served:
        result["targets"].append(await evaluate(target, work, say))
    if trial is not None:
        runs = await experiment.run(trial, work, say)
        result["interactions"] = trial.interactions
        result["arms"] = experiment.summary(runs)
        result["curves"] = runs
        return result
    for model in options.model or ():
        async with own_target(model, device=options.device) as target:
            result["targets"].append(await evaluate(target, work, say))
    return result


def _served(options: EvalOptions) -> list[Target]:
    """The running service's targets, where one is evaluated: its model, or the versions of it that were asked for, each
    of which is there.
    """
    if (options.model or options.arms) and not (options.url or options.data or options.versions):
        return []
    found = service(options.data, options.url, options.key)
    model = options.model_name or found.policy()
    if not options.versions:
        return [Target(model, found.url, found.key, model)]
    numbers = [number.strip() for number in options.versions.split(",") if number.strip()]
    if not numbers or not all(number.isdecimal() for number in numbers):
        raise ConfigError(f"--versions {options.versions!r}: write numbers with commas, as in 1,5,9")
    names = [f"{model}@{number}" for number in dict.fromkeys(numbers)]
    for number, name in zip(dict.fromkeys(numbers), names, strict=True):
        card = found.get(f"/v1/models/{name}")
        if not str(card.get("root", name)).endswith(f"@{number}"):  # any name but the policy's means the live version
            raise ConfigError(f"--versions: {name} is no version, since {model} is not the policy's own name")
    return [Target(name, found.url, found.key, name) for name in names]


def _names(text: str, known: Iterable[str], flag: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{flag} {', '.join(unknown)}: no such thing; choose from {', '.join(known)}")
    return names


def _shown(value: Sequence[float | None] | None) -> str:
    """[mean, half-width] as a person reads it."""
    return "–" if not value or value[0] is None else str(Interval(value[0], value[1]))


def _table(result: dict[str, Any]) -> Table:
    """A row a measure, a column a target."""
    targets = result["targets"]
    shown = table("", *(f"#{target['name']}" for target in targets))
    columns = [charts.bar_cells(target) for target in targets]
    for number, (name, _) in enumerate(columns[0]):
        shown.add_row(name, *(_shown(column[number][1]) for column in columns))
    for persona, summary in targets[0].get(CONVERSATION, {}).items():
        if "sessions_limit" in summary:
            found = [target[CONVERSATION][persona] for target in targets]
            shown.add_row(f"{persona}: sessions until satisfied", *map(_sessions, found))
    unscored = [sum(summary["unscored"] for summary in target.get(CONVERSATION, {}).values()) for target in targets]
    if any(unscored):
        shown.add_row("replies that the user failed to score", *map(str, unscored))
    return shown


def _sessions(summary: dict[str, Any]) -> str:
    return _shown(summary["sessions"]) if summary["sessions"] else f"> {summary['sessions_limit']}"


def _arm_tables(result: dict[str, Any]) -> dict[str, Table]:
    """A table a persona, a row an arm."""
    shown: dict[str, Table] = {}
    found: dict[str, Any] = result.get("arms", {})
    for persona in next(iter(found.values()), {}):
        made = table("", "#style before", "#after", "#accuracy before", "#after", "#escape after", "sessions")
        for name, personas in found.items():
            first, last = personas[persona]["points"][0], personas[persona]["points"][-1]
            sessions = ", ".join("–" if number is None else str(number) for number in personas[persona]["sessions"])
            values = (first[1], last[1], first[2], last[2], last[3])
            made.add_row(name, *map(_shown, values), sessions)
        shown[persona] = made
    return shown


def _title(result: dict[str, Any]) -> str:
    return f"{seeds_of(result)}, 95 % intervals over seeds; user: {result['user']}"


def seeds_of(result: dict[str, Any]) -> str:
    """The number of seeds with its noun."""
    return f"{result['seeds']} seed{'s' * (result['seeds'] > 1)}"


def without_keys(arguments: Sequence[str]) -> list[str]:
    """A command line as it may be kept: no keys in it."""
    shown: list[str] = []
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name in SECRETS and equals:
            argument = f"{name}=KEY"
        elif shown and shown[-1] in SECRETS:
            argument = "KEY"
        shown.append(argument)
    return shown


def remember(data: Path, result: Mapping[str, Any]) -> None:
    """Keep the figures in the data folder of the service that was evaluated, for `/rl/evals`."""
    figures = {name: content for name, content in result.items() if name != "curves"}
    save(data / "evals" / f"{time.time():.0f}.json", _command(), figures)


def _command() -> str:
    return " ".join(["openclaw-rl", *without_keys(sys.argv[1:])])


def _keep(out: Path, result: dict[str, Any]) -> list[Path]:
    """Write the figures and the pictures; their paths."""
    written = [out / "eval.json"]
    runs = result.pop("curves", {})
    save(written[0], _command(), result)
    for persona, groups in runs.items():
        path = out / f"curve-{persona}.png"
        charts.draw_curves(path, groups, title=f"{persona}, {seeds_of(result)}")
        written.append(path)
    if result["targets"]:
        path = out / "eval.png"
        charts.draw_bars(path, result["targets"], title=_title(result))
        written.append(path)
    return written
