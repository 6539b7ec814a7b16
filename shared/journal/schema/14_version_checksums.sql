ALTER TABLE versions ADD COLUMN checksum BLOB;
