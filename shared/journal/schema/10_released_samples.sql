ALTER TABLE samples ADD COLUMN released_from TEXT;
