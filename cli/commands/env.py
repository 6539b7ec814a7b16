"""`openclaw-rl env list|setup|tasks|run|train`: let the policy work on tasks with a verdict, and train it on them."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.options import Data, Json, Key, Url, flags_of, print_json, service
from openclaw_rl.cli.tables import console, table
from openclaw_rl.environments import kinds
from openclaw_rl.environments.attempt import Harness, Task
from openclaw_rl.environments.attempt_log import AttemptLog, EndedLine
from openclaw_rl.environments.harbor.installation import harbor_environment
from openclaw_rl.environments.harbor.protocol import BUBBLEWRAP
from openclaw_rl.environments.pass_rate import PassRate, pass_rate
from openclaw_rl.environments.runner import AttemptRunner, RunPlan
from openclaw_rl.environments.tasks.write import write_tasks
from openclaw_rl.environments.throttle import Throttle
from openclaw_rl.evaluation.service import RunningService, default_policy, own_service
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError
from openclaw_rl.shared.settings.named_models import find_named
from openclaw_rl.shared.settings.sources import FILE_VARIABLE, load
from openclaw_rl.shared.stopping import run_until_stopped

GROUP = 8
TURNS_A_STEP = 8
"""`batch_size` of an own service is this times the group. It counts the turns that teach: the others are of groups
whose attempts all ended alike.
"""
LEARNING: Mapping[str, Any] = {
    "method": "binary",
    "kl_base": 0.01,
    "temperature": 1.0,
    "train": True,
    "max_version_lag": 2,  # attempts can be made again, what people say cannot
}
"""Settings of an own service that trains, where the user has not set them."""
LEARNER_PATIENCE = 600.0
ACTING = Path(kinds.__file__).with_name("acting_policy")
"""A policy that has seen how to act, in the place of the tiny one whose tokenizer it has; not every package has it."""


@dataclass(frozen=True)
class EnvOptions:
    """The command line."""

    action: Annotated[Literal["list", "setup", "tasks", "run", "train"], typer.Argument(help="What to do")] = "list"
    environment: Annotated[
        str,
        typer.Argument(
            metavar="[ENV]", envvar="ENV_TYPE", help="Environment: a line of `openclaw-rl env list`; setup: harbor"
        ),
    ] = ""
    path: Annotated[
        str, typer.Argument(metavar="[PATH]", help="tasks: folder to write to; with swe also a file of rows to read")
    ] = ""
    tasks: Annotated[str, typer.Option(help="File or folder of tasks; default: the environment's own")] = ""
    tools_config: Annotated[str, typer.Option(envvar="TOOLS_CONFIG", help="File that describes tools")] = ""
    group: Annotated[
        int | None,
        typer.Option(
            "--group",
            "--num-rollouts-per-prompt",
            "--n-samples-per-prompt",
            help=f"Attempts at each task, which are compared; default: {GROUP} for train, 1 for run",
        ),
    ] = None
    episodes: Annotated[
        int | None, typer.Option(help="Number of attempts; default: 512 for train, 64 tasks for run")
    ] = None
    held_out: Annotated[int, typer.Option(help="Held-out tasks attempted before and after training; 0: none")] = 64
    concurrency: Annotated[
        int, typer.Option("--concurrency", "--parallel-envs", envvar="PARALLEL_ENVS", help="Attempts at a time")
    ] = 16
    max_steps: Annotated[
        int,
        typer.Option(
            "--max-steps",
            "--max-turns",
            envvar=["MAX_STEPS", "MAX_GUI_STEPS", "MAX_TURNS"],
            help="Model calls of an attempt",
        ),
    ] = 10
    timeout: Annotated[float, typer.Option(help="Maximum seconds of an attempt")] = 600.0
    agent: Annotated[
        str, typer.Option(help="Agent of Harbor tasks: bash, mini-swe-agent, a name of Harbor's or MODULE:CLASS")
    ] = ""
    agent_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Setting of that agent (VALUE in JSON, or a text)")
    ] = None
    sandbox: Annotated[
        str,
        typer.Option("--sandbox", "--environment", help="Sandbox of Harbor tasks: bubblewrap, or a kind of Harbor's"),
    ] = BUBBLEWRAP
    program: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Folder of this machine that agents inside bubblewrap can read and run"),
    ] = None
    split: Annotated[Literal["train", "held-out"], typer.Option(help="Tasks that `run` attempts")] = "held-out"
    seed: Annotated[int, typer.Option(help="Seed of the tasks and of the environment")] = 0
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for attempts.jsonl, and the data of an own service; default: a new one in data/env"),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out, or the last one")] = False
    data: Data = ""
    url: Url = ""
    key: Key = ""
    as_json: Json = False

    @property
    def members(self) -> int:
        """Attempts at each task."""
        if self.group is not None:
            return self.group
        return _group_of_arguments(os.environ) or (GROUP if self.action == "train" else 1)

    @property
    def attempts(self) -> int:
        """Attempts in all."""
        return self.episodes if self.episodes is not None else 512 if self.action == "train" else 64 * self.members

    @property
    def title(self) -> str:
        """The environment as it is shown and kept, without keys."""
        return kinds.hide_values(self.environment, self.environment)

    @property
    def named_folder(self) -> Path:
        """The folder of the first run without `--out`."""
        return Path("data/env") / f"{slug(self.title)}-{self.action}"


@flags_of(EnvOptions)
def env(options: EnvOptions) -> None:
    """Run the action; a table on stdout, progress on stderr, with `as_json` one JSON line instead of the table.

    Raises `ConfigError` for options that make no sense and for mistakes in an environment, `EnvironmentFault`,
    `ServiceError`, `ServiceFailed` and `ChatError` for what fails on the way.
    """
    if options.action == "list":
        _list(options.as_json)
        return
    if options.action == "setup":
        _setup(options)
        return
    if options.action == "tasks":
        _write_tasks(options)
        return
    check(options)
    folder = folder_of(options)
    options = replace(options, out=folder)
    notices = console(stderr=True, soft_wrap=True)
    action = _train if options.action == "train" else _measure
    try:
        result = run_until_stopped(action(options, notices.print))
    except (OpenClawRLError, KeyboardInterrupt, SystemExit):
        if (path := _log_in(folder)).exists():
            notices.print(f"attempts so far: {path}; the same command with --resume continues")
        raise
    if options.as_json:
        print_json(msgspec.to_builtins(result))
    else:
        _show(options, result)


def check(options: EnvOptions) -> None:
    """Raise `ConfigError` for options that make no sense."""
    if not options.environment:
        raise ConfigError(f"env {options.action} needs an environment; openclaw-rl env list shows them")
    if min(options.members, options.attempts, options.concurrency, options.max_steps) < 1 or options.held_out < 0:
        raise ConfigError("--group, --episodes, --concurrency and --max-steps are at least 1, --held-out 0")
    if options.timeout <= 0:
        raise ConfigError("--timeout is more than 0 seconds")
    if options.attempts % options.members:
        raise ConfigError(
            f"--episodes {options.attempts} is no multiple of --group {options.members}: a group is complete or useless"
        )
    if options.action == "train" and options.members == 1:
        raise ConfigError("--group 1 compares nothing; train needs at least 2 attempts at each task")


def folder_of(options: EnvOptions) -> Path:
    """The folder of the run: `--out`, else the last one of such a run with `--resume`, else the next free one. Raises
    `ConfigError` if there is none to resume.
    """
    if options.out is not None:
        return options.out
    named = options.named_folder
    taken = 0
    while _log_in(_numbered(named, taken + 1)).exists():
        taken += 1
    if options.resume and not taken:
        raise ConfigError(f"there is no run to resume in {named}; name its folder with --out")
    return _numbered(named, taken if options.resume else taken + 1)


def _numbered(folder: Path, number: int) -> Path:
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def _log_in(folder: Path) -> Path:
    return folder / "attempts.jsonl"


def slug(spec: str) -> str:
    """A spec as a part of a file's name and of session ids."""
    return re.sub(r"[^\w.-]+", "_", spec).strip("_.")[:40]


def _group_of_arguments(environ: Mapping[str, str]) -> int:
    """The group in the variable of launch scripts that holds flags; 0 without one."""
    words = shlex.split(environ.get("ROLLOUT_ARGS", "").replace("\\\n", " ").replace("=", " "))
    for flag, value in pairwise(words):
        if flag in ("--num-rollouts-per-prompt", "--n-samples-per-prompt") and value.isdecimal():
            return int(value)
    return 0


def own_settings(options: EnvOptions) -> dict[str, str | int | float | bool]:
    """The settings of an own service, without those that the user has set."""
    file = None if os.environ.get(FILE_VARIABLE) else Path(os.devnull)  # as the service: it reads none of this folder
    settings, sources = load(default_policy(os.environ), file=file)
    chosen: dict[str, Any] = {"train": False, "temperature": 1.0}
    if options.action == "train":
        chosen = training_settings(settings.engine.model, group=options.members, seed=options.seed)
    given = {name for name, source in sources.items() if not source.startswith(("default", "preset"))}
    own = {name: value for name, value in chosen.items() if name not in given}
    return {**own, "model": str(ACTING)} if default_policy(os.environ) and ACTING.is_dir() else own


def training_settings(model: str, *, group: int, seed: int) -> dict[str, Any]:
    """The settings of an own service that trains `model` on groups of so many attempts."""
    named = find_named(model)
    rate = named.reward_learning_rate if named is not None else 0.0
    own = {"learning_rate": rate} if rate else {}
    return {**LEARNING, "batch_size": TURNS_A_STEP * group, "seed": seed, **own}


@asynccontextmanager
async def _service(options: EnvOptions, say: Callable[[str], None]) -> AsyncIterator[Service]:
    """The running service that the options name, else one of our own, whose data stay in the run's folder."""
    if options.url or options.data:
        yield service(options.data, options.url, options.key)
        return
    settings = own_settings(options)
    say(f"starting a service: {', '.join(f'{name} = {value}' for name, value in settings.items())}")
    running: RunningService
    assert options.out is not None, "env() chooses a folder"
    async with own_service(settings, keep=(options.out / "service").absolute()) as running:
        yield Service(running.url, running.key)


class _Run(msgspec.Struct):
    """A run in progress: its parts, in order."""

    options: EnvOptions
    client: ChatClient
    harness: Harness
    log: AttemptLog
    model: str
    say: Callable[[str], None]

    async def attempt(
        self, phase: str, tasks: Sequence[Task], *, group: int, train: bool, throttle: Throttle | None = None
    ) -> PassRate:
        """Attempts at tasks; their figures."""
        options = self.options
        plan = RunPlan(
            group=group,
            concurrency=options.concurrency,
            timeout=options.timeout,
            train=train,
            phase=phase,
        )
        recent: list[EndedLine] = []
        wanted = len(tasks) * group
        done = sum(count for name, count in self.log.finished.items() if name.startswith(f"{phase}."))

        def ended(line: EndedLine) -> None:
            nonlocal done
            if throttle is not None:
                throttle.ended(line)
            recent.append(line)
            done += 1
            if done * 10 // wanted > (done - 1) * 10 // wanted:
                rate = _figure(pass_rate(recent).rate)
                self.say(f"{phase}: {done} of {wanted} attempts; pass rate of the last {len(recent)}: {rate}")
                recent.clear()

        admit = throttle.admit if throttle is not None else None
        runner = AttemptRunner(self.client, self.harness, self.log, plan, model=self.model, admit=admit, ended=ended)
        return pass_rate(await runner.run(tasks))


@asynccontextmanager
async def _begun(options: EnvOptions, kind: kinds.TaskSource, say: Callable[[str], None]) -> AsyncIterator[_Run]:
    """The parts of a run: the log first, so that nothing starts for a run that cannot be."""
    harness = kinds.harness_of(kind, seed=options.seed, max_steps=options.max_steps)
    name = f"{slug(options.title)}-{secrets.token_hex(4)}"
    assert options.out is not None, "env() chooses a folder"
    with AttemptLog(_log_in(options.out), name, _identity(options), resume=options.resume) as log:
        async with _service(options, say) as found, ChatClient(found.url, found.key) as client:
            yield _Run(options, client, harness, log, found.policy(), say)


def _identity(options: EnvOptions) -> dict[str, Any]:
    """The options in which a run that is continued must be the same."""
    names = ("action", "tasks", "seed", "max_steps", "attempts", "members", "agent", "sandbox")
    own = ("held_out",) if options.action == "train" else ("split",)
    return {"environment": options.title} | {name: getattr(options, name) for name in (*names, *own)}


@asynccontextmanager
async def _kind(options: EnvOptions) -> AsyncIterator[kinds.TaskSource]:
    found = kinds.create_kind(options.environment, kind_options(options))
    try:
        yield found
    finally:
        await kinds.close_kind(found)


def kind_options(options: EnvOptions) -> kinds.KindOptions:
    """The options of the kind. Raises `ConfigError` for an agent's setting that is none."""
    settings: dict[str, Any] = {}
    for text in options.agent_option or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--agent-option {text}: write NAME=VALUE")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return kinds.KindOptions(
        tasks=options.tasks,
        tools_config=options.tools_config,
        agent=options.agent,
        agent_options=settings,
        sandbox=options.sandbox,
        programs=tuple(options.program or ()),
        timeout=options.timeout,
        max_steps=options.max_steps,
    )


async def _measure(options: EnvOptions, say: Callable[[str], None]) -> dict[str, Any]:
    """`env run`: the pass rate of the policy, which learns nothing from it."""
    async with _kind(options) as kind:
        tasks = kinds.take_tasks(kind, options.split, options.seed, options.attempts // options.members)
        async with _begun(options, kind, say) as run:
            found = await run.attempt(options.split, tasks, group=options.members, train=False)
            return {**_head(options, run.log), "split": options.split, options.split: found}


async def _train(options: EnvOptions, say: Callable[[str], None]) -> dict[str, Any]:
    """`env train`: held-out tasks, training, held-out tasks."""
    async with _kind(options) as kind:
        tasks = kinds.take_tasks(kind, "train", options.seed, options.attempts // options.members)
        held_out = kinds.take_tasks(kind, "held-out", options.seed, options.held_out) if options.held_out else []
        kinds.check_apart(tasks, held_out)
        async with _begun(options, kind, say) as run:
            status = await run.client.get("/rl/status")
            if status["training"] != "running" or not status["capture"]:
                state = f"training is {status['training']}" if status["capture"] else "capture is off"
                raise ConfigError(
                    f"{state} at {run.client.url}: `openclaw-rl resume` continues training that was paused, capture "
                    "and train are settings of `serve`, and `openclaw-rl env run` measures without training"
                )
            result: dict[str, Any] = _head(options, run.log)
            if held_out:
                result["before"] = await run.attempt("before", held_out, group=1, train=False)
            sizes = {name: status["learning"][name] for name in ("turns_a_step", "max_version_lag")}
            steps = result["before"].steps if held_out else float(options.max_steps)
            throttle = Throttle(run.client, run.log, group=options.members, steps=steps, say=say, **sizes)
            result["train"] = await run.attempt("train", tasks, group=options.members, train=True, throttle=throttle)
            if not await throttle.learned(LEARNER_PATIENCE):
                say("the learner is not done; the last attempts may not count yet")
            before, status = status, await run.client.get("/rl/status")
            result["version"] = status["version"]["live"]
            if result["version"] == before["version"]["live"] and not options.resume:  # else it was made earlier
                say(f"no version was made. {status['why_untrained']}")
            if held_out:
                result["after"] = await run.attempt("after", held_out, group=1, train=False)
            return result


def _head(options: EnvOptions, log: AttemptLog) -> dict[str, Any]:
    return {
        "environment": options.title,
        "seed": options.seed,
        "episodes": options.attempts,
        "group": options.members,
        "log": str(log.path),
    }


ROWS = {"before": "held-out, before", "train": "training", "held-out": "held-out", "after": "held-out, after"}


def _show(options: EnvOptions, result: Mapping[str, Any]) -> None:
    out = console()
    found = table("tasks", "#attempts", "#pass rate", "#95 % interval", "#mean reward", "#model calls", "no verdict")
    for name, title in ROWS.items():
        rate = result.get(name)
        if isinstance(rate, PassRate):
            missing = ", ".join(f"{count} {status}" for status, count in rate.no_verdict.items())
            figures = [_figure(rate.rate), f"{_figure(rate.low)} to {_figure(rate.high)}", _figure(rate.reward)]
            found.add_row(title, str(rate.attempts), *figures, f"{rate.steps:.1f}", missing)
    version = f", version {result['version']} is live" if "version" in result else ""
    out.print(f"{options.title}, seed {options.seed}{version}")
    out.print(found)
    out.print(f"every attempt: {result['log']}")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _setup(options: EnvOptions) -> None:
    """Make the environment of a program that cannot run in ours."""
    if options.environment != "harbor":
        raise ConfigError("env setup makes the environment of harbor: openclaw-rl env setup harbor")
    made = harbor_environment()
    if not made.is_made():
        console(stderr=True).print(f"installing Harbor in {made.folder}")
    made.make()
    if options.as_json:
        print_json({"harbor": str(made.folder)})
    else:
        console(soft_wrap=True).print(f"Harbor is in {made.folder}")


def _write_tasks(options: EnvOptions) -> None:
    """Write tasks as folders. Raises `ConfigError` at the end if some could not be written."""
    if not options.environment or not options.path:
        raise ConfigError("env tasks needs a set of tasks and a path: openclaw-rl env tasks swe ROWS.jsonl")
    written = write_tasks(
        options.environment,
        Path(options.path),
        options.out,
        split=options.split,
        seed=options.seed,
        count=options.attempts,
    )
    if options.as_json:
        print_json({"folder": str(written.folder), "tasks": written.names, "errors": written.errors})
    else:
        console(soft_wrap=True).print(f"{len(written.names)} tasks are in {written.folder}")
    if written.errors:
        total = len(written.errors) + len(written.names)
        raise ConfigError("\n".join([f"{len(written.errors)} of {total} rows were not written:", *written.errors]))


def _list(as_json: bool) -> None:
    entries = [*kinds.KINDS.values(), kinds.OWN]
    if as_json:
        print_json({"environments": [{"usage": entry.usage, "help": entry.help} for entry in entries]})
        return
    shown = table("environment", "")
    for entry in entries:
        shown.add_row(entry.usage, entry.help)
    console(width=140).print(shown)
