"""One answer, from the prompt to the committed turn.

Invariants: `ids` and `logprobs` are what the engine sampled, all of it and nothing else; the turn is in the journal
before the client learns that the answer is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec

from openclaw_rl.proxy.chat.offered_tools import OfferedCalls
from openclaw_rl.proxy.chat.request import Incoming
from openclaw_rl.proxy.conversation.recorder import Entry, Recorder
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.engine.protocol import Engine, Tokens
from openclaw_rl.shared.errors import EngineError, JournalError
from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.messages.images import holds_placeholder
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import ImageSpan, Timings, Turn, TurnStatus, VersionSpan, now
from openclaw_rl.shared.redaction.outgoing import told
from openclaw_rl.shared.rendering.prompter import Prompter


class Batch(msgspec.Struct, frozen=True):
    """What one engine event brought: deltas to show, and the positions of its tokens in the answer."""

    deltas: Sequence[Delta]
    start: int
    end: int


class ChatTurn:
    """Use once: `begin`, then all of `batches`, then `complete`; or `abandon` where that breaks off."""

    def __init__(
        self, incoming: Incoming, *, engine: Engine, prompter: Prompter, recorder: Recorder, metrics: Metrics
    ) -> None:
        self.incoming = incoming
        self.turn_id = incoming.placement.turn_id
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.top_logprobs: list[Sequence[tuple[float, int]]] = []
        self.version = -1
        self.cached_tokens = 0
        self._engine = engine
        self._prompter = prompter
        self._recorder = recorder
        self._metrics = metrics
        self._parser = prompter.parser(incoming.prompt, incoming.chat, stop=incoming.parameters.sampling.stop)
        self._offered = OfferedCalls(_tool_names(incoming.chat), prompter.family.grammar)
        self._versions: list[VersionSpan] = []  # complete once the engine has told them
        self._from: list[tuple[int, int]] = []  # until then: versions, and the position that each began at
        self._engine_reason: str | None = None
        self._forced = False
        self._unscaled = False
        self._first_token: float | None = None
        self._entry: Entry | None = None
        self._answer: Answer | None = None
        self._images = incoming.prompt.placed_images()
        self._prompt_tokens = incoming.prompt.length  # as the engine counts them

    def begin(self) -> None:
        """Start the writes that come with the request; they go on while the answer is sampled."""
        if self.incoming.tracked:
            self._entry = self._recorder.enter(self.incoming.placement, self.incoming.reactions)

    async def entered(self) -> None:
        """Wait for those writes. Raises `JournalError`."""
        if self._entry is not None:
            await self._entry.done()

    def failed_early(self) -> bool:
        """Whether those writes are known to have failed."""
        return self._entry is not None and self._entry.failed()

    async def batches(self) -> AsyncIterator[Batch]:
        """Sample the answer. Raises `EngineError`; closing this iterator, or leaving it, aborts the engine's work."""
        parameters = self.incoming.parameters
        stop_ids = () if parameters.sampling.ignore_eos else self._prompter.own_stop_ids
        sampling = msgspec.structs.replace(parameters.sampling, stop=(), stop_ids=stop_ids)
        prompt = self.incoming.prompt
        stream = self._engine.generate(
            prompt.ids() if self._images else prompt.json(),
            sampling,
            images=self._images,
            version=parameters.version,
            request_id=self.turn_id.removeprefix("turn_"),
            top_logprobs=parameters.logprobs or 0,
        )
        last = time.perf_counter()
        async with aclosing(cast("AsyncGenerator[Tokens, None]", stream)) as events:
            async for tokens in events:
                current = time.perf_counter()
                if self._first_token is None and tokens.ids:
                    self._first_token = now()
                    self._metrics.first_token.observe(self._first_token - self.incoming.arrived)
                elif tokens.ids:
                    self._metrics.gap.observe(current - last)
                last = current
                yield self._take(tokens)
                if self._engine_reason is not None or self._ended_here():
                    break
        if self._engine_reason is None and not self._parser.done:
            raise EngineError("its stream ended before the answer did", status=502)
        if self._engine_reason == "abort" and not self._parser.done:
            raise EngineError("it gave the answer up", status=503)

    async def complete(self) -> tuple[Sequence[Delta], Answer]:
        """The last deltas and the whole answer, once the turn is committed. Raises `JournalError`."""
        deltas, answer = self._finish(self._engine_reason or "stop")
        taken = told(self.incoming.prompt.taken) if self.ids else ""
        notes = filter(None, (self.incoming.note, self._offered.note(), taken))
        await self._commit("complete", answer, "; ".join(notes))
        return deltas, answer

    async def abandon(self, status: TurnStatus, error: str) -> None:
        """Record what there is of an answer that broke off; of one that never began there is nothing to record."""
        if self._answer is not None:
            return
        _, answer = self._finish("abort")
        if status == "aborted":
            self._metrics.aborted.inc()
        if status == "aborted" or self.ids:
            with contextlib.suppress(JournalError):  # the recorder remembers it; there is nobody left to tell
                await self._commit(status, answer, error)

    def _finish(self, reason: str) -> tuple[Sequence[Delta], Answer]:
        deltas, self._answer = self._parser.finish(reason)
        return self._offered.finish(deltas, self._answer)

    @property
    def stop_matched(self) -> str | None:
        """The stop string that ended the answer."""
        return self._parser.stop_matched

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        prompt, answer = self.incoming.prompt.length, len(self.ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def told_logprobs(self, start: int, end: int) -> list[dict[str, Any]] | None:
        """OpenAI's logprobs of the tokens in a range, without the one that ends the answer; `None` if the client did
        not ask.
        """
        wanted = self.incoming.parameters.logprobs
        if wanted is None:
            return None
        told = []
        for position in range(start, min(end, len(self.logprobs))):
            if self.ids[position] in self._prompter.stop_ids:
                continue
            top = self.top_logprobs[position] if position < len(self.top_logprobs) else ()
            entry = self._told(self.ids[position], self.logprobs[position])
            told.append({**entry, "top_logprobs": [self._told(token, value) for value, token in top[:wanted]]})
        return told

    def _told(self, token: int, logprob: float) -> dict[str, Any]:
        data = self._prompter.vocab.bytes_of[token]
        return {"token": data.decode("utf-8", "replace"), "logprob": max(logprob, -9999.0), "bytes": list(data)}

    def _take(self, tokens: Tokens) -> Batch:
        start = len(self.ids)
        self.ids += tokens.ids
        self.logprobs += tokens.logprobs
        if tokens.top_logprobs:
            self.top_logprobs += tokens.top_logprobs
        end = len(self.ids)
        if end > start and (not self._from or self._from[-1][0] != tokens.version):
            self._from.append((tokens.version, start))
        self.version = tokens.version
        self._forced |= tokens.forced
        self._unscaled |= tokens.unscaled
        if tokens.prompt_tokens:
            self._prompt_tokens = tokens.prompt_tokens
        if tokens.cached_tokens:
            self.cached_tokens = tokens.cached_tokens
        if tokens.finish_reason is not None:
            self._engine_reason = tokens.finish_reason
            if tokens.versions:
                self._versions = list(tokens.versions)
        ids = tokens.ids
        if self.incoming.parameters.sampling.ignore_eos:
            ids = [token for token in ids if token not in self._prompter.stop_ids]
        return Batch(self._offered.deltas(self._parser.feed_many(ids)), start, end)

    def _spans(self) -> tuple[VersionSpan, ...]:
        """Which version sampled which tokens."""
        if self._versions or not self._from:  # the latter where the policy sampled nothing
            return tuple(self._versions)
        ends = [*(start for _, start in self._from[1:]), len(self.ids)]
        return tuple(VersionSpan(version, start, end) for (version, start), end in zip(self._from, ends, strict=True))

    def _ended_here(self) -> bool:
        """Whether the parser ended the answer while the engine goes on; after a stop token it ends by itself, and has
        more to tell.
        """
        return self._parser.done and self.ids[-1] not in self._prompter.stop_ids

    def _untrainable(self) -> str:
        answer = self._answer  # as it was parsed, before anything in it was told otherwise
        assert answer is not None
        if len(self.ids) != len(self.logprobs):
            return f"{len(self.logprobs)} logprobs for {len(self.ids)} sampled tokens"
        if not all(map(math.isfinite, self.logprobs)):
            return "a logprob is not a finite number"
        if self._forced:
            return "the engine was told what to answer and sampled nothing"
        if self.incoming.prompt.forced:
            return "tool_choice forced the beginning of the answer"
        if self.incoming.parameters.sampling.ignore_eos:
            return "ignore_eos sampled past the end of the answer"
        if self.incoming.parameters.sampling.json_schema:
            return "response_format held the answer to a schema: its logprobs are not the policy's own"
        if self._images and self._prompt_tokens != self.incoming.prompt.length:
            return (
                f"the engine made {self._prompt_tokens} tokens of a prompt with images that has "
                f"{self.incoming.prompt.length} by the files of the model"
            )
        if self._images and holds_placeholder(self.ids, self.incoming.prompt.packed(), self._images):
            return "the answer holds the placeholder of an image, which nobody can tell from an image again"
        if answer.finish_reason != "abort" and not self._prompter.agrees(
            self.incoming.prompt, self.ids, answer, thinking=self.incoming.thinking
        ):
            self._metrics.mismatches.inc()
            return "two parsers read the answer differently"
        return ""

    async def _commit(self, status: TurnStatus, answer: Answer, error: str = "") -> None:
        incoming, metrics = self.incoming, self._metrics
        placement, verdict = incoming.placement, incoming.verdict
        metrics.turns.labels(verdict.kind, verdict.reason, status).inc()
        metrics.prompt_tokens.inc(incoming.prompt.length)
        metrics.cached_tokens.inc(self.cached_tokens)
        metrics.answer_tokens.inc(len(self.ids))
        if not incoming.tracked:
            await self._recorder.count(verdict.kind, verdict.reason)
            return
        assert self._entry is not None
        untrainable = self._untrainable()
        if untrainable:
            metrics.untrainable.inc()
        message = answer.message()
        if self.ids and self._prompter.outgoing is not None:
            self._prompter.outgoing.said(message)
        finished = now()
        turn = Turn(
            turn_id=self.turn_id,
            session_id=placement.session_id,
            episode=self._entry.opening.number or 0,  # the recorder knows it, once it is open
            parent_turn_id=placement.parent.turn_id if placement.parent is not None else None,
            parent_reason=placement.parent_reason,
            kind=verdict.kind,
            kind_reason=verdict.reason,
            dialect=incoming.dialect,
            policy=self._recorder.policy,
            messages=incoming.chat.messages,
            tools=incoming.chat.tools,
            answer=message,
            prompt_ids=incoming.prompt.packed(),
            response_ids=self.ids,
            logprobs=self.logprobs,
            sampling=msgspec.structs.replace(incoming.parameters.sampling, unscaled=self._unscaled),
            versions=self._spans(),
            finish_reason=answer.finish_reason,
            status=status,
            error=error,
            timings=Timings(arrived=incoming.arrived, first_token=self._first_token, finished=finished),
            request_key=placement.request_key,
            answer_key=incoming.chain.answer_key(message),
            exchange_key=incoming.chain.exchange_key(message),
            untrainable=untrainable,
            image_spans=tuple(ImageSpan(image.start, image.end) for image in self._images),
        )
        recording = asyncio.ensure_future(self._recorder.record(turn, self._entry, incoming.written))
        try:
            await asyncio.shield(recording)
        except asyncio.CancelledError:
            await recording
            raise


def _tool_names(chat: ChatInput) -> list[str]:
    return [tool["function"]["name"] for tool in chat.tools]
