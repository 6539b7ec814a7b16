"""The routes of conversations: lists, transcripts, turns with their story, and what is never to be learned from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from openclaw_rl.proxy.http.json import json_response, read_fields
from openclaw_rl.proxy.routes.caller import owner_seen, path_turn, seen_session, service_of
from openclaw_rl.proxy.routes.story import story
from openclaw_rl.shared.errors import BadRequest, NotFound
from openclaw_rl.shared.journal.conversations import SessionFilter
from openclaw_rl.shared.records import Turn
from openclaw_rl.shared.rendering.prompter import Prompter


class _SessionQuery(msgspec.Struct):
    limit: Annotated[int, Meta(ge=0, le=1000)] = 50
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    after: Annotated[str, Meta(pattern=r"\A(\d+(\.\d+)?(e\d+)?:\d{1,15})?\Z")] = ""
    query: Annotated[str, Meta(max_length=200)] = ""
    state: Literal["", "open", "ended"] = ""
    source: Annotated[str, Meta(max_length=64)] = ""
    day: str = ""
    review: bool = False


class _TranscriptQuery(msgspec.Struct):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0


class _TurnQuery(msgspec.Struct):
    tokens: bool = False


async def sessions(request: Request) -> Response:
    """The caller's sessions, the last seen first, in pages."""
    query = read_fields(request.query_params, _SessionQuery, strict=False)
    if query.day:
        _check_day(query.day)
    wanted = SessionFilter(query.query, query.state, query.source, query.day, query.review, owner_seen(request))
    page = await service_of(request).journal.session_page(wanted, query.limit, query.offset, query.after)
    return json_response(page)


def _check_day(day: str) -> None:
    """Raise `BadRequest` for anything but a day such as 2026-01-31."""
    try:
        date.fromisoformat(day)
    except ValueError as error:
        raise BadRequest(f"day is {day[:60]!r}: write it as 2026-01-31.", param="day") from error


async def transcript(request: Request) -> Response:
    """The turns of a session in words, in pages."""
    query = read_fields(request.query_params, _TranscriptQuery, strict=False)
    session_id = await seen_session(request)
    page = await service_of(request).journal.transcript(session_id, query.limit, query.after)
    if page is None:
        raise NotFound(f"There is no session {session_id!r}.", code="session_not_found")
    return json_response(page)


async def consequences(request: Request) -> Response:
    """The turns that forgetting a session would delete, and the versions that learned directly from it."""
    session_id = await seen_session(request)
    found = await service_of(request).journal.forgettable(session_id=session_id)
    return json_response({"turns": found.turns, "versions": found.versions})


async def turn(request: Request) -> Response:
    """Everything about a turn, with its story; takes the ids of chat completions too. Token ids with `tokens`."""
    query = read_fields(request.query_params, _TurnQuery, strict=False)
    turn_id = await path_turn(request)
    explained = await service_of(request).journal.explain(turn_id, tokens=query.tokens)
    if explained is None:
        raise NotFound(f"There is no turn {turn_id!r}.", code="turn_not_found")
    sentences = await asyncio.to_thread(lambda: list(story(explained)))  # texts may be long
    return json_response({**explained, "story": sentences})


async def tokens(request: Request) -> Response:
    """The pieces of an answer with the logprob and advantage of each token, and whether a version learned from it."""
    turn_id = await path_turn(request)
    service = service_of(request)
    found, explained = await service.journal.turn(turn_id), await service.journal.explain(turn_id, tokens=False)
    if found is None or explained is None:
        raise NotFound(f"There is no turn {turn_id!r}.", code="turn_not_found")
    learned = [one for one in explained["samples"] if one["state"] == "consumed"]
    pieces = await asyncio.to_thread(_pieces, service.prompter, found, learned)
    return json_response({"pieces": pieces})


def _pieces(prompter: Prompter, turn: Turn, learned: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    advantage = learned[-1].get("advantage") if learned else None
    texts = token_texts(prompter.decode, turn.response_ids)
    logprobs = list(turn.logprobs) if len(turn.logprobs) == len(texts) else [None] * len(texts)
    return [
        {"text": text, "logprob": logprob, "advantage": advantage, "trained": bool(learned)}
        for text, logprob in zip(texts, logprobs, strict=True)
    ]


def token_texts(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[str]:
    """The text that each token adds. A character of several tokens is with the last of them; only the last tokens are
    decoded each time, so that a long answer takes no longer a token than a short one.
    """
    texts: list[str] = []
    start = 0
    for end in range(1, len(ids) + 1):
        text = decode(ids[start:end])
        before = decode(ids[start : end - 1]) if end - 1 > start else ""
        unfinished = text.endswith("\N{REPLACEMENT CHARACTER}") and end < len(ids)
        texts.append("" if unfinished else text[len(before.rstrip("\N{REPLACEMENT CHARACTER}")) :])
        if not unfinished:
            start = max(start, end - 4) if end - start > 8 else start
    return texts


async def exclude(request: Request, *, excluded: bool) -> Response:
    """Never learn from a turn; or take that back (`excluded` false)."""
    turn_id = await path_turn(request)
    journal = service_of(request).journal
    await (journal.exclude(turn_id) if excluded else journal.include(turn_id))
    return json_response({"turn_id": turn_id, "excluded": excluded})


ROUTES: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("/sessions", "GET", sessions),
    ("/sessions/{session_id:path}/transcript", "GET", transcript),
    ("/sessions/{session_id:path}/consequences", "GET", consequences),
    ("/turns/{turn_id}", "GET", turn),
    ("/turns/{turn_id}/tokens", "GET", tokens),
    ("/turns/{turn_id}/exclude", "POST", partial(exclude, excluded=True)),
    ("/turns/{turn_id}/exclude", "DELETE", partial(exclude, excluded=False)),
)
