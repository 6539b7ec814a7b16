ALTER TABLE contents ADD COLUMN checksum BLOB;
ALTER TABLE samples ADD COLUMN checksum BLOB;
