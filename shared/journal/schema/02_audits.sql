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
