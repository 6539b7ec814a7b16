"""`openclaw-rl export`: conversations of the journal as a trajectory file, one turn in memory at a time."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import msgspec
import typer

from openclaw_rl.cli.options import Data, settings_of, unix_time
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.cli.trajectories.trajectory import lossless, plain
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.encoding import encode
from openclaw_rl.shared.records import Kind
from openclaw_rl.shared.redaction.redactor import EXTRA, Redactor

Format = Literal["json", "jsonl"]
Record = TypeVar("Record", bound=msgspec.Struct | None)


@dataclass
class Exporter:
    """Writes sessions; `sessions` and `turns` count what was written. `redactor` takes what is private out of them."""

    journal: Journal
    kind: Kind | None
    messages: bool
    tokens: bool
    redactor: Redactor | None
    sessions: int = 0
    turns: int = 0

    def write(self, session_ids: Sequence[str], out: BinaryIO, form: Format) -> None:
        """Write the sessions that have a turn of the wanted kind."""
        between = b"\n" if form == "jsonl" else b",\n"
        out.write(b"" if form == "jsonl" else b"[\n")
        for session_id in session_ids:
            self._session(session_id, out, between if self.sessions else b"")
        out.write(b"\n]\n" if form == "json" else b"\n" if self.sessions else b"")

    def _session(self, session_id: str, out: BinaryIO, between: bytes) -> None:
        before = self.turns
        for turn in self._turns(session_id):
            out.write((b", " if self.turns > before else between + self._head(session_id)) + encode(turn))
            self.turns += 1
        if self.turns > before:
            out.write(b"]}")
            self.sessions += 1

    def _head(self, session_id: str) -> bytes:
        head: dict[str, Any] = {"session_id": session_id}
        outcome = self._clean(self.journal.outcome(session_id), "detail")
        if self.messages and outcome is not None:
            head["outcome"] = {"reward": outcome.reward, "detail": outcome.detail}
        return encode(head)[:-1] + b',"turns":['

    def _turns(self, session_id: str) -> Iterator[Any]:
        for turn_id in self.journal.turn_ids(session_id):
            turn = self.journal.turn(turn_id)
            if turn is None or (self.kind is not None and turn.kind != self.kind):  # None: forgotten meanwhile
                continue
            turn = self._clean(turn, "messages", "tools", "answer")
            came = self._clean(self.journal.next_state(turn_id), "text")
            if not self.messages:
                yield plain(turn, came)
                continue
            said = [self._clean(one, "text") for one in self.journal.feedback_for(turn_id)]
            judged = self._clean(self.journal.judgement(turn_id), "hint", "reason")
            yield lossless(turn, came, said, judged, tokens=self.tokens)

    def _clean(self, record: Record, *fields: str) -> Record:
        """The record with these fields redacted; `None` stays."""
        if self.redactor is None or record is None:
            return record
        changed: Record = msgspec.structs.replace(
            record, **{name: self.redactor.value(getattr(record, name)) for name in fields}
        )
        return changed


def export(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="File to write; default: stdout")] = None,
    session: Annotated[list[str] | None, typer.Option(help="Only this session; may be repeated")] = None,
    since: Annotated[str, typer.Option(metavar="DATE", help="Only sessions active since this day: 2026-05-01")] = "",
    form: Annotated[
        Literal["json", "jsonl"] | None,
        typer.Option("--format", help="Format; default: by the file's extension, else json"),
    ] = None,
    kind: Annotated[
        Literal["main", "side", "all"], typer.Option(help="Only main turns, only side turns, or all")
    ] = "all",
    messages: Annotated[bool, typer.Option("--messages", help="Write the exact messages, not only the texts")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="Write token ids and logprobs; implies --messages")] = False,
    redact: Annotated[
        bool | None,
        typer.Option(
            "--redact/--no-redact",
            help="Remove secrets and personal data; default: on if the extra redact is installed",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file")] = False,
    data: Data = "",
) -> None:
    """Write the sessions of the data folder's journal to `file`, or stdout; what was written goes to stderr. Raises
    `ConfigError`.
    """
    settings = as_served(settings_of(data))
    path = Path(settings.serve.journal_path)
    if "://" not in str(settings.serve.journal_path) and not path.exists():
        raise ConfigError(f"there is no journal at {path}; name the service's data folder with --data")
    after = unix_time(since, "--since") if since else 0.0
    redactor = _redactor(redact, tokens=tokens)
    if form is None:
        form = "jsonl" if file is not None and file.suffix.lower() in (".jsonl", ".ndjson") else "json"
    with contextlib.closing(Journal(settings.serve.journal_path)) as journal:
        chosen = journal.session_ids(after)
        if session:
            missing = sorted(set(session) - set(journal.session_ids()))
            if missing:
                raise ConfigError(f"the journal has no session {', '.join(missing)}; openclaw-rl sessions lists them")
            chosen = [session_id for session_id in chosen if session_id in session]
        exporter = Exporter(journal, None if kind == "all" else kind, messages or tokens, tokens, redactor)
        with _target(file, force=force) as out:
            exporter.write(chosen, out, form)
    where = "stdout" if file is None else str(file)
    typer.echo(f"exported {exporter.sessions} sessions with {exporter.turns} turns to {where}", err=True)
    if redactor is not None:
        found = ", ".join(f"{count} {kind}" for kind, count in redactor.found.most_common())
        typer.echo(f"redacted: {found or 'nothing was found'}", err=True)


def _redactor(redact: bool | None, *, tokens: bool) -> Redactor | None:
    if tokens and redact is not False:
        raise ConfigError("token ids spell the text that redaction takes out; add --no-redact, or leave --tokens out")
    found = None if redact is False else Redactor.if_installed()
    if found is None and redact:
        raise ConfigError(f"--redact needs its libraries: {install_command(EXTRA)}")
    if found is None and redact is None:
        typer.echo(
            f"NOT redacted: secrets and personal data leave as they are. The extra {EXTRA} takes known "
            f"forms of them out ({install_command(EXTRA)}); --no-redact says that you mean it",
            err=True,
        )
    return found


@contextlib.contextmanager
def _target(file: Path | None, *, force: bool) -> Iterator[BinaryIO]:
    """Stdout, or a file that is there whole in the end or not at all; readable by its owner, as the journal is."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if file.exists() and not force:
        raise ConfigError(f"{file} exists; choose another name, or replace it with --force")
    scratch = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            yield out
        scratch.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        scratch.unlink(missing_ok=True)
