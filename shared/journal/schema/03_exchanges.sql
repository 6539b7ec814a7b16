ALTER TABLE turns ADD COLUMN exchange_key BLOB NOT NULL DEFAULT x'';
CREATE INDEX turns_by_exchange ON turns (exchange_key) WHERE exchange_key != x'';
