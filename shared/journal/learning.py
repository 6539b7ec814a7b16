"""Samples and versions: a sample is ready until a version that holds it is committed, and goes into one version at
most; or until a step finds nothing in its batch that is left to learn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.errors import DamagedRecord, JournalError
from openclaw_rl.shared.journal import encoding
from openclaw_rl.shared.journal.accounting import LINE, LIVE_LINE
from openclaw_rl.shared.journal.attempts import attempt_of
from openclaw_rl.shared.journal.exclusion import is_excluded
from openclaw_rl.shared.journal.groups import IN_GROUP, outcome_of
from openclaw_rl.shared.journal.serving import is_removed, keep_pinned, pinned
from openclaw_rl.shared.journal.signals import quarantine_turn, vote_counts, words_after
from openclaw_rl.shared.journal.sqlite import Connection, insert
from openclaw_rl.shared.journal.turns import naming_row, read_turn, turn_row
from openclaw_rl.shared.journal.views import LearningFigures, Lesson, Lineage, TurnReaction
from openclaw_rl.shared.messages.images import images_of, misplaced
from openclaw_rl.shared.objective.importance_ratio import no_ratio
from openclaw_rl.shared.records import PolicyVersion, Sample, Turn, VersionState, new_id, now

HELD_BACK = "held back for the guard"
"""The beginning of the reason why a turn that is kept for the guard is quarantined."""

_REACTIONS = f"""
SELECT turn_id, score, hint IS NOT NULL, coalesce(reason LIKE '{HELD_BACK}%', 0), reason IS NOT NULL
FROM judgements JOIN turns ON turns.id = judgements.turn LEFT JOIN quarantines ON quarantines.turn = turns.id
WHERE score IS NOT NULL AND kind = 'main'
  AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = turns.id AND later.id > judgements.id)
  AND (EXISTS (SELECT 1 FROM next_states WHERE next_states.turn = turns.id AND role = 'user')
       OR EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id))
"""

_ACCEPTED_ATTEMPTS = """
SELECT turn_id, prompt_digest, (
  SELECT first.turn_id FROM turns AS first JOIN judgements AS complaint ON complaint.turn = first.id
  JOIN next_states ON next_states.turn = first.id
  WHERE first.turn_id = turns.parent_turn_id AND complaint.score < 0 AND role = 'user'
    AND complaint.feedback_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = first.id AND later.id > complaint.id)
), task_group != '', (
  SELECT body FROM outcomes WHERE outcomes.session = turns.session AND outcomes.episode = turns.episode
  ORDER BY outcomes.id DESC LIMIT 1
)
FROM judgements JOIN turns ON turns.id = turn JOIN episodes USING (session, episode)
WHERE (score >= ?1 OR task_group != '') AND kind = 'main' AND status = 'complete'
  AND NOT EXISTS (SELECT 1 FROM excluded WHERE excluded.turn = turns.id)
  AND judgements.id > (SELECT coalesce(max(id), 0) FROM judgements) - ?2
  AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = turns.id AND later.id > judgements.id)
ORDER BY judgements.id DESC
"""

_SAMPLE_PLAIN = ("sample_id", "policy", "temperature", "reward", "hint", "time")
_SAMPLE = f"SELECT turn, checksum, explicit, hinted_prompts, {', '.join(_SAMPLE_PLAIN)} FROM samples"
_COPIED = ("turn", "explicit", "hinted_prompts", *_SAMPLE_PLAIN)
_OF_LIVE = f"WITH RECURSIVE {LIVE_LINE}"
_LESSON = """state = 'consumed' AND EXISTS (SELECT 1 FROM version_samples AS held
WHERE held.sample_id = samples.sample_id AND (held.version IN line OR NOT EXISTS (SELECT 1 FROM line)))"""
"""A sample that the live version has learned from; where none is live yet, that any has."""

_READY_OF_GROUP = """
SELECT samples.id FROM episodes CROSS JOIN turns ON turns.session = episodes.session
  AND turns.episode = episodes.episode AND kind = 'main'
CROSS JOIN samples ON samples.turn = turns.id AND state = 'ready'
WHERE task_group = ? AND task_group != '' ORDER BY samples.id
"""

_LESSONS = """
SELECT samples.turn, terms, turn_id, session_id, owner, reward, hint, weight, advantage
FROM version_samples JOIN samples USING (sample_id) JOIN turns ON turns.id = samples.turn
JOIN sessions ON sessions.id = session WHERE version = ? ORDER BY position
"""

_VERSION_PLAIN = ("number", "parent", "state", "checkpoint", "method", "time")
_VERSION = f"SELECT metrics, guard, {', '.join(_VERSION_PLAIN)} FROM versions"


def describe_sample(sample: Sample, *, correction: bool = False) -> str:
    """The log line about a turn that is ready to be learned from."""
    return f"{sample.turn_id} is ready to be learned from{' again' if correction else ''}, reward {sample.reward}"


def add_sample(connection: Connection, sample: Sample, *, correction: bool = False) -> None:
    """Make a turn's sample ready; it replaces a ready one of the same turn and lifts its quarantine. Does nothing
    where an audit found the turn misaligned, or a person excluded it. Where the live version has learned from the turn
    it must not count twice: then only a `correction` of what was learned is made ready, and any other sample takes back
    a correction that still waits. Idempotent by `sample_id`.

    Ids, logprobs and images stay with the turn: JournalError if the sample's are not the turn's, or if its origin
    is not `turn`.
    """
    if sample.origin != "turn" or sample.turn_id is None:
        raise JournalError(
            f"sample {sample.sample_id} comes from no turn ({sample.origin}); only samples of turns are journalled"
        )
    if connection.value("SELECT 1 FROM samples WHERE sample_id = ?", sample.sample_id):
        return
    row = turn_row(connection, sample.turn_id)
    turn = read_turn(connection, row)
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
    if connection.value("SELECT 1 FROM audits WHERE turn = ? AND verdict = 'misaligned'", row):
        return
    if is_excluded(connection, row):
        return
    connection.execute("UPDATE samples SET state = 'superseded' WHERE turn = ? AND state = 'ready'", (row,))
    learned = connection.value(f"{_OF_LIVE} SELECT 1 FROM samples WHERE turn = ? AND {_LESSON}", row)
    if learned and not correction:
        return
    connection.execute("DELETE FROM quarantines WHERE turn = ?", (row,))
    values = {name: getattr(sample, name) for name in _SAMPLE_PLAIN} | {
        "turn": row,
        "state": "ready",
        "explicit": sample.explicit,
        "hinted_prompts": encoding.pack_prompts(sample.hinted_prompts, encoding.token_ids(turn.prompt_ids)),
    }
    values["checksum"] = _checksum(sample.turn_id, values)
    insert(connection, "samples", values)


def last_lesson(connection: Connection, turn_id: str) -> Sample | None:
    """The sample of a turn that the live version, or one that it descends from, learned from last; `None` if none
    did.
    """
    row = connection.execute(
        f"{_OF_LIVE} {_SAMPLE} WHERE turn = (SELECT id FROM turns WHERE turn_id = ?) "
        f"AND {_LESSON} ORDER BY id DESC LIMIT 1",
        (turn_id,),
    ).fetchone()
    return None if row is None else _sample(read_turn(connection, row[0]), row)


def ready_samples(
    connection: Connection, limit: int, groups: Sequence[str] | None = None
) -> tuple[list[Sample], list[tuple[int, str]]]:
    """Samples that no version holds yet, oldest first; and what is to be set aside, with the reason: rows of turns that
    are damaged, or whose images have lost their places. With `groups` only the samples of these and of no group: a
    group comes in one piece, at the place of its newest sample, and is not cut by the limit; with the limit 0 the
    oldest group comes alone.
    """
    found: list[Sample] = []
    faulty: list[tuple[int, str]] = []
    for sample in _ready_rows(connection, limit, groups):
        row = connection.execute(f"{_SAMPLE} WHERE id = ?", (sample,)).fetchone()
        try:
            turn = read_turn(connection, row[0])
            fault = misplaced(turn)
            if not fault:
                found.append(_placed(connection, _sample(turn, row)))
        except DamagedRecord as error:
            fault = str(error)
        if fault:
            faulty.append((row[0], fault))
    return found, faulty


def _ready_rows(connection: Connection, limit: int, groups: Sequence[str] | None) -> list[int]:
    if groups is None:
        return connection.column("SELECT id FROM samples WHERE state = 'ready' ORDER BY id LIMIT ?", limit)
    outside = f"SELECT id FROM samples WHERE state = 'ready' AND NOT {IN_GROUP} ORDER BY id LIMIT ?"
    pieces = [[row] for row in connection.column(outside, limit)]
    pieces += filter(None, (connection.column(_READY_OF_GROUP, group) for group in groups))
    rows: list[int] = []
    for piece in sorted(pieces, key=lambda piece: piece[-1]):
        if rows and len(rows) >= limit:
            break
        rows += piece
    return rows


def _placed(connection: Connection, sample: Sample) -> Sample:
    """A sample with its place in the attempt that its turn is a step of, if it is one of any."""
    attempt = attempt_of(connection, sample.turn_id or "")
    if attempt is None:
        return sample
    return msgspec.structs.replace(sample, group=attempt.group, step_index=attempt.step_index)


def ready_count(connection: Connection) -> int:
    """The number of samples that wait for a step."""
    return int(connection.value("SELECT count(*) FROM samples WHERE state = 'ready'"))


def ready_words(connection: Connection, *, guesses: bool, answered: bool, turn_ids: Sequence[str] = ()) -> int:
    """The number of waiting samples outside of groups that have a hint or a reward other than 0, the judge's guesses
    among them with `guesses`; with `answered` also those whose turn a person answered, and those of `turn_ids`. None of
    them is read.
    """
    count: int = connection.value(
        f"SELECT count(*) FROM samples WHERE state = 'ready' AND NOT {IN_GROUP} AND (hint IS NOT NULL "
        "OR ((explicit OR ?) AND coalesce(reward, 0) != 0) "
        "OR (? AND EXISTS (SELECT 1 FROM next_states WHERE next_states.turn = samples.turn AND role = 'user')) "
        f"OR turn IN (SELECT id FROM turns WHERE turn_id IN ({','.join('?' * len(turn_ids))})))",
        *(guesses, answered, *turn_ids),
    )
    return count


def ready_signal(connection: Connection) -> bool:
    """True if a sample waits that has a hint, or a reward other than 0 that is no judge's guess."""
    query = "SELECT 1 FROM samples WHERE state = 'ready' AND (hint IS NOT NULL OR (explicit AND reward != 0)) LIMIT 1"
    return connection.value(query) is not None


def accepted_attempts(connection: Connection, score: float, limit: int) -> dict[str, list[str]]:
    """For each turn whose sample waits: other main turns whose newest judgement has at least this score, newest first,
    with the same prompt, or, where a person's next message complained, the ones that answer it. In a group it is the
    outcome that has to have it, without the votes on the step. Only the last `limit` judgements are looked at.
    """
    accepted = [
        found
        for *found, grouped, body in connection.execute(_ACCEPTED_ATTEMPTS, (score, limit))
        if not grouped or (outcome_of(body) or 0.0) >= score
    ]
    query = "SELECT turn_id, prompt_digest FROM samples JOIN turns ON turns.id = turn WHERE state = 'ready'"
    waiting = connection.execute(query).fetchall() if accepted else []
    attempts = {
        turn_id: [one for one, digest, first in accepted if one != turn_id and (digest == prompt or first == turn_id)]
        for turn_id, prompt in waiting
    }
    return {turn_id: found for turn_id, found in attempts.items() if found}


def reactions(
    connection: Connection, turn_ids: Sequence[str], limit: int
) -> tuple[list[TurnReaction], list[TurnReaction]]:
    """The reactions to these turns, and the last `limit` reactions that were judged before all of them;
    each newest first.
    """
    marks = ",".join("?" * len(turn_ids))
    found = connection.execute(
        f"{_REACTIONS} AND turn_id IN ({marks}) ORDER BY judgements.id DESC", tuple(turn_ids)
    ).fetchall()
    first = connection.value(
        f"SELECT min(judgements.id) FROM judgements JOIN turns ON turns.id = turn WHERE turn_id IN ({marks})", *turn_ids
    )
    before = connection.execute(
        f"{_REACTIONS} AND (?1 IS NULL OR judgements.id < ?1) ORDER BY judgements.id DESC LIMIT ?2",
        (first, limit),
    ).fetchall()
    return _reactions(found), _reactions(before)


def _reactions(rows: list[tuple[Any, ...]]) -> list[TurnReaction]:
    return [TurnReaction(turn_id, score, *map(bool, flags)) for turn_id, score, *flags in rows]


def commit_version(connection: Connection, version: PolicyVersion, lessons: Sequence[Lesson] = ()) -> None:
    """Store a version and consume its samples (ids of journalled ones alone), all or nothing. `lessons` say how it
    learned from those that taught it something.

    A candidate's parent must be the live version: JournalError if another one was made live meanwhile, or
    one is pinned.

    Raises JournalError when the number is taken, the parent is unknown, or a sample is unknown (its session may
    have been forgotten meanwhile), already in a version, or set aside meanwhile. A version committed as `rejected`
    quarantines its samples.
    """
    if _known(connection, version.number):
        raise JournalError(
            f"version {version.number} is already in the journal; ask next_version_number() for a free one"
        )
    if version.parent is not None and not _known(connection, version.parent):
        raise JournalError(
            f"version {version.number} names version {version.parent} as its parent, which the journal has not"
        )
    values = {name: getattr(version, name) for name in _VERSION_PLAIN} | {
        "state": "candidate",
        "metrics": json.dumps(dict(version.metrics)),
        "guard": json.dumps(dict(version.guard)),
    }
    insert(connection, "versions", values | {"checksum": _version_checksum(values)})
    for position, sample_id in enumerate(version.sample_ids):
        _consume(connection, version.number, position, sample_id)
    connection.executemany(
        "UPDATE version_samples SET weight = ?, advantage = ?, terms = ? WHERE sample_id = ? AND version = ?",
        [(one.weight, one.advantage, json.dumps(dict(one.terms)), one.sample_id, version.number) for one in lessons],
    )
    if version.state == "candidate" and version.parent is not None:
        live = _live_number(connection)
        if live not in (None, version.parent):
            raise JournalError(
                f"version {version.number} was made from version {version.parent}, and version {live} is "
                "live now; drop the step and continue from that one"
            )
        if (kept := pinned(connection)) is not None:
            raise JournalError(f"version {version.number} cannot go live: version {kept} is pinned; drop the step")
    if version.state != "candidate":
        _change_state(connection, version.number, "candidate", version.state, version.guard)


def version_lessons(connection: Connection, number: int) -> list[dict[str, Any]]:
    """The turns that a version learned from, in the order of its samples: `words` (what came after the turn), `verdict`
    and `hint`, and how it learned (`None` where an older version of this program made it, and where it taught nothing).
    """
    names = ("turn_id", "session_id", "owner", "verdict", "hint", "weight", "advantage")
    found = []
    for turn, terms, *columns in connection.execute(_LESSONS, (number,)).fetchall():
        lesson = {**dict(zip(names, columns, strict=True)), "words": words_after(connection, turn)}
        found.append(lesson | {"terms": None if terms is None else _object(terms)})
    return found


def mark_known(connection: Connection, sample_ids: Sequence[str]) -> None:
    """Let ready samples wait no longer: a step found nothing left to learn from their batch. No version holds them, so
    a later judgement makes a new sample of the turn.
    """
    connection.executemany(
        "UPDATE samples SET state = 'known' WHERE sample_id = ? AND state = 'ready'", [(one,) for one in sample_ids]
    )


def set_version_state(
    connection: Connection, number: int, state: VersionState, guard: Mapping[str, Any] | None = None
) -> None:
    """Move a version. `live` retires the one that was; `rejected` is final and quarantines its samples with
    `guard["reason"]`.

    `guard`, where given, replaces the version's guard report.
    """
    found = _existing(connection, number)
    if guard is not None:
        connection.execute("UPDATE versions SET guard = ? WHERE number = ?", (json.dumps(dict(guard)), number))
        checksum = _version_checksum(_version_row(connection, number))
        connection.execute("UPDATE versions SET checksum = ? WHERE number = ?", (checksum, number))
    if state != found.state:
        _change_state(connection, number, found.state, state, found.guard if guard is None else guard)


def replace_damaged(connection: Connection, damaged: int, intact: int, fault: str) -> bool:
    """Make an intact version live instead of the live one, whose checkpoint has a fault. False, and nothing is changed,
    where another version was made live meanwhile.
    """
    version = _existing(connection, damaged)
    if version.state != "live":
        return False
    set_version_state(connection, intact, "live")
    set_version_state(connection, damaged, "retired", {**version.guard, "damaged": fault})
    return True


def make_live(connection: Connection, number: int) -> bool:
    """Make a candidate live, or retire it if its parent is live no more (a user chose another version) or a version is
    pinned. Returns whether it is live.
    """
    version = _existing(connection, number)
    goes_live = may_go_live(connection, number)
    state: VersionState = "live" if goes_live else "retired"
    if state != version.state:
        _change_state(connection, number, version.state, state, version.guard)
    return goes_live


def may_go_live(connection: Connection, number: int) -> bool:
    """True for the live version, and for a candidate while its parent is live and no other version is pinned."""
    version = _existing(connection, number)
    return _live_number(connection) in (None, version.parent, number) and pinned(connection) in (None, number)


def promote(connection: Connection, number: int, *, pin: bool = False) -> str:
    """Make a version live that was live before, or that a rollback left. With `pin` it stays live until `unpin`. Gives
    the reason why it cannot be, "" where it is.
    """
    found, kept = _existing(connection, number), pinned(connection)
    if found.state not in ("live", "retired"):
        return f"version {number} is {'rejected' if found.state == 'rejected' else 'about to be published'}"
    if is_removed(connection, number):
        return f"the files of version {number} are gone (keep_checkpoints)"
    if kept is not None and kept != number and not pin:
        return f"version {kept} is pinned: openclaw-rl pin --off, or openclaw-rl pin {number}"
    set_version_state(connection, number, "live")
    if pin:
        keep_pinned(connection, number)
    return ""


def release(connection: Connection, left: int) -> int:
    """Make the samples ready again that version `left`, or one that it descends from, learned from and the live one did
    not: of each turn the last one, as a copy, since the versions keep their samples. Returns how many. Turns that were
    set aside since, and those with a sample that waits, stay as they are.
    """
    rows = connection.execute(
        f"{_OF_LIVE}, {LINE.replace('line', 'gone').format('?')} "
        f"SELECT max(samples.id), {', '.join(_COPIED)} FROM samples JOIN version_samples USING (sample_id) "
        "WHERE state = 'consumed' AND version IN gone AND version NOT IN line "
        "AND NOT EXISTS (SELECT 1 FROM quarantines WHERE quarantines.turn = samples.turn) "
        "AND NOT EXISTS (SELECT 1 FROM samples AS other LEFT JOIN version_samples AS held USING (sample_id) "
        "WHERE other.turn = samples.turn AND (other.state = 'ready' "
        "OR (other.state = 'consumed' AND held.version IN line))) GROUP BY samples.turn ORDER BY samples.id",
        (left,),
    ).fetchall()
    for _, *columns in rows:
        values = dict(zip(_COPIED, columns, strict=True))
        values |= {"released_from": values["sample_id"], "sample_id": new_id("sample"), "state": "ready"}
        turn_id = connection.value("SELECT turn_id FROM turns WHERE id = ?", values["turn"])
        values["checksum"] = _checksum(turn_id, values)
        insert(connection, "samples", values)
    return len(rows)


def live_version(connection: Connection) -> PolicyVersion | None:
    """The version that serves new requests."""
    return next(iter(_versions(connection, "WHERE state = 'live'")), None)


def learning_figures(connection: Connection) -> LearningFigures:
    """See `LearningFigures`; costs the same however long the journal is."""
    newest = connection.execute("SELECT number, state FROM versions ORDER BY number DESC LIMIT 1").fetchone()
    number, state = newest or (None, "")
    return LearningFigures(number, state, _live_number(connection), *vote_counts(connection))


def lineage(connection: Connection) -> Lineage:
    """See `Lineage`; of the base alone in a new journal."""
    parents = {int(number): parent for number, parent in connection.execute("SELECT number, parent FROM versions")}
    return Lineage(_live_number(connection) or 0, parents)


def version(connection: Connection, number: int) -> PolicyVersion | None:
    """A version by its number."""
    return next(iter(_versions(connection, "WHERE number = ?", number)), None)


def versions(connection: Connection, *, samples: bool = True) -> list[PolicyVersion]:
    """Every version, by number. The ids of all `samples` ever learned from take much longer to read than the rest."""
    return _versions(connection, "ORDER BY number", samples=samples)


def stored_versions(connection: Connection) -> list[PolicyVersion]:
    """The versions whose files were not removed, by number, without their samples: few, however many there were."""
    return _versions(connection, "WHERE checkpoint != '' AND NOT removed ORDER BY number", samples=False)


def mean_rewards(connection: Connection) -> list[float]:
    """The mean reward of the samples of each version that was not rejected and has any, by number."""
    return connection.column(
        """SELECT json_extract(metrics, '$."reward/mean"') FROM versions WHERE state != 'rejected' """
        """AND json_valid(metrics) AND json_extract(metrics, '$."reward/mean"') IS NOT NULL """
        "AND number IN (SELECT version FROM version_samples) ORDER BY number"
    )


def next_version_number(connection: Connection) -> int:
    """One more than the highest number, rejected ones included; 0 in a new journal."""
    return int(connection.value("SELECT coalesce(max(number) + 1, 0) FROM versions"))


def _checksum(turn_id: str, values: Mapping[str, Any]) -> bytes:
    """A checksum of a sample's columns."""
    plain = [turn_id, *(values[name] for name in _SAMPLE_PLAIN), bool(values["explicit"])]
    return encoding.checksum([*(str(value).encode() for value in plain), values["hinted_prompts"]])


def _sample(turn: Turn, row: tuple[Any, ...]) -> Sample:
    """The sample of a row. Raises `DamagedRecord`."""
    number, checksum, explicit, hinted, *plain = row
    fields = dict(zip(_SAMPLE_PLAIN, plain, strict=True))
    with naming_row(number), encoding.naming_damage("its sample"):
        # Samples that an older version wrote have no checksum.
        values = {**fields, "explicit": explicit, "hinted_prompts": hinted}
        if checksum is not None and checksum != _checksum(turn.turn_id, values):
            raise DamagedRecord("its sample is not what was written (checksum)")
        prompts = encoding.unpack_prompts(hinted, encoding.token_ids(turn.prompt_ids))
    return Sample(
        **fields,
        turn_id=turn.turn_id,
        origin="turn",
        prompt_ids=turn.prompt_ids,
        response_ids=turn.response_ids,
        logprobs=turn.logprobs,
        versions=turn.versions,
        images=images_of(turn),
        no_ratio=no_ratio(turn.sampling),
        explicit=bool(explicit),
        hinted_prompts=prompts,
    )


def _version_checksum(values: Mapping[str, Any]) -> bytes:
    """A checksum of a version's columns, but its state."""
    kept = {**values, "time": float(values["time"])}  # as the file has it
    return encoding.checksum(
        str(kept[name]).encode() for name in ("metrics", "guard", *_VERSION_PLAIN) if name != "state"
    )


def _version_row(connection: Connection, number: int) -> dict[str, Any]:
    """The columns of a version as they are stored."""
    row = connection.execute(f"{_VERSION} WHERE number = ?", (number,)).fetchone()
    return dict(zip(("metrics", "guard", *_VERSION_PLAIN), row, strict=True))


def damaged_versions(connection: Connection) -> list[int]:
    """The versions whose row is not what was written. Those that an older version of this program wrote are taken as
    they are.
    """
    rows = connection.execute("SELECT number, checksum FROM versions WHERE checksum IS NOT NULL").fetchall()
    return [number for number, checksum in rows if checksum != _version_checksum(_version_row(connection, number))]


def samples_of(connection: Connection, turn: Turn, row: int) -> list[Sample]:
    """Every sample of a turn, whatever became of it. Raises `DamagedRecord`."""
    return [_sample(turn, found) for found in connection.execute(f"{_SAMPLE} WHERE turn = ?", (row,)).fetchall()]


def _consume(connection: Connection, number: int, position: int, sample_id: str) -> None:
    query = "SELECT state, turn, reward, hint FROM samples WHERE sample_id = ?"
    found = connection.execute(query, (sample_id,)).fetchone()
    if found is None:
        raise JournalError(
            f"version {number} holds sample {sample_id}, which is not in the journal (its session may have been "
            "forgotten); drop the step and take the ready samples again"
        )
    holder = connection.value("SELECT version FROM version_samples WHERE sample_id = ?", sample_id)
    if holder is not None:
        raise JournalError(
            f"version {number} holds sample {sample_id}, which version {holder} already consumed; drop the step"
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
    # Judged again while the step ran: the step counts, and its turn must not count twice. A person's word that says
    # otherwise waits as a correction of what was learned, as it would had it come after the step.
    connection.execute(
        "UPDATE samples SET state = 'superseded' WHERE turn = ?1 AND state = 'ready' AND NOT (explicit "
        "AND EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = ?1) "
        "AND (reward IS NOT ?2 OR (hint IS NOT NULL AND hint IS NOT ?3)))",
        found[1:],
    )


def _change_state(
    connection: Connection, number: int, found: VersionState, state: VersionState, guard: Mapping[str, Any]
) -> None:
    if found == "rejected" or state == "candidate":
        raise JournalError(f"version {number} is {found} and cannot become {state}")
    if state == "live" and is_removed(connection, number):
        raise JournalError(f"version {number} cannot go live: its files were removed (keep_checkpoints)")
    if state == "live":
        connection.execute("UPDATE versions SET state = 'retired' WHERE state = 'live'")
    connection.execute("UPDATE versions SET state = ? WHERE number = ?", (state, number))
    if state == "live":
        # What was released from its line, and what was judged while another served, it has learned already. A person's
        # new word waits as a correction, unless it says what was learned from the turn last.
        connection.execute(
            f"{_OF_LIVE} UPDATE samples SET state = 'superseded' WHERE state = 'ready' AND EXISTS "
            "(SELECT 1 FROM samples AS lesson WHERE lesson.id = (SELECT max(one.id) FROM samples AS one "
            "JOIN version_samples USING (sample_id) WHERE one.turn = samples.turn AND one.state = 'consumed' "
            "AND version IN line) AND (samples.released_from IS NOT NULL OR NOT samples.explicit "
            "OR (samples.reward IS lesson.reward AND (samples.hint IS NULL OR samples.hint IS lesson.hint))))"
        )
    if state == "rejected":
        reason = f"version {number} was rejected: {guard.get('reason') or json.dumps(dict(guard))}"
        samples = connection.execute(
            "SELECT samples.id, turn FROM version_samples "
            "JOIN samples ON samples.sample_id = version_samples.sample_id WHERE version = ?",
            (number,),
        ).fetchall()
        for sample, turn in samples:
            connection.execute("UPDATE samples SET state = 'quarantined' WHERE id = ?", (sample,))
            # A later word on the turn was not in the batch, and is not rejected with it.
            if not connection.value("SELECT 1 FROM samples WHERE turn = ? AND state = 'ready'", turn):
                quarantine_turn(connection, turn, reason, now())


def _object(text: str) -> dict[str, Any]:
    """A JSON object; empty where it is damaged, so that a candidate has not passed."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _known(connection: Connection, number: int) -> bool:
    return connection.value("SELECT 1 FROM versions WHERE number = ?", number) is not None


def _live_number(connection: Connection) -> int | None:
    number: int | None = connection.value("SELECT number FROM versions WHERE state = 'live'")
    return number


def _existing(connection: Connection, number: int) -> PolicyVersion:
    found = version(connection, number)
    if found is None:
        raise JournalError(f"version {number} is not in the journal; `versions` lists those that are")
    return found


def _versions(connection: Connection, which: str, *values: int, samples: bool = True) -> list[PolicyVersion]:
    found = []
    for metrics, guard, *plain in connection.execute(f"{_VERSION} {which}", values).fetchall():
        fields = dict(zip(_VERSION_PLAIN, plain, strict=True)) | {"metrics": _object(metrics)}
        query = "SELECT sample_id FROM version_samples WHERE version = ? ORDER BY position"
        ids = tuple(connection.column(query, fields["number"])) if samples else ()
        found.append(PolicyVersion(**fields, sample_ids=ids, guard=_object(guard)))
    return found
