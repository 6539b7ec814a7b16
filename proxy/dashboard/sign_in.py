"""The routes by which a person signs in to the dashboard and out again: a ticket or a key for a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from openclaw_rl.proxy.dashboard.pages import PRIVATE_HEADERS, UI
from openclaw_rl.proxy.dashboard.tickets import Tickets
from openclaw_rl.proxy.http.auth import Admission, Caller, sent_key
from openclaw_rl.proxy.http.body import read_body, read_headers
from openclaw_rl.proxy.http.json import decode_object, json_response, read_fields
from openclaw_rl.proxy.http.tokens import PREFIX
from openclaw_rl.shared.errors import BadRequest, Forbidden, Unauthorized
from openclaw_rl.shared.owners import SERVICE_NAME

TOKEN_SECONDS = 12 * 3600.0
STAY_SECONDS = 7 * 24 * 3600.0
_LARGEST_BODY = 1 << 16
_BODY_SECONDS = 10.0


class _SignInBody(msgspec.Struct):
    """A ticket or a key; `stay`: signed in for a week."""

    ticket: str = ""
    key: str = ""
    stay: bool = False


async def issue_ticket(request: Request) -> Response:
    """A ticket for the caller's key, and the page's address with it. Raises `Forbidden` for a token: it would never
    end.
    """
    caller: Caller = request.scope["caller"]
    if caller.signed_in:
        raise Forbidden("A ticket is for the admin key itself: openclaw-rl dashboard")
    ticket, expires = _tickets(request).issue(caller)
    url = f"{request.url.scheme}://{request.url.netloc}{UI}/#ticket={ticket}"
    return _answer({"ticket": ticket, "url": url, "expires": expires})


async def issue_token(request: Request) -> Response:
    """A token for a ticket or a key; with a token as bearer and neither, that token, whose time `stay` decides. Raises
    `Unauthorized` and `Forbidden`.
    """
    headers = read_headers(request.scope)
    body = await read_body(request.receive, headers, _LARGEST_BODY, _BODY_SECONDS)
    fields = read_fields(decode_object(body), _SignInBody)
    admission = _admission(request)
    seconds = STAY_SECONDS if fields.stay else TOKEN_SECONDS
    sent = sent_key(headers)
    if not fields.ticket and not fields.key and sent.startswith(PREFIX):
        return _signed_in(sent, *await asyncio.to_thread(admission.keep_token, sent, seconds))
    if bool(fields.ticket) == bool(fields.key):
        raise BadRequest("Signing in takes a ticket or a key.", param="ticket")
    caller = _tickets(request).redeem(fields.ticket) if fields.ticket else admission.sign_in(fields.key)
    if caller is None:
        raise Unauthorized(
            "The ticket was used, is older than five minutes, or is none of this service. For another one: "
            "openclaw-rl dashboard",
            code="invalid_ticket",
        )
    token, expires = await asyncio.to_thread(admission.issue_token, caller, seconds)
    return _signed_in(token, caller, expires)


async def revoke_token(request: Request) -> Response:
    """End the token that the request carries; with the admin key itself, all of them."""
    sent, caller = sent_key(read_headers(request.scope)), request.scope["caller"]
    if not sent.startswith(PREFIX) and not caller.admin:
        raise Forbidden("Ending all sign-ins takes the admin key.")
    token = sent if sent.startswith(PREFIX) else None
    return _answer({"revoked": await asyncio.to_thread(_admission(request).revoke_tokens, token)})


ROUTES: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("/dashboard/ticket", "POST", issue_ticket),
    ("/dashboard/token", "POST", issue_token),
    ("/dashboard/token", "DELETE", revoke_token),
)
"""Path under `/rl`, method, endpoint."""


def _signed_in(token: str, caller: Caller, expires: float) -> Response:
    owner = caller.owner or SERVICE_NAME
    return _answer({"token": token, "expires": expires, "owner": owner, "admin": caller.admin})


def _answer(content: dict[str, Any]) -> Response:
    return json_response(content, headers=PRIVATE_HEADERS | {"cache-control": "no-store"})


def _admission(request: Request) -> Admission:
    admission: Admission = request.app.state.admission
    return admission


def _tickets(request: Request) -> Tickets:
    tickets: Tickets = request.app.state.tickets
    return tickets
