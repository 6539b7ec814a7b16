"""The session that a request names, in a header or in its body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.speaker import runtime_fields
from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.owners import MARK, SERVICE, owned, owner_of, unowned
from openclaw_rl.shared.records import new_id

MAX_SESSION_ID = 256

_FIELDS = ("session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "threadId", "chat_id")
_CLIENT_HEADERS = ("x-claude-code-session-id", "x-openwebui-chat-id", "session_id", "session-id", "conversation_id")
"""Headers in which clients name a conversation for their own purposes (Codex: `session_id`, later `session-id`)."""
_SESSION_WORD = re.compile(r"(?:^|[^a-z])session[_:=-]+([A-Za-z0-9][\w:.-]{5,})", re.IGNORECASE)


def session_of(
    headers: Mapping[str, str], body: Mapping[str, Any], chain: Chain, owner: str = SERVICE
) -> tuple[str, str] | None:
    """The session of this owner that a request names, and where it stood: `header`, `runtime` (OpenClaw's line) or
    `body`; else `None`.

    `user` (OpenAI: an end user, not a session) and `metadata.user_id` (Anthropic: likewise) count only where they spell
    out a session, as Claude Code does in the latter. Raises `BadRequest` for an invalid id that the client sends as our
    session id; an invalid id elsewhere is ignored.
    """
    named = _named(headers, body, chain, owner)
    return (owned(named[0], owner), named[1]) if named is not None else None


def _named(headers: Mapping[str, str], body: Mapping[str, Any], chain: Chain, owner: str) -> tuple[str, str] | None:
    header = headers.get("x-session-id", "").strip()
    if header:
        return check_session_id(header, "X-Session-Id", owner), "header"
    for name in _CLIENT_HEADERS:
        named = headers.get(name, "").strip()
        if named and not fault(named, owner):
            return named, "header"
    system = "\n".join(step.text for step in chain.steps if step.role == "system")
    runtime = runtime_fields(chain.speeches, system).get("sessionId", "")
    if runtime and not fault(runtime, owner):
        return runtime, "runtime"
    metadata = body.get("metadata")
    for prefix, holder in (("metadata.", metadata if isinstance(metadata, dict) else {}), ("", body)):
        for field in _FIELDS:
            value = holder.get(field)
            if isinstance(value, str) and value.strip():
                return check_session_id(value, prefix + field, owner), "body"
    for value in (metadata.get("user_id") if isinstance(metadata, dict) else None, body.get("user")):
        session = _session_in(value) if isinstance(value, str) else ""
        if session and not fault(session, owner):
            return session, "body"
    return None


def _session_in(user: str) -> str:
    """The session in an end user's id: a field of a JSON object, or what follows the word; "" if there is none."""
    if user.lstrip().startswith("{"):
        try:
            fields = msgspec.json.decode(user)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return ""
        session = fields.get("session_id") if isinstance(fields, dict) else None
        return session.strip() if isinstance(session, str) else ""
    found = _SESSION_WORD.search(user)
    return found[1] if found else ""


def check_session_id(value: Any, where: str, owner: str = SERVICE) -> str:
    """A session id that a client of this owner sent, as it is. Raises `BadRequest` if it is none."""
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f"{where} must be a session id (a string).", param=where, code="invalid_value")
    identity = value.strip()
    wrong = fault(identity, owner)
    if wrong:
        raise BadRequest(f"{where} {wrong}.", param=where, code="invalid_value")
    return identity


def fault(identity: str, owner: str = SERVICE) -> str:
    """Reason why a text cannot be an owner's session id, "" if it can: `/rl/sessions/{id}` must reach it,
    percent-encoded.
    """
    identity = unowned(identity, owner)
    if len(identity) > MAX_SESSION_ID or not identity.isprintable() or "\ufffd" in identity:
        return f"must be at most {MAX_SESSION_ID} printable characters"
    if MARK in identity:
        return f"must not hold {MARK!r}: what follows it is the owner of a session ({identity!r} is not yours)"
    if identity in (".", ".."):
        return f"must not be {identity!r}: in a URL such as /rl/sessions/{{id}} it is not a name but a direction"
    return ""


def fresh_session(kind: str, owner: str = SERVICE) -> str:
    """An id for a conversation that has none; utility calls have another prefix."""
    return owned(new_id("session" if kind == "main" else "side"), owner)


def is_fresh(session_id: str) -> bool:
    """True if `fresh_session` made an id: a request that names another session may continue it."""
    prefix, _, digits = unowned(session_id, owner_of(session_id)).partition("_")
    return prefix in ("session", "side") and len(digits) == 32
