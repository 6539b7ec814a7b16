"""The `/rl` routes: feedback, outcomes, ends of sessions, and the operator's questions."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from openclaw_rl.proxy.conversation.reactions import EXTENSION
from openclaw_rl.proxy.conversation.session_id import check_session_id
from openclaw_rl.proxy.dialects.headers import turn_digits
from openclaw_rl.proxy.engine.versions import available
from openclaw_rl.proxy.http import limits
from openclaw_rl.proxy.http.body import read_body, read_headers
from openclaw_rl.proxy.http.errors import VISIBLE
from openclaw_rl.proxy.http.json import decode_object, json_response
from openclaw_rl.proxy.routes.status import status_report
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.errors import BadRequest, NotFound
from openclaw_rl.shared.messages.normalize import clean_text
from openclaw_rl.shared.records import Feedback, Outcome, now

_LARGEST_BODY = 1 << 20
_MOST_SESSIONS = 1000
_FEEDBACK_ID = re.compile(r"fb_[A-Za-z0-9]{8,64}")
_OLDEST = 30 * 86400.0


async def feedback(request: Request) -> Response:
    """Explicit feedback on a turn, or on the last main turn answered in a session."""
    service, body = await _read(request)
    score, text, given = _score(body), _text(body, "text"), _given_at(body)
    if score is None and not text:
        raise BadRequest("Feedback needs a score (-1 to 1), a thumb ('up' or 'down') or a text.", param="score")
    if body.get("turn_id") is not None:
        turn_id = turn_id_of(body["turn_id"])
        turn = await service.journal.turn(turn_id)
        if turn is None:
            raise NotFound(f"There is no turn {turn_id!r}.", code="turn_not_found", param="turn_id")
        session_id = turn.session_id
    else:
        session_id = _session_id(request, body)
        turn_id = (await service.sessions.last_main_turn(session_id, before=given)).turn_id
    chosen_id = {"feedback_id": _feedback_id(body)} if body.get("feedback_id") is not None else {}
    source = EXTENSION if body.get("source") in ("command", "reaction") else "api"
    entry = Feedback(
        turn_id=turn_id, session_id=session_id, score=score, text=text, source=source, time=given, **chosen_id
    )
    await service.journal.add_feedback(entry)
    service.metrics.feedback.labels(entry.source).inc()
    answer = {"turn_id": turn_id, "session_id": session_id, "feedback_id": entry.feedback_id, "score": score}
    return await _respond(service, "feedback", answer)


async def outcome(request: Request) -> Response:
    """The final reward of a session; `null` means no verdict. `pending` announces that one will come."""
    service, body = await _read(request)
    session_id = _session_id(request, body)
    if body.get("pending") not in (None, False):
        if body["pending"] is not True or "reward" in body:
            raise BadRequest("pending is true, without a reward, or left out.", param="pending")
        episode = await service.journal.expect_outcome(session_id)
        if episode is None:
            raise NotFound(f"There is no open session {session_id!r}.", code="session_not_found", param="session_id")
        return await _respond(service, "outcome", {"session_id": session_id, "episode": episode, "pending": True})
    if "reward" not in body:
        raise BadRequest("reward is missing: a number, or null for no verdict.", param="reward")
    reward = None if body["reward"] is None else _number(body["reward"], "reward")
    if await service.journal.session(session_id) is None:
        raise NotFound(f"There is no session {session_id!r}.", code="session_not_found", param="session_id")
    await service.journal.add_outcome(Outcome(session_id=session_id, reward=reward, detail=_text(body, "detail")))
    return await _respond(service, "outcome", {"session_id": session_id, "reward": reward})


async def session_done(request: Request) -> Response:
    """The end of a session's episode; the same id may begin a new one.

    It is no error if none is open: clients report ends twice, and ends of sessions that never had a turn here. `ended`
    is false then, and `detail` says why.
    """
    service, body = await _read(request)
    session_id = _session_id(request, body)
    reason = _text(body, "reason") or "session-done"
    episode = await service.sessions.end(session_id, reason, given=_given_at(body))
    detail = "" if episode is not None else await service.sessions.why_not_ended(session_id)
    answer = {"session_id": session_id, "episode": episode, "ended": episode is not None, "detail": detail}
    return await _respond(service, "session-done", answer)


async def status(request: Request) -> Response:
    """The state of the whole service."""
    return json_response(await status_report(_service(request)))


async def sessions(request: Request) -> Response:
    """Sessions, the last seen first."""
    limit = _query(request, "limit", 50, _MOST_SESSIONS)
    rows = await _service(request).journal.sessions(limit, _query(request, "offset", 0, 2**53))
    names = ("session_id", "policy", "main", "side", "settled", "trained", "last_seen")
    listed = [{name: getattr(row, name) for name in names} | {"episodes": len(row.episodes)} for row in rows]
    return json_response({"sessions": listed})


async def session(request: Request) -> Response:
    """One session with its episodes and a line about each turn."""
    session_id = request.path_params["session_id"]
    row = await _service(request).journal.session(session_id)
    if row is None:
        raise NotFound(f"There is no session {session_id!r}.", code="session_not_found")
    return json_response(msgspec.to_builtins(row))


async def forget(request: Request) -> Response:
    """Delete a session's content and everything derived from it."""
    session_id = request.path_params["session_id"]
    versions = await _service(request).sessions.forget(session_id)
    return json_response({"session_id": session_id, "forgotten": True, "versions": versions})


async def turn(request: Request) -> Response:
    """Everything about a turn; takes the ids of chat completions too."""
    turn_id = turn_id_of(request.path_params["turn_id"])
    explained = await _service(request).journal.explain(turn_id)
    if explained is None:
        raise NotFound(f"There is no turn {turn_id!r}.", code="turn_not_found")
    return json_response(explained)


async def versions(request: Request) -> Response:
    """Every version of the policy; `available`: it can be made live."""
    rows = await _service(request).journal.versions()
    listed = [{**msgspec.to_builtins(row), "available": await asyncio.to_thread(available, row)} for row in rows]
    return json_response({"versions": listed})


async def promote(request: Request) -> Response:
    """Make a version live: new requests use it, the learner continues from it."""
    number = request.path_params["number"]
    if not number.isascii() or not number.isdigit() or len(number) > 15:
        raise BadRequest(f"{number!r} is no version number.", param="number")
    return json_response(await _service(request).versions.promote(int(number)))


async def pause(request: Request) -> Response:
    """Stop training after the step in progress; chat and capture continue."""
    return await _train(request, "paused")


async def resume(request: Request) -> Response:
    """Train again."""
    return await _train(request, "running")


ROUTES: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("/feedback", "POST", feedback),
    ("/outcome", "POST", outcome),
    ("/session-done", "POST", session_done),
    ("/pause", "POST", pause),
    ("/resume", "POST", resume),
    ("/status", "GET", status),
    ("/sessions", "GET", sessions),
    ("/sessions/{session_id:path}", "GET", session),
    ("/sessions/{session_id:path}", "DELETE", forget),
    ("/turns/{turn_id}", "GET", turn),
    ("/versions", "GET", versions),
    ("/versions/{number}/promote", "POST", promote),
)


def turn_id_of(value: Any) -> str:
    """A turn's id, or the id of its answer (`chatcmpl-…`, `resp_…`, `msg_…`), as a turn's id. Raises `BadRequest`."""
    if not isinstance(value, str) or not value:
        raise BadRequest("turn_id must be a string.", param="turn_id")
    value = clean_text(value)
    digits = turn_digits(value)
    return value if digits == value else f"turn_{digits}"


def _service(request: Request) -> ProxyService:
    service: ProxyService = request.app.state.service
    return service


async def _read(request: Request) -> tuple[ProxyService, dict[str, Any]]:
    """The service and the request's body, which may be empty."""
    service = _service(request)
    data = await read_body(request.receive, request.headers, _LARGEST_BODY, limits.CLIENT_SECONDS)
    return service, decode_object(data) if data.strip() else {}


async def _respond(service: ProxyService, reason: str, answer: dict[str, Any]) -> Response:
    """The response to a client; counted with the chat requests."""
    await service.recorder.count("control", reason)
    session_id = quote(answer["session_id"], safe=VISIBLE)
    headers = {"x-openclaw-rl-kind": "control", "x-openclaw-rl-reason": reason, "x-openclaw-rl-session": session_id}
    return json_response(answer, headers=headers)


async def _train(request: Request, state: str) -> Response:
    service = _service(request)
    await service.journal.set_control("train", state)
    return json_response({"training": state if service.settings.learning.train else "off"})


def _session_id(request: Request, body: Mapping[str, Any]) -> str:
    value = body.get("session_id") or read_headers(request.scope).get("x-session-id")
    if value is None:
        raise BadRequest("session_id is missing: put it in the body or in the header X-Session-Id.", param="session_id")
    return check_session_id(value, "session_id")


def _score(body: Mapping[str, Any]) -> float | None:
    thumb = body.get("thumb")
    if thumb is not None:
        if thumb not in ("up", "down"):
            raise BadRequest("thumb must be 'up' or 'down'.", param="thumb")
        return 1.0 if thumb == "up" else -1.0
    if body.get("score") is None:
        return None
    score = _number(body["score"], "score")
    if not -1.0 <= score <= 1.0:
        raise BadRequest(f"score is {score:g}; it must be between -1 and 1.", param="score")
    return score


def _given_at(body: Mapping[str, Any]) -> float:
    """When the client's user acted, in Unix seconds: `age_seconds` ago where it could not be delivered at once."""
    age = 0.0 if body.get("age_seconds") is None else _number(body["age_seconds"], "age_seconds")
    if not 0 <= age <= _OLDEST:
        raise BadRequest(f"age_seconds is {age:g}; it must be between 0 and {_OLDEST:g}.", param="age_seconds")
    return now() - age


def _feedback_id(body: Mapping[str, Any]) -> str:
    """The id that a client chose for its feedback, which counts once however often it is sent."""
    value = body["feedback_id"]
    if not isinstance(value, str) or not _FEEDBACK_ID.fullmatch(value):
        raise BadRequest("feedback_id must be fb_ and 8 to 64 letters or digits.", param="feedback_id")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer of hundreds of digits
            number = float(value)
            if math.isfinite(number):
                return number
    raise BadRequest(f"{name} must be a number.", param=name)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} must be a string.", param=name)
    return clean_text(value or "")


def _query(request: Request, name: str, default: int, most: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > len(str(most)) or int(value) > most:
        raise BadRequest(f"{name} must be a whole number from 0 to {most}.", param=name)
    return int(value)
