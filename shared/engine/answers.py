"""Answers of an engine, as a client reads them: SGLang's JSON, streamed or whole, as `Tokens` and `EngineError`.

SGLang's native wire (`/generate`) is spoken by SGLang itself and by our own engines (`server.py`), which add a few
fields. Events may be cumulative or incremental, cut and joined anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.engine.endpoint import MAX_ATTEMPTS, error_message
from openclaw_rl.shared.engine.http_client import Reply, Silence
from openclaw_rl.shared.engine.protocol import Tokens
from openclaw_rl.shared.errors import ContextLengthExceeded, EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan

_TOO_LONG = re.compile(r"context length|context_length|longer than the model", re.IGNORECASE)
_NO_ADAPTER = re.compile(r"LoRA adapter", re.IGNORECASE)
_LIMIT = re.compile(r"(?:context length|context_length)\D{0,40}(\d+)", re.IGNORECASE)
_LABEL = re.compile(r"(?:policy-v)?(\d+)(?:[.-][0-9a-f]+)?")
_DRAIN_SECONDS = 0.2
_ID_IN_USE = "Duplicate request ID"
"""SGLang continues a cut-off answer until it checks for a listener, every four seconds (0.5.23)."""
_ID_IN_USE_SECONDS = 15.0
_PAUSE = 0.25
STALL_SECONDS = 180.0
"""Maximum time between two tokens of an answer. An engine that works may say nothing for long: SGLang pauses all
answers while it reads new weights from a disk, and computes them again from their prompts afterwards.
"""

BROKEN = "broken"
"""The `weight_version` of a server whose weights are a mixture of two versions."""


@functools.lru_cache(64)
def version_number(label: str | int | None) -> int:
    """The version that a `weight_version` names: `7`, `7.DIGEST` and `policy-v7-DIGEST` are 7, `broken` is −1, anything
    else (SGLang's `default`) is the base, 0.
    """
    if label == BROKEN:
        return -1
    found = _LABEL.fullmatch(str(label))
    return int(found.group(1)) if found else 0


class WireSpan(msgspec.Struct):
    """One entry of `weight_versions`."""

    version: str | int
    start: int
    end: int


class FinishReason(msgspec.Struct):
    """`finish_reason`; `status_code` is present when an abort is really an error."""

    type: str
    message: str | None = None
    status_code: int | None = None


class Meta(msgspec.Struct, gc=False):
    """`meta_info`; logprob entries are `[logprob, id, text]`. `output_token_sampling_logprobs` are those after top-k,
    top-p and min-p, where asked for. `forced` is not SGLang's: a script in front of an engine says with it that it
    chose the tokens itself."""

    finish_reason: FinishReason | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    weight_version: str | int = 0
    weight_versions: list[WireSpan] | None = None
    forced: bool = False
    output_token_logprobs: list[tuple[float, int, Any]] | None = None
    output_token_sampling_logprobs: list[float] | None = None
    output_top_logprobs: list[list[tuple[float | None, int, Any]] | None] | None = None
    input_token_logprobs: list[tuple[float | None, int, Any]] | None = None
    input_top_logprobs: list[list[tuple[float | None, int, Any]] | None] | None = None


class _Body(msgspec.Struct, gc=False):
    """One event, or the body of an answer that is not streamed."""

    meta_info: Meta | None = None
    error: Any = None


class AdapterMissing(EngineError):
    """A request named an adapter that the engine does not hold."""


class Requested(msgspec.Struct, frozen=True):
    """The wishes of a request: `top_logprobs`, logprobs after top-k, top-p and min-p (`filtered`), and the version,
    where the engine does not say itself which one answers."""

    top_logprobs: bool = False
    filtered: bool = False
    version: int | None = None


_BODY = msgspec.json.Decoder(_Body)
_NOTHING = Meta()


class Refusal(msgspec.Struct, frozen=True):
    """Turns an engine's error bodies into our errors; knows the request's prompt, how many tokens it wants, and the
    context limit (0: unknown)."""

    url: str
    prompt_ids: Sequence[int] | bytes = ()
    requested_tokens: int = 0
    context_length: int = 0

    def error(self, message: str, status: int | None) -> EngineError:
        """The error for this message."""
        ids = self.prompt_ids
        if _TOO_LONG.search(message):
            stated = _LIMIT.search(message)
            return ContextLengthExceeded(
                prompt_tokens=len(msgspec.json.decode(ids) if isinstance(ids, bytes) else ids),
                requested_tokens=self.requested_tokens,
                context_length=int(stated.group(1)) if stated else self.context_length,
            )
        kind = AdapterMissing if _NO_ADAPTER.search(message) else EngineError
        return kind(f"the engine at {self.url} refused: {message}", status=status)

    def check(self, status: int, raw: bytes) -> Meta:
        """The meta info of a body or event; raises the error that it holds instead."""
        try:
            body = _BODY.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            body = None
        if body is not None and status == 200 and body.error is None and body.meta_info is not None:
            return body.meta_info
        code = body.error.get("code") if body is not None and isinstance(body.error, dict) else None
        raise self.error(error_message(raw), status if status != 200 else code if isinstance(code, int) else None)


class AnswerStream:
    """The tokens of one streamed answer, in groups as they are read. `send` sends the request, again where it was cut
    off before its first token. Closing the stream early closes the connection, which aborts the work."""

    __slots__ = ("_begun", "_finished", "_refusal", "_reply", "_requested", "_rest", "_send", "seen")

    def __init__(self, send: Callable[[], Awaitable[Reply]], refusal: Refusal, requested: Requested) -> None:
        self._send = send
        self._refusal = refusal
        self._requested = requested
        self._reply: Reply | None = None
        self._rest = b""
        self._begun = self._finished = False
        self.seen = 0

    async def read(self) -> Tokens | None:
        """The next tokens; `None` after those with a finish reason. Raises `EngineError` when the engine refuses,
        breaks off or takes too long."""
        if self._finished:
            await self._drain()
            return None
        events = await self._events()
        if not events:
            raise EngineError(
                f"the engine at {self._refusal.url} ended the stream after {self.seen} tokens without a finish reason"
            )
        tokens = read_tokens(events, self.seen, self._requested, self._refusal)
        if tokens.ids and not self.seen and self._reply is not None:  # not before: a prompt may take long
            self._reply.limit_silence(STALL_SECONDS)
        self.seen += len(tokens.ids)
        self._finished = tokens.finish_reason is not None
        return tokens

    def close(self) -> None:
        """Close the connection; it is kept for the next request if the answer was read to its end."""
        if self._reply is not None:
            self._reply.close()

    async def _events(self) -> list[bytes]:
        """The next events; empty at the end."""
        attempts = 0
        cut_off = 0.0
        while True:
            try:
                reply = self._reply or await self._open()
                chunk = await reply.read()
            except EngineError as error:
                if not attempts or _ID_IN_USE not in str(error) or time.monotonic() - cut_off > _ID_IN_USE_SECONDS:
                    raise
                self._reply = None
                await asyncio.sleep(_PAUSE)
                continue
            except Silence as error:
                raise EngineError(
                    f"the engine at {self._refusal.url} stopped in the middle of an answer: no token for "
                    f"{STALL_SECONDS:g} s"
                ) from error
            except TimeoutError as error:
                raise EngineError(f"the engine at {self._refusal.url} did not finish the answer in time") from error
            except OSError as error:
                attempts, cut_off = attempts + 1, time.monotonic()
                if self._begun or attempts == MAX_ATTEMPTS:
                    raise EngineError(
                        f"the engine at {self._refusal.url} broke off in the middle of an answer"
                    ) from error
                self.close()
                self._reply, self._rest = None, b""
                continue
            if not chunk:
                return []
            if self._rest:
                chunk = self._rest + chunk
            blocks = chunk.split(b"\n\n")
            self._rest = blocks.pop()
            events = [block[5:] for block in blocks if block.startswith(b"data:") and not block.endswith(b"[DONE]")]
            if events:
                self._begun = True
                return events

    async def _drain(self) -> None:
        """Read what follows the last event, so that the connection can be used again; it may not come."""
        reply = self._reply
        assert reply is not None
        if reply.complete:
            return
        reply.expire(_DRAIN_SECONDS)
        with contextlib.suppress(OSError):
            while await reply.read():
                pass

    async def _open(self) -> Reply:
        reply = self._reply = await self._send()
        if reply.status != 200:
            self._refusal.check(reply.status, await reply.body())
        return reply


def read_tokens(events: Sequence[bytes], seen: int, requested: Requested, refusal: Refusal) -> Tokens:
    """The tokens after the first `seen` ones, whether events are cumulative or incremental; stops at the last event.

    Raises `EngineError` when an event is an error or lacks what was asked for.
    """
    ids: list[int] = []
    values: list[float] = []
    top_logprobs: list[list[tuple[float, int]]] = []
    meta = _NOTHING
    for event in events:
        meta = refusal.check(200, event)
        new = meta.completion_tokens - seen
        if new > 0:
            entries = meta.output_token_logprobs or []
            if len(entries) > new:
                entries = entries[-new:]
            filtered = meta.output_token_sampling_logprobs
            given = min(len(entries), len(filtered or ())) if requested.filtered else len(entries)
            if given < new:
                raise EngineError(f"the engine sent {given} logprobs for {new} tokens")
            for logprob, token, _ in entries:
                ids.append(token)
                values.append(logprob)
            if requested.filtered and filtered is not None:
                values[-new:] = filtered[-new:]
            if requested.top_logprobs:
                top_logprobs.extend(logprob_pairs(top) for top in (meta.output_top_logprobs or [])[-new:])
            seen = meta.completion_tokens
        if meta.finish_reason is not None:
            break
    finish = meta.finish_reason
    version = version_number(meta.weight_version) if requested.version is None else requested.version
    if finish is None:
        return Tokens(ids, values, version, top_logprobs=top_logprobs, forced=meta.forced)
    if finish.status_code is not None and finish.status_code >= 400:
        raise refusal.error(finish.message or finish.type, finish.status_code)
    spans = _merge_spans(meta.weight_versions or ()) if requested.version is None else []
    return Tokens(
        ids=ids,
        logprobs=values,
        version=version,
        finish_reason=finish.type,
        versions=spans or [VersionSpan(version, 0, seen)],
        prompt_tokens=meta.prompt_tokens,
        cached_tokens=meta.cached_tokens,
        top_logprobs=top_logprobs,
        forced=meta.forced,
    )


def _merge_spans(spans: Sequence[WireSpan]) -> list[VersionSpan]:
    """One span a version: two labels in a row may name the same one (`default` and `0`)."""
    merged: list[VersionSpan] = []
    for span in spans:
        version, start = version_number(span.version), span.start
        if merged and merged[-1].version == version:
            start = merged.pop().start
        merged.append(VersionSpan(version, start, span.end))
    return merged


def sampling_params(sampling: Sampling) -> dict[str, Any]:
    """SGLang's sampling parameters."""
    fields: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k if sampling.top_k > 0 else -1,
        "min_p": sampling.min_p,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "ignore_eos": sampling.ignore_eos,
    }
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.stop_ids:
        fields["stop_token_ids"] = list(sampling.stop_ids)
    if sampling.json_schema:
        fields["json_schema"] = sampling.json_schema
    if sampling.seed is not None:
        fields["sampling_seed"] = sampling.seed
    return fields


def generate_request(sampling: Sampling, request_id: str, top_logprobs: int) -> dict[str, Any]:
    """The fields of a streamed `/generate`, without the prompt."""
    return {
        "rid": request_id,
        "sampling_params": sampling_params(sampling),
        "stream": True,
        "return_logprob": True,
        "top_logprobs_num": top_logprobs,
    }


def score_request(request_id: str, prompt_tokens: int, top_logprobs: int, *, fresh: bool) -> dict[str, Any]:
    """The fields of a `/generate` that samples nothing and returns the logprobs of what follows the prompt; `fresh`
    uses nothing that is cached.
    """
    fields = {
        "rid": request_id,
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        "stream": False,
        "return_logprob": True,
        # The first entry of the window has no logprob: begin one token before the continuation.
        "logprob_start_len": prompt_tokens - 1,
        "top_logprobs_num": top_logprobs,
    }
    # SGLang's prefix cache serves only requests with the same key.
    return fields | ({"extra_key": request_id} if fresh else {})


def read_scores(meta: Meta, ids: Sequence[int], url: str) -> tuple[list[float], list[list[tuple[float, int]]]]:
    """The logprobs and top logprobs of the continuation `ids`. Raises `EngineError` where others were scored."""
    entries = (meta.input_token_logprobs or [])[-len(ids) :]
    logprobs = [logprob for logprob, *_ in entries if logprob is not None]
    if not same_ids([token for _, token, *_ in entries], ids) or len(logprobs) != len(entries):
        raise EngineError(f"the engine at {url} scored other tokens than it was given")
    return logprobs, [logprob_pairs(top) for top in (meta.input_top_logprobs or [])[-len(ids) :]]


def with_ids(request: dict[str, Any], ids: Sequence[int] | bytes) -> bytes:
    """The JSON body; ids that are JSON already are inserted as they are."""
    array = ids if isinstance(ids, bytes) else msgspec.json.encode(list(ids))
    return b'{"input_ids":' + array + b"," + msgspec.json.encode(request)[1:]


def same_ids(scored: Sequence[int], given: Sequence[int]) -> bool:
    """True if an engine scored the given tokens. SGLang (0.5.23) calls the vocabulary's last id 0."""
    if len(scored) != len(given):
        return False
    others = {(one, other) for one, other in zip(scored, given, strict=True) if one != other}
    return not others or (len(others) == 1 and next(iter(others))[0] == 0)


def logprob_pairs(top: Sequence[Sequence[Any]] | None) -> list[tuple[float, int]]:
    """`(logprob, id)` pairs without SGLang's third field, and without impossible tokens (a schema leaves fewer than
    were asked for): their logprob is null.
    """
    return [(float(entry[0]), int(entry[1])) for entry in top or () if entry[0] is not None]
