"""`openclaw-rl demo`: a simulated student talks to a policy that learns, and to one that does not; what came of it.

For every seed two services are started, one that trains and a control that does not, each on a fresh copy of the
policy. The same student (same seed) holds the same conversations with both, through nothing but ordinary chat requests.
Before, along the way and afterwards both answer held-out problems, in requests that are neither kept nor learned from.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli import tables
from openclaw_rl.cli.options import flags_of
from openclaw_rl.cli.service import preflight
from openclaw_rl.cli.service.plan import ROLES
from openclaw_rl.evaluation import arm as arms
from openclaw_rl.evaluation.arm import Arm, Plan
from openclaw_rl.evaluation.charts import draw_curves
from openclaw_rl.evaluation.provenance import save, typed
from openclaw_rl.evaluation.service import RunningService, default_policy, own_service
from openclaw_rl.evaluation.statistics import Interval, interval
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import FILE_VARIABLE, load
from openclaw_rl.shared.stopping import run_until_stopped

ARMS = ("trained", "control")
GPU_PATIENCE = 600.0


@dataclass(frozen=True)
class DemoOptions:
    """The command line."""

    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds, each with a new policy and student; default: 3 (1 with --url)")
    ] = None
    interactions: Annotated[int, typer.Option(help="Reactions of the student")] = 32
    problems: Annotated[int, typer.Option(help="Held-out problems")] = 100
    batch_size: Annotated[int, typer.Option(help="Judged turns per step")] = 8
    method: Annotated[str, typer.Option(help="Learning method; default: that of the service")] = ""
    backend: Annotated[
        str, typer.Option(help="Backend: embedded, megatron, tinker, fireworks, local or cloud; default: embedded")
    ] = ""
    model: Annotated[str, typer.Option(help="Policy; with a cloud backend a model name of the provider")] = ""
    out: Annotated[Path, typer.Option(help="Folder for the plot and the results")] = Path("data/demo")
    url: Annotated[
        str, typer.Option(help="Train the service at this URL instead of a new one; it will learn the student's style")
    ] = ""
    key: Annotated[str, typer.Option(envvar="OPENCLAW_RL_API_KEY", help="Key of the service at --url")] = ""

    @property
    def seed_count(self) -> int:
        """The number of seeds: a running service has one policy to train."""
        return self.seeds if self.seeds is not None else 1 if self.url else 3


@dataclass
class Board:
    """The live display: one line an arm on a terminal, one line a probe elsewhere."""

    console: Console
    plan: DemoOptions
    arms: dict[tuple[int, str], Arm] = field(default_factory=dict)
    printed: dict[tuple[int, str], int] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def changed(self, seed: int, name: str, arm: Arm) -> None:
        """Take note of an arm's state."""
        self.arms[seed, name] = arm
        if self.console.is_terminal or len(arm.points) == self.printed.get((seed, name), 0):
            return
        self.printed[seed, name] = len(arm.points)
        point = arm.points[-1]
        self.console.print(
            f"seed {seed} {name:8} {point.interactions:3} interactions, version {point.version}, "
            f"style {point.probe.style:.2f}, accuracy {point.probe.accuracy:.2f} "
            f"({time.monotonic() - self.begun:.0f} s)"
        )

    def __rich__(self) -> Group:
        table = Table(box=None, padding=(0, 1))
        for column in ("seed", "", "interactions", "", "versions", "style", "accuracy", "lately", ""):
            table.add_column(column)
        for (seed, name), arm in self.arms.items():
            done = len(arm.interactions)
            recent = arm.interactions[-8:]
            content = sum(interaction.reaction.mood == "thanks" for interaction in recent)
            table.add_row(
                str(seed),
                name,
                ProgressBar(total=self.plan.interactions, completed=done, width=24),
                f"{done}/{self.plan.interactions}",
                str(arm.version),
                " → ".join(f"{point.probe.style:.2f}" for point in (arm.points[:1] + arm.points[1:][-1:])),
                " → ".join(f"{point.probe.accuracy:.2f}" for point in (arm.points[:1] + arm.points[1:][-1:])),
                f"{content} of {len(recent)} liked" if recent else "",
                Text(arm.doing, style="dim"),
            )
        passed = time.monotonic() - self.begun
        return Group(
            table,
            Text(f"{passed:.0f} s · the simulated student waits after every batch until it is learned", style="dim"),
        )


@flags_of(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Run the experiment; a table and the path of the picture on stderr, one JSON line on stdout.

    Raises `ConfigError` for options that do not go together, `ServiceFailed` when a service does not start,
    `ServiceError` when one stays away for longer than a patient client waits.
    """
    if options.url and options.seed_count != 1:
        raise ConfigError("a running service (--url) has one policy to train, so there is one seed: add --seeds 1")
    if options.url and not options.key:
        raise ConfigError(f"no key for {options.url}: give --key KEY")
    if min(options.seed_count, options.interactions, options.problems, options.batch_size) < 1:
        raise ConfigError("--seeds, --interactions, --problems and --batch-size are at least 1")
    chosen = _check(options)
    console = tables.console(width=110, stderr=True)
    board = Board(console, options)
    live = Live(board, console=console, refresh_per_second=4, transient=True)
    with live if console.is_terminal else contextlib.nullcontext():
        runs = run_until_stopped(_runs(options, board, chosen))
    result = summary(options, runs)
    if chosen.engine.backend != "embedded":
        result |= {"backend": chosen.engine.backend, "model": chosen.engine.model}
    picture = options.out / "learning-curve.png"
    seeds = f"{options.seed_count} seed{'s' * (options.seed_count > 1)}"
    draw_curves(picture, runs, title=f"A student who dislikes bold and numbered steps, {seeds}")
    result["curve"] = str(picture)
    save(options.out / "demo.json", typed("openclaw-rl"), result)
    console.print(_table(runs))
    lost = [turn for group in runs.values() for run in group for turn in run.lost]
    if lost:
        console.print(f"{len(lost)} acknowledged turns are not in the journal: {', '.join(lost[:5])} …", style="red")
    for late in [run for run in runs["trained"] if run.late]:
        console.print(
            f"seed {late.plan.seed}: {late.late} times the learner was not done in time, and the student continued"
        )
    console.print(f"learning curve: {picture}   ({time.monotonic() - board.begun:.0f} s)", soft_wrap=True)
    print(json.dumps(result), flush=True)


def service_settings(options: DemoOptions) -> dict[str, str]:
    """The services' settings that the options hold, by name."""
    model = str(Path(options.model).resolve()) if Path(options.model).is_dir() else options.model
    named = {"method": options.method, "backend": options.backend, "model": model if options.model else ""}
    return default_policy(os.environ) | {name: value for name, value in named.items() if value}


def _check(options: DemoOptions) -> Settings:
    """The settings that the services will have, which read no file of this folder's. Raises `ConfigError`, for a
    provider that cannot be used too: there is nothing to fall back to, since both arms are to be compared.
    """
    file = None if os.environ.get(FILE_VARIABLE) else Path(os.devnull)
    settings, _ = load({**service_settings(options), "backend-fallback": ""}, file=file)
    return preflight.ready(settings, ROLES, {}, lambda _: None).settings


async def _runs(options: DemoOptions, board: Board, chosen: Settings) -> dict[str, list[Arm]]:
    """Both arms of one seed side by side (two processes that compute, two cores), one seed after the other. On GPUs one
    arm after the other too: each takes all of them.
    """
    runs: dict[str, list[Arm]] = {name: [] for name in ARMS}
    for seed in range(1, options.seed_count + 1):
        if chosen.engine.backend == "megatron":
            found = [await _run(options, board, chosen, seed, name) for name in ARMS]
        else:
            found = await gather(*(_run(options, board, chosen, seed, name) for name in ARMS))
        for name, run in zip(ARMS, found, strict=True):
            runs[name].append(run)
    return runs


def _patience(chosen: Settings) -> float:
    """Seconds that the student waits for the learner: a provider, or a model that is worth GPUs, takes longer."""
    if chosen.engine.is_cloud:
        return chosen.serve.request_timeout
    return GPU_PATIENCE if chosen.engine.backend == "megatron" else Plan.patience


async def _run(options: DemoOptions, board: Board, chosen: Settings, seed: int, name: str) -> Arm:
    plan = Plan(
        seed=seed,
        interactions=options.interactions,
        batch=options.batch_size,
        problems=options.problems,
        glances=(options.problems + 1) // 2,
        trained=name == "trained",
        patience=_patience(chosen),
    )
    board.changed(seed, name, Arm(plan, doing="starting a service"))
    if name == "trained" and options.url:
        return await _talk(RunningService(options.url.rstrip("/").removesuffix("/v1"), options.key), plan, board, name)
    settings: dict[str, Any] = {"train": plan.trained, "seed": seed, "batch_size": options.batch_size}
    settings |= service_settings(options)
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-demo-") as folder:
        async with own_service(settings, keep=Path(folder)) as service:
            return await _talk(service, plan, board, name)


async def _talk(service: RunningService, plan: Plan, board: Board, name: str) -> Arm:
    async with ChatClient(service.url, service.key) as client:
        return await arms.run(client, plan, changed=lambda arm: board.changed(plan.seed, name, arm))


def _ends(runs: Sequence[Arm], measure: str) -> list[Interval]:
    """Before and after, over seeds."""
    return [
        interval([getattr(run.before, measure) for run in runs]),
        interval([getattr(run.after, measure) for run in runs]),
    ]


def summary(options: DemoOptions, runs: dict[str, list[Arm]]) -> dict[str, Any]:
    """The JSON object: means before and after, and the half-widths of their 95 % intervals (null for one seed) under
    `…_ci`.
    """
    result: dict[str, Any] = {"interactions": options.interactions, "seeds": options.seed_count}
    for name in ARMS:
        entry: dict[str, Any] = {}
        for measure in ("style", "accuracy"):
            ends = _ends(runs[name], measure)
            entry[measure] = [round(end.mean, 4) for end in ends]
            entry[f"{measure}_ci"] = [None if end.half_width is None else round(end.half_width, 4) for end in ends]
        entry["versions"] = [run.version for run in runs[name]]
        entry["turns"] = sum(len(run.turns) for run in runs[name])
        entry["lost_turns"] = sum(len(run.lost) for run in runs[name])
        entry["retries"] = sum(run.retries for run in runs[name])
        entry["points"] = [
            [[point.interactions, round(point.probe.style, 4), round(point.probe.accuracy, 4)] for point in run.points]
            for run in runs[name]
        ]
        result[name] = entry
    return result


def _table(runs: dict[str, list[Arm]]) -> Table:
    done = len(runs["trained"][0].interactions)
    table = tables.table(
        *("", "style before", "style after", "accuracy before", "accuracy after", "versions"),
        title=f"{done} interactions, 95 % intervals over {len(runs['trained'])} seed(s); held-out problems",
    )
    for name in ARMS:
        versions = ", ".join(str(run.version) for run in runs[name])
        table.add_row(name, *map(str, _ends(runs[name], "style")), *map(str, _ends(runs[name], "accuracy")), versions)
    return table
