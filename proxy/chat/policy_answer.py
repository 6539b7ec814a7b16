"""The policy's answer to one request, as the engine samples it.

Invariant: `ids` and `logprobs` are what the engine sampled, all of it and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec

from openclaw_rl.proxy.chat.offered_tools import OfferedCalls
from openclaw_rl.proxy.chat.request import RenderedRequest
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.engine.protocol import Engine, Tokens
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.messages.images import holds_placeholder
from openclaw_rl.shared.records import Message, VersionSpan, now
from openclaw_rl.shared.redaction.outgoing import describe_taken
from openclaw_rl.shared.rendering.prompter import Prompter


class AnswerPart(msgspec.Struct, frozen=True, gc=False):
    """One event of an answer: deltas to show, and the number of tokens sampled so far."""

    deltas: Sequence[Delta]
    end: int = 0


class PolicyAnswer:
    """Use once: all of `parts`, then `finish`. `version` is the last one that sampled, -1 before the first token."""

    credit = ""

    def __init__(self, request: RenderedRequest, *, engine: Engine, prompter: Prompter, metrics: Metrics) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.version = -1
        self.cached_tokens = 0
        self.first_token: float | None = None
        self.unscaled = False
        self.images = request.prompt.placed_images()
        self._request = request
        self._engine = engine
        self._prompter = prompter
        self._metrics = metrics
        self._parser = prompter.parser(request.prompt, request.chat, stop=request.parameters.sampling.stop)
        names = [tool["function"]["name"] for tool in request.chat.tools]
        self._offered = OfferedCalls(names, prompter.family.grammar)
        self._parsed: Answer | None = None
        self._top_logprobs: list[Sequence[tuple[float, int]]] = []
        self._spans: list[VersionSpan] = []  # complete once the engine has reported them
        self._starts: list[tuple[int, int]] = []  # until then: versions, and the position that each began at
        self._ignore_eos = request.parameters.sampling.ignore_eos
        self._reason: str | None = None
        self._forced = False
        self._counted_prompt = request.prompt.length  # tokens, as the engine counts them

    async def parts(self) -> AsyncIterator[AnswerPart]:
        """Sample the answer. Raises `EngineError`; closing or leaving this iterator aborts the engine's work."""
        parameters, prompt = self._request.parameters, self._request.prompt
        stop_ids = () if self._ignore_eos else self._prompter.own_stop_ids
        stream = self._engine.generate(
            prompt.ids() if self.images else prompt.json(),
            msgspec.structs.replace(parameters.sampling, stop=(), stop_ids=stop_ids),
            images=self.images,
            version=parameters.version,
            request_id=self._request.placement.turn_id.removeprefix("turn_"),
            top_logprobs=parameters.logprobs or 0,
        )
        last = time.perf_counter()
        async with aclosing(cast("AsyncGenerator[Tokens, None]", stream)) as events:
            async for tokens in events:
                current = time.perf_counter()
                if self.first_token is None and tokens.ids:
                    self.first_token = now()
                    self._metrics.first_token.observe(self.first_token - self._request.arrived)
                elif tokens.ids:
                    self._metrics.gap.observe(current - last)
                last = current
                yield self._take(tokens)
                if self._reason is not None or (self._parser.done and self.ids[-1] not in self._prompter.stop_ids):
                    break  # after a stop token the parser is done too, but the engine's last event is still to come
        if self._reason is None and not self._parser.done:
            raise EngineError("its stream ended before the answer did", status=502)
        if self._reason == "abort" and not self._parser.done:
            raise EngineError("it gave the answer up", status=503)

    def finish(self, *, aborted: bool = False) -> tuple[Sequence[Delta], Answer]:
        """The last deltas and the whole answer, of what was sampled."""
        deltas, self._parsed = self._parser.finish("abort" if aborted else self._reason or "stop")
        return self._offered.finish(deltas, self._parsed)

    @property
    def stop_matched(self) -> str | None:
        """The stop string that ended the answer."""
        return self._parser.stop_matched

    def notes(self) -> list[str]:
        """Remarks for the turn's record; some may be empty."""
        redacted = describe_taken(self._request.prompt.taken) if self.ids else ""
        return [self._request.note, self._offered.note(), redacted]

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        prompt, answer = self._request.prompt.length, len(self.ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def openai_logprobs(self, start: int, end: int | None = None) -> list[dict[str, Any]] | None:
        """OpenAI's logprobs of a range of tokens, without one that ends the answer; `None` if not asked for."""
        wanted = self._request.parameters.logprobs
        if wanted is None:
            return None
        entries = []
        for position in range(start, len(self.logprobs) if end is None else min(end, len(self.logprobs))):
            if self.ids[position] in self._prompter.stop_ids:
                continue
            top = self._top_logprobs[position] if position < len(self._top_logprobs) else ()
            entry = self._logprob(self.ids[position], self.logprobs[position])
            entries.append({**entry, "top_logprobs": [self._logprob(token, value) for value, token in top[:wanted]]})
        return entries

    def version_spans(self) -> tuple[VersionSpan, ...]:
        """The versions that sampled, and which tokens."""
        if self._spans or not self._starts:
            return tuple(self._spans)
        ends = [*(start for _, start in self._starts[1:]), len(self.ids)]
        return tuple(VersionSpan(version, start, end) for (version, start), end in zip(self._starts, ends, strict=True))

    def keep_unredacted(self, message: Message) -> None:
        """Send this answer of the policy back to it as it is, in later prompts."""
        if self.ids and self._prompter.outgoing is not None:
            self._prompter.outgoing.said(message)

    def why_untrainable(self) -> str:
        """Reason why the finished answer cannot be trained on, "" if it can."""
        answer, request = self._parsed, self._request  # as it was parsed, with calls of tools that were not offered
        assert answer is not None
        if len(self.ids) != len(self.logprobs):
            return f"{len(self.logprobs)} logprobs for {len(self.ids)} sampled tokens"
        if not all(map(math.isfinite, self.logprobs)):
            return "a logprob is not a finite number"
        if self._forced:
            return "the engine was given the answer and sampled nothing"
        if request.prompt.forced:
            return "tool_choice forced the beginning of the answer"
        if self._ignore_eos:
            return "ignore_eos sampled past the end of the answer"
        if request.parameters.sampling.json_schema:
            return "response_format held the answer to a schema: its logprobs are not the policy's own"
        if self.images and self._counted_prompt != request.prompt.length:
            return (
                f"the engine made {self._counted_prompt} tokens of a prompt with images that has "
                f"{request.prompt.length} by the files of the model"
            )
        if self.images and holds_placeholder(self.ids, request.prompt.packed(), self.images):
            return "the answer holds the placeholder of an image, which cannot be distinguished from an image later"
        if answer.finish_reason != "abort" and not self._prompter.agrees(
            request.prompt, self.ids, answer, thinking=request.thinking
        ):
            self._metrics.mismatches.inc()
            return "two parsers read the answer differently"
        return ""

    def _take(self, tokens: Tokens) -> AnswerPart:
        start = len(self.ids)
        self.ids += tokens.ids
        self.logprobs += tokens.logprobs
        if tokens.top_logprobs:
            self._top_logprobs += tokens.top_logprobs
        end = len(self.ids)
        if end > start and (not self._starts or self._starts[-1][0] != tokens.version):
            self._starts.append((tokens.version, start))
        self.version = tokens.version
        self._forced |= tokens.forced
        self.unscaled |= tokens.unscaled
        if tokens.prompt_tokens:
            self._counted_prompt = tokens.prompt_tokens
        if tokens.cached_tokens:
            self.cached_tokens = tokens.cached_tokens
        if tokens.finish_reason is not None:
            self._reason = tokens.finish_reason
            if tokens.versions:
                self._spans = list(tokens.versions)
        ids = tokens.ids
        if self._ignore_eos:
            ids = [token for token in ids if token not in self._prompter.stop_ids]
        return AnswerPart(self._offered.deltas(self._parser.feed_many(ids)), end)

    def _logprob(self, token: int, logprob: float) -> dict[str, Any]:
        data = self._prompter.vocab.bytes_of[token]
        return {"token": data.decode("utf-8", "replace"), "logprob": max(logprob, -9999.0), "bytes": list(data)}
