"""`openclaw-rl forget`: conversations are deleted with all that was said about them, with or without a service."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import typer

from openclaw_rl.cli.client import Service, running
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service, settings_of, unix_time
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Forgotten, Journal


def forget(
    session: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="Session to forget; without it use --before")
    ] = "",
    before: Annotated[
        str, typer.Option(metavar="DATE", help="Forget the episodes without a turn since this day: 2026-05-01")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Show what is to be forgotten, ask, and forget it. Raises `ConfigError` unless a session or a date is named."""
    if bool(session) == bool(before):
        raise ConfigError("name either a SESSION or a day with --before, for example: forget --before 2026-05-01")
    wanted: dict[str, Any] = {"session_id": session} if session else {"before": unix_time(before, "--before")}
    subject = f"session {session}" if session else f"episodes without a turn since {before}"
    with _place(data, url, key) as place:
        found = place.preview(wanted)
        if not as_json:
            typer.echo(_describe(found, subject))
        if found.episodes:
            if not yes:
                typer.confirm("Delete them, with all that was said about them, for good?", abort=True, err=True)
            found.pending = place.forget(wanted)
    if as_json:
        print_json(msgspec.to_builtins(found))
    elif found.pending:
        typer.echo("deleted; the text leaves the journal's log when the program that reads it has ended its reading")
    elif found.episodes:
        typer.echo("deleted")


def _describe(found: Forgotten, subject: str) -> str:
    if not found.episodes:
        return f"{subject}: nothing to forget"
    first, last = (time.strftime("%Y-%m-%d", time.localtime(one)) for one in (found.first, found.last))
    days = first if first == last else f"{first} to {last}"
    lines = [f"{subject}: {found.turns} turns in {found.episodes} episodes, last active {days}"]
    if found.versions:
        numbers = ", ".join(map(str, found.versions))
        lines.append(f"Versions {numbers} learned from them, and keep what they learned, as do those made from them.")
    return "\n".join(lines)


class _Place(Protocol):
    """A place from which the journal is reached. `forget` returns whether text is pending."""

    def preview(self, wanted: dict[str, Any]) -> Forgotten: ...
    def forget(self, wanted: dict[str, Any]) -> bool: ...


@contextlib.contextmanager
def _place(data: str, url: str, key: str) -> Iterator[_Place]:
    """The running service, which has answers in memory and in progress too; without one the journal."""
    settings = as_served(settings_of(data))
    if url or running(settings.serve.data, "proxy") is not None:
        yield _Remote(service(data, url, key))
        return
    path = settings.serve.journal_path
    if "://" not in str(path) and not Path(path).exists():
        raise ConfigError(f"there is no journal at {path}; name the service's data folder with --data")
    with contextlib.closing(Journal(path)) as journal:
        yield _Local(journal)


class _Remote:
    def __init__(self, asked: Service) -> None:
        self._asked = asked

    def preview(self, wanted: dict[str, Any]) -> Forgotten:
        return msgspec.convert(self._asked.post("/rl/forget", {**wanted, "preview": True}), Forgotten)

    def forget(self, wanted: dict[str, Any]) -> bool:
        while True:
            answer = self._asked.post("/rl/forget", wanted)
            if not (answer["left"] and answer["episodes"]):
                return bool(answer["pending"])


class _Local:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def preview(self, wanted: dict[str, Any]) -> Forgotten:
        return self._journal.forgettable(**wanted)

    def forget(self, wanted: dict[str, Any]) -> bool:
        if "session_id" in wanted:
            self._journal.forget(wanted["session_id"])
        before = wanted.get("before", 0.0)
        for episode in self._journal.old_episodes(before):
            self._journal.forget(episode.session_id, episode.episode, before)
        return not self._journal.finish_erasing()
