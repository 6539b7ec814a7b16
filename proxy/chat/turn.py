"""One turn: an answer from its first token until it is committed to the journal.

Invariant: the turn is in the journal before the client learns that the answer is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec

from openclaw_rl.proxy.chat.fallback_answer import FallbackAnswer
from openclaw_rl.proxy.chat.policy_answer import PolicyAnswer
from openclaw_rl.proxy.chat.request import RenderedRequest
from openclaw_rl.proxy.conversation.recorder import Recorder, RequestEntry
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.records import ImageSpan, Timings, Turn, TurnStatus, now

log = logging.getLogger(__name__)


class ChatTurn:
    """Use once: `begin`, then all parts of `answer`, then `complete`; or `abandon` where that breaks off.

    `policy` holds what the policy sampled: nothing where another model of `fallback` answered.
    """

    def __init__(
        self,
        request: RenderedRequest,
        policy: PolicyAnswer,
        fallback: FallbackAnswer | None = None,
        *,
        recorder: Recorder,
        metrics: Metrics,
    ) -> None:
        self.request = request
        self.turn_id = request.placement.turn_id
        self.policy = policy
        self.answer = fallback or policy
        self._recorder = recorder
        self._metrics = metrics
        self.unrecorded = ""  # why the journal did not take it, where it need not
        self._entry: RequestEntry | None = None
        self._finished = False

    def begin(self) -> None:
        """Start the writes that come with the request; they continue while the answer is sampled."""
        if self.request.tracked:
            self._entry = self._recorder.enter(self.request.placement, self.request.reactions)

    async def entered(self) -> None:
        """Wait for those writes. Raises `JournalError`."""
        if self._entry is not None:
            await self._entry.done()

    def failed_early(self) -> bool:
        """True if those writes are known to have failed, so that the turn will not be recorded."""
        return self._recorder.required and self._entry is not None and self._entry.failed()

    async def complete(self) -> tuple[Sequence[Delta], Answer]:
        """The last deltas and the whole answer, once the turn is committed. Raises `JournalError`."""
        deltas, answer = self._finish()
        await self._commit("complete", answer, "; ".join(filter(None, self.answer.notes())))
        return deltas, answer

    async def abandon(self, status: TurnStatus, error: str) -> None:
        """Record what there is of an answer that broke off, unless it never began."""
        if self._finished:
            return
        _, answer = self._finish(aborted=True)
        if status == "aborted":
            self._metrics.aborted.inc()
        if status == "aborted" or self.policy.ids:
            with contextlib.suppress(JournalError):  # the recorder remembers it, and the client is gone
                await self._commit(status, answer, error)

    def _finish(self, *, aborted: bool = False) -> tuple[Sequence[Delta], Answer]:
        self._finished = True
        return self.answer.finish(aborted=aborted)

    async def _commit(self, status: TurnStatus, answer: Answer, error: str) -> None:
        request, metrics = self.request, self._metrics
        metrics.turns.labels(request.kind, request.classified.reason, status).inc()
        metrics.prompt_tokens.inc(request.prompt.length)
        metrics.cached_tokens.inc(self.policy.cached_tokens)
        metrics.answer_tokens.inc(len(self.policy.ids))
        log.info(
            "%s (%s, %s): %s after %.2f s, %s, %d tokens after a prompt of %d",
            *(self.turn_id, request.kind, request.classified.reason, status, now() - request.arrived),
            f"version {self.policy.version}" if self.policy.ids else "not sampled here",
            *(len(self.policy.ids), request.prompt.length),
        )
        if self._entry is None:
            await self._recorder.count(request.kind, request.classified.reason)
            return
        turn = self._record(self._entry.opening.number or 0, status, answer, error)
        if turn.untrainable:
            metrics.untrainable.inc()
        self.policy.keep_unredacted(turn.answer)
        recording = asyncio.ensure_future(self._recorder.record(turn, self._entry, request.written))
        try:
            try:
                await asyncio.shield(recording)
            except asyncio.CancelledError:
                await recording
                raise
        except JournalError as error:
            if self._recorder.required:
                raise
            self.unrecorded = str(error)

    def _record(self, episode: int, status: TurnStatus, answer: Answer, error: str) -> Turn:
        """The turn's record; `episode` is 0 while the recorder is still opening it."""
        request, placement, policy = self.request, self.request.placement, self.policy
        message = answer.message()
        return Turn(
            turn_id=self.turn_id,
            session_id=placement.session_id,
            episode=episode,
            parent_turn_id=placement.parent.turn_id if placement.parent is not None else None,
            parent_reason=placement.parent_reason,
            kind=request.kind,
            kind_reason=request.classified.reason,
            dialect=request.dialect,
            policy=self._recorder.policy,
            messages=request.chat.messages,
            tools=request.chat.tools,
            answer=message,
            prompt_ids=request.prompt.packed(),
            response_ids=policy.ids,
            logprobs=policy.logprobs,
            sampling=msgspec.structs.replace(request.parameters.sampling, unscaled=policy.unscaled),
            versions=policy.version_spans(),
            finish_reason=answer.finish_reason,
            status=status,
            error=error,
            timings=Timings(arrived=request.arrived, first_token=self.answer.first_token, finished=now()),
            request_key=placement.request_key,
            answer_key=request.chain.answer_key(message),
            exchange_key=request.chain.exchange_key(message),
            untrainable=self.answer.why_untrainable(),
            image_spans=tuple(ImageSpan(image.start, image.end) for image in policy.images),
        )
