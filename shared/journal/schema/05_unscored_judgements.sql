CREATE INDEX judgements_without_score ON judgements (turn) WHERE score IS NULL;
