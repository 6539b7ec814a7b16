"""The journal as one object: the operations of its parts, and the way in for threads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from openclaw_rl.shared.journal import (
    accounting,
    attempts,
    audits,
    conversations,
    deaths,
    events,
    exclusion,
    forgetting,
    groups,
    integrity,
    learning,
    serving,
    signals,
    status,
    transfer,
    turns,
    verdicts,
    wishes,
)
from openclaw_rl.shared.journal import sessions as episodes
from openclaw_rl.shared.journal.sqlite import Connection, Database
from openclaw_rl.shared.records import Sample

if TYPE_CHECKING:
    from openclaw_rl.shared.journal.async_journal import AsyncJournal

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Operation(Generic[_P, _T]):
    """A function over a connection as a method: of `Journal` an ordinary one, of `AsyncJournal` one to be awaited. An
    operation that `lingers` may wait a moment for others to share its transaction. `line` words the log line of one
    that was done.
    """

    def __init__(
        self,
        function: Callable[Concatenate[Connection, _P], _T],
        *,
        writes: bool = False,
        lingers: bool = False,
        line: Callable[_P, str] | None = None,
    ) -> None:
        self.function = function
        self.line = line
        self.writes = writes
        self.lingers = lingers

    @overload
    def __get__(self, journal: Journal, owner: type) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, journal: AsyncJournal, owner: type) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    def __get__(self, journal: Journal | AsyncJournal, owner: type) -> Callable[_P, Any]:
        return functools.partial(journal.run, self)


class Operations:
    """Every operation of the journal; what each does is said where its part defines it."""

    record_turn = Operation(turns.record_turn, writes=True)
    count_traffic = Operation(turns.count_traffic, writes=True)
    answer = Operation(turns.find_answer)

    open_episode = Operation(episodes.open_episode, writes=True, lingers=True)
    end_episode = Operation(episodes.end_episode, writes=True)
    erased = Operation(forgetting.erased, writes=True)
    old_episodes = Operation(forgetting.old_episodes)
    forgettable = Operation(forgetting.forgettable)
    begun_after = Operation(episodes.begun_after)
    turn_ref = Operation(episodes.turn_ref)
    idle_sessions = Operation(episodes.idle_sessions)
    active_sessions = Operation(episodes.active_sessions)
    main_turns = Operation(episodes.main_turns)
    session = Operation(episodes.session)
    sessions = Operation(episodes.sessions)
    session_page = Operation(conversations.session_page)
    transcript = Operation(conversations.transcript)
    oldest = Operation(conversations.oldest)
    find_turns = Operation(episodes.find_turns)
    find_answers = Operation(episodes.find_answers)
    side_turns = Operation(episodes.side_turns)
    last_main_turn = Operation(episodes.last_main_turn)

    begin_attempt = Operation(attempts.begin_attempt, writes=True)
    keep_open = Operation(attempts.keep_open, writes=True, lingers=True)
    group_members = Operation(attempts.group_members)
    attempt_of = Operation(attempts.attempt_of)
    waiting_groups = Operation(groups.waiting_groups)
    group_attempts = Operation(groups.group_attempts)

    was_sampled = Operation(turns.was_sampled)
    settle = Operation(signals.settle, writes=True, lingers=True)
    add_feedback = Operation(signals.add_feedback, writes=True)
    add_outcome = Operation(signals.add_outcome, writes=True)
    expect_outcome = Operation(signals.expect_outcome, writes=True)
    judged_episodes = Operation(signals.judged_episodes)
    add_judgement = Operation(signals.add_judgement, writes=True, line=signals.describe_judgement)
    add_quarantine = Operation(signals.add_quarantine, writes=True, line=signals.describe_quarantine)
    set_aside_damaged = Operation(signals.set_aside_damaged, writes=True)
    unjudged = Operation(signals.unjudged)
    next_state = Operation(signals.next_state)
    feedback_for = Operation(signals.feedback_for)
    session_feedback = Operation(signals.session_feedback)
    judgement = Operation(signals.judgement)
    outcome = Operation(signals.outcome)
    prompts_seen = Operation(signals.prompts_seen)
    recent_hints = Operation(signals.recent_hints)
    hint_mentions = Operation(signals.hint_mentions)
    hints_after = Operation(signals.hints_after)
    accepted_answers = Operation(signals.accepted_answers)
    later_main_turns = Operation(signals.later_main_turns)
    left_out = Operation(signals.left_out)

    add_sample = Operation(learning.add_sample, writes=True, line=learning.describe_sample)
    commit_version = Operation(learning.commit_version, writes=True)
    mark_known = Operation(learning.mark_known, writes=True)
    set_version_state = Operation(learning.set_version_state, writes=True)
    replace_damaged = Operation(learning.replace_damaged, writes=True)
    make_live = Operation(learning.make_live, writes=True)
    may_go_live = Operation(learning.may_go_live)
    promote = Operation(learning.promote, writes=True)
    pinned = Operation(serving.pinned)
    unpin = Operation(serving.unpin, writes=True)
    begin_removal = Operation(serving.begin_removal, writes=True)
    last_lesson = Operation(learning.last_lesson)
    ready_count = Operation(learning.ready_count)
    ready_words = Operation(learning.ready_words)
    ready_signal = Operation(learning.ready_signal)
    accepted_attempts = Operation(learning.accepted_attempts)
    reactions = Operation(learning.reactions)
    live_version = Operation(learning.live_version)
    learning_figures = Operation(learning.learning_figures)
    lineage = Operation(learning.lineage)
    version = Operation(learning.version)
    versions = Operation(learning.versions)
    stored_versions = Operation(learning.stored_versions)
    mean_rewards = Operation(learning.mean_rewards)
    next_version_number = Operation(learning.next_version_number)

    version_lessons = Operation(learning.version_lessons)

    exclude = Operation(exclusion.exclude, writes=True)
    include = Operation(exclusion.include, writes=True)
    drop_wish = Operation(wishes.drop_wish, writes=True)
    dropped_wishes = Operation(wishes.dropped_wishes)
    wishes = Operation(wishes.wishes)
    verdicts = Operation(verdicts.verdicts)
    events_after = Operation(events.events_after)
    last_event = Operation(events.last_event)

    release = Operation(learning.release, writes=True)
    backlog = Operation(accounting.backlog)
    waiting_count = Operation(accounting.waiting_count)
    waiting_rows = Operation(accounting.waiting_rows)
    accounting = Operation(accounting.accounting)

    contradictions = Operation(integrity.contradictions)
    file_faults = Operation(integrity.file_faults)
    turn_rows = Operation(integrity.turn_rows)
    unreadable = Operation(integrity.unreadable)

    begin_work = Operation(deaths.begin_work, writes=True)
    end_work = Operation(deaths.end_work, writes=True)
    stop_work = Operation(deaths.stop_work, writes=True)
    count_deaths = Operation(deaths.count_deaths, writes=True)
    deaths = Operation(deaths.deaths)

    pass_unaudited = Operation(audits.pass_unaudited, writes=True)
    add_audit = Operation(audits.add_audit, writes=True)
    unaudited = Operation(audits.unaudited)
    audit = Operation(audits.audit)
    aligned_count = Operation(audits.aligned_count)
    audit_figures = Operation(audits.audit_figures)

    import_session = Operation(transfer.import_session, writes=True)
    recorded = Operation(transfer.recorded)
    session_ids = Operation(transfer.session_ids)
    turn_ids = Operation(transfer.turn_ids)

    set_control = Operation(status.set_control, writes=True)
    heartbeat = Operation(status.heartbeat, writes=True)
    get_control = Operation(status.get_control)
    processes = Operation(status.processes)
    explain = Operation(status.explain)
    status = Operation(status.status)

    _ready = Operation(learning.ready_samples)


FORGET = Operation(forgetting.forget, writes=True)


class Journal(Operations):
    """The store that the loops share. Every write is durable when its method returns; safe from several threads and
    several processes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create the journal at a path, its schema brought up to date. Raises JournalError; ConfigError for
        PostgreSQL.
        """
        self.database = Database(path)
        self.path = self.database.path

    def close(self) -> None:
        """Close the file; later calls raise JournalError. Nothing may be running."""
        self.database.close()

    turn = Operation(turns.find_turn)
    open_attempt = Operation(attempts.open_attempt)

    def run(self, operation: Operation[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run an operation in a transaction of its own."""
        with self.database.writing() if operation.writes else self.database.reading() as connection:
            return operation.function(connection, *args, **kwargs)

    def forget(self, session_id: str, episode: int | None = None, before: float | None = None) -> list[int]:
        """See `forgetting.forget`; then its content leaves the write-ahead log, unless a reader keeps it."""
        versions = self.run(FORGET, session_id, episode, before)
        self.finish_erasing()
        return versions

    def finish_erasing(self) -> bool:
        """Empty the write-ahead log of deleted content. False while a reader somewhere keeps it: try again."""
        erasing = self.get_control(forgetting.ERASING)
        if erasing and not self.database.empty_log():
            return False
        if erasing:
            self.erased(erasing)
        return True

    def ready_samples(self, limit: int, groups: Sequence[str] | None = None) -> list[Sample]:
        """Samples that no version holds yet, oldest first; with `groups` only those of these and of no group. A turn
        that is damaged, or whose images have lost their places, is set aside.
        """
        samples, faulty = self._ready(limit, groups)
        for row, reason in faulty:
            self.set_aside_damaged(row, reason)
        return samples
