"""`openclaw-rl import`: conversations of trajectory files into the journal, scored by the running engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from openclaw_rl.cli.client import ServiceError
from openclaw_rl.cli.options import Data, Json, print_json, settings_of
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.cli.trajectories.imported import Importer
from openclaw_rl.cli.trajectories.trajectory import FileSession, TrajectoryError, sessions_in
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.engine.protocol import Engine, EngineInfo
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings


class Imported(msgspec.Struct):
    """The result for one file. `left_out` counts the reasons why main turns may not be trained on."""

    file: str
    sessions: int = 0
    turns: int = 0
    trainable: int = 0
    already_there: int = 0
    empty: int = 0
    left_out: Counter[str] = msgspec.field(default_factory=Counter)


def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Trajectory files, .json or .jsonl")],
    engine_url: Annotated[
        str, typer.Option(help="Engine that scores the turns; default: that of the service on the data folder")
    ] = "",
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Import the files, each completely or, if it has a fault, not at all. Raises `TrajectoryError`, `ServiceError`,
    `EngineError`, `JournalError`.
    """
    settings = as_served(settings_of(data))
    if engine_url:
        settings = settings.replace(engine_url=engine_url.rstrip("/"))
    if not settings.engine.url:
        raise ServiceError(
            f"no engine runs on the data folder {settings.serve.data}, and imported answers need its scores: start the "
            "service with openclaw-rl serve, or name its data folder with --data or another engine with --engine-url"
        )
    reports: list[Imported] = []
    try:
        asyncio.run(_import(settings, files, reports))
    finally:
        if as_json:
            print_json({"files": [msgspec.structs.asdict(one) for one in reports]})
        else:
            for one in reports:
                _show(one)


async def _import(settings: Settings, files: Sequence[Path], reports: list[Imported]) -> None:
    engine = create_engine(settings)
    try:
        info = await _ask(engine, settings)
        served = info.model_path if Path(info.model_path).is_dir() else settings.engine.model
        prompter = await asyncio.to_thread(Prompter.from_settings, settings.replace(model=served))
        journal = AsyncJournal(settings.serve.journal_path)
        try:
            context = settings.engine.context_length or info.context_length
            importer = Importer(journal, engine, prompter, policy=settings.serve.model_name, context=context)
            for file in files:  # a file with a fault is refused before anything is stored
                for session in sessions_in(file):
                    importer.read(session)
            for file in files:
                reports.append(Imported(str(file)))
                for session in sessions_in(file):
                    await _add(importer, session, reports[-1])
        finally:
            await journal.close()
    finally:
        await engine.close()


async def _add(importer: Importer, session: FileSession, done: Imported) -> None:
    if not session.turns:
        done.empty += 1
        return
    try:
        added = await importer.add(session)
    except (EngineError, TrajectoryError) as error:
        raise TrajectoryError(
            f"{session.where} was not imported: {error}. The sessions before it are in the journal; importing the "
            "same file again continues from here"
        ) from error
    if added is None:
        done.already_there += 1
        return
    done.sessions += 1
    done.turns += added.turns
    done.trainable += added.trainable
    done.left_out += added.left_out


async def _ask(engine: Engine, settings: Settings) -> EngineInfo:
    try:
        return await engine.info()
    except EngineError as error:
        raise ServiceError(
            f"the engine at {without_secret(settings.engine.url)} does not answer ({error}), and imported answers need "
            "its scores: start the service with openclaw-rl serve"
        ) from error


def _show(done: Imported) -> None:
    there = f"; {done.already_there} were there already" if done.already_there else ""
    there += f"; {done.empty} have no turns" if done.empty else ""
    typer.echo(
        f"{done.file}: {done.sessions} sessions with {done.turns} turns, {done.trainable} of which may be trained on"
        f"{there}"
    )
    for reason, count in done.left_out.most_common():
        typer.echo(f"  {count} not: {reason}")
