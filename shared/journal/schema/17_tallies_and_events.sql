-- Counts that are kept with the writes, so that asking for them costs the same however many turns there are.
CREATE TABLE tallies (
  name TEXT NOT NULL,
  key TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (name, key)
) WITHOUT ROWID;

CREATE VIEW counted AS SELECT '' AS name, '' AS key, 0 AS change;
CREATE TRIGGER counted_more INSTEAD OF INSERT ON counted BEGIN
  INSERT INTO tallies (name, key, count) SELECT NEW.name, NEW.key, 0
  WHERE NOT EXISTS (SELECT 1 FROM tallies WHERE name = NEW.name AND key = NEW.key);
  UPDATE tallies SET count = count + NEW.change WHERE name = NEW.name AND key = NEW.key;
  DELETE FROM tallies WHERE name = NEW.name AND key = NEW.key AND count = 0;
END;

-- The live version, one that is about to be, and all that they descend from.
ALTER TABLE versions ADD COLUMN in_line INTEGER NOT NULL DEFAULT 0;
CREATE INDEX versions_in_line ON versions (in_line);
CREATE VIEW live_line AS WITH RECURSIVE line(number) AS (
  SELECT number FROM versions WHERE state IN ('live', 'candidate')
  UNION SELECT parent FROM versions JOIN line USING (number) WHERE parent IS NOT NULL
) SELECT number FROM line;
CREATE INDEX versions_served ON versions (number) WHERE state IN ('live', 'candidate');
UPDATE versions SET in_line = 1 WHERE number IN (SELECT number FROM live_line);

-- The place of each settled turn (docs/reliability.md).
CREATE VIEW turn_places AS
SELECT turns.id AS turn, CASE
  WHEN EXISTS (SELECT 1 FROM judge_queue WHERE judge_queue.turn = turns.id) THEN 'queued'
  WHEN EXISTS (SELECT 1 FROM samples WHERE samples.turn = turns.id AND state = 'ready') THEN 'ready'
  WHEN EXISTS (SELECT 1 FROM samples JOIN version_samples USING (sample_id) JOIN versions ON number = version
    WHERE samples.turn = turns.id AND versions.state != 'rejected' AND in_line) THEN 'consumed'
  WHEN EXISTS (SELECT 1 FROM samples JOIN version_samples USING (sample_id) JOIN versions ON number = version
    WHERE samples.turn = turns.id AND versions.state != 'rejected') THEN 'rolled_back'
  WHEN reason IS NOT NULL AND EXISTS (SELECT 1 FROM samples JOIN version_samples USING (sample_id)
    WHERE samples.turn = turns.id) THEN 'rejected'
  WHEN reason IS NOT NULL AND EXISTS (SELECT 1 FROM judgements WHERE judgements.turn = turns.id)
    AND (SELECT score FROM judgements WHERE judgements.turn = turns.id ORDER BY id DESC LIMIT 1) IS NULL
    THEN 'without_score'
  WHEN reason IS NOT NULL THEN 'quarantined'
  WHEN EXISTS (SELECT 1 FROM samples WHERE samples.turn = turns.id AND state = 'known') THEN 'known'
  WHEN EXISTS (SELECT 1 FROM samples WHERE samples.turn = turns.id) THEN 'superseded'
  WHEN status != 'complete' OR untrainable != '' THEN 'not_trainable'
  WHEN coalesce(next_states.role, '') != 'user' AND EXISTS (SELECT 1 FROM controls
    WHERE key = 'outcome-expected/' || session AND CAST(value AS INTEGER) = episode) THEN 'awaiting_outcome'
  ELSE 'lost' END AS place, coalesce(reason, '') AS reason
FROM turns LEFT JOIN quarantines ON quarantines.turn = turns.id LEFT JOIN next_states ON next_states.turn = turns.id
WHERE kind = 'main' AND (next_states.turn IS NOT NULL
  OR EXISTS (SELECT 1 FROM judge_queue WHERE judge_queue.turn = turns.id)
  OR EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id)
  OR EXISTS (SELECT 1 FROM judgements WHERE judgements.turn = turns.id));

CREATE TABLE places (turn INTEGER PRIMARY KEY, place TEXT NOT NULL, reason TEXT NOT NULL);
INSERT INTO places SELECT turn, place, CASE place WHEN 'quarantined' THEN reason ELSE '' END FROM turn_places;
CREATE TRIGGER places_more AFTER INSERT ON places BEGIN
  INSERT INTO counted VALUES ('places', NEW.place, 1);
  INSERT INTO counted SELECT 'set aside', NEW.reason, 1 WHERE NEW.place = 'quarantined';
END;
CREATE TRIGGER places_less AFTER DELETE ON places BEGIN
  INSERT INTO counted VALUES ('places', OLD.place, -1);
  INSERT INTO counted SELECT 'set aside', OLD.reason, -1 WHERE OLD.place = 'quarantined';
END;
CREATE VIEW touched AS SELECT 0 AS turn;
CREATE TRIGGER touched_again INSTEAD OF INSERT ON touched BEGIN
  DELETE FROM places WHERE turn = NEW.turn;
  INSERT INTO places SELECT turn, place, CASE place WHEN 'quarantined' THEN reason ELSE '' END
  FROM turn_places WHERE turn = NEW.turn;
END;

-- What happened, newest last, without content: for those who watch. Only the last ones are kept.
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  turn INTEGER,
  version INTEGER,
  name TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL DEFAULT ''
);
CREATE INDEX events_by_turn ON events (turn) WHERE turn IS NOT NULL;
CREATE TRIGGER events_kept AFTER INSERT ON events BEGIN
  DELETE FROM events WHERE id <= NEW.id - 10000;
END;

-- A turn may take the id of one that was forgotten: it still comes after the last turn before.
CREATE TRIGGER turns_more AFTER INSERT ON turns BEGIN
  INSERT INTO counted VALUES ('turns', NEW.kind || ' ' || NEW.status, 1);
  UPDATE tallies SET count = NEW.id - 1 WHERE name = 'last turn before' AND count >= NEW.id;
  INSERT INTO events (kind, turn, name, state) VALUES ('turn', NEW.id, NEW.kind, NEW.status);
END;
CREATE TRIGGER turns_less AFTER DELETE ON turns BEGIN
  INSERT INTO counted VALUES ('turns', OLD.kind || ' ' || OLD.status, -1);
  INSERT INTO touched VALUES (OLD.id);
  DELETE FROM events WHERE turn = OLD.id;
END;
CREATE TRIGGER sessions_more AFTER INSERT ON sessions BEGIN INSERT INTO counted VALUES ('sessions', '', 1); END;
CREATE TRIGGER sessions_less AFTER DELETE ON sessions BEGIN
  INSERT INTO counted VALUES ('sessions', '', -1);
  INSERT INTO events (kind, name) VALUES ('control', 'forgotten');
END;

-- Interactions with turns that were recorded after the live version went live have the key 'since'.
CREATE VIEW answered AS SELECT 0 AS turn, '' AS role, 0 AS change;
CREATE TRIGGER answered_more INSTEAD OF INSERT ON answered BEGIN
  INSERT INTO counted VALUES ('next states', NEW.role, NEW.change);
  INSERT INTO counted SELECT 'interactions',
    CASE WHEN id > (SELECT count FROM tallies WHERE name = 'last turn before') THEN 'since' ELSE '' END, NEW.change
  FROM turns WHERE id = NEW.turn AND NEW.role = 'user' AND kind = 'main';
END;
-- A row that INSERT OR REPLACE replaces is deleted without a trigger, so it is taken off before.
CREATE TRIGGER next_states_replaced BEFORE INSERT ON next_states BEGIN
  INSERT INTO answered SELECT turn, role, -1 FROM next_states WHERE turn = NEW.turn;
END;
CREATE TRIGGER next_states_more AFTER INSERT ON next_states BEGIN
  INSERT INTO answered VALUES (NEW.turn, NEW.role, 1);
  INSERT INTO touched VALUES (NEW.turn);
  INSERT INTO events (kind, turn, state) VALUES ('settled', NEW.turn, NEW.role);
END;
CREATE TRIGGER next_states_less AFTER DELETE ON next_states BEGIN
  INSERT INTO answered VALUES (OLD.turn, OLD.role, -1);
  INSERT INTO touched VALUES (OLD.turn);
END;
CREATE TRIGGER feedback_more AFTER INSERT ON feedback BEGIN
  INSERT INTO counted VALUES ('feedback', '', 1);
  INSERT INTO touched VALUES (NEW.turn);
  INSERT INTO events (kind, turn) VALUES ('feedback', NEW.turn);
END;
CREATE TRIGGER feedback_less AFTER DELETE ON feedback BEGIN
  INSERT INTO counted VALUES ('feedback', '', -1);
  INSERT INTO touched VALUES (OLD.turn);
END;
CREATE TRIGGER judge_queue_more AFTER INSERT ON judge_queue BEGIN INSERT INTO touched VALUES (NEW.turn); END;
CREATE TRIGGER judge_queue_less AFTER DELETE ON judge_queue BEGIN INSERT INTO touched VALUES (OLD.turn); END;
CREATE TRIGGER judgements_more AFTER INSERT ON judgements BEGIN
  INSERT INTO counted VALUES ('judgements', '', 1);
  INSERT INTO touched VALUES (NEW.turn);
  INSERT INTO events (kind, turn, state) VALUES ('judged', NEW.turn, CASE WHEN NEW.score IS NULL THEN 'without score'
    WHEN NEW.score > 0 THEN 'good' WHEN NEW.score < 0 THEN 'bad' ELSE 'neutral' END);
END;
CREATE TRIGGER judgements_less AFTER DELETE ON judgements BEGIN
  INSERT INTO counted VALUES ('judgements', '', -1);
  INSERT INTO touched VALUES (OLD.turn);
END;
CREATE TRIGGER samples_more AFTER INSERT ON samples BEGIN
  INSERT INTO counted VALUES ('samples', NEW.state, 1);
  INSERT INTO touched VALUES (NEW.turn);
  INSERT INTO events (kind, turn) SELECT 'ready', NEW.turn WHERE NEW.state = 'ready';
END;
CREATE TRIGGER samples_moved AFTER UPDATE OF state ON samples BEGIN
  INSERT INTO counted VALUES ('samples', OLD.state, -1);
  INSERT INTO counted VALUES ('samples', NEW.state, 1);
  INSERT INTO touched VALUES (NEW.turn);
END;
CREATE TRIGGER samples_less AFTER DELETE ON samples BEGIN
  INSERT INTO counted VALUES ('samples', OLD.state, -1);
  INSERT INTO touched VALUES (OLD.turn);
END;
CREATE TRIGGER quarantines_replaced BEFORE INSERT ON quarantines BEGIN
  INSERT INTO counted SELECT 'quarantined', reason, -1 FROM quarantines WHERE turn = NEW.turn;
END;
CREATE TRIGGER quarantines_more AFTER INSERT ON quarantines BEGIN
  INSERT INTO counted VALUES ('quarantined', NEW.reason, 1);
  INSERT INTO touched VALUES (NEW.turn);
END;
CREATE TRIGGER quarantines_less AFTER DELETE ON quarantines BEGIN
  INSERT INTO counted VALUES ('quarantined', OLD.reason, -1);
  INSERT INTO touched VALUES (OLD.turn);
END;
CREATE TRIGGER audits_replaced BEFORE INSERT ON audits BEGIN
  INSERT INTO counted SELECT 'audits', verdict, -1 FROM audits WHERE turn = NEW.turn;
END;
CREATE TRIGGER audits_more AFTER INSERT ON audits BEGIN INSERT INTO counted VALUES ('audits', NEW.verdict, 1); END;
CREATE TRIGGER audits_less AFTER DELETE ON audits BEGIN INSERT INTO counted VALUES ('audits', OLD.verdict, -1); END;

CREATE TRIGGER versions_more AFTER INSERT ON versions BEGIN
  INSERT INTO counted VALUES ('versions', NEW.state, 1);
  UPDATE versions SET in_line = 1 WHERE in_line = 0 AND number IN (SELECT number FROM live_line);
  INSERT INTO events (kind, version, state) VALUES ('version', NEW.number, NEW.state);
END;
CREATE TRIGGER versions_moved AFTER UPDATE OF state ON versions BEGIN
  INSERT INTO counted VALUES ('versions', OLD.state, -1);
  INSERT INTO counted VALUES ('versions', NEW.state, 1);
  INSERT INTO events (kind, version, state) VALUES ('version', NEW.number, NEW.state);
END;
-- A live version is retired before another one is live: then nothing has left the line yet.
CREATE TRIGGER versions_line AFTER UPDATE OF state ON versions
WHEN OLD.state != NEW.state AND NOT (OLD.state = 'live' AND NEW.state = 'retired') BEGIN
  UPDATE versions SET in_line = 1 WHERE in_line = 0 AND number IN (SELECT number FROM live_line);
  UPDATE versions SET in_line = 0 WHERE in_line = 1 AND number NOT IN (SELECT number FROM live_line);
END;
CREATE TRIGGER versions_touch AFTER UPDATE OF in_line ON versions BEGIN
  INSERT INTO touched SELECT DISTINCT turn FROM version_samples JOIN samples USING (sample_id)
  WHERE version = NEW.number;
END;
CREATE TRIGGER versions_live AFTER UPDATE OF state ON versions
WHEN NEW.state = 'live' AND OLD.state != 'live' BEGIN
  INSERT INTO counted SELECT name, '', count FROM tallies WHERE name = 'interactions' AND key = 'since';
  DELETE FROM tallies WHERE name = 'last turn before' OR (name = 'interactions' AND key = 'since');
  INSERT INTO tallies SELECT 'last turn before', '', coalesce(max(id), 0) FROM turns;
END;
CREATE TRIGGER outcome_expected AFTER INSERT ON controls WHEN NEW.key LIKE 'outcome-expected/%' BEGIN
  INSERT INTO touched SELECT turns.id FROM turns
  WHERE session = CAST(substr(NEW.key, 18) AS INTEGER) AND kind = 'main' AND (episode = CAST(NEW.value AS INTEGER)
    OR EXISTS (SELECT 1 FROM places WHERE places.turn = turns.id AND place = 'awaiting_outcome'));
END;
CREATE TRIGGER outcome_not_expected AFTER DELETE ON controls WHEN OLD.key LIKE 'outcome-expected/%' BEGIN
  INSERT INTO touched SELECT turns.id FROM turns
  WHERE session = CAST(substr(OLD.key, 18) AS INTEGER) AND kind = 'main' AND episode = CAST(OLD.value AS INTEGER);
END;
CREATE TRIGGER controls_event AFTER INSERT ON controls WHEN NEW.key IN ('train', 'pinned version') BEGIN
  INSERT INTO events (kind, name, state) VALUES ('control', NEW.key, NEW.value);
END;
CREATE TRIGGER step_begun AFTER INSERT ON work WHEN NEW.kind = 'step' BEGIN
  INSERT INTO events (kind, state) VALUES ('step', 'begun');
END;
CREATE TRIGGER step_ended AFTER DELETE ON work WHEN OLD.kind = 'step' BEGIN
  INSERT INTO events (kind, state) VALUES ('step', 'ended');
END;

INSERT INTO tallies SELECT 'places', place, count(*) FROM places GROUP BY place;
INSERT INTO tallies SELECT 'set aside', reason, count(*) FROM places WHERE place = 'quarantined' GROUP BY reason;
INSERT INTO tallies SELECT 'turns', kind || ' ' || status, count(*) FROM turns GROUP BY kind, status;
INSERT INTO tallies SELECT 'sessions', '', count(*) FROM sessions GROUP BY 1;
INSERT INTO tallies SELECT 'next states', role, count(*) FROM next_states GROUP BY role;
INSERT INTO tallies SELECT 'last turn before', '', (SELECT coalesce(max(id), 0) FROM turns WHERE arrived <= time)
FROM versions WHERE state = 'live';
INSERT INTO tallies SELECT 'interactions',
  CASE WHEN turn > (SELECT count FROM tallies WHERE name = 'last turn before') THEN 'since' ELSE '' END, count(*)
FROM next_states JOIN turns ON turns.id = turn WHERE role = 'user' AND kind = 'main' GROUP BY 2;
INSERT INTO tallies SELECT 'feedback', '', count(*) FROM feedback GROUP BY 1;
INSERT INTO tallies SELECT 'judgements', '', count(*) FROM judgements GROUP BY 1;
INSERT INTO tallies SELECT 'samples', state, count(*) FROM samples GROUP BY state;
INSERT INTO tallies SELECT 'quarantined', reason, count(*) FROM quarantines GROUP BY reason;
INSERT INTO tallies SELECT 'audits', verdict, count(*) FROM audits GROUP BY verdict;
INSERT INTO tallies SELECT 'versions', state, count(*) FROM versions GROUP BY state;

-- Turns that a person said must never be learned from.
CREATE TABLE excluded (turn INTEGER PRIMARY KEY REFERENCES turns (id), time REAL NOT NULL);
CREATE TRIGGER excluded_event AFTER INSERT ON excluded BEGIN
  INSERT INTO events (kind, turn, name, state) VALUES ('control', NEW.turn, 'excluded', 'true');
END;
CREATE TRIGGER included_event AFTER DELETE ON excluded BEGIN
  INSERT INTO events (kind, turn, name, state) VALUES ('control', OLD.turn, 'excluded', 'false');
END;

-- Wishes that a person dropped, as the judgements that said them.
CREATE TABLE dropped_wishes (
  judgement INTEGER PRIMARY KEY REFERENCES judgements (id) ON DELETE CASCADE,
  time REAL NOT NULL
);
CREATE TRIGGER dropped_event AFTER INSERT ON dropped_wishes BEGIN
  INSERT INTO events (kind, name, state) VALUES ('control', 'wish', 'dropped');
END;

-- How a version learned from each of its samples.
ALTER TABLE version_samples ADD COLUMN weight REAL;
ALTER TABLE version_samples ADD COLUMN advantage REAL;
ALTER TABLE version_samples ADD COLUMN terms TEXT;

-- The first words of a session; unknown where NULL.
ALTER TABLE sessions ADD COLUMN title TEXT;
