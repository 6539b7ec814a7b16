"""The `/rl` routes: feedback, outcomes, ends of sessions, and the operator's questions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from openclaw_rl.proxy.conversation.recorder import EXTENSION
from openclaw_rl.proxy.conversation.session_id import check_session_id, fault
from openclaw_rl.proxy.engine.versions import available
from openclaw_rl.proxy.http import limits
from openclaw_rl.proxy.http.auth import Admission
from openclaw_rl.proxy.http.body import read_body, read_headers
from openclaw_rl.proxy.http.errors import VISIBLE
from openclaw_rl.proxy.http.json import Fields, decode_object, json_response, read_fields
from openclaw_rl.proxy.routes.caller import caller_of, is_seen, path_session, service_of, turn_id_of
from openclaw_rl.proxy.routes.status import status_report
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.errors import BadRequest, Conflict, NotFound
from openclaw_rl.shared.journal.serving import pin_reason
from openclaw_rl.shared.journal.status import PAUSE_REASON
from openclaw_rl.shared.messages.normalize import clean_text
from openclaw_rl.shared.owners import MARK, owned, owner_of
from openclaw_rl.shared.records import Feedback, Outcome, new_id, now

_LARGEST_BODY = 1 << 20
_LARGEST_NUMBER = sys.float_info.max
_LARGEST_COUNT = 2**53
_LONGEST_TASK = 1024
_LATE_SECONDS = 1.0
"""Feedback of this age was delivered late, after a retry: others may have been given since."""
_FORGET_SECONDS = 10.0
"""A request to forget takes about so long at most."""


class _Action(msgspec.Struct):
    """An action of a client's user in a session, `age_seconds` ago if it could not be delivered at once."""

    session_id: Any = None
    age_seconds: Annotated[float, Meta(ge=0, le=30 * 86400)] = 0.0


class _FeedbackBody(_Action):
    """`feedback_id` is an id that the client chose: its feedback counts once, however often it is sent."""

    turn_id: Annotated[str, Meta(min_length=1)] | None = None
    score: Annotated[float, Meta(ge=-1, le=1)] | None = None
    thumb: Literal["up", "down"] | None = None
    text: str = ""
    source: Any = None
    feedback_id: Annotated[str, Meta(pattern=r"\Afb_[A-Za-z0-9]{8,64}\Z")] | None = None


class _OutcomeBody(_Action):
    episode: Annotated[int, Meta(ge=0, le=_LARGEST_COUNT)] | None = None
    reward: Annotated[float, Meta(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)] | None = None
    pending: bool = False
    detail: str | dict[str, Any] = ""
    next_state: str = ""
    done: bool = False


class _StartBody(msgspec.Struct):
    """An attempt that an environment begins; `attempts` is the number of members that its `group` is to have."""

    session_id: Any = None
    task: Annotated[str, Meta(max_length=_LONGEST_TASK)] = ""
    group: str | None = None
    attempts: Annotated[int, Meta(ge=0, le=_LARGEST_COUNT)] = 0
    train: bool = True


class _ForgetBody(msgspec.Struct):
    session_id: str | None = None
    before: Annotated[float, Meta(ge=0, le=_LARGEST_NUMBER)] | None = None
    preview: bool = False


class _PromoteQuery(msgspec.Struct):
    release: bool = False
    pin: bool = False


class _DoneBody(_Action):
    reason: str = ""


async def feedback(request: Request) -> Response:
    """Explicit feedback on a turn, or on the last main turn answered in a session."""
    service, _, fields = await _read(request, _FeedbackBody)
    score = {"up": 1.0, "down": -1.0}[fields.thumb] if fields.thumb else fields.score
    text, given = clean_text(fields.text), now() - fields.age_seconds
    if score is None and not text:
        raise BadRequest("Feedback needs a score (-1 to 1), a thumb ('up' or 'down') or a text.", param="score")
    if fields.turn_id is not None:
        turn_id = turn_id_of(fields.turn_id)
        turn = await service.journal.turn(turn_id) if await is_seen(request, turn_id) else None
        if turn is None:
            raise NotFound(f"There is no turn {turn_id!r}.", code="turn_not_found", param="turn_id")
        session_id = turn.session_id
    else:
        session_id = _session_id(request, fields)
        turn_id = (await service.sessions.last_main_turn(session_id, before=given)).turn_id
    chosen_id = {"feedback_id": fields.feedback_id} if fields.feedback_id else {}
    source = EXTENSION if fields.source in ("command", "reaction") else "api"
    entry = Feedback(
        turn_id=turn_id, session_id=session_id, score=score, text=text, source=source, time=given, **chosen_id
    )
    await service.journal.add_feedback(entry, late=fields.age_seconds > _LATE_SECONDS)
    service.metrics.feedback.labels(entry.source).inc()
    answer = {"turn_id": turn_id, "session_id": session_id, "feedback_id": entry.feedback_id, "score": score}
    return await _respond(service, "feedback", answer)


async def outcome(request: Request) -> Response:
    """The final reward of an episode; `null` means no verdict. `pending` announces that one will come."""
    service, body, fields = await _read(request, _OutcomeBody)
    session_id = _session_id(request, fields)
    if fields.pending:
        if "reward" in body:
            raise BadRequest("pending is true, without a reward, or left out.", param="pending")
        episode = await service.journal.expect_outcome(session_id)
        if episode is None:
            raise NotFound(f"There is no open session {session_id!r}.", code="session_not_found", param="session_id")
        return await _respond(service, "outcome", {"session_id": session_id, "episode": episode, "pending": True})
    if "reward" not in body:
        raise BadRequest("reward is missing: a number, or null for no verdict.", param="reward")
    episode = await _judged_episode(service, session_id, fields.episode)
    detail = fields.detail if isinstance(fields.detail, str) else msgspec.json.encode(fields.detail).decode()
    given = Outcome(
        session_id=session_id,
        episode=episode,
        reward=fields.reward,
        detail=clean_text(detail),
        next_state=clean_text(fields.next_state).strip() or None,
        done=fields.done,
    )
    await service.journal.add_outcome(given)
    if given.done:
        service.session_limit.left(session_id)
    return await _respond(service, "outcome", {"session_id": session_id, "episode": episode, "reward": fields.reward})


async def _judged_episode(service: ProxyService, session_id: str, named: int | None) -> int:
    """The episode that an outcome is about. A session may see several attempts, and an outcome of one that is over may
    come late: then it has to be named. Raises `NotFound`, or `BadRequest` where it is not.
    """
    row = await service.journal.session(session_id, turns=False)
    if row is None:
        raise NotFound(f"There is no session {session_id!r}.", code="session_not_found", param="session_id")
    if named is not None:
        if all(one.episode != named for one in row.episodes):
            raise NotFound(f"Session {session_id!r} has no episode {named}.", param="episode")
        return named
    judged = await service.journal.judged_episodes(session_id)
    if len(judged) > 1 and any(one.environment for one in row.episodes):
        raise BadRequest(
            f"Session {session_id!r} has several episodes: say which one the outcome is about ({judged}).",
            param="episode",
        )
    return max(judged, default=row.episodes[-1].episode if row.episodes else 0)


async def session_start(request: Request) -> Response:
    """The beginning of an attempt: an episode, and a key for the agent that works in it. Its outcome is expected from
    now on.
    """
    service, _, fields = await _read(request, _StartBody)
    caller = caller_of(request)
    asked = fields.session_id if fields.session_id is not None else new_id("attempt")
    session_id = owned(check_session_id(asked, "session_id", caller.owner), caller.owner)
    if fields.attempts and fields.group is None:
        raise BadRequest("attempts is the number of members of a group: name the group.", param="attempts")
    train = fields.train and service.settings.serve.capture
    said: dict[str, Any] = {}
    if train:
        said["task"] = clean_text(fields.task)
    if train and fields.group is not None:
        group = owned(_group(fields.group, caller.owner), caller.owner)
        said |= {"group": group, "attempts": fields.attempts}
        if any(member != (said["task"], fields.attempts) for member in await service.journal.group_members(group)):
            raise Conflict(
                f"The group {fields.group!r} has another task or number of attempts: a group is several attempts at "
                "one task, and its name belongs to it alone.",
                code="another_group",
                param="group",
            )
    attempt = await service.journal.begin_attempt(session_id, service.recorder.policy, train=train, **said)
    if attempt is None:
        raise Conflict(
            f"Session {session_id!r} has an open episode: end it (POST /rl/session-done), or leave session_id out.",
            code="session_is_open",
            param="session_id",
        )
    admission: Admission = request.app.state.admission
    answer = {"session_id": session_id, "episode": attempt.episode, "api_key": admission.episode_key(caller, attempt)}
    return await _respond(service, "session-start", answer)


def _group(name: str, owner: str) -> str:
    """The name of a group that a caller of this owner sent. Raises `BadRequest`."""
    name = name.strip()
    wrong = fault(name, owner) if name else "must not be empty"
    if wrong:
        raise BadRequest(f"group {wrong}.", param="group", code="invalid_value")
    return name


async def session_done(request: Request) -> Response:
    """The end of a session's episode; the same id may begin a new one.

    It is no error if none is open: clients report ends twice, and ends of sessions that never had a turn here. `ended`
    is false then, and `detail` says why.
    """
    service, _, fields = await _read(request, _DoneBody)
    session_id = _session_id(request, fields)
    reason = clean_text(fields.reason) or "session-done"
    episode = await service.sessions.end(session_id, reason, given=now() - fields.age_seconds)
    detail = "" if episode is not None else await service.sessions.why_not_ended(session_id)
    answer = {"session_id": session_id, "episode": episode, "ended": episode is not None, "detail": detail}
    return await _respond(service, "session-done", answer)


async def status(request: Request) -> Response:
    """The state of the whole service."""
    return json_response(await status_report(service_of(request)))


async def session(request: Request) -> Response:
    """One session with its episodes and a line about each turn."""
    session_id = path_session(request)
    row = await service_of(request).journal.session(session_id)
    if row is None or not caller_of(request).sees(row.owner):
        raise NotFound(f"There is no session {session_id!r}.", code="session_not_found")
    return json_response(msgspec.to_builtins(row))


async def forget(request: Request) -> Response:
    """Delete a session's content and everything derived from it."""
    session_id = path_session(request)
    versions, pending = await service_of(request).sessions.forget(session_id)
    return json_response({"session_id": session_id, "forgotten": True, "pending": pending, "versions": versions})


async def forget_some(request: Request) -> Response:
    """Forget a session, or the episodes without a turn since a time (Unix seconds), of which `left` remain: ask again.
    With `preview` nothing is deleted.
    """
    service, _, fields = await _read(request, _ForgetBody)
    if (fields.session_id is None) == (fields.before is None):
        raise BadRequest("Name either session_id or before.", param="before")
    before, left = fields.before or 0.0, 0
    if fields.session_id is None and not fields.preview:
        found, left = await service.sessions.forget_before(before, _FORGET_SECONDS)
    else:
        found = await service.journal.forgettable(session_id=fields.session_id, before=before)
        if fields.preview:
            left = found.episodes
        elif fields.session_id is not None:
            _, found.pending = await service.sessions.forget(fields.session_id)
    return json_response({**msgspec.to_builtins(found), "left": left})


async def turn_answer(request: Request) -> Response:
    """The answer of a complete turn alone: history items that a client only names are read here."""
    turn_id = turn_id_of(request.path_params["turn_id"])
    answer = await service_of(request).journal.answer(turn_id) if await is_seen(request, turn_id) else None
    if answer is None:
        raise NotFound(f"There is no complete turn {turn_id!r}.", code="turn_not_found")
    return json_response({"turn_id": turn_id, "answer": answer})


async def versions(request: Request) -> Response:
    """Every version of the policy; `available`: it can be made live."""
    rows = await service_of(request).journal.versions()
    listed = [{**msgspec.to_builtins(row), "available": await asyncio.to_thread(available, row)} for row in rows]
    return json_response({"versions": listed})


async def promote(request: Request) -> Response:
    """Make a version live: new requests use it, the learner continues from it."""
    number = request.path_params["number"]
    if not number.isascii() or not number.isdigit() or len(number) > 15:
        raise BadRequest(f"{number!r} is no version number.", param="number")
    query = read_fields(request.query_params, _PromoteQuery, strict=False)
    promoted = await service_of(request).versions.promote(int(number), release=query.release, pin=query.pin)
    return json_response(promoted)


async def unpin(request: Request) -> Response:
    """Let other versions than the pinned one go live again; learning continues if the pin had paused it."""
    service = service_of(request)
    number = await service.journal.unpin()
    state = await service.journal.get_control("train", "running")
    return json_response({"unpinned": number, "training": state if service.settings.learning.train else "off"})


async def train(request: Request, state: str) -> Response:
    """Pause training after the step in progress, while chat and capture continue; or train again (`running`)."""
    service = service_of(request)
    kept = await service.journal.pinned()
    if kept is not None and state == "running":
        raise Conflict(f"Training waits: {pin_reason(kept)}.", code="pinned")
    await service.journal.set_control(PAUSE_REASON, "")
    await service.journal.set_control("train", state)
    return json_response({"training": state if service.settings.learning.train else "off"})


ROUTES: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("/feedback", "POST", feedback),
    ("/session-start", "POST", session_start),
    ("/outcome", "POST", outcome),
    ("/session-done", "POST", session_done),
    ("/pause", "POST", partial(train, state="paused")),
    ("/resume", "POST", partial(train, state="running")),
    ("/status", "GET", status),
    ("/sessions/{session_id:path}", "GET", session),
    ("/sessions/{session_id:path}", "DELETE", forget),
    ("/forget", "POST", forget_some),
    ("/turns/{turn_id}/answer", "GET", turn_answer),
    ("/versions", "GET", versions),
    ("/versions/{number}/promote", "POST", promote),
    ("/unpin", "POST", unpin),
)


async def _read(request: Request, fields: type[Fields]) -> tuple[ProxyService, dict[str, Any], Fields]:
    """The service, the request's body, which may be empty, and the fields in it."""
    data = await read_body(request.receive, request.headers, _LARGEST_BODY, limits.CLIENT_SECONDS)
    body = decode_object(data) if data.strip() else {}
    return service_of(request), body, read_fields(body, fields)


async def _respond(service: ProxyService, reason: str, answer: dict[str, Any]) -> Response:
    """The response to a client; counted with the chat requests."""
    await service.recorder.count("control", reason)
    session_id = quote(answer["session_id"], safe=VISIBLE)
    headers = {"x-openclaw-rl-kind": "control", "x-openclaw-rl-reason": reason, "x-openclaw-rl-session": session_id}
    return json_response(answer, headers=headers)


def _session_id(request: Request, fields: _Action) -> str:
    value = fields.session_id or read_headers(request.scope).get("x-session-id")
    if value is None:
        raise BadRequest("session_id is missing: put it in the body or in the header X-Session-Id.", param="session_id")
    caller = caller_of(request)
    owner = caller.owner
    if caller.admin and isinstance(value, str) and MARK in value:  # another's, by its whole id
        owner = owner_of(value.strip())
    return owned(check_session_id(value, "session_id", owner), owner)
