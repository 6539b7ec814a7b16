ALTER TABLE samples DROP COLUMN teacher_logprobs;
ALTER TABLE samples DROP COLUMN task_group;
ALTER TABLE samples DROP COLUMN step_index;
ALTER TABLE samples DROP COLUMN weight;
