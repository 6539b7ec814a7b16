"""`POST /v1/chat/completions`, streamed or in one piece, on the bare ASGI interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.proxy.chat.choices import TURNS_HEADER, side_by_side, spread, usage_of
from openclaw_rl.proxy.chat.completion import completion, completion_id, fingerprint
from openclaw_rl.proxy.chat.fallback_models import OtherModel, is_away
from openclaw_rl.proxy.chat.fallback_turn import RoutedTurn
from openclaw_rl.proxy.chat.request import Incoming
from openclaw_rl.proxy.chat.turn import ChatTurn
from openclaw_rl.proxy.http.body import Disconnected, discard, disconnected, read_body, read_headers
from openclaw_rl.proxy.http.errors import VISIBLE, TooSlow, error_response, json_response, to_request_error
from openclaw_rl.proxy.http.sse import ChunkWriter, error_event
from openclaw_rl.proxy.http.stream import EventStream
from openclaw_rl.proxy.routes.dialects import CHAT
from openclaw_rl.proxy.service import Service
from openclaw_rl.shared.errors import EngineError, OpenClawRLError, RequestError, TooLarge, UploadTooSlow
from openclaw_rl.shared.messages.answer import Answer
from openclaw_rl.shared.records import TurnStatus

log = logging.getLogger(__name__)

_DISCARD_BYTES = 256 << 20
_DISCARD_SECONDS = 30.0
_LONGEST_CREDIT = 300


class ChatRoute:
    """The ASGI application of the chat route."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        headers = read_headers(scope)
        patience = service.settings.slow_client_seconds
        try:
            data = await read_body(receive, headers, service.settings.max_body_bytes, patience)
        except Disconnected:
            return
        except UploadTooSlow as error:
            service.metrics.requests.labels(error.status).inc()
            await _respond(error_response(error), send)
            return
        except TooLarge as error:
            service.metrics.requests.labels(error.status).inc()
            await _refuse_upload(error, receive, send)
            return
        work = asyncio.current_task()
        assert work is not None
        exchange = Exchange(service, headers, send, scope.get("client_key", 0), work)
        gone = asyncio.create_task(_leave(receive, exchange), name="chat client")
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


class Exchange:
    """One chat request and its response. `work` is the task it runs in, `key` the place of the client's key in the
    settings; `left` says that it was ended because its client is gone.
    """

    def __init__(
        self, service: Service, headers: Mapping[str, str], send: Send, key: int, work: asyncio.Task[Any]
    ) -> None:
        self._service = service
        self._headers = headers
        self._send = send
        self._limit = service.limits.of(key)
        self._dialect = service.dialects.of(headers)
        self._work = work
        self._stream: EventStream | None = None
        self._told: dict[str, str] = {}
        self._responded = False
        self._cause = "the service was stopped"
        self.left = False

    async def run(self, data: bytes) -> None:
        """Answer the request, whatever happens; ends only by returning or by cancellation."""
        status = 499  # nginx's word for a client that left
        try:
            if self._dialect == CHAT:
                async with self._limit.place():
                    await self._answer(data)
            else:  # it holds its key's place where it came in
                await self._answer(data)
            status = 200
        except OpenClawRLError as error:
            told = to_request_error(error)
            status = told.status
            if status >= 500:
                log.warning("answered %d: %s", status, told.message)
            await self._tell(told)
        except OSError as error:
            log.info("the connection broke: %s", error)
        except Exception:
            status = 500
            log.exception("ERROR in the chat route; please report it")
            await self._tell(RequestError("Something went wrong in the proxy; its log says what.", status=500))
        finally:
            self._service.metrics.requests.labels(status).inc()

    async def _answer(self, data: bytes) -> None:
        service = self._service
        incoming = await service.reader.read(self._headers, data, self._dialect)
        if incoming.parameters.version is not None:
            await service.versions.require(incoming.parameters.version)
        if incoming.tracked and incoming.verdict.kind == "main":
            if incoming.begins_session:  # its end may not have been told, or not have reached us
                await service.sessions.end(incoming.placement.session_id, incoming.begins_session)
            await service.session_limit.admit(incoming.placement.session_id)
        incoming, order = await self._settled(incoming)
        turns = [service.turn(one, order) for one in spread(incoming)]
        turn = turns[0]
        self._told = {
            "x-openclaw-rl-turn": turn.turn_id,
            "x-openclaw-rl-session": quote(incoming.placement.session_id, safe=VISIBLE),
            "x-openclaw-rl-kind": incoming.verdict.kind,
            "x-openclaw-rl-reason": incoming.verdict.reason,
            "x-openclaw-rl-prompt-tokens": str(incoming.prompt.length),
        }
        if len(turns) > 1:
            self._told[TURNS_HEADER] = ",".join(one.turn_id for one in turns)
        for one in turns:
            one.begin()
        if service.recorder.trouble:
            for one in turns:
                await one.entered()  # a journal that is known to fail is asked first, and the engine spared
        with service.metrics.active.track_inprogress():
            try:
                async with asyncio.timeout(service.settings.request_timeout):
                    await (self._streamed(turns) if incoming.parameters.stream else self._whole(turns))
            except asyncio.CancelledError:
                await _abandon(turns, "aborted", self._cause)
                raise
            except TimeoutError as error:
                await _abandon(turns, "error", "request_timeout")
                if not turn.ids and not service.watch.ready:
                    raise EngineError(service.watch.error) from error
                raise self._too_slow() from error
            except OSError:
                await _abandon(turns, "aborted", "the connection broke")
                raise
            except OpenClawRLError as error:
                await _abandon(turns, "error", str(error))
                raise

    async def _settled(self, incoming: Incoming) -> tuple[Incoming, Sequence[OtherModel | None]]:
        """The request as the policy takes it, and who is asked: without the policy, if its engine is away and others
        are left.
        """
        service = self._service
        order = service.others.order(incoming, self._headers)
        if incoming.unable is not None or not service.tools.chooses(incoming):
            return incoming, order
        try:
            async with asyncio.timeout(service.settings.request_timeout):
                return await service.tools.settle(incoming), order
        except TimeoutError as error:
            raise self._too_slow() from error
        except EngineError as error:
            others = [model for model in order if model is not None]
            if not others or not is_away(error):
                raise
            return incoming, others

    def _too_slow(self) -> TooSlow:
        return TooSlow(f"The answer took longer than {self._service.settings.request_timeout:g} s (request_timeout).")

    async def _whole(self, turns: Sequence[ChatTurn]) -> None:
        answers: list[Answer]
        if len(turns) == 1:
            async for _ in turns[0].batches():
                pass
            answers = [(await self._complete(turns[0]))[1]]
        else:
            pieces = [piece async for piece in side_by_side(turns, self._complete)]
            found = {piece.index: piece.finished[1] for piece in pieces if piece.finished is not None}
            answers = [found[index] for index in range(len(turns))]
        self._credit(turns[0])
        response = json_response(completion(turns, answers), headers=self._told)
        self._responded = True
        try:
            async with asyncio.timeout(self._service.settings.slow_client_seconds):
                await _respond(response, self._send)
        except TimeoutError as error:
            raise ConnectionError("the client did not read its answer") from error

    async def _several(self, turns: Sequence[ChatTurn], stream: EventStream) -> None:
        """Stream several answers, chunk by chunk as they come."""
        writers: dict[int, ChunkWriter] = {}
        told = [0] * len(turns)
        async with aclosing(side_by_side(turns, self._complete)) as pieces:
            async for piece in pieces:
                index, batch, finished = piece.index, piece.batch, piece.finished
                turn = turns[index]
                data = b""
                if index not in writers:
                    if turn.failed_early() and not stream.started:
                        await turn.entered()
                    self._credit(turn)
                    writers[index] = _writer(turn, turns[0].turn_id, index)
                    data = writers[index].role()
                writer = writers[index]
                deltas = batch.deltas if batch is not None else finished[0] if finished is not None else ()
                if deltas:
                    end = batch.end if batch is not None else told[index]
                    data += writer.deltas(deltas, turn.told_logprobs(told[index], end))
                    told[index] = end
                if finished is not None:
                    rest = turn.told_logprobs(told[index], len(turn.ids))
                    data += writer.end(finished[1].finish_reason, rest, turn.stop_matched)
                if data:
                    await stream.write(data)
        await stream.end(writers[0].close(usage_of(turns)))

    async def _streamed(self, turns: Sequence[ChatTurn]) -> None:
        turn = turns[0]
        pulse = self._service.pulse
        hold = turn.incoming.tracked and bool(self._service.recorder.trouble)
        stream = self._stream = EventStream(self._send, _raw(self._told), hold=hold)
        writer: ChunkWriter | None = None
        told = 0  # tokens whose logprobs have been sent
        pulse.add(stream, self._cut)
        try:
            if len(turns) > 1:
                await self._several(turns, stream)
                return
            async for batch in turn.batches():
                data = b""
                if writer is None:
                    if turn.failed_early() and not stream.started:
                        await turn.entered()
                    self._credit(turn)
                    writer = _writer(turn)
                    data = writer.role()
                if batch.deltas:
                    data += writer.deltas(batch.deltas, turn.told_logprobs(told, batch.end))
                    told = batch.end
                if data:
                    await stream.write(data)
            deltas, answer = await self._complete(turn)
            data = b""
            if writer is None:
                self._credit(turn)
                writer = _writer(turn)
                data = writer.role()
            if deltas:
                data += writer.deltas(deltas)
            rest = turn.told_logprobs(told, len(turn.ids))
            self._responded = True
            await stream.end(data + writer.finish(answer.finish_reason, turn.usage(), rest, turn.stop_matched))
        finally:
            pulse.discard(stream)

    async def _complete(self, turn: ChatTurn) -> Any:
        """Finish and commit the turn, and the episode with it if the client said so."""
        finished = await turn.complete()
        incoming = turn.incoming
        if incoming.ends_session and incoming.tracked:
            await self._service.sessions.end(incoming.placement.session_id, "X-Session-Done")
        return finished

    def _credit(self, turn: ChatTurn) -> None:
        """Tell in a header that another model answered, and why."""
        if isinstance(turn, RoutedTurn) and turn.credit:
            credit = {"x-openclaw-rl-answered-by": quote(turn.credit[:_LONGEST_CREDIT], safe=VISIBLE)}
            self._told |= credit
            if self._stream is not None:
                self._stream.tell(_raw(credit))

    def leave(self) -> None:
        """End the work for a client that is gone; not once its answer is committed and on its way."""
        if not self._responded:
            self._end("the client left")

    def _end(self, cause: str) -> None:
        self._cause = cause
        self.left = True
        self._work.cancel()

    def _cut(self) -> None:
        """End an answer that its client does not read, so that it holds neither a place nor the engine."""
        cause = f"the client read nothing for {self._service.settings.slow_client_seconds:g} s"
        log.info("an answer was cut: %s (slow_client_seconds)", cause)
        self._end(cause)

    async def _tell(self, error: RequestError) -> None:
        with contextlib.suppress(OSError):
            if self._responded:
                return
            if self._stream is not None and self._stream.started:
                self._stream.hold = False
                await self._stream.end(error_event(error))
            else:
                await _respond(error_response(error, self._told), self._send)


async def _abandon(turns: Sequence[ChatTurn], status: TurnStatus, error: str) -> None:
    for turn in turns:
        await turn.abandon(status, error)


def _writer(turn: ChatTurn, first: str = "", index: int = 0) -> ChunkWriter:
    """The writer of an answer; all answers to a request bear the id of the `first`."""
    parameters = turn.incoming.parameters
    return ChunkWriter(
        completion_id(first or turn.turn_id),
        parameters.model,
        int(turn.incoming.arrived),
        fingerprint(turn.version),
        with_usage=parameters.include_usage,
        index=index,
    )


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


async def _respond(response: Response, send: Send) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


async def _leave(receive: Receive, exchange: Exchange) -> None:
    await disconnected(receive)
    exchange.leave()


async def _refuse_upload(error: RequestError, receive: Receive, send: Send) -> None:
    """Answer at once, then read on without keeping anything: a client that is still sending would else lose the
    answer.
    """
    response = error_response(error, {"connection": "close"})
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            await discard(receive, _DISCARD_BYTES)
    await send({"type": "http.response.body", "body": b""})
