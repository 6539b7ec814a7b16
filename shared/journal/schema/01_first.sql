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
