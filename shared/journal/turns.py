"""Turns: recorded once, each as its difference to its base, and read back exactly."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from openclaw_rl.shared.errors import DamagedRecord, MissingRecord
from openclaw_rl.shared.journal import encoding, image_store
from openclaw_rl.shared.journal.encoding import Content
from openclaw_rl.shared.journal.sqlite import Connection, insert
from openclaw_rl.shared.messages.equality import answer_marks, text_mark
from openclaw_rl.shared.messages.normalize import clean_text, is_internal_context, text_of
from openclaw_rl.shared.owners import owner_of
from openclaw_rl.shared.records import ImageSpan, Message, Sampling, Timings, Turn, VersionSpan, now

GENERATIONS = 64
"""A turn this many differences away from a full copy starts again from the head, so that reading one stays fast."""

FAN_OUT = 256
"""So many turns may hang on a full copy before there is a new one: forgetting it rewrites no more than these."""

_LONGEST_TITLE, _READ_OF_TITLE = 80, 1000
"""Characters of a session's title, and of the message that it is taken from."""

PARENT_FORGOTTEN = "its parent was forgotten"

_ANSWER, _TOOLS = -1, -2
"""Positions in `turn_blobs` of what is no message."""

_CHAIN = """
WITH RECURSIVE chain (id, base, distance) AS (
  SELECT id, base, 0 FROM turns WHERE id = ?
  UNION ALL
  SELECT turns.id, turns.base, distance + 1 FROM chain JOIN turns ON turns.id = chain.base
)
SELECT turns.id, shared_messages, shared_ids, answer, prompt_rest, response_ids
FROM chain JOIN turns ON turns.id = chain.id JOIN contents ON contents.turn = chain.id
ORDER BY distance DESC
"""

_PLAIN = (
    *("turn_id", "episode", "parent_turn_id", "parent_reason", "kind", "kind_reason", "dialect", "policy"),
    *("finish_reason", "status", "error", "request_key", "answer_key", "exchange_key", "untrainable"),
)
"""Fields of a turn that are columns as they are."""

_FACTS = (
    *("sampling", "versions", "image_spans"),
    *("episode", "kind", "policy", "finish_reason", "status", "untrainable"),
)
"""Columns of a turn that never change and that learning goes by."""

_CIRCUMSTANCES = (
    *("session_id", "kind_reason", "dialect", "error", "request_key", "answer_key", "exchange_key"),
    *("arrived", "first_token", "finished"),
)
"""Other columns that never change."""

_PARENT = ("parent_turn_id", "parent_reason")
"""Columns that change when the parent is forgotten, and only then."""

_TURN = f"""
SELECT sessions.session_id, checksum, arrived, first_token, finished, sampling, versions, image_spans, tools, answer,
  logprobs,
  {", ".join(f"turns.{name}" for name in _PLAIN)}
FROM turns JOIN sessions ON sessions.id = session JOIN contents ON turn = turns.id WHERE turns.id = ?
"""

SPANS = msgspec.json.Decoder(list[tuple[int, int, int]])
_SAMPLING = msgspec.json.Decoder(Sampling)
_IMAGES = msgspec.json.Decoder(list[tuple[int, int]])


class Base(NamedTuple):
    """A stored turn that another one is stored as a difference to."""

    row: int
    depth: int
    content: Content


def record_turn(connection: Connection, turn: Turn) -> bool:
    """Store a turn with its session and episode, and count it under its kind and reason; False if it is already
    there.

    A main turn that must never be trained on is quarantined at once, with its reason. A parent that was forgotten
    meanwhile is left out.
    """
    prompt, response = encoding.token_ids(turn.prompt_ids), encoding.token_ids(turn.response_ids)
    logprobs = encoding.floats(turn.logprobs)
    untrainable = turn.untrainable
    if len(logprobs) != len(response) and not untrainable:
        untrainable = f"{len(logprobs)} logprobs for {len(response)} sampled tokens"
    messages = [encoding.encode(image_store.without_files(message)) for message in turn.messages]
    answer = encoding.encode(turn.answer)
    digests = [encoding.address(message) for message in messages]
    tools = encoding.encode(list(turn.tools)) if turn.tools else b""
    tools_digest = encoding.address(tools)
    if connection.value("SELECT id FROM turns WHERE turn_id = ?", turn.turn_id) is not None:
        return False
    session = _session(connection, turn)
    head = _blob(connection, messages[0], digests[0]) if messages else None
    parent = connection.execute(
        "SELECT turn_id, id, depth FROM turns WHERE turn_id = ?", (turn.parent_turn_id,)
    ).fetchone()
    base = _base(connection, parent, head)
    shared = encoding.common_prefix(base.content.digests, digests) if base else 0
    shared_ids = encoding.common_prefix(base.content.ids, prompt) if base else 0
    near = base.content.ids[shared_ids:] if base else array("I")
    answer_digest = encoding.digest(answer)
    values: dict[str, Any] = {name: getattr(turn, name) for name in _PLAIN} | {
        "session": session,
        "parent_turn_id": parent[0] if parent else None,
        "parent_reason": PARENT_FORGOTTEN if turn.parent_turn_id and not parent else turn.parent_reason,
        "untrainable": untrainable,
        "sampling": msgspec.json.encode(turn.sampling),
        "versions": msgspec.json.encode([(span.version, span.start, span.end) for span in turn.versions]),
        "image_spans": msgspec.json.encode([(span.start, span.end) for span in turn.image_spans]),
        "arrived": turn.timings.arrived,
        "first_token": turn.timings.first_token,
        "finished": turn.timings.finished,
        "prompt_digest": encoding.digest(b"".join([tools_digest, *digests]) if digests else prompt.tobytes()),
        "prompt_tokens": len(prompt),
        "response_tokens": len(response),
        "head": head,
        "tools": _blob(connection, tools, tools_digest) if tools else None,
        "answer": _blob(connection, answer, answer_digest),
        "base": base.row if base else None,
        "depth": base.depth + 1 if base else 0,
        "shared_messages": shared,
        "shared_ids": shared_ids,
    }
    row = insert(connection, "turns", values)
    if turn.kind == "main":
        titled = "UPDATE sessions SET title = ? WHERE id = ? AND title IS NULL"
        connection.execute(titled, (title_of(turn.messages), session))
    facts = [values[name] for name in _FACTS]
    connection.execute(
        "INSERT INTO contents (turn, prompt_rest, response_ids, logprobs, checksum) VALUES (?,?,?,?,?)",
        (
            row,
            encoding.pack_ids(prompt[shared_ids:], near),
            encoding.pack_ids(response, array("I")),
            encoding.keep(logprobs.tobytes()),
            _checksum(turn.turn_id, prompt, response, logprobs, [*digests, tools_digest, answer_digest], facts)
            + _checksum_of({**values, "session_id": turn.session_id}, _CIRCUMSTANCES)
            + _checksum_of(values, _PARENT),
        ),
    )
    blobs = [
        (position, _blob(connection, messages[position], digests[position]))
        for position in range(shared, len(messages))
    ]
    for position, blob in blobs:
        image_store.store(connection, blob, turn.messages[position])
    blobs.append((_ANSWER, values["answer"]))
    if turn.tools:
        blobs.append((_TOOLS, values["tools"]))
    _hold(connection, row, blobs)
    if turn.kind == "main" and untrainable:
        connection.execute("INSERT INTO quarantines (turn, reason, time) VALUES (?,?,?)", (row, untrainable, now()))
    elif turn.kind == "main" and turn.status == "complete" and response and not turn.sampling.imported:
        connection.execute("INSERT INTO audit_queue (turn) VALUES (?)", (row,))
    marks = answer_marks(turn.answer) if turn.status == "complete" else []
    connection.executemany("INSERT INTO answer_marks (mark, turn) VALUES (?,?)", [(mark, row) for mark in marks])
    count_traffic(connection, turn.kind, turn.kind_reason)
    connection.recent.put(turn.turn_id, Content([*digests, answer_digest], prompt + response))
    return True


def count_traffic(connection: Connection, kind: str, reason: str) -> None:
    """Count a request that is not recorded as a turn (control calls, refused or uncaptured ones); `record_turn`
    counts its own.
    """
    connection.execute(
        "INSERT INTO traffic (kind, reason, count) VALUES (?,?,1) "
        "ON CONFLICT (kind, reason) DO UPDATE SET count = count + 1",
        (kind, reason),
    )


def find_turn(connection: Connection, turn_id: str) -> Turn | None:
    """The turn as it was recorded: ids as `array('I')`, logprobs as `array('f')`, messages and tools as lists."""
    row = connection.value("SELECT id FROM turns WHERE turn_id = ?", turn_id)
    return None if row is None else read_turn(connection, row)


def find_answer(connection: Connection, turn_id: str) -> dict[str, Any] | None:
    """The answer of a complete turn as a canonical message, without reading the turn's history."""
    query = "SELECT id, answer FROM turns WHERE turn_id = ? AND status = 'complete'"
    found = connection.execute(query, (turn_id,)).fetchone()
    if found is None:
        return None
    with naming_row(found[0]):
        answer: dict[str, Any] = _load(connection, found[1])
    return answer


def was_sampled(connection: Connection, texts: Sequence[str]) -> bool:
    """True if one of these texts, without reasoning and white space, was the answer of a turn."""
    return any(
        connection.value("SELECT 1 FROM answer_marks WHERE mark = ? LIMIT 1", text_mark(text)) is not None
        for text in texts
    )


def turn_row(connection: Connection, turn_id: str) -> int:
    """The row of a turn. Raises MissingRecord where there is none."""
    row: int | None = connection.value("SELECT id FROM turns WHERE turn_id = ?", turn_id)
    if row is None:
        raise MissingRecord(f"the journal has no turn {turn_id}; it was never recorded, or its session was forgotten")
    return row


def read_turn(connection: Connection, row: int) -> Turn:
    """The turn of a row. Raises `DamagedRecord` where it is not what was recorded."""
    with naming_row(row), encoding.naming_damage("its record"):
        return _read_turn(connection, row)


def intact_turns(connection: Connection, rows: Sequence[int]) -> list[Turn]:
    """The turns of these rows without those that are damaged."""
    found = []
    for row in rows:
        with suppress(DamagedRecord):
            found.append(read_turn(connection, row))
    return found


@contextmanager
def naming_row(row: int) -> Iterator[None]:
    """Name the turn of a `DamagedRecord`; damage that SQLite finds itself is one."""
    try:
        yield
    except DamagedRecord as error:
        raise DamagedRecord(f"turn number {row} of the journal is damaged: {error}", row=row) from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None)  # text that is no UTF-8 has none
        if code is not None and code & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        raise DamagedRecord(f"turn number {row} of the journal is damaged: {error}", row=row) from error


def _read_turn(connection: Connection, row: int) -> Turn:
    blobs, prompt, response = _replay(connection, row)
    session_id, checksum, arrived, first_token, finished, sampling, versions, images, tools, answer, packed, *plain = (
        connection.execute(_TURN, (row,)).fetchone()
    )
    fields = dict(zip(_PLAIN, plain, strict=True))
    logprobs = encoding.unpack_floats(packed)
    contents = [_body(connection, blob) for blob in (*blobs, *(() if tools is None else (tools,)), answer)]
    digests = [address for address, _ in contents]
    if tools is None:
        digests.insert(len(blobs), encoding.address(b""))
    # Turns that an older version recorded have no checksum.
    facts = [{"sampling": sampling, "versions": versions, "image_spans": images, **fields}[name] for name in _FACTS]
    found = _checksum(fields["turn_id"], prompt, response, logprobs, digests, facts)
    if checksum is not None and len(checksum) > len(found):
        times = {"arrived": arrived, "first_token": first_token, "finished": finished}
        found += _checksum_of({**fields, **times, "session_id": session_id}, _CIRCUMSTANCES)
    if checksum is not None and len(checksum) > len(found):
        forgotten = fields["parent_reason"] == PARENT_FORGOTTEN and fields["parent_turn_id"] is None
        found += checksum[len(found) :] if forgotten else _checksum_of(fields, _PARENT)
    if checksum is not None and checksum != found:
        raise DamagedRecord("it is not what was recorded (checksum)")
    values = [encoding.decode(body) for _, body in contents]
    return Turn(
        **fields,
        session_id=session_id,
        messages=[image_store.with_files(connection, value) for value in values[: len(blobs)]],
        tools=values[-2] if tools is not None else (),
        answer=values[-1],
        prompt_ids=prompt,
        response_ids=response,
        logprobs=logprobs,
        sampling=_SAMPLING.decode(sampling),
        versions=tuple(VersionSpan(*span) for span in SPANS.decode(versions)),
        image_spans=tuple(ImageSpan(*span) for span in _IMAGES.decode(images)),
        timings=Timings(arrived=arrived, first_token=first_token, finished=finished),
    )


def _checksum(
    turn_id: str,
    prompt: array[int],
    response: array[int],
    logprobs: array[float],
    digests: Sequence[bytes],
    facts: Sequence[object],
) -> bytes:
    """A checksum of what a turn is, whatever it is stored as a difference to; `digests` of its messages, tools and
    answer.
    """
    numbers = [values.tobytes() for values in (prompt, response, logprobs)]
    return encoding.checksum([turn_id.encode(), *numbers, b"".join(digests), *map(_bytes, facts)])


def _checksum_of(values: Mapping[str, object], names: Sequence[str]) -> bytes:
    """A checksum of these columns; the file keeps times as floats."""
    found = (values[name] for name in names)
    return encoding.checksum([_bytes(float(one) if isinstance(one, int) else one) for one in found])


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _base(connection: Connection, parent: tuple[str, int, int] | None, head: int | None) -> Base | None:
    """The parent, while its chain is short; else the newest full copy with its head, unless many hang on it."""
    if parent is not None:
        turn_id, row, depth = parent
        if depth + 1 < GENERATIONS:
            with suppress(DamagedRecord):  # then it is stored as if that were not its parent
                return Base(row, depth, _content(connection, turn_id, row))
    if head is not None:
        found = connection.execute(
            "SELECT id, turn_id FROM turns WHERE head = ? AND base IS NULL ORDER BY id DESC LIMIT 1", (head,)
        ).fetchone()
        if found and connection.value("SELECT count(*) FROM turns WHERE base = ?", found[0]) < FAN_OUT:
            with suppress(DamagedRecord):
                return Base(found[0], 0, _content(connection, found[1], found[0]))
    return None


def _content(connection: Connection, turn_id: str, row: int) -> Content:
    recent = connection.recent.get(turn_id)
    if recent is not None:
        return recent
    with naming_row(row), encoding.naming_damage("its record"):
        blobs, prompt, response = _replay(connection, row)
    blobs.append(connection.value("SELECT answer FROM turns WHERE id = ?", row))
    digests = [connection.value("SELECT digest FROM blobs WHERE id = ?", blob) for blob in blobs]
    content = Content(digests, prompt + response)
    connection.recent.put(turn_id, content)
    return content


def rebase(connection: Connection, rows: Sequence[int]) -> None:
    """Store turns whose base is going away again: the first of each head in full, the others as differences to
    it.
    """
    full: dict[int | None, tuple[int, list[int], array[int]]] = {}
    for row in rows:
        blobs, prompt, response = _replay(connection, row)
        head, answer = connection.execute("SELECT head, answer FROM turns WHERE id = ?", (row,)).fetchone()
        base, base_blobs, base_ids = full.get(head, (None, [], array("I")))
        if base is None:
            full[head] = (row, [*blobs, answer], prompt + response)
        shared = encoding.common_prefix(base_blobs, blobs)
        shared_ids = encoding.common_prefix(base_ids, prompt)
        connection.execute("DELETE FROM turn_blobs WHERE turn = ? AND position >= 0", (row,))
        _hold(connection, row, [(position, blobs[position]) for position in range(shared, len(blobs))])
        connection.execute(
            "UPDATE turns SET base = ?, depth = ?, shared_messages = ?, shared_ids = ? WHERE id = ?",
            (base, 0 if base is None else 1, shared, shared_ids, row),
        )
        connection.execute(
            "UPDATE contents SET prompt_rest = ? WHERE turn = ?",
            (encoding.pack_ids(prompt[shared_ids:], base_ids[shared_ids:]), row),
        )


def _replay(connection: Connection, row: int) -> tuple[list[int], array[int], array[int]]:
    """Message blobs, prompt ids and response ids of a turn, from the full copy at the root of its differences
    forward.
    """
    blobs: list[int] = []
    ids: array[int] = array("I")
    prompt: array[int] = array("I")
    response: array[int] = array("I")
    last_answer: list[int] = []
    for turn, shared, shared_ids, answer, prompt_rest, response_ids in connection.execute(_CHAIN, (row,)).fetchall():
        rest = connection.execute(
            "SELECT blob FROM turn_blobs WHERE turn = ? AND position >= 0 ORDER BY position", (turn,)
        ).fetchall()
        blobs = [*(blobs + last_answer)[:shared], *(blob for (blob,) in rest)]
        prompt = ids[:shared_ids] + encoding.unpack_ids(prompt_rest, ids[shared_ids:])
        response = encoding.unpack_ids(response_ids, array("I"))
        ids, last_answer = prompt + response, [answer]
    return blobs, prompt, response


def _hold(connection: Connection, row: int, blobs: Iterable[tuple[int, int]]) -> None:
    connection.executemany(
        "INSERT INTO turn_blobs (turn, position, blob) VALUES (?,?,?)",
        [(row, position, blob) for position, blob in blobs],
    )


def _session(connection: Connection, turn: Turn) -> int:
    seen = max(turn.timings.arrived, turn.timings.finished)
    session: int = connection.value(
        "INSERT INTO sessions (session_id, owner, policy, source, created, last_seen) VALUES (?,?,?,?,?,?) "
        "ON CONFLICT (session_id) DO UPDATE "
        "SET last_seen = CASE ? WHEN 'main' THEN max(last_seen, excluded.last_seen) ELSE last_seen END RETURNING id",
        *(turn.session_id, owner_of(turn.session_id), turn.policy, turn.dialect, turn.timings.arrived, seen, turn.kind),
    )
    connection.execute(
        "INSERT OR IGNORE INTO episodes (session, episode, started) VALUES (?,?,?)",
        (session, turn.episode, turn.timings.arrived),
    )
    return session


def _blob(connection: Connection, body: bytes, address: bytes | None = None) -> int:
    """The row of a blob, stored if it is new."""
    address = address or encoding.address(body)
    row: int | None = connection.value("SELECT id FROM blobs WHERE digest = ?", address)
    return insert(connection, "blobs", {"digest": address, "body": encoding.pack(body)}) if row is None else row


def _body(connection: Connection, blob: int) -> tuple[bytes, bytes]:
    """The digest and the content of a blob. Raises `DamagedRecord` where they do not belong together."""
    found = connection.execute("SELECT digest, body FROM blobs WHERE id = ?", (blob,)).fetchone()
    if found is None:
        raise DamagedRecord(f"message {blob} is missing")
    body = encoding.unpack(found[1])
    if encoding.address(body) != found[0]:
        raise DamagedRecord(f"message {blob} is not what was written (digest)")
    return found[0], body


def _load(connection: Connection, blob: int) -> Any:
    """The value of a blob. Raises `DamagedRecord`."""
    return encoding.decode(_body(connection, blob)[1])


def read_message(connection: Connection, blob: int) -> Message:
    """A stored message, with images by their digests. Raises `DamagedRecord`."""
    message: Message = _load(connection, blob)
    return message


def title_of(messages: Sequence[Message]) -> str:
    """The first words that a person wrote, "" where no one has."""
    asked = (message for message in messages if message["role"] == "user" and not is_internal_context(message))
    first = next(asked, None)
    words = "" if first is None else " ".join(clean_text(text_of(first)[:_READ_OF_TITLE]).split())
    return words if len(words) <= _LONGEST_TITLE else f"{words[:_LONGEST_TITLE].rstrip()}…"
