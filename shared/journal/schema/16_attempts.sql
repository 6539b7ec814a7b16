ALTER TABLE episodes ADD COLUMN task TEXT NOT NULL DEFAULT '';
ALTER TABLE episodes ADD COLUMN task_group TEXT NOT NULL DEFAULT '';
ALTER TABLE episodes ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE episodes ADD COLUMN environment INTEGER NOT NULL DEFAULT 0;
ALTER TABLE episodes ADD COLUMN train INTEGER NOT NULL DEFAULT 1;
CREATE INDEX episodes_by_group ON episodes (task_group) WHERE task_group != '';
ALTER TABLE outcomes ADD COLUMN episode INTEGER;
-- The last main turn of its episode when it came.
ALTER TABLE outcomes ADD COLUMN last_turn INTEGER;
