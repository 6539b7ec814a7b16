"""`POST /v1/chat/completions`, streamed or in one piece, on the bare ASGI interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.proxy.chat.choices import (
    ChoiceEvent,
    FinishedAnswer,
    answer_events,
    completion,
    completion_id,
    fingerprint,
    spread,
    total_usage,
)
from openclaw_rl.proxy.chat.fallback_models import AnswerPlan
from openclaw_rl.proxy.chat.prompt import without_prompt
from openclaw_rl.proxy.chat.request import ChatRequest, PlacedRequest, RenderedRequest, place
from openclaw_rl.proxy.chat.turn import ChatTurn
from openclaw_rl.proxy.dialects.headers import KEPT_HEADER
from openclaw_rl.proxy.dialects.process import CHAT
from openclaw_rl.proxy.http import limits
from openclaw_rl.proxy.http.auth import Caller
from openclaw_rl.proxy.http.body import disconnected, read_headers, receive_body, send_response
from openclaw_rl.proxy.http.errors import VISIBLE, error_response, internal_error, to_request_error
from openclaw_rl.proxy.http.json import json_response
from openclaw_rl.proxy.http.sse import ChunkWriter, error_event
from openclaw_rl.proxy.http.stream import EventStream
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.errors import EngineError, JournalError, OpenClawRLError, Overloaded, RequestError
from openclaw_rl.shared.logs import set_log_ids
from openclaw_rl.shared.messages.normalize import ANY_TOOL
from openclaw_rl.shared.records import TurnStatus

log = logging.getLogger(__name__)

TURNS_HEADER = "x-openclaw-rl-turns"
UNRECORDED_HEADER = "x-openclaw-rl-unrecorded"
UNRECORDED_COMMENT = b": this answer is not recorded\n\n"
_LONGEST_CREDIT = 300
_GOODBYE_SECONDS = 1.0


class ChatRoute:
    """The ASGI application of the chat route."""

    def __init__(self, service: ProxyService) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        headers = read_headers(scope)
        limit, seconds = limits.LARGEST_BODY, limits.CLIENT_SECONDS
        data = await receive_body(receive, send, headers, limit, seconds, self._refusal)
        if data is None:
            return
        work = asyncio.current_task()
        assert work is not None
        exchange = ChatExchange(service, headers, send, scope["caller"], work)
        gone = asyncio.create_task(exchange.leave(receive), name="chat client")
        service.answering.add(work)
        try:
            await exchange.run(data)
        except asyncio.CancelledError:
            if not exchange.left:
                raise
            work.uncancel()
        finally:
            gone.cancel()
            service.answering.discard(work)

    def _refusal(self, error: RequestError) -> Response:
        self._service.metrics.requests.labels(error.status).inc()
        return error_response(error)


class ChatExchange:
    """One chat request and its response. `work` is the task it runs in; `left` says that it was ended because its
    client is gone.
    """

    def __init__(
        self, service: ProxyService, headers: Mapping[str, str], send: Send, caller: Caller, work: asyncio.Task[Any]
    ) -> None:
        self._service = service
        self._headers = headers
        self._send = send
        self._caller = caller
        self._limit = service.limits.for_key(caller.key)
        self._dialect = service.dialects.dialect_of(headers)
        self._work = work
        self._stream: EventStream | None = None
        self._response_headers: dict[str, str] = {}
        self._responded = False
        self._cause = "the service was stopped"
        self.left = False
        self._unrecorded = ""  # why the answer is not recorded, where that need not be

    async def run(self, data: bytes) -> None:
        """Answer the request in every case; ends only by returning or by cancellation."""
        status = 499  # nginx's status for a client that left
        try:
            if self._dialect == CHAT:
                async with self._limit.place():
                    await self._answer(data)
            else:  # it holds its key's place where it came in
                await self._answer(data)
            status = 200
        except OpenClawRLError as error:
            refusal = to_request_error(error)
            status = refusal.status
            if status >= 500:
                log.warning("answered %d: %s", status, refusal.message)
            await self._fail(refusal)
        except OSError as error:
            log.info("the connection broke: %s", error)
        except asyncio.CancelledError:
            if not self.left:
                await self._say_goodbye()
            raise
        except Exception:
            status = 500
            log.exception("ERROR in the chat route; please report it")
            await self._fail(internal_error())
        finally:
            self._service.metrics.requests.labels(status).inc()

    async def _answer(self, data: bytes) -> None:
        service = self._service
        parsed = await service.parser.parse(self._headers, data, self._dialect, self._caller)
        placed = await self._place(parsed)
        set_log_ids(turn=placed.placement.turn_id, session=placed.placement.session_id)
        request, plan = await self._render(placed)
        if plan.error is None:
            plan = service.others.plan(request)
            if plan == AnswerPlan() and service.watch.away:
                raise EngineError(service.watch.away, status=503)
        await self._admit(request)
        if plan.error is None:
            request, plan = await self._choose_tool(request, plan)
        turns = [service.turn(one, plan) for one in spread(request)]
        self._response_headers = _describe(turns)
        self._say_unrecorded()
        for turn in turns:
            turn.begin()
        if service.recorder.trouble and service.recorder.required:
            for turn in turns:
                await turn.entered()  # a journal that is known to fail is tried first, to spare the engine
        with service.metrics.active.track_inprogress():
            await self._respond(turns)

    async def _place(self, parsed: ChatRequest) -> PlacedRequest:
        """The request with its place; without one where the journal cannot be used and need not."""
        recorder, conversations = self._service.recorder, self._service.conversations
        if parsed.tracked and not recorder.skipping:
            try:
                return await place(parsed, conversations)
            except JournalError as error:
                if not recorder.skip(str(error)):
                    raise
        if parsed.tracked:
            self._unrecorded = recorder.skipping
        elif parsed.attempt is not None:
            await self._service.sessions.keep_open(parsed.attempt)
        return await place(msgspec.structs.replace(parsed, tracked=False, reactions=[]), conversations)

    async def _render(self, placed: PlacedRequest) -> tuple[RenderedRequest, AnswerPlan]:
        """The request with its prompt, or for other models if the policy cannot answer it and they may."""
        try:
            return await self._service.renderer.render(placed), AnswerPlan()
        except OpenClawRLError as error:
            plan = self._service.others.plan_without_policy(placed, error)
            if plan is None:
                raise
            return without_prompt(placed), plan

    async def _admit(self, request: RenderedRequest) -> None:
        """Load the version that is asked for; let a main turn into its session, of which a new one ends the last."""
        service, session_id = self._service, request.placement.session_id
        if request.parameters.version is not None:
            await service.versions.require(request.parameters.version)
        if request.tracked and request.kind == "main":
            try:
                if request.begins_session:  # the end of the one before may not have been sent, or not have reached us
                    await service.sessions.end(session_id, request.begins_session)
                await service.session_limit.admit(session_id)
            except JournalError as error:
                if not service.recorder.skip(str(error)):
                    raise

    async def _choose_tool(self, request: RenderedRequest, plan: AnswerPlan) -> tuple[RenderedRequest, AnswerPlan]:
        """The request with the call that the policy must make chosen for it; other models choose for themselves."""
        if request.chat.forced_tool != ANY_TOOL:
            return request, plan
        try:
            async with asyncio.timeout(self._service.settings.serve.request_timeout):
                return await self._service.tools.choose(request), plan
        except TimeoutError as error:
            raise self._too_slow() from error
        except EngineError as error:
            without_policy = self._service.others.plan_without_policy(request, error)
            if without_policy is None:
                raise
            return request, without_policy

    async def _respond(self, turns: Sequence[ChatTurn]) -> None:
        """Sample, commit and send the answers; record what there is of those that break off."""
        try:
            async with asyncio.timeout(self._service.settings.serve.request_timeout):
                await (self._send_stream(turns) if turns[0].request.parameters.stream else self._send_whole(turns))
        except asyncio.CancelledError:
            await _abandon(turns, "aborted", self._cause)
            raise
        except TimeoutError as error:
            await _abandon(turns, "error", "request_timeout")
            if not turns[0].policy.ids and not self._service.watch.ready:
                raise EngineError(self._service.watch.error) from error
            raise self._too_slow() from error
        except OSError:
            await _abandon(turns, "aborted", "the connection broke")
            raise
        except OpenClawRLError as error:
            await _abandon(turns, "error", str(error))
            raise

    async def _send_whole(self, turns: Sequence[ChatTurn]) -> None:
        async with aclosing(answer_events(turns, self._complete)) as events:
            answers = {event.index: event.finished[1] async for event in events if event.finished is not None}
        self._add_credit(turns[0])
        body = completion(turns, [answers[index] for index in range(len(turns))])
        response = json_response(body, headers=self._response_headers)
        self._responded = True
        try:
            async with asyncio.timeout(limits.CLIENT_SECONDS):
                await send_response(response, self._send)
        except TimeoutError as error:
            raise ConnectionError("the client did not read its answer") from error

    async def _send_stream(self, turns: Sequence[ChatTurn]) -> None:
        service = self._service
        hold = turns[0].request.tracked and bool(service.recorder.trouble)
        stream = self._stream = EventStream(self._send, _raw(self._response_headers), hold=hold)
        answers: dict[int, _AnswerChunks] = {}  # that have begun
        left = len(turns)
        service.pulse.add(stream, self._cut)
        try:
            async with aclosing(answer_events(turns, self._complete)) as events:
                async for event in events:
                    data, answer = b"", answers.get(event.index)
                    if answer is None:
                        turn = turns[event.index]
                        if turn.failed_early() and not stream.started:
                            await turn.entered()
                        self._add_credit(turn)
                        answer = answers[event.index] = _AnswerChunks(turns, event.index)
                        data = answer.writer.role()
                    data += answer.write(event)
                    left -= event.finished is not None
                    if not left:
                        self._responded = True
                        if self._unrecorded:  # the headers left when it was not known
                            data = UNRECORDED_COMMENT + data
                        await stream.end(data + answer.writer.close(total_usage(turns)))
                    elif data:
                        await stream.write(data)
        finally:
            service.pulse.discard(stream)

    async def _complete(self, turn: ChatTurn) -> FinishedAnswer:
        """Finish and commit the turn, and end the episode with it if the client said so."""
        finished = await turn.complete()
        self._unrecorded = self._unrecorded or turn.unrecorded
        if self._unrecorded:
            self._service.metrics.unrecorded.inc()
            self._service.recorder.unrecorded += 1
            self._say_unrecorded()
        elif turn.request.ends_session and turn.request.tracked:
            await self._service.sessions.end(turn.request.placement.session_id, "X-Session-Done")
        return finished

    def _say_unrecorded(self) -> None:
        """Say in a header that the journal does not take the answer, and why."""
        if self._unrecorded:
            self._response_headers.pop(KEPT_HEADER, None)
            self._response_headers[UNRECORDED_HEADER] = quote(self._unrecorded[:_LONGEST_CREDIT], safe=VISIBLE)

    def _add_credit(self, turn: ChatTurn) -> None:
        """Say in a header that another model answered, and why."""
        if turn.answer.credit:
            credit = {"x-openclaw-rl-answered-by": quote(turn.answer.credit[:_LONGEST_CREDIT], safe=VISIBLE)}
            self._response_headers |= credit
            if self._stream is not None:
                self._stream.add_headers(_raw(credit))

    async def leave(self, receive: Receive) -> None:
        """End the work once the client is gone, unless its answer is committed and on its way."""
        await disconnected(receive)
        if not self._responded:
            self._end("the client left")

    def _end(self, cause: str) -> None:
        self._cause = cause
        self.left = True
        self._work.cancel()

    def _cut(self) -> None:
        """End an answer that its client does not read, so that it holds neither a place nor the engine."""
        cause = f"the client read nothing for {limits.CLIENT_SECONDS:g} s"
        log.info("an answer was cut: %s", cause)
        self._end(cause)

    def _too_slow(self) -> RequestError:
        limit = self._service.settings.serve.request_timeout
        return RequestError(f"The answer took longer than {limit:g} s (request_timeout).", status=504, code="timeout")

    async def _fail(self, error: RequestError) -> None:
        """Send the error, in the stream if that has begun."""
        with contextlib.suppress(OSError):
            if self._responded:
                return
            if self._stream is not None and self._stream.started:
                self._stream.hold = False
                await self._stream.end(error_event(error))
            else:
                await send_response(error_response(error, self._response_headers), self._send)

    async def _say_goodbye(self) -> None:
        """End an answer that the end of the service breaks off."""
        message = "The service is stopping: send the request again."
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._fail(Overloaded(message, code="stopping", retry_after=_GOODBYE_SECONDS))


class _AnswerChunks:
    """The chunks of the answer at `index`; all answers to a request have the id of the first turn."""

    def __init__(self, turns: Sequence[ChatTurn], index: int) -> None:
        self._policy = turns[index].policy
        parameters = turns[0].request.parameters
        self._wants_logprobs = parameters.logprobs is not None
        self._sent = 0  # tokens whose logprobs have been sent
        self.writer = ChunkWriter(
            completion_id(turns[0].turn_id),
            parameters.model,
            int(turns[0].request.arrived),
            fingerprint(self._policy.version),
            with_usage=parameters.include_usage,
            index=index,
        )

    def write(self, event: ChoiceEvent) -> bytes:
        """The chunks of the answer's next event; may be empty."""
        part, policy = event.part, self._policy
        if part is not None:
            if not part.deltas:
                return b""
            logprobs = policy.openai_logprobs(self._sent, part.end) if self._wants_logprobs else None
            self._sent = part.end
            return self.writer.deltas(part.deltas, logprobs)
        assert event.finished is not None
        deltas, answer = event.finished
        data = self.writer.deltas(deltas) if deltas else b""
        return data + self.writer.end(answer.finish_reason, policy.openai_logprobs(self._sent), policy.stop_matched)


def _describe(turns: Sequence[ChatTurn]) -> dict[str, str]:
    """The response headers about the turns of a request."""
    request = turns[0].request
    headers = {
        "x-openclaw-rl-turn": turns[0].turn_id,
        "x-openclaw-rl-session": quote(request.placement.session_id, safe=VISIBLE),
        "x-openclaw-rl-kind": request.kind,
        "x-openclaw-rl-reason": request.classified.reason,
        "x-openclaw-rl-prompt-tokens": str(request.prompt.length),
    }
    if request.tracked:
        headers[KEPT_HEADER] = "true"
    if len(turns) > 1:
        headers[TURNS_HEADER] = ",".join(turn.turn_id for turn in turns)
    return headers


async def _abandon(turns: Sequence[ChatTurn], status: TurnStatus, error: str) -> None:
    for turn in turns:
        await turn.abandon(status, error)


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
