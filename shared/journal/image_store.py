"""Images of stored messages: each file once, by its content, however many messages, turns and sessions show it.

A stored message names its images by their digests, so its own address does not depend on how they are stored. Which
images a message holds is in `blob_images`; an image goes when the last message that shows it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openclaw_rl.shared.errors import DamagedRecord
from openclaw_rl.shared.journal import encoding
from openclaw_rl.shared.journal.sqlite import Connection, insert
from openclaw_rl.shared.messages.images import digest_of, file_of, images_in, part_of
from openclaw_rl.shared.records import Message


def without_files(message: Message) -> Message:
    """The message as it is stored: every image by its digest."""
    if not isinstance(message["content"], list):
        return message
    return {**message, "content": [_named(part) for part in message["content"]]}


def store(connection: Connection, blob: int, message: Message) -> None:
    """Store the images of a message that was stored as `blob`, those that are new."""
    for part in images_in([message]):
        address = bytes.fromhex(part["digest"])
        image = connection.value("SELECT id FROM blobs WHERE digest = ?", address)
        if image is None:
            image = insert(
                connection, "blobs", {"digest": address, "body": encoding.keep(file_of(part["image_url"]["url"])[1])}
            )
        connection.execute("INSERT OR IGNORE INTO blob_images (blob, image) VALUES (?,?)", (blob, image))


def with_files(connection: Connection, message: Message) -> Message:
    """A stored message with its images in it again. Raises `DamagedRecord` where one is missing."""
    if not isinstance(message["content"], list):
        return message
    return {**message, "content": [_loaded(connection, part) for part in message["content"]]}


def images_of(connection: Connection, blobs: Sequence[int]) -> list[int]:
    """The images that these messages show."""
    query = "SELECT image FROM blob_images WHERE blob = ?"
    return sorted({image for blob in blobs for image in connection.column(query, blob)})


def drop_unseen(connection: Connection, images: Sequence[int]) -> None:
    """Delete those of the images that no message shows any more."""
    connection.executemany(
        "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM blob_images WHERE image = ?1) "
        "AND NOT EXISTS (SELECT 1 FROM turn_blobs WHERE blob = ?1)",
        [(image,) for image in images],
    )


def _named(part: Mapping[str, Any]) -> Mapping[str, Any]:
    if part["type"] != "image_url":
        return part
    media_type = part["image_url"]["url"].partition(";")[0].removeprefix("data:")
    return {"type": "stored_image", "media_type": media_type, "digest": part["digest"], "size": part["size"]}


def _loaded(connection: Connection, part: Mapping[str, Any]) -> Mapping[str, Any]:
    if part["type"] != "stored_image":
        return part
    body = connection.value("SELECT body FROM blobs WHERE digest = ?", bytes.fromhex(part["digest"]))
    if body is None:
        raise DamagedRecord(f"image {part['digest']} is missing from the journal: the file is damaged; restore a copy")
    data = encoding.unpack(body)
    if digest_of(data) != part["digest"]:
        raise DamagedRecord(f"image {part['digest']} is not what was written (digest)")
    return part_of(data, part["media_type"], part["digest"], part["size"])
