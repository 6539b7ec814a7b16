"""The journal's schema, as a list of migrations: number n takes a journal from `user_version` n to n + 1.

Content lives in `blobs` (messages, tool lists, image files; by digest) and `contents` (token ids, logprobs). A turn
keeps only its difference to its `base`: its parent, or for a root a turn that begins with the same first message (its
`head`).
`turn_blobs` says which blobs a turn holds: by position its own messages, at -1 its answer, at -2 its tools;
`blob_images` which blobs are the images that a message shows.
`judge_queue` holds the turns that wait for a judgement, kept by the same transactions that make them wait, so that no
query ever has to look for them; `audit_queue` likewise those whose audit is undecided.
Migrations only ever go forward.
"""

from __future__ import annotations

import sqlite3

from openclaw_rl.shared.errors import JournalError

APPLICATION_ID = 0x0C1A_34C1
"""Marks a SQLite file as a journal of this project (`PRAGMA application_id`)."""

FIRST = """
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  policy TEXT NOT NULL,
  source TEXT NOT NULL,
  created REAL NOT NULL,
  last_seen REAL NOT NULL
);
CREATE INDEX sessions_by_last_seen ON sessions (last_seen);

CREATE TABLE episodes (
  session INTEGER NOT NULL REFERENCES sessions (id),
  episode INTEGER NOT NULL,
  started REAL NOT NULL,
  ended REAL,
  reason TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (session, episode)
) WITHOUT ROWID;
CREATE INDEX episodes_open ON episodes (session) WHERE ended IS NULL;

CREATE TABLE blobs (
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE,
  body BLOB NOT NULL
);

CREATE TABLE turns (
  id INTEGER PRIMARY KEY,
  turn_id TEXT NOT NULL UNIQUE,
  session INTEGER NOT NULL REFERENCES sessions (id),
  episode INTEGER NOT NULL,
  parent_turn_id TEXT,
  parent_reason TEXT NOT NULL,
  kind TEXT NOT NULL,
  kind_reason TEXT NOT NULL,
  dialect TEXT NOT NULL,
  policy TEXT NOT NULL,
  sampling BLOB NOT NULL,
  versions BLOB NOT NULL,
  finish_reason TEXT NOT NULL,
  status TEXT NOT NULL,
  error TEXT NOT NULL,
  arrived REAL NOT NULL,
  first_token REAL,
  finished REAL NOT NULL,
  request_key BLOB NOT NULL,
  answer_key BLOB NOT NULL,
  untrainable TEXT NOT NULL,
  prompt_digest BLOB NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  response_tokens INTEGER NOT NULL,
  head INTEGER,
  tools INTEGER,
  answer INTEGER NOT NULL,
  base INTEGER REFERENCES turns (id),
  depth INTEGER NOT NULL,
  shared_messages INTEGER NOT NULL,
  shared_ids INTEGER NOT NULL
);
CREATE INDEX turns_by_session ON turns (session, kind, episode, arrived, status);
CREATE INDEX turns_by_answer ON turns (answer_key) WHERE answer_key != x'';
CREATE INDEX turns_by_request ON turns (request_key) WHERE request_key != x'';
CREATE INDEX turns_by_base ON turns (base) WHERE base IS NOT NULL;
CREATE INDEX turns_by_head ON turns (head) WHERE base IS NULL;

CREATE TABLE contents (
  turn INTEGER PRIMARY KEY REFERENCES turns (id),
  prompt_rest BLOB NOT NULL,
  response_ids BLOB NOT NULL,
  logprobs BLOB NOT NULL
);

CREATE TABLE turn_blobs (
  turn INTEGER NOT NULL REFERENCES turns (id),
  position INTEGER NOT NULL,
  blob INTEGER NOT NULL REFERENCES blobs (id),
  PRIMARY KEY (turn, position)
) WITHOUT ROWID;
CREATE INDEX turn_blobs_by_blob ON turn_blobs (blob);

CREATE TABLE next_states (
  turn INTEGER PRIMARY KEY REFERENCES turns (id),
  role TEXT NOT NULL,
  body BLOB NOT NULL
);

CREATE TABLE feedback (
  id INTEGER PRIMARY KEY,
  feedback_id TEXT NOT NULL UNIQUE,
  turn INTEGER NOT NULL REFERENCES turns (id),
  body BLOB NOT NULL
);
CREATE INDEX feedback_by_turn ON feedback (turn);

CREATE TABLE outcomes (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (id),
  body BLOB NOT NULL
);
CREATE INDEX outcomes_by_session ON outcomes (session);

CREATE TABLE judge_queue (turn INTEGER PRIMARY KEY REFERENCES turns (id));

CREATE TABLE judgements (
  id INTEGER PRIMARY KEY,
  turn INTEGER NOT NULL REFERENCES turns (id),
  feedback_id TEXT,
  score REAL,
  hint TEXT,
  body BLOB NOT NULL
);
CREATE INDEX judgements_by_turn ON judgements (turn);
CREATE INDEX judgements_by_hint ON judgements (hint) WHERE hint IS NOT NULL;

CREATE TABLE samples (
  id INTEGER PRIMARY KEY,
  sample_id TEXT NOT NULL UNIQUE,
  turn INTEGER NOT NULL REFERENCES turns (id),
  state TEXT NOT NULL,
  policy TEXT NOT NULL,
  temperature REAL NOT NULL,
  reward REAL,
  explicit INTEGER NOT NULL,
  hint TEXT,
  hinted_prompts BLOB NOT NULL,
  teacher_logprobs BLOB,
  task_group TEXT,
  step_index INTEGER,
  weight REAL NOT NULL,
  time REAL NOT NULL
);
CREATE INDEX samples_by_turn ON samples (turn);
CREATE INDEX samples_ready ON samples (id) WHERE state = 'ready';

CREATE TABLE quarantines (
  turn INTEGER PRIMARY KEY REFERENCES turns (id),
  reason TEXT NOT NULL,
  time REAL NOT NULL
);

CREATE TABLE versions (
  number INTEGER PRIMARY KEY,
  parent INTEGER REFERENCES versions (number),
  state TEXT NOT NULL,
  checkpoint TEXT NOT NULL,
  method TEXT NOT NULL,
  metrics TEXT NOT NULL,
  guard TEXT NOT NULL,
  time REAL NOT NULL
);
CREATE UNIQUE INDEX versions_live ON versions (state) WHERE state = 'live';

CREATE TABLE version_samples (
  sample_id TEXT PRIMARY KEY,
  version INTEGER NOT NULL REFERENCES versions (number),
  position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX version_samples_by_version ON version_samples (version, position);

CREATE TABLE traffic (
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (kind, reason)
) WITHOUT ROWID;

CREATE TABLE controls (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE processes (
  name TEXT PRIMARY KEY,
  pid INTEGER NOT NULL,
  time REAL NOT NULL,
  status TEXT NOT NULL
) WITHOUT ROWID;
"""

AUDITS = """
CREATE TABLE audit_queue (turn INTEGER PRIMARY KEY REFERENCES turns (id));

CREATE TABLE audits (
  turn INTEGER PRIMARY KEY REFERENCES turns (id),
  version INTEGER NOT NULL,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  differences BLOB NOT NULL,
  time REAL NOT NULL
);
CREATE INDEX audits_by_version ON audits (version, verdict);
CREATE INDEX audits_compared ON audits (time) WHERE verdict IN ('aligned', 'misaligned');
"""

EXCHANGES = """
ALTER TABLE turns ADD COLUMN exchange_key BLOB NOT NULL DEFAULT x'';
CREATE INDEX turns_by_exchange ON turns (exchange_key) WHERE exchange_key != x'';
"""

IMAGES = """
ALTER TABLE turns ADD COLUMN image_spans BLOB NOT NULL DEFAULT x'5b5d';

CREATE TABLE blob_images (
  blob INTEGER NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
  image INTEGER NOT NULL REFERENCES blobs (id),
  PRIMARY KEY (blob, image)
) WITHOUT ROWID;
CREATE INDEX blob_images_by_image ON blob_images (image);
"""

LEFT_OUT = """
CREATE INDEX judgements_without_score ON judgements (turn) WHERE score IS NULL;
"""

UNFILLED = """
ALTER TABLE samples DROP COLUMN teacher_logprobs;
ALTER TABLE samples DROP COLUMN task_group;
ALTER TABLE samples DROP COLUMN step_index;
ALTER TABLE samples DROP COLUMN weight;
"""

MIGRATIONS: tuple[str, ...] = (FIRST, AUDITS, EXCHANGES, IMAGES, LEFT_OUT, UNFILLED)


def migrate(connection: sqlite3.Connection, path: str, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the journal at `path` to the newest schema, in one transaction; several processes may try at once.

    Raises JournalError when the file is another program's database or was written by a newer version of this one.
    """
    if _schema(connection, path, len(migrations)) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _schema(connection, path, len(migrations))
        for script in migrations[found:]:
            for statement in script.split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _schema(connection: sqlite3.Connection, path: str, known: int) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if application != APPLICATION_ID and (application or found or tables):
        raise JournalError(
            f"{path} is a SQLite database of another program; point the `journal` setting at another file"
        )
    if found > known:
        raise JournalError(
            f"journal {path} has schema {found}, this version of openclaw-rl knows up to {known}; "
            "upgrade openclaw-rl, or use another journal file"
        )
    return found
