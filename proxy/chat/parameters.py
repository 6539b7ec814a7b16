"""Parameters of a chat request: sampling, streaming, version. Unsupported fields are refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from openclaw_rl.proxy.chat.response_format import is_strict, read_schema
from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.normalize import clean_text
from openclaw_rl.shared.records import Sampling

_MAX_STOPS = 16
_MAX_TOP_LOGPROBS = 20
_MAX_CHOICES = 16


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


def read_parameters(body: Mapping[str, Any], *, names: ModelNames, max_output_tokens: int) -> Parameters:
    """The parameters in a decoded body. Raises `BadRequest`, or `NotFound` for an unknown model."""
    model, version = names.read(body.get("model"))
    _refuse_unsupported(body)
    most = _integer(body, "max_completion_tokens", least=1)
    if most is None:
        most = _integer(body, "max_tokens", least=1)
    sampling = Sampling(
        temperature=_number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(body, "top_p", 1.0, 0.0, 1.0, open_below=True),
        top_k=_integer(body, "top_k", least=-1) or -1,
        min_p=_number(body, "min_p", 0.0, 0.0, 1.0),
        frequency_penalty=_number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        presence_penalty=_number(body, "presence_penalty", 0.0, -2.0, 2.0),
        repetition_penalty=_number(body, "repetition_penalty", 1.0, 0.0, 2.0, open_below=True),
        max_tokens=most or max_output_tokens,
        stop=_stop(body.get("stop")),
        seed=_integer(body, "seed"),
        ignore_eos=_flag(body, "ignore_eos"),
        json_schema=read_schema(body),
    )
    return Parameters(
        model=model,
        version=version,
        sampling=sampling,
        stream=_flag(body, "stream"),
        include_usage=_include_usage(body.get("stream_options")),
        logprobs=_logprobs(body),
        most_tokens=most,
        choices=_choices(body),
        strict=is_strict(body),
    )


def read_thinking(body: Mapping[str, Any]) -> bool | None:
    """Read the client's wish for reasoning, in any of the usual forms; `None` if it states none."""
    template = body.get("chat_template_kwargs")
    if isinstance(template, dict) and isinstance(template.get("enable_thinking"), bool):
        return bool(template["enable_thinking"])
    return False if body.get("reasoning_effort") == "none" else None


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    if body.get("logit_bias"):
        _refuse("logit_bias is not supported.", "logit_bias", "unsupported_parameter")
    if body.get("functions") or body.get("function_call"):
        _refuse(
            "functions and function_call are not supported; use tools and tool_choice.",
            "functions",
            "unsupported_parameter",
        )
    modalities = body.get("modalities")
    if body.get("audio") or (isinstance(modalities, list) and any(item != "text" for item in modalities)):
        _refuse("Only text can be answered: remove audio and modalities.", "modalities", "unsupported_value")


def _choices(body: Mapping[str, Any]) -> int:
    choices = _integer(body, "n", least=1)
    if choices is not None and choices > _MAX_CHOICES:
        _refuse(f"n is {choices}; it must be at most {_MAX_CHOICES}.", "n")
    return choices or 1


def _include_usage(options: Any) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        _refuse("stream_options must be an object.", "stream_options")
    return _flag(options, "include_usage", "stream_options.")


def _logprobs(body: Mapping[str, Any]) -> int | None:
    top = _integer(body, "top_logprobs", least=0)
    if not _flag(body, "logprobs"):
        if top:
            _refuse("top_logprobs needs logprobs: true.", "top_logprobs")
        return None
    if top is not None and top > _MAX_TOP_LOGPROBS:
        _refuse(f"top_logprobs is {top}; it must be at most {_MAX_TOP_LOGPROBS}.", "top_logprobs")
    return top or 0


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > _MAX_STOPS or not all(isinstance(stop, str) for stop in stops):
        _refuse(f"stop must be a string or an array of at most {_MAX_STOPS} strings.", "stop")
    return tuple(clean_text(stop) for stop in stops if stop)


def _flag(body: Mapping[str, Any], name: str, prefix: str = "") -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        _refuse(f"{prefix}{name} must be true or false.", prefix + name)
    return bool(value)


def _integer(body: Mapping[str, Any], name: str, *, least: int | None = None) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        _refuse(f"{name} must be an integer.", name)
    if least is not None and value < least:
        _refuse(f"{name} is {value}; it must be at least {least}.", name)
    return value


def _number(
    body: Mapping[str, Any], name: str, default: float, least: float, most: float, *, open_below: bool = False
) -> float:
    value = body.get(name)
    if value is None:
        return default
    infinite = isinstance(value, float) and not math.isfinite(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or infinite:
        _refuse(f"{name} must be a number.", name)
    if not least <= value <= most or (open_below and value == least):
        _refuse(
            f"{name} is {value}; it must be {'above' if open_below else 'at least'} {least} and at most {most}.", name
        )
    return float(value)


def _refuse(message: str, param: str, code: str = "invalid_value") -> NoReturn:
    raise BadRequest(message, param=param, code=code)
