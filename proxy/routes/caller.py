"""The caller of a control route, and the turns and sessions that are there for it."""

from __future__ import annotations

from starlette.requests import Request

from openclaw_rl.proxy.dialects.headers import ANSWER_PREFIX
from openclaw_rl.proxy.http.auth import Caller
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.errors import Forbidden, NotFound
from openclaw_rl.shared.messages.normalize import clean_text
from openclaw_rl.shared.owners import owned


def service_of(request: Request) -> ProxyService:
    """The service that was asked."""
    service: ProxyService = request.app.state.service
    return service


def caller_of(request: Request) -> Caller:
    """The sender of a request."""
    caller: Caller = request.scope["caller"]
    return caller


def owner_seen(request: Request) -> str | None:
    """The owner whose sessions the caller may see; `None`: all."""
    caller = caller_of(request)
    return None if caller.admin else caller.owner


def require_admin(request: Request) -> None:
    """Raise `Forbidden` unless the caller may see what concerns the whole service."""
    if not caller_of(request).admin:
        raise Forbidden(f"{request.url.path} is about the whole service: it takes a key with the scope admin.")


def turn_id_of(identity: str) -> str:
    """A turn's id, or the id of its answer (`chatcmpl-…`, `resp_…`, `msg_…`), as a turn's id."""
    return ANSWER_PREFIX.sub("turn_", clean_text(identity))


async def is_seen(request: Request, turn_id: str) -> bool:
    """True if there is such a turn for the caller: one of another owner does not exist for it."""
    ref, caller = await service_of(request).journal.turn_ref(turn_id), caller_of(request)
    if ref is None or caller.attempt is None:
        return ref is not None and caller.sees(ref.owner)
    return (ref.session_id, ref.episode) == (caller.attempt.session_id, caller.attempt.episode)


async def path_turn(request: Request) -> str:
    """The turn that the path names. Raises `NotFound` where there is none for the caller."""
    turn_id = turn_id_of(request.path_params["turn_id"])
    if not await is_seen(request, turn_id):
        raise NotFound(f"There is no turn {turn_id!r}.", code="turn_not_found")
    return turn_id


def path_session(request: Request) -> str:
    """The session that the caller names in the path; an admin names it as it is."""
    caller, named = caller_of(request), str(request.path_params["session_id"])
    return named if caller.admin else owned(named, caller.owner)


async def seen_session(request: Request) -> str:
    """The session that the path names. Raises `NotFound` where there is none for the caller."""
    session_id = path_session(request)
    row = await service_of(request).journal.session(session_id, turns=False)
    if row is None or not caller_of(request).sees(row.owner):
        raise NotFound(f"There is no session {session_id!r}.", code="session_not_found")
    return session_id
