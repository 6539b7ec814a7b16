ALTER TABLE turns ADD COLUMN image_spans BLOB NOT NULL DEFAULT x'5b5d';

CREATE TABLE blob_images (
  blob INTEGER NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
  image INTEGER NOT NULL REFERENCES blobs (id),
  PRIMARY KEY (blob, image)
) WITHOUT ROWID;
CREATE INDEX blob_images_by_image ON blob_images (image);
