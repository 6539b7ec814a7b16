"""A conversation against a real journal, with turns whose answers the test chooses."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import msgspec

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.placement import Conversations, TurnPlacement
from openclaw_rl.proxy.conversation.programs.openclaw import reactions
from openclaw_rl.proxy.conversation.recorder import Reactions, Recorder, RequestEntry
from openclaw_rl.proxy.conversation.session_id import session_of
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.journal.signals import frame_of
from openclaw_rl.shared.messages.normalize import assistant_message, normalize_messages
from openclaw_rl.shared.records import (
    Kind,
    Message,
    NextState,
    Sampling,
    Timings,
    Turn,
    TurnStatus,
    VersionSpan,
    now,
)

Sent = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request without its answer."""

    placement: TurnPlacement
    entry: RequestEntry
    history: list[Message]
    chain: Chain
    response: list[int]
    arrived: float
    tools: tuple[dict[str, Any], ...] = ()


class Talk:
    """A proxy without HTTP and engine: places requests, and records the answers that the test gives."""

    def __init__(self, journal: AsyncJournal) -> None:
        self.journal = journal
        self._tokens = itertools.count(100)
        self.restart()

    def restart(self) -> None:
        """Forget everything that is only in memory."""
        self.metrics = Metrics()
        self.conversations = Conversations(self.journal)
        self.recorder = Recorder(self.journal, self.conversations, self.metrics, "policy")
        self.reactions = Reactions(self.journal, self.conversations.tree, self.metrics)

    async def begin(
        self,
        *messages: Sent,
        kind: Kind = "main",
        headers: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        tools: tuple[dict[str, Any], ...] = (),
        owner: str = "",
        attempt: int | None = None,
    ) -> Asked:
        """A request that is placed and waits for its answer."""
        arrived = now()
        history = normalize_messages(list(messages))
        chain = await self.conversations.chains.chain_of(history)
        headers = headers or {}
        named = session_of(headers, body or {}, chain, owner)
        retried = headers.get("x-stainless-retry-count", "0") != "0"
        placement = await self.conversations.place(chain, kind, named, owner=owner, retried=retried, attempt=attempt)
        placement = msgspec.structs.replace(placement, frame=frame_of(history, tools))
        entry = self.recorder.enter(placement, reactions(history, headers.get("x-openclaw-reactions", "")))
        await entry.done()
        return Asked(placement, entry, history, chain, [next(self._tokens)], arrived, tools)

    async def place(self, *messages: Sent) -> TurnPlacement:
        """The place of a main request, of which nothing is written."""
        chain = await self.conversations.chains.chain_of(normalize_messages(list(messages)))
        return await self.conversations.place(chain, "main", None)

    async def finish(
        self,
        asked: Asked,
        answer: str,
        calls: list[dict[str, Any]] | None = None,
        status: TurnStatus = "complete",
        reasoning: str = "",
    ) -> None:
        """Record the answer to a request."""
        placement = asked.placement
        message = assistant_message(answer, reasoning, tool_calls=calls)
        turn = Turn(
            turn_id=placement.turn_id,
            session_id=placement.session_id,
            episode=asked.entry.opening.number or 0,
            parent_turn_id=placement.parent.turn_id if placement.parent else None,
            parent_reason=placement.parent_reason,
            kind="side" if asked.chain.answers_feedback else placement.kind,
            kind_reason="test",
            messages=asked.history,
            tools=asked.tools,
            answer=message,
            prompt_ids=[1, 2],
            response_ids=asked.response,
            logprobs=[-0.5],
            sampling=Sampling(),
            versions=[VersionSpan(0, 0, 1)],
            finish_reason="stop",
            status=status,
            timings=Timings(asked.arrived, now(), now()),
            request_key=placement.request_key,
            answer_key=asked.chain.answer_key(message),
            exchange_key=asked.chain.exchange_key(message),
        )
        await self.recorder.record(turn, asked.entry)

    async def ask(
        self,
        *messages: Sent,
        answer: str | None = "fine",
        calls: list[dict[str, Any]] | None = None,
        kind: Kind = "main",
        status: TurnStatus = "complete",
        reasoning: str = "",
        headers: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        tools: tuple[dict[str, Any], ...] = (),
        owner: str = "",
        attempt: int | None = None,
    ) -> TurnPlacement:
        """One request; `answer=None` leaves it unanswered."""
        asked = await self.begin(
            *messages, kind=kind, headers=headers, body=body, tools=tools, owner=owner, attempt=attempt
        )
        if answer is not None:
            await self.finish(asked, answer, calls, status, reasoning)
        return asked.placement

    async def next_state(self, placement: TurnPlacement) -> NextState | None:
        return await self.journal.next_state(placement.turn_id)


def says(text: str) -> Sent:
    return {"role": "user", "content": text}


def said(text: str) -> Sent:
    return {"role": "assistant", "content": text}


def parent(placement: TurnPlacement) -> str | None:
    return placement.parent.turn_id if placement.parent else None
