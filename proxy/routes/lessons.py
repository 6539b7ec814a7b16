"""The routes of what was learned: versions with their lessons, wishes, verdicts of people, and events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openclaw_rl.proxy.engine.versions import available
from openclaw_rl.proxy.http.json import json_response, read_fields
from openclaw_rl.proxy.routes.caller import owner_seen, require_admin, service_of
from openclaw_rl.shared.errors import BadRequest, NotFound


class _VerdictQuery(msgspec.Struct):
    by: Literal["version", "day"] = "version"


class _EventQuery(msgspec.Struct):
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None


async def version(request: Request) -> Response:
    """A version with the turns that it learned from; of those of others the caller sees no words."""
    number = _number(request.path_params["number"], "version")
    journal, owner = service_of(request).journal, owner_seen(request)
    found = await journal.version(number)
    if found is None:
        raise NotFound(f"There is no version {number}.", code="version_not_found")
    lessons = [one for one in await journal.version_lessons(number) if one.pop("owner") == owner or owner is None]
    shown: dict[str, Any] = msgspec.to_builtins(found)
    counts = {name: int(found.metrics.get(f"mix/{name}", 0)) for name in ("rehearsals", "anchors")}
    return json_response(
        {**shown, "available": await asyncio.to_thread(available, found), "lessons": lessons, **counts}
    )


async def wishes(request: Request) -> Response:
    """The wishes of people in words, the last said first."""
    found = await service_of(request).journal.wishes(owner_seen(request))
    return json_response({"total": len(found), "next": None, "items": found})


async def drop_wish(request: Request) -> Response:
    """Never teach a wish again."""
    require_admin(request)
    wish = request.path_params["wish"]
    known = {one["id"] for one in await service_of(request).journal.wishes()}
    if wish not in known:
        raise NotFound(f"There is no wish {wish!r}.", code="wish_not_found")
    await service_of(request).journal.drop_wish(int(wish))
    return json_response({"id": wish, "state": "dropped"})


async def verdicts(request: Request) -> Response:
    """The verdicts of people on the answers, by version or day."""
    query = read_fields(request.query_params, _VerdictQuery)
    found = await service_of(request).journal.verdicts(query.by, owner_seen(request))
    return json_response({"total": len(found), "next": None, "items": found})


async def events(request: Request) -> Response:
    """Changes from now on, or after an event, without content: server-sent events."""
    sent = dict(request.query_params)
    sent.setdefault("after", request.headers.get("last-event-id", ""))
    query = read_fields({name: value for name, value in sent.items() if value}, _EventQuery, strict=False)
    feed = service_of(request).events
    feed.check_room()
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(
        feed.listen(query.after, owner_seen(request)), media_type="text/event-stream", headers=headers
    )


def _number(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise BadRequest(f"{text!r} is no {what} number.", param="number")
    return int(text)


ROUTES: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("/versions/{number}", "GET", version),
    ("/wishes", "GET", wishes),
    ("/wishes/{wish}", "DELETE", drop_wish),
    ("/verdicts", "GET", verdicts),
    ("/events", "GET", events),
)
