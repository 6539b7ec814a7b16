"""Parameters of a chat request: sampling, streaming, version, and `response_format`, which holds answers to a JSON
schema while the engine samples, where it can. Unsupported fields are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.proxy.http.json import read_fields
from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.equality import too_deep
from openclaw_rl.shared.messages.normalize import ChatInput, clean_text
from openclaw_rl.shared.records import Sampling

RESPONSE_FORMAT = "response_format"
ANY_OBJECT = '{"type":"object"}'
_INT64 = 2**63 - 1
_Count = Annotated[int, Meta(ge=1, le=_INT64)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is `None` for the live one; `model` is the name to answer with. `logprobs` is `None`, or the number of
    alternatives to report per token. `most_tokens` is the client's own limit, if it set one; `choices` the number of
    answers; `strict` that of its JSON schema.
    """

    model: str
    version: int | None
    sampling: Sampling
    stream: bool
    include_usage: bool
    logprobs: int | None
    most_tokens: int | None
    choices: int = 1
    strict: bool = False


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Fields(msgspec.Struct):
    """OpenAI's fields that become parameters."""

    max_completion_tokens: _Count | None = None
    max_tokens: _Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=_INT64)] = -1
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=2)] = 1.0
    stop: str | Annotated[list[str], Meta(max_length=16)] = ""
    seed: Annotated[int, Meta(ge=-_INT64, le=_INT64)] | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: _StreamOptions = msgspec.field(default_factory=_StreamOptions)
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 0
    n: Annotated[int, Meta(ge=1, le=16)] = 1


def read_parameters(
    body: Mapping[str, Any], *, names: ModelNames, max_output_tokens: int, temperature: float = 1.0
) -> Parameters:
    """The parameters in a decoded body; the last two are those of a body that names none. Raises `BadRequest`, or
    `NotFound` for an unknown model.
    """
    model, version = names.read(body.get("model"))
    _refuse_unsupported(body)
    fields = read_fields(body, _Fields)
    if fields.top_logprobs and not fields.logprobs:
        raise BadRequest("top_logprobs needs logprobs: true.", param="top_logprobs", code="invalid_value")
    most = fields.max_completion_tokens or fields.max_tokens
    stops = [fields.stop] if isinstance(fields.stop, str) else fields.stop
    schema, strict = _read_schema(body)
    sampling = Sampling(
        temperature=temperature if fields.temperature is None else fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k or -1,
        min_p=fields.min_p,
        frequency_penalty=fields.frequency_penalty,
        presence_penalty=fields.presence_penalty,
        repetition_penalty=fields.repetition_penalty,
        max_tokens=most or max_output_tokens,
        stop=tuple(clean_text(stop) for stop in stops if stop),
        seed=fields.seed,
        ignore_eos=fields.ignore_eos,
        json_schema=schema,
    )
    return Parameters(
        model=model,
        version=version,
        sampling=sampling,
        stream=fields.stream,
        include_usage=bool(fields.stream_options.include_usage),
        logprobs=fields.top_logprobs if fields.logprobs else None,
        most_tokens=most,
        choices=fields.n,
        strict=strict,
    )


def read_thinking(body: Mapping[str, Any]) -> bool | None:
    """Read the client's wish for reasoning, in any of the usual forms; `None` if it states none."""
    template = body.get("chat_template_kwargs")
    if isinstance(template, dict) and isinstance(template.get("enable_thinking"), bool):
        return bool(template["enable_thinking"])
    return False if body.get("reasoning_effort") == "none" else None


def check_schema(chat: ChatInput, thinking: bool | None, *, constrains: bool) -> None:
    """Raise `BadRequest` unless an answer to this request can be held to a schema; `constrains`: the engine can."""
    if not constrains:
        raise _format_refusal(
            "response_format: the engine cannot hold answers to a schema (SGLang with a grammar backend can). Use type "
            "text and ask for JSON in words."
        )
    if chat.tools:
        raise _format_refusal("response_format cannot be combined with tools: the answer could never be a call.")
    if thinking:
        raise _format_refusal("response_format cannot be combined with thinking: reasoning follows no schema.")


def _read_schema(body: Mapping[str, Any]) -> tuple[str, bool]:
    """The JSON schema that a chat body asks for ("" for text), and OpenAI's `strict`. Raises `BadRequest`."""
    match body.get(RESPONSE_FORMAT):
        case None | {"type": "text"}:
            return "", False
        case {"type": "json_object"}:
            return ANY_OBJECT, False
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema, **rest}} if not too_deep(schema):
            return msgspec.json.encode(schema).decode(), rest.get("strict") is True
        case {"type": "json_schema"}:
            raise _format_refusal("response_format.json_schema.schema must be a JSON schema.")
    raise _format_refusal("response_format must be of type text, json_object or json_schema.")


def _format_refusal(message: str) -> BadRequest:
    return BadRequest(message, param=RESPONSE_FORMAT, code="unsupported_value")


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    if body.get("logit_bias"):
        raise BadRequest("logit_bias is not supported.", param="logit_bias", code="unsupported_parameter")
    if body.get("functions") or body.get("function_call"):
        message = "functions and function_call are not supported; use tools and tool_choice."
        raise BadRequest(message, param="functions", code="unsupported_parameter")
    modalities = body.get("modalities")
    if body.get("audio") or (isinstance(modalities, list) and any(item != "text" for item in modalities)):
        message = "Only text can be answered: remove audio and modalities."
        raise BadRequest(message, param="modalities", code="unsupported_value")
