"""A chat request on its way to an answer: bytes, `ChatRequest`, `PlacedRequest`, `RenderedRequest`.

Each stage adds what it found to the one before. `RequestParser.parse` reads what the client sent, `place` finds session
and parent, `proxy.chat.prompt` writes the prompt. Nothing is stored before the answer begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from openclaw_rl.proxy.chat.parameters import Parameters, read_parameters, read_thinking
from openclaw_rl.proxy.conversation.bridge import Written
from openclaw_rl.proxy.conversation.chain import Chain, Chains
from openclaw_rl.proxy.conversation.classify import (
    ASIDE,
    FEEDBACK,
    UNMARKED,
    Evidence,
    TurnClass,
    classify,
    may_be_aside,
    own_rules,
)
from openclaw_rl.proxy.conversation.placement import Conversations, TurnPlacement
from openclaw_rl.proxy.conversation.programs.openclaw import ChannelReaction, reactions
from openclaw_rl.proxy.conversation.programs.purpose_headers import metadata_purposes
from openclaw_rl.proxy.conversation.session_id import session_of
from openclaw_rl.proxy.dialects.headers import ROUTED_HEADER
from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.proxy.http.auth import Caller
from openclaw_rl.proxy.http.json import decode_object
from openclaw_rl.shared.errors import BadRequest, Forbidden, JournalError
from openclaw_rl.shared.journal import OpenAttempt
from openclaw_rl.shared.journal.signals import frame_of
from openclaw_rl.shared.messages.normalize import ChatInput, normalize_chat
from openclaw_rl.shared.owners import owned
from openclaw_rl.shared.records import Kind, now
from openclaw_rl.shared.rendering.prompt import Prompt
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.turn_rules import parse_rules

_NEVER = frozenset(("never", "no", "off", "false", "0"))
_YES = frozenset(("1", "true", "yes", "on"))
_LARGE_BODY = 1 << 18  # bytes; images of this size take a millisecond to read
_LONGEST_REASON = 64
_SERVICE = Caller()


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its client means it.

    `session` is the session id that it names, and where; `retried` says that the client sends it again, `routed` that
    another service passed it on. `thinking` is `None` for the model's default. Its content is kept if it is `tracked`;
    `reactions` come with it. `may_be_aside`: its words leave open who asks. `ends_session`: `X-Session-Done`;
    `begins_session`: the reason in `X-Session-New`. `attempt` is the one of an environment that it is part of: there no
    request is a person's, brings feedback, or ends the session.
    """

    arrived: float
    owner: str
    dialect: str
    chat: ChatInput
    chain: Chain
    parameters: Parameters
    thinking: bool | None
    classified: TurnClass
    may_be_aside: bool
    session: tuple[str, str] | None
    retried: bool
    routed: bool
    tracked: bool
    reactions: list[ChannelReaction]
    begins_session: str
    ends_session: bool
    attempt: OpenAttempt | None

    @property
    def kind(self) -> Kind:
        """Main or side."""
        return self.classified.kind


class PlacedRequest(ChatRequest, frozen=True, kw_only=True):
    """A request whose place among sessions and turns is known."""

    placement: TurnPlacement


class RenderedRequest(PlacedRequest, frozen=True, kw_only=True):
    """A request with its prompt, and with `parameters` that fit into the context behind it.

    `written` tells how the prompt of a recorded turn came to be, `note` what the turn shall say about it. The prompt is
    empty where only other models are asked.
    """

    prompt: Prompt
    written: Written | None = None
    note: str = ""


class RequestParser:
    """Turns bytes into a `ChatRequest`."""

    def __init__(
        self,
        settings: Settings,
        names: ModelNames,
        watch: EngineWatch,
        chains: Chains,
        open_attempt: Callable[[str], Awaitable[OpenAttempt | None]],
        *,
        temperature: float = 1.0,
    ) -> None:
        """`open_attempt` finds the attempt that is under way in a session, `temperature` is that of requests that name
        none.
        """
        self._open_attempt = open_attempt
        self._names = names
        self._watch = watch
        self._chains = chains
        self._rules = own_rules(parse_rules(settings.serve.classification_rules))
        self._max_output_tokens = settings.serve.max_output_tokens
        self._temperature = temperature
        self._capture = settings.serve.capture

    async def parse(
        self, headers: Mapping[str, str], data: bytes, dialect: str = "chat", caller: Caller = _SERVICE
    ) -> ChatRequest:
        """The request of a caller. Raises `BadRequest`, `NotFound` for an unknown model, or `Forbidden` for a session
        that is not the caller's.
        """
        arrived = now()
        body = decode_object(data)
        parameters = read_parameters(
            body, names=self._names, max_output_tokens=self._max_output_tokens, temperature=self._temperature
        )
        messages, limit = body.get("messages"), self._watch.context_length
        if limit and isinstance(messages, list) and len(messages) > limit:  # to read and place them would take seconds
            raise over_long(f"you sent {len(messages)} messages, each of which takes several", limit)
        chat = await read_chat(body, len(data), self._watch.blind)
        chain = await self._chains.chain_of(chat.messages)
        evidence = Evidence(
            headers,
            chat.messages,
            bool(body.get("tools")),
            chain.speeches,
            dialect=dialect,
            model=parameters.model,
            max_tokens=parameters.most_tokens,
            feedback=chain.answers_feedback,
            stated=frozenset(metadata_purposes(body)),
        )
        session, attempt = await self._session(headers, body, chain, caller)
        classified = classify(evidence, self._rules, attempt=attempt is not None)
        tracked = self._capture and _word(headers, "x-rl-train") not in _NEVER
        if attempt is not None:
            tracked = tracked and attempt.train
        people = attempt is None
        return ChatRequest(
            arrived=arrived,
            owner=caller.owner,
            dialect=dialect,
            chat=chat,
            chain=chain,
            parameters=parameters,
            thinking=read_thinking(body),
            classified=classified,
            may_be_aside=classified.reason in UNMARKED and may_be_aside(evidence),
            session=session,
            retried=_word(headers, "x-stainless-retry-count") not in ("", "0"),
            routed=ROUTED_HEADER in headers,
            tracked=tracked,
            reactions=reactions(chat.messages, headers.get("x-openclaw-reactions", "")) if tracked and people else [],
            begins_session=headers.get("x-session-new", "").strip()[:_LONGEST_REASON] if people else "",
            ends_session=people and _word(headers, "x-session-done") in _YES,
            attempt=attempt,
        )

    async def _session(
        self, headers: Mapping[str, str], body: Mapping[str, Any], chain: Chain, caller: Caller
    ) -> tuple[tuple[str, str] | None, OpenAttempt | None]:
        """The session that a request names, and where; and the attempt that is under way in it. The key of an episode
        names its own: whatever else a client sends is an id of its own making.
        """
        if caller.attempt is not None:
            own, header = caller.attempt.session_id, headers.get("x-session-id", "").strip()
            if header and owned(header, caller.owner) != own:
                raise Forbidden(f"X-Session-Id is {header!r}: the API key is that of an episode of another session.")
            return (own, "key"), caller.attempt
        session = session_of(headers, body, chain, caller.owner)
        attempt = None
        if session is not None:
            with contextlib.suppress(JournalError):  # what is wrong is said where the request is placed
                attempt = await self._open_attempt(session[0])
        return session, attempt


async def read_chat(body: Mapping[str, Any], size: int, blind: str) -> ChatInput:
    """The canonical conversation in a body of `size` bytes. `blind`: why no images are taken. Raises `BadRequest`."""
    if blind or size < _LARGE_BODY:
        return normalize_chat(body, blind=blind)
    return await asyncio.to_thread(normalize_chat, body, blind=blind)


async def place(request: ChatRequest, conversations: Conversations) -> PlacedRequest:
    """Find the session and the parent of a request. Raises `JournalError`."""
    if not request.tracked:
        placement = conversations.place_untracked(request.chain, request.kind, request.session, request.owner)
    else:
        # Feedback is a side turn, but it is about the main turn before it.
        kind = "main" if request.classified.reason == FEEDBACK else request.kind
        attempt = request.attempt.episode if request.attempt is not None else None
        placement = await conversations.place(
            request.chain, kind, request.session, owner=request.owner, retried=request.retried, attempt=attempt
        )
        if placement.words is not None and placement.words.role in ("user", "environment"):
            frame = frame_of(request.chat.messages, request.chat.tools)
            placement = msgspec.structs.replace(placement, frame=frame)
        if request.may_be_aside and await conversations.changes_frame(placement, request.chat):
            placement = msgspec.structs.replace(placement, kind="side")
            request = msgspec.structs.replace(request, classified=ASIDE)
    return PlacedRequest(**msgspec.structs.asdict(request), placement=placement)


def _word(headers: Mapping[str, str], name: str) -> str:
    return headers.get(name, "").strip().lower()


def over_long(problem: str, limit: int) -> BadRequest:
    """The error for messages that certainly take more tokens than the context has."""
    message = f"This model's maximum context length is {limit} tokens. However, {problem}. Please reduce the messages."
    return BadRequest(message, code="context_length_exceeded", param="messages")
