"""The journal as one object: the operations of its parts, and the way in for threads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from openclaw_rl.shared.journal import audits, learning, signals, status, transfer, turns
from openclaw_rl.shared.journal import sessions as episodes
from openclaw_rl.shared.journal.sqlite import Connection, Database
from openclaw_rl.shared.records import Kind, Sample

if TYPE_CHECKING:
    from openclaw_rl.shared.journal.async_journal import AsyncJournal

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Operation(Generic[_P, _T]):
    """A function over a connection as a method: of `Journal` an ordinary one, of `AsyncJournal` one to be awaited. An
    operation that `lingers` may wait a moment for others to share its transaction.
    """

    def __init__(
        self, function: Callable[Concatenate[Connection, _P], _T], *, writes: bool, lingers: bool = False
    ) -> None:
        self.function = function
        self.writes = writes
        self.lingers = lingers

    @overload
    def __get__(self, journal: Journal, owner: type) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, journal: AsyncJournal, owner: type) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    def __get__(self, journal: Journal | AsyncJournal, owner: type) -> Callable[_P, Any]:
        return functools.partial(journal.run, self)


def _reads(function: Callable[Concatenate[Connection, _P], _T]) -> Operation[_P, _T]:
    return Operation(function, writes=False)


def _writes(function: Callable[Concatenate[Connection, _P], _T], *, lingers: bool = False) -> Operation[_P, _T]:
    return Operation(function, writes=True, lingers=lingers)


class Operations:
    """Every operation of the journal; what each does is said where its part defines it."""

    record_turn = _writes(turns.record_turn)
    count_traffic = _writes(turns.count_traffic)
    turn = _reads(turns.find_turn)

    end_episode = _writes(episodes.end_episode)
    forget = _writes(episodes.forget)
    begun_after = _reads(episodes.begun_after)
    turn_ref = _reads(episodes.turn_ref)
    idle_sessions = _reads(episodes.idle_sessions)
    active_sessions = _reads(episodes.active_sessions)
    main_turns = _reads(episodes.main_turns)
    session = _reads(episodes.session)
    sessions = _reads(episodes.sessions)
    find_turns = _reads(episodes.find_turns)
    last_main_turn = _reads(episodes.last_main_turn)

    settle = _writes(signals.settle, lingers=True)
    add_feedback = _writes(signals.add_feedback)
    add_outcome = _writes(signals.add_outcome)
    expect_outcome = _writes(signals.expect_outcome)
    add_judgement = _writes(signals.add_judgement)
    add_quarantine = _writes(signals.add_quarantine)
    unjudged = _reads(signals.unjudged)
    next_state = _reads(signals.next_state)
    feedback_for = _reads(signals.feedback_for)
    session_feedback = _reads(signals.session_feedback)
    judgement = _reads(signals.judgement)
    outcome = _reads(signals.outcome)
    prompts_seen = _reads(signals.prompts_seen)
    recent_hints = _reads(signals.recent_hints)
    hint_mentions = _reads(signals.hint_mentions)
    accepted_answers = _reads(signals.accepted_answers)
    later_main_turns = _reads(signals.later_main_turns)
    left_out = _reads(signals.left_out)

    add_sample = _writes(learning.add_sample)
    commit_version = _writes(learning.commit_version)
    set_version_state = _writes(learning.set_version_state)
    make_live = _writes(learning.make_live)
    last_lesson = _reads(learning.last_lesson)
    ready_count = _reads(learning.ready_count)
    ready_words = _reads(learning.ready_words)
    ready_signal = _reads(learning.ready_signal)
    reactions = _reads(learning.reactions)
    live_version = _reads(learning.live_version)
    learning_figures = _reads(learning.learning_figures)
    version = _reads(learning.version)
    versions = _reads(learning.versions)
    next_version_number = _reads(learning.next_version_number)

    pass_unaudited = _writes(audits.pass_unaudited)
    add_audit = _writes(audits.add_audit)
    unaudited = _reads(audits.unaudited)
    audit = _reads(audits.audit)
    aligned_count = _reads(audits.aligned_count)
    audit_figures = _reads(audits.audit_figures)

    import_session = _writes(transfer.import_session)
    recorded = _reads(transfer.recorded)
    session_ids = _reads(transfer.session_ids)
    turn_ids = _reads(transfer.turn_ids)

    set_control = _writes(status.set_control)
    heartbeat = _writes(status.heartbeat)
    get_control = _reads(status.get_control)
    processes = _reads(status.processes)
    explain = _reads(status.explain)
    status = _reads(status.status)

    _ready = _reads(learning.ready_samples)
    _known_episode = _reads(episodes.known_episode)
    _open_episode = _writes(episodes.open_episode, lingers=True)


class Journal(Operations):
    """The store that the loops share. Every write is durable when its method returns; safe from several threads and
    several processes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.database = Database(path)
        self.path = self.database.path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Journal:
        """Open or create the journal at a path, its schema brought up to date. Raises JournalError; ConfigError for
        PostgreSQL.
        """
        return cls(path)

    def close(self) -> None:
        """Close the file; later calls raise JournalError. Nothing may be running."""
        self.database.close()

    def run(self, operation: Operation[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run an operation in a transaction of its own."""
        with self.database.writing() if operation.writes else self.database.reading() as connection:
            return operation.function(connection, *args, **kwargs)

    def open_episode(self, session_id: str, policy: str, source: str, *, kind: Kind = "main") -> int:
        """See `sessions.open_episode`; writes nothing where nothing changes."""
        known = self._known_episode(session_id, kind)
        return self._open_episode(session_id, policy, source, kind=kind) if known is None else known

    def ready_samples(self, limit: int) -> list[Sample]:
        """Samples that no version holds yet, oldest first. A turn whose images have lost their places is set aside."""
        samples, faulty = self._ready(limit)
        for quarantine in faulty:
            self.add_quarantine(quarantine)
        return samples
