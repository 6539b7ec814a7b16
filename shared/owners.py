"""Owners of sessions: whose key a conversation was made with. The id of a session says who owns it.

Sessions of the service's own keys have the ids that clients gave them; all others end with a mark and their owner's
name, so that two owners who choose the same id have two sessions.
"""

from __future__ import annotations

SERVICE = ""
"""The owner of what is made with the keys of the settings, and of everything that is older than owners are."""

SERVICE_NAME = "service"
"""Its name for people."""

MARK = "@@"


def owner_of(session_id: str) -> str:
    """The owner of a session."""
    return session_id.rpartition(MARK)[2] if MARK in session_id else SERVICE


def owned(session_id: str, owner: str) -> str:
    """The session that an owner means by an id, which may be the whole one already."""
    if owner == SERVICE or owner_of(session_id) == owner:
        return session_id
    return f"{session_id}{MARK}{owner}"


def unowned(session_id: str, owner: str) -> str:
    """The part of an id that its owner chose."""
    return session_id.removesuffix(MARK + owner) if owner != SERVICE else session_id


def why_no_owner(name: str) -> str:
    """Reason why a text cannot name an owner, "" if it can."""
    if not name or not name.isprintable() or len(name) > 64 or name != name.strip():
        return "it must have 1 to 64 printable characters"
    if MARK in name or name.startswith("@"):
        return f"it must not begin with @ or hold {MARK}, which stands before an owner in the ids of sessions"
    return ""
