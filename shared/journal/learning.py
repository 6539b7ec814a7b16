"""Samples and versions: a sample is ready until a version that holds it is committed, and goes into one version at
most.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import encoding
from openclaw_rl.shared.journal.signals import Signals, _quarantine, _turn_row
from openclaw_rl.shared.journal.sqlite import insert
from openclaw_rl.shared.journal.tally import tallied
from openclaw_rl.shared.journal.views import LearningFigures, Reaction
from openclaw_rl.shared.messages.images import images_of, misplaced
from openclaw_rl.shared.objective.importance_ratio import no_ratio
from openclaw_rl.shared.records import PolicyVersion, Quarantine, Sample, Turn, VersionState, now

HELD_BACK = "held back for the guard"
"""How the quarantine of a turn begins that is kept for the guard."""

_REACTIONS = f"""
SELECT turn_id, score, hint IS NOT NULL, coalesce(reason LIKE '{HELD_BACK}%', 0), reason IS NOT NULL
FROM judgements JOIN turns ON turns.id = judgements.turn LEFT JOIN quarantines ON quarantines.turn = turns.id
WHERE score IS NOT NULL AND kind = 'main'
  AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = turns.id AND later.id > judgements.id)
  AND (EXISTS (SELECT 1 FROM next_states WHERE next_states.turn = turns.id AND role = 'user')
       OR EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id))
"""

_SAMPLE = (
    "sample_id, turn, policy, temperature, reward, explicit, hint, hinted_prompts, teacher_logprobs, task_group, "
    "step_index, weight, time"
)
_VERSION = "SELECT number, parent, state, checkpoint, method, metrics, guard, time FROM versions"


class Learning(Signals):
    """The part of the journal that the learner works from."""

    def add_sample(self, sample: Sample, *, correction: bool = False) -> None:
        """Make a turn's sample ready; it replaces a ready one of the same turn and lifts its quarantine. Does nothing
        where an audit found the turn misaligned. Where a version has learned from the turn it must not count twice:
        then only a `correction` of what was learned is made ready, and any other sample takes back a correction that
        still waits. Idempotent by `sample_id`.

        Ids, logprobs and images stay with the turn: JournalError if the sample's are not the turn's, or if its origin
        is not `turn`.
        """
        if sample.origin != "turn" or sample.turn_id is None:
            raise JournalError(
                f"sample {sample.sample_id} comes from no turn ({sample.origin}); only samples of turns are journalled"
            )
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM samples WHERE sample_id = ?", (sample.sample_id,)).fetchone():
                return
            row = _turn_row(connection, sample.turn_id)
            turn = self._turn(connection, row)
            if (
                encoding.token_ids(sample.prompt_ids) != turn.prompt_ids
                or encoding.token_ids(sample.response_ids) != turn.response_ids
                or encoding.floats(sample.logprobs).tobytes() != encoding.floats(turn.logprobs).tobytes()
                or tuple(sample.versions) != tuple(turn.versions)
                or tuple(sample.images) != images_of(turn)
            ):
                raise JournalError(
                    f"sample {sample.sample_id} does not hold the ids, logprobs, versions and images of turn "
                    f"{sample.turn_id}; make it from the turn as the journal gives it"
                )
            if connection.execute("SELECT 1 FROM audits WHERE turn = ? AND verdict = 'misaligned'", (row,)).fetchone():
                return
            connection.execute("UPDATE samples SET state = 'superseded' WHERE turn = ? AND state = 'ready'", (row,))
            learned = connection.execute("SELECT 1 FROM samples WHERE turn = ? AND state = 'consumed'", (row,))
            if learned.fetchone() and not correction:
                return
            connection.execute("DELETE FROM quarantines WHERE turn = ?", (row,))
            teacher = sample.teacher_logprobs
            values = {
                "sample_id": sample.sample_id,
                "turn": row,
                "state": "ready",
                "policy": sample.policy,
                "temperature": sample.temperature,
                "reward": sample.reward,
                "explicit": sample.explicit,
                "hint": sample.hint,
                "hinted_prompts": encoding.pack_prompts(sample.hinted_prompts, encoding.token_ids(turn.prompt_ids)),
                "teacher_logprobs": None if teacher is None else encoding.pack(encoding.floats(teacher).tobytes()),
                "task_group": sample.group,
                "step_index": sample.step_index,
                "weight": sample.weight,
                "time": sample.time,
            }
            insert(connection, "samples", values)

    def last_lesson(self, turn_id: str) -> Sample | None:
        """The sample of a turn that a version learned from last; `None` if none did."""
        with self._reading() as connection:
            row = connection.execute(
                f"SELECT {_SAMPLE} FROM samples WHERE turn = (SELECT id FROM turns WHERE turn_id = ?) "
                "AND state = 'consumed' ORDER BY id DESC LIMIT 1",
                (turn_id,),
            ).fetchone()
            return None if row is None else _sample(self._turn(connection, row[1]), *row)

    def ready_samples(self, limit: int) -> list[Sample]:
        """Samples that no version holds yet, oldest first. A turn whose images have lost their places is set aside."""
        found: list[Sample] = []
        faults: dict[str, str] = {}
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {_SAMPLE} FROM samples WHERE state = 'ready' ORDER BY id LIMIT ?", (limit,)
            ).fetchall()
            for row in rows:
                turn = self._turn(connection, row[1])
                if fault := misplaced(turn):
                    faults[turn.turn_id] = fault
                else:
                    found.append(_sample(turn, *row))
        for turn_id, fault in faults.items():
            self.add_quarantine(Quarantine(turn_id=turn_id, reason=fault))
        return found

    def ready_count(self) -> int:
        """How many samples wait for a step."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM samples WHERE state = 'ready'").fetchone()[0])

    def ready_words(self, *, guesses: bool) -> int:
        """How many samples wait whose turn a person answered, or that have a hint or a reward other than 0, the judge's
        guesses among them with `guesses`. None of them is read.
        """
        with self._reading() as connection:
            found = connection.execute(
                "SELECT count(*) FROM samples WHERE state = 'ready' AND (hint IS NOT NULL "
                "OR ((explicit OR ?) AND coalesce(reward, 0) != 0) "
                "OR EXISTS (SELECT 1 FROM next_states WHERE next_states.turn = samples.turn AND role = 'user'))",
                (guesses,),
            ).fetchone()
            return int(found[0])

    def ready_signal(self) -> bool:
        """Whether a sample waits that has a hint, or a reward other than 0 that is no judge's guess."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT 1 FROM samples WHERE state = 'ready' AND (hint IS NOT NULL OR (explicit AND reward != 0)) "
                "LIMIT 1"
            ).fetchone()
            return found is not None

    def reactions(self, turn_ids: Sequence[str], limit: int) -> tuple[list[Reaction], list[Reaction]]:
        """What people thought of these turns, and the last `limit` reactions that were judged before all of them;
        each newest first.
        """
        marks = ",".join("?" * len(turn_ids))
        with self._reading() as connection:
            found = connection.execute(
                f"{_REACTIONS} AND turn_id IN ({marks}) ORDER BY judgements.id DESC", tuple(turn_ids)
            ).fetchall()
            first = connection.execute(
                f"SELECT min(judgements.id) FROM judgements JOIN turns ON turns.id = turn WHERE turn_id IN ({marks})",
                tuple(turn_ids),
            ).fetchone()[0]
            before = connection.execute(
                f"{_REACTIONS} AND (?1 IS NULL OR judgements.id < ?1) ORDER BY judgements.id DESC LIMIT ?2",
                (first, limit),
            ).fetchall()
            return [_reaction(row) for row in found], [_reaction(row) for row in before]

    def commit_version(self, version: PolicyVersion) -> None:
        """Store a version and consume its samples (ids of journalled ones alone), all or nothing.

        A candidate's parent must be the live version: JournalError if somebody made another one live meanwhile.

        Raises JournalError when the number is taken, the parent is unknown, or a sample is unknown (its session may
        have been forgotten meanwhile), already in a version, or set aside meanwhile. A version committed as `rejected`
        quarantines its samples.
        """
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM versions WHERE number = ?", (version.number,)).fetchone():
                raise JournalError(
                    f"version {version.number} is already in the journal; ask next_version_number() for a free one"
                )
            if version.parent is not None and not _known(connection, version.parent):
                raise JournalError(
                    f"version {version.number} names version {version.parent} as its parent, which the journal has not"
                )
            values = {
                "number": version.number,
                "parent": version.parent,
                "state": "candidate",
                "checkpoint": version.checkpoint,
                "method": version.method,
                "metrics": json.dumps(dict(version.metrics)),
                "guard": json.dumps(dict(version.guard)),
                "time": version.time,
            }
            insert(connection, "versions", values)
            for position, sample_id in enumerate(version.sample_ids):
                _consume(connection, version.number, position, sample_id)
            if version.state == "candidate" and version.parent is not None:
                live = connection.execute("SELECT number FROM versions WHERE state = 'live'").fetchone()
                if live is not None and live[0] != version.parent:
                    raise JournalError(
                        f"version {version.number} was made from version {version.parent}, and version {live[0]} is "
                        "live now; drop the step and go on from that one"
                    )
            if version.state != "candidate":
                _change_state(connection, version.number, "candidate", version.state, version.guard)

    def set_version_state(self, number: int, state: VersionState, guard: Mapping[str, Any] | None = None) -> None:
        """Move a version. `live` retires the one that was; `rejected` is final and quarantines its samples with
        `guard["reason"]`.

        `guard`, where given, replaces the version's guard report.
        """
        with self._writing() as connection:
            found = connection.execute("SELECT state, guard FROM versions WHERE number = ?", (number,)).fetchone()
            if found is None:
                raise JournalError(f"version {number} is not in the journal; `versions` lists those that are")
            if guard is not None:
                connection.execute("UPDATE versions SET guard = ? WHERE number = ?", (json.dumps(dict(guard)), number))
            if state != found[0]:
                _change_state(connection, number, found[0], state, json.loads(found[1]) if guard is None else guard)

    def make_live(self, number: int) -> bool:
        """Make a candidate live, unless its parent is live no more (somebody chose another version): then it is
        retired. Whether it is live.
        """
        with self._writing() as connection:
            found = connection.execute(f"{_VERSION} WHERE number = ?", (number,)).fetchone()
            if found is None:
                raise JournalError(f"version {number} is not in the journal; `versions` lists those that are")
            version = _version(connection, found)
            live = connection.execute("SELECT number FROM versions WHERE state = 'live'").fetchone()
            goes_live = live is None or live[0] in (version.parent, number)
            state: VersionState = "live" if goes_live else "retired"
            if state != version.state:
                _change_state(connection, number, version.state, state, version.guard)
            return goes_live

    def live_version(self) -> PolicyVersion | None:
        """The version that serves new requests."""
        with self._reading() as connection:
            found = connection.execute(f"{_VERSION} WHERE state = 'live'").fetchone()
            return _version(connection, found) if found else None

    def learning_figures(self) -> LearningFigures:
        """See `LearningFigures`; costs the same however long the journal is."""
        with self._reading() as connection:
            newest = connection.execute("SELECT number, state FROM versions ORDER BY number DESC LIMIT 1").fetchone()
            live = connection.execute("SELECT number FROM versions WHERE state = 'live'").fetchone()
            counted = tallied(connection)
        number, state = newest or (None, "")
        return LearningFigures(number, state, live[0] if live else None, *counted)

    def version(self, number: int) -> PolicyVersion | None:
        """A version by its number."""
        with self._reading() as connection:
            found = connection.execute(f"{_VERSION} WHERE number = ?", (number,)).fetchone()
            return _version(connection, found) if found else None

    def versions(self) -> list[PolicyVersion]:
        """Every version, by number."""
        with self._reading() as connection:
            return [_version(connection, row) for row in connection.execute(f"{_VERSION} ORDER BY number").fetchall()]

    def next_version_number(self) -> int:
        """One more than the highest number, rejected ones included; 0 in a new journal."""
        with self._reading() as connection:
            return int(connection.execute("SELECT coalesce(max(number) + 1, 0) FROM versions").fetchone()[0])


def _sample(turn: Turn, sample_id: str, _: int, policy: str, *values: Any) -> Sample:
    temperature, reward, explicit, hint, hinted, teacher, group, step_index, weight, time = values
    scores: array[float] | None = None
    if teacher is not None:
        scores = array("f")
        scores.frombytes(encoding.unpack(teacher))
    return Sample(
        sample_id=sample_id,
        turn_id=turn.turn_id,
        policy=policy,
        origin="turn",
        prompt_ids=turn.prompt_ids,
        response_ids=turn.response_ids,
        logprobs=turn.logprobs,
        versions=turn.versions,
        images=images_of(turn),
        temperature=temperature,
        no_ratio=no_ratio(turn.sampling),
        reward=reward,
        explicit=bool(explicit),
        hint=hint,
        hinted_prompts=encoding.unpack_prompts(hinted, encoding.token_ids(turn.prompt_ids)),
        teacher_logprobs=scores,
        group=group,
        step_index=step_index,
        weight=weight,
        time=time,
    )


def _consume(connection: sqlite3.Connection, number: int, position: int, sample_id: str) -> None:
    found = connection.execute("SELECT state, turn FROM samples WHERE sample_id = ?", (sample_id,)).fetchone()
    if found is None:
        raise JournalError(
            f"version {number} holds sample {sample_id}, which is not in the journal (its session may have been "
            "forgotten); drop the step and take the ready samples again"
        )
    holder = connection.execute("SELECT version FROM version_samples WHERE sample_id = ?", (sample_id,)).fetchone()
    if holder is not None:
        raise JournalError(
            f"version {number} holds sample {sample_id}, which version {holder[0]} already consumed; drop the step"
        )
    if found[0] == "quarantined":
        raise JournalError(
            f"version {number} holds sample {sample_id}, which was set aside meanwhile; drop the step and take the "
            "ready samples again"
        )
    connection.execute(
        "INSERT INTO version_samples (sample_id, version, position) VALUES (?,?,?)", (sample_id, number, position)
    )
    connection.execute("UPDATE samples SET state = 'consumed' WHERE sample_id = ?", (sample_id,))
    # Judged again while the step ran: the step counts, and its turn must not count twice.
    connection.execute("UPDATE samples SET state = 'superseded' WHERE turn = ? AND state = 'ready'", (found[1],))


def _change_state(
    connection: sqlite3.Connection, number: int, found: VersionState, state: VersionState, guard: Mapping[str, Any]
) -> None:
    if found == "rejected" or state == "candidate":
        raise JournalError(f"version {number} is {found} and cannot become {state}")
    if state == "live":
        connection.execute("UPDATE versions SET state = 'retired' WHERE state = 'live'")
    connection.execute("UPDATE versions SET state = ? WHERE number = ?", (state, number))
    if state == "rejected":
        reason = f"version {number} was rejected: {guard.get('reason') or json.dumps(dict(guard))}"
        samples = connection.execute(
            "SELECT samples.id, turn FROM version_samples "
            "JOIN samples ON samples.sample_id = version_samples.sample_id WHERE version = ?",
            (number,),
        ).fetchall()
        for sample, turn in samples:
            connection.execute("UPDATE samples SET state = 'quarantined' WHERE id = ?", (sample,))
            _quarantine(connection, turn, reason, now())


def _reaction(row: tuple[Any, ...]) -> Reaction:
    turn_id, score, reasoned, held_back, set_aside = row
    return Reaction(turn_id, score, bool(reasoned), bool(held_back), bool(set_aside))


def _known(connection: sqlite3.Connection, number: int) -> bool:
    return connection.execute("SELECT 1 FROM versions WHERE number = ?", (number,)).fetchone() is not None


def _version(connection: sqlite3.Connection, row: tuple[Any, ...]) -> PolicyVersion:
    number, parent, state, checkpoint, method, metrics, guard, time = row
    samples = connection.execute("SELECT sample_id FROM version_samples WHERE version = ? ORDER BY position", (number,))
    return PolicyVersion(
        number=number,
        parent=parent,
        state=state,
        checkpoint=checkpoint,
        sample_ids=tuple(sample_id for (sample_id,) in samples),
        method=method,
        metrics=json.loads(metrics),
        guard=json.loads(guard),
        time=time,
    )
