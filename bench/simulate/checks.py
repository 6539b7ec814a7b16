"""Invariants of a simulated service, checked on its SQLite file and its folders against what its clients saw.

The rules of `bench.reliability_check`, which know nothing of the product, and those that need the whole history: that
the last word of a person counts, that weights are what the journal says they were made from, that forgotten is gone.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from bench.reliability_check import RULES

_SUPERSEDED = """
SELECT turn_id FROM turns JOIN samples ON samples.turn = turns.id LEFT JOIN quarantines ON quarantines.turn = turns.id
WHERE reason IS NULL AND turns.id NOT IN (SELECT turn FROM judge_queue) GROUP BY turns.id
HAVING sum(samples.state != 'superseded') = 0
"""
"""Turns of which nothing but replaced samples is left."""

_ATTEMPTS = {
    "turns of an attempt went to the judge before its outcome or its end": "SELECT count(*) FROM turns "
    "JOIN episodes USING (session, episode) WHERE environment AND ended IS NULL AND NOT EXISTS (SELECT 1 FROM outcomes "
    "WHERE outcomes.session = turns.session AND outcomes.episode = turns.episode) AND turns.id IN "
    "(SELECT turn FROM judge_queue UNION SELECT turn FROM judgements UNION SELECT turn FROM samples)",
    "words in an attempt count as a person's": "SELECT count(*) FROM turns JOIN episodes USING (session, episode) "
    "WHERE environment AND (turns.id IN (SELECT turn FROM next_states WHERE role = 'user') "
    "OR turns.id IN (SELECT turn FROM feedback))",
    "attempts have two outcomes": "SELECT count(*) FROM (SELECT 1 FROM outcomes JOIN episodes USING (session, episode) "
    "WHERE environment GROUP BY session, episode HAVING count(*) > 1)",
    "steps of an attempt with an outcome are lost": "SELECT count(*) FROM turns JOIN outcomes USING (session, episode) "
    "JOIN episodes USING (session, episode) WHERE environment AND kind = 'main' AND status = 'complete' "
    "AND untrainable = '' AND finished < ended AND turns.id NOT IN (SELECT turn FROM judge_queue UNION "
    "SELECT turn FROM judgements UNION SELECT turn FROM quarantines) AND NOT EXISTS (SELECT 1 FROM turns AS again "
    "WHERE again.session = turns.session AND again.episode = turns.episode AND again.id > turns.id "
    "AND again.request_key = turns.request_key)",  # an answer that its agent lost, and asked for again
}
_OUTCOME = """
SELECT count(*), min(ended IS NOT NULL) FROM outcomes JOIN sessions ON sessions.id = outcomes.session
JOIN episodes ON episodes.session = outcomes.session AND episodes.episode = outcomes.episode
WHERE session_id = ? AND outcomes.episode = ?
"""

_VERSIONS = "SELECT number, parent, state, checkpoint FROM versions ORDER BY number"
_BATCHES = "SELECT version, sample_id FROM version_samples ORDER BY version, position"


@dataclass
class History:
    """Facts that clients know or may have caused. `words`: for each turn the scores that may be its last word,
    `None` among them where an unanswered request leaves it open; `forgotten`: the sessions that are deleted, of which
    not even the names may be left; `maybe_forgotten`: those of which it was asked.
    """

    turns: dict[str, str] = field(default_factory=dict)
    feedback: dict[str, str] = field(default_factory=dict)
    words: dict[str, list[float | None]] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    damaged: dict[Path, bytes] = field(default_factory=dict)
    """Files that were damaged on purpose, with the damage."""
    maybe_forgotten: set[str] = field(default_factory=set)
    outcomes: set[tuple[str, int]] = field(default_factory=set)
    """Sessions and episodes of attempts whose outcome was acknowledged."""

    def kept(self, session_id: str) -> bool:
        """True if no one has asked to forget a session."""
        return session_id not in self.forgotten and session_id not in self.maybe_forgotten


def violations(data: Path, history: History, *, quiet: bool = False) -> list[str]:
    """Everything that must not be. `quiet`: nothing is going on any more, so the last words count."""
    connection = sqlite3.connect(data / "journal.db")
    try:
        connection.execute("BEGIN")
        found = _broken_rules(connection)
        found += _missing(connection, history)
        found += _wrong_attempts(connection, history)
        found += _wrong_weights(connection, data, history)
        if quiet:
            found += _unheard(connection, history)
    finally:
        connection.close()
    return found


def still_there(data: Path, history: History) -> list[str]:
    """Files that hold something of a session that was forgotten."""
    found = []
    for path in sorted(path for path in data.rglob("*") if history.forgotten and path.is_file()):
        content = path.read_bytes()
        found += [f"{path.name} holds a forgotten session" for one in history.forgotten if one.encode() in content]
    return found


def served_versions(data: Path, turn_id: str, history: History) -> list[str]:
    """Versions that answered a turn and that the journal does not have, or has rejected; but one may be rejected for
    damage to its files since the engine loaded them, where the learner ended before it wrote down that it is live.
    """
    connection = sqlite3.connect(data / "journal.db")
    try:
        spans = connection.execute("SELECT versions FROM turns WHERE turn_id = ?", (turn_id,)).fetchone()
        states = dict(connection.execute("SELECT number, state FROM versions").fetchall())
    finally:
        connection.close()
    if spans is None:
        return [f"acknowledged turn {turn_id} is not in the journal"]
    since = {int(path.relative_to(data / "checkpoints").parts[0]) for path in history.damaged}
    numbers = {span[0] for span in json.loads(spans[0])} - {0, *since}
    return [f"a version that is {states.get(one, 'unknown')} answered" for one in numbers if _hidden(states.get(one))]


def unsettled_parent(data: Path, turn_id: str) -> list[str]:
    """An acknowledged turn whose parent, in the same open episode, has no next state."""
    connection = sqlite3.connect(data / "journal.db")
    try:
        row = connection.execute(
            "SELECT parent.id FROM turns JOIN turns AS parent ON parent.turn_id = turns.parent_turn_id "
            "WHERE turns.turn_id = ? AND turns.kind = 'main' AND parent.kind = 'main' "
            "AND parent.session = turns.session AND parent.episode = turns.episode "
            "AND parent.id NOT IN (SELECT turn FROM next_states) AND EXISTS (SELECT 1 FROM episodes "
            "WHERE episodes.session = turns.session AND episodes.episode = turns.episode AND ended IS NULL)",
            (turn_id,),
        ).fetchone()
    finally:
        connection.close()
    return [] if row is None else [f"turn {turn_id} is acknowledged, and the next state that it brought is not there"]


def _hidden(state: str | None) -> bool:
    return state not in ("live", "retired", "candidate")


def _broken_rules(connection: sqlite3.Connection) -> list[str]:
    found = []
    for rules in RULES.values():
        for text, query in rules.items():
            count = connection.execute(query).fetchone()[0]
            if count:
                found.append(f"{count} {text}")
    lost = connection.execute(_SUPERSEDED).fetchall()
    return [*found, f"{len(lost)} turns have nothing but replaced samples"] if lost else found


def _missing(connection: sqlite3.Connection, history: History) -> list[str]:
    turns = {row[0] for row in connection.execute("SELECT turn_id FROM turns WHERE status = 'complete'")}
    feedback = {row[0] for row in connection.execute("SELECT feedback_id FROM feedback")}
    lost = [turn for turn, session in history.turns.items() if turn not in turns and history.kept(session)]
    found = [f"{len(lost)} acknowledged turns are not in the journal"] if lost else []
    unknown = [
        one for one, turn in history.feedback.items()
        if one not in feedback and turn in turns and history.kept(history.turns.get(turn, ""))
    ]  # fmt: skip
    return [*found, f"{len(unknown)} acknowledged words are not in the journal"] if unknown else found


def _wrong_attempts(connection: sqlite3.Connection, history: History) -> list[str]:
    counts = [(connection.execute(query).fetchone()[0], text) for text, query in _ATTEMPTS.items()]
    found = [f"{count} {text}" for count, text in counts if count]
    for session_id, episode in sorted(history.outcomes):
        if connection.execute(_OUTCOME, (session_id, episode)).fetchone() != (1, 1):
            found.append(f"the acknowledged outcome of {session_id} is not there once, or did not end it")
    return found


def _wrong_weights(connection: sqlite3.Connection, data: Path, history: History) -> list[str]:
    """Checkpoints that were made from other batches than the journal says, and missing ones."""
    versions = {row[0]: row for row in connection.execute(_VERSIONS)}
    batches: dict[int, list[str]] = {}
    for version, sample in connection.execute(_BATCHES):
        batches.setdefault(version, []).append(sample)
    found = []
    for number, parent, state, checkpoint in versions.values():
        if not checkpoint or state == "rejected":
            continue
        folder = data / "checkpoints" / Path(checkpoint).name
        if not (folder / "trainer.json").is_file():
            if state in ("live", "candidate"):
                found.append(f"version {number} is {state}, and its files are not there")
            continue
        wanted, ancestor = [batches.get(number, [])], parent
        while ancestor:
            wanted.insert(0, batches.get(ancestor, []))
            ancestor = versions[ancestor][1]
        content = (folder / "trainer.json").read_bytes()
        if content == history.damaged.get(folder / "trainer.json"):
            continue
        learned = json.loads(content)
        # A sample without a reward is consumed, and no trainer sees it.
        if len(learned) != len(wanted) or any(
            set(one) - set(batch) for one, batch in zip(learned, wanted, strict=False)
        ):
            found.append(f"version {number} learned from other batches than the journal says")
        flat = [sample for batch in learned for sample in batch]
        if len(flat) != len(set(flat)):
            found.append(f"version {number} learned from a sample twice")
    return found


def _unheard(connection: sqlite3.Connection, history: History) -> list[str]:
    """Turns whose last explicit word is neither what was judged, nor what waits, was learned, or is set aside by."""
    found = []
    for turn_id, words in history.words.items():
        if None in words or not history.kept(history.turns.get(turn_id, "")):
            continue
        row = connection.execute(
            "SELECT id, (SELECT score FROM judgements WHERE turn = turns.id ORDER BY id DESC LIMIT 1), "
            "(SELECT reason FROM quarantines WHERE turn = turns.id), untrainable FROM turns WHERE turn_id = ?",
            (turn_id,),
        ).fetchone()
        if row is None or row[3]:
            continue
        turn, score, reason, _ = row
        set_aside = reason is not None and not reason.startswith("version ")
        if score is None and set_aside:  # while it was judged
            continue
        if score not in words:
            found.append(f"turn {turn_id} was judged {score}, and the last word was {words[-1]}")
            continue
        samples = connection.execute(
            "SELECT samples.state, reward, coalesce(versions.state, '') FROM samples LEFT JOIN version_samples "
            "USING (sample_id) LEFT JOIN versions ON version = number WHERE turn = ? ORDER BY samples.id",
            (turn,),
        ).fetchall()
        by_word = [(state, version) for state, reward, version in samples if reward in words]
        if any(state in ("ready", "known", "consumed") for state, _ in by_word):
            continue
        if set_aside:
            continue
        if any(version == "rejected" for _, version in by_word):
            continue
        found.append(f"turn {turn_id}: the word {words[-1]} is lost ({reason or samples})")
    return found
