"""SGLang's JSON, as the engine client reads and writes it. See `trainer_local.sglang.client`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.engine.protocol import Tokens
from openclaw_rl.shared.errors import ContextLengthExceeded, EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from openclaw_rl.trainer_local.sglang.labels import number

_TOO_LONG = re.compile(r"context length|context_length|longer than the model", re.IGNORECASE)
_NO_ADAPTER = re.compile(r"LoRA adapter", re.IGNORECASE)
_LIMIT = re.compile(r"(?:context length|context_length)\D{0,40}(\d+)", re.IGNORECASE)


class Span(msgspec.Struct):
    """One entry of `weight_versions`."""

    version: str | int
    start: int
    end: int


class Finish(msgspec.Struct):
    """`finish_reason`; `status_code` is there when an abort is really an error."""

    type: str
    message: str | None = None
    status_code: int | None = None


class Meta(msgspec.Struct, gc=False):
    """`meta_info`; logprob entries are `[logprob, id, text]`. `output_token_sampling_logprobs` are those after top-k,
    top-p and min-p, where they were asked for. `forced` is not SGLang's: a script in front of an engine says with it
    that it chose the tokens itself."""

    finish_reason: Finish | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    weight_version: str | int = 0
    weight_versions: list[Span] | None = None
    forced: bool = False
    output_token_logprobs: list[tuple[float, int, Any]] | None = None
    output_token_sampling_logprobs: list[float] | None = None
    output_top_logprobs: list[list[tuple[float | None, int, Any]] | None] | None = None
    input_token_logprobs: list[tuple[float | None, int, Any]] | None = None
    input_top_logprobs: list[list[tuple[float | None, int, Any]] | None] | None = None


class Body(msgspec.Struct, gc=False):
    """One event, or the body of an answer that is not streamed."""

    meta_info: Meta | None = None
    error: Any = None


class UpdateResult(msgspec.Struct):
    """What a change of weights or adapters answers; of adapters `error_message` says what went wrong."""

    success: bool = True
    message: str = ""
    error_message: str | None = None


class AdapterMissing(EngineError):
    """A request named an adapter that the engine has not."""


class Asked(msgspec.Struct, frozen=True):
    """What a request asked for: the likeliest tokens beside each (`tops`), logprobs after top-k, top-p and min-p
    (`filtered`), and the version, where the engine does not say of itself which one it is."""

    tops: bool = False
    filtered: bool = False
    version: int | None = None


_BODY = msgspec.json.Decoder(Body)
_NOTHING = Meta()


def decoded(raw: bytes, kind: type[Any]) -> Any:
    """JSON as `kind`, `None` if it is not that."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def tokens(events: Sequence[bytes], seen: int, asked: Asked, refused: Refusal) -> Tokens:
    """The tokens after the first `seen` ones, whether events are cumulative or incremental; stops at the last event.

    Raises `EngineError` when an event is an error or misses what was asked for.
    """
    ids: list[int] = []
    values: list[float] = []
    found_tops: list[list[tuple[float, int]]] = []
    meta = _NOTHING
    for event in events:
        meta = refused.checked(200, event)
        new = meta.completion_tokens - seen
        if new > 0:
            entries = meta.output_token_logprobs or []
            if len(entries) > new:
                entries = entries[-new:]
            filtered = meta.output_token_sampling_logprobs
            told = min(len(entries), len(filtered or ())) if asked.filtered else len(entries)
            if told < new:
                raise EngineError(f"the engine sent {told} logprobs for {new} tokens")
            for logprob, token, _ in entries:
                ids.append(token)
                values.append(logprob)
            if asked.filtered and filtered is not None:
                values[-new:] = filtered[-new:]
            if asked.tops:
                found_tops.extend(pairs(top) for top in (meta.output_top_logprobs or [])[-new:])
            seen = meta.completion_tokens
        if meta.finish_reason is not None:
            return _last(ids, values, found_tops, meta, seen, asked, refused)
    version = number(meta.weight_version) if asked.version is None else asked.version
    return Tokens(ids, values, version, top_logprobs=found_tops, forced=meta.forced)


def _last(
    ids: list[int],
    values: list[float],
    tops: list[list[tuple[float, int]]],
    meta: Meta,
    seen: int,
    asked: Asked,
    refused: Refusal,
) -> Tokens:
    """What ends an answer of `seen` tokens. Raises `EngineError` where that is an error."""
    finish = meta.finish_reason
    assert finish is not None
    if finish.status_code is not None and finish.status_code >= 400:
        raise refused.error(finish.message or finish.type, finish.status_code)
    version, spans = asked.version, []
    if version is None:
        version = number(meta.weight_version)
        spans = _spans(meta.weight_versions or ())
    return Tokens(
        ids=ids,
        logprobs=values,
        version=version,
        finish_reason=finish.type,
        versions=spans or [VersionSpan(version, 0, seen)],
        prompt_tokens=meta.prompt_tokens,
        cached_tokens=meta.cached_tokens,
        top_logprobs=tops,
        forced=meta.forced,
    )


def _spans(told: Sequence[Span]) -> list[VersionSpan]:
    """One span a version: what was sampled while weights were on their way is of the version before, like what comes
    before it.
    """
    spans: list[VersionSpan] = []
    for span in told:
        version, start = number(span.version), span.start
        if spans and spans[-1].version == version:
            start = spans.pop().start
        spans.append(VersionSpan(version, start, span.end))
    return spans


class Refusal(msgspec.Struct, frozen=True):
    """Turns what an engine says into our errors; knows the request's prompt, how many tokens it wants, and the context
    limit (0: unknown)."""

    url: str
    prompt_ids: Sequence[int] | bytes = ()
    requested_tokens: int = 0
    context_length: int = 0

    def error(self, message: str, status: int | None) -> EngineError:
        """The error for these words."""
        if _TOO_LONG.search(message):
            stated = _LIMIT.search(message)
            return ContextLengthExceeded(
                prompt_tokens=count(self.prompt_ids),
                requested_tokens=self.requested_tokens,
                context_length=int(stated.group(1)) if stated else self.context_length,
            )
        kind = AdapterMissing if _NO_ADAPTER.search(message) else EngineError
        return kind(f"the engine at {self.url} refused: {message}", status=status)

    def checked(self, status: int, raw: bytes) -> Meta:
        """The meta info of a body or event; raises the error that it holds instead."""
        try:
            body = _BODY.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            body = None
        if body is not None and status == 200 and body.error is None and body.meta_info is not None:
            return body.meta_info
        told = body.error.get("code") if body is not None and isinstance(body.error, dict) else None
        raise self.error(message(raw), status if status != 200 else told if isinstance(told, int) else None)


def message(raw: bytes) -> str:
    """The words of an error body, whatever its shape."""
    body = decoded(raw, dict[str, Any])
    if body is not None:
        error = body.get("error", body)
        text = error.get("message") if isinstance(error, dict) else error
        if text:
            return str(text)
    return raw[:500].decode(errors="replace") or "an empty answer"


def params(sampling: Sampling) -> dict[str, Any]:
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


def filters(sampling: Sampling) -> bool:
    """Whether some tokens are never sampled: top-k, top-p or min-p is on."""
    return sampling.temperature > 0 and (sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0)


def with_ids(request: dict[str, Any], ids: Sequence[int] | bytes) -> bytes:
    """The JSON body; ids that are JSON already are put in as they are."""
    array = ids if isinstance(ids, bytes) else msgspec.json.encode(list(ids))
    return b'{"input_ids":' + array + b"," + msgspec.json.encode(request)[1:]


def count(ids: Sequence[int] | bytes) -> int:
    """Number of ids, in JSON or not."""
    if isinstance(ids, bytes):
        return ids.count(b",") + 1 if ids.strip(b"[] \n") else 0
    return len(ids)


def same(told: Sequence[int], given: Sequence[int]) -> bool:
    """Whether an engine scored the tokens that it was given. SGLang (0.5.23) calls the vocabulary's last id 0."""
    if len(told) != len(given):
        return False
    others = {(one, other) for one, other in zip(told, given, strict=True) if one != other}
    return not others or (len(others) == 1 and next(iter(others))[0] == 0)


def pairs(top: Sequence[Sequence[Any]] | None) -> list[tuple[float, int]]:
    """`(logprob, id)` pairs without SGLang's third field, and without tokens that could not come (a schema leaves fewer
    than were asked for): their logprob is null.
    """
    return [(float(entry[0]), int(entry[1])) for entry in top or () if entry[0] is not None]
