"""Other models that may answer: `side_model` the side turns, `fallback_model` whatever comes while the engine is away.

They are LiteLLM models, asked through the adapter process. What they say is recorded, and never trained on: it is not
the policy's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from openclaw_rl.proxy.chat.parameters import Parameters
from openclaw_rl.proxy.chat.request import Incoming
from openclaw_rl.proxy.chat.response_format import ANY_OBJECT, FIELD
from openclaw_rl.proxy.conversation.classify import Verdict
from openclaw_rl.proxy.dialects.headers import OTHER_PATH, ROUTED_HEADER
from openclaw_rl.proxy.dialects.process import AdapterProcess, missing_modules
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.errors import (
    BadRequest,
    ConfigError,
    ContextLengthExceeded,
    EngineError,
    OpenClawRLError,
    RequestError,
)
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.messages.images import sent_part
from openclaw_rl.shared.messages.normalize import ANY_TOOL
from openclaw_rl.shared.records import Message, Sampling, now
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

OtherRole = Literal["side_model", "fallback_model"]

_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
_DEFAULT = Sampling()


class OtherModelFailed(RequestError):
    """502: another model that was to answer failed. What clients are told leaves out why: that is for the operator."""

    status = 502
    type = "server_error"
    code = "other_model_error"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class OtherFigures(msgspec.Struct, frozen=True):
    """What status shows of another model; `last_failure` is "" if there was none."""

    model: str
    answered: int
    failed: int
    last_failure: str
    last_failure_time: float | None


class OtherModel:
    """One of them. `role` is the setting that names it, `name` what LiteLLM calls it; `outgoing` takes out of requests
    what may not go there.
    """

    def __init__(
        self,
        role: OtherRole,
        name: str,
        api_base: str,
        api_key: str,
        seconds: float,
        process: AdapterProcess,
        outgoing: Outgoing | None = None,
    ) -> None:
        self.role = role
        self.name = name
        self.answered = 0
        self.failed = 0
        self.last_failure = ""
        self.last_failure_time: float | None = None
        self._api_base = api_base
        self._api_key = api_key
        self._seconds = seconds
        self._process = process
        self._outgoing = outgoing

    def __str__(self) -> str:
        return f"{self.role} {self.name}"

    def figures(self) -> OtherFigures:
        """How it went so far."""
        return OtherFigures(self.name, self.answered, self.failed, self.last_failure, self.last_failure_time)

    async def ask(self, incoming: Incoming) -> AsyncIterator[dict[str, Any]]:
        """The pieces of its answer, as `proxy.dialects.fallback` says. Raises `OtherModelFailed`."""
        try:
            incoming = await self._leaving(incoming)
            async with aclosing(self._lines(wire_request(incoming))) as lines:
                async with asyncio.timeout(self._seconds):
                    event = await anext(lines)
                while True:
                    if "error" in event:
                        raise self._failure(event["error"])
                    yield event
                    if "finish" in event:
                        self.answered += 1
                        return
                    event = await anext(lines)
        except TimeoutError as error:
            raise self._failure(f"no answer within {self._seconds:g} s (other_model_seconds)") from error
        except StopAsyncIteration:
            raise self._failure("its answer ended too early") from None
        except OSError as error:
            raise self._failure(f"the adapter process broke off: {error!r}") from error
        except OtherModelFailed:
            raise
        except RequestError as error:
            raise self._failure(error.message) from error

    async def _leaving(self, incoming: Incoming) -> Incoming:
        """The request as it may leave."""
        if self._outgoing is None:
            return incoming
        chat = await asyncio.to_thread(self._outgoing.chat, incoming.chat)
        return msgspec.structs.replace(incoming, chat=chat)

    def _failure(self, reason: str) -> OtherModelFailed:
        reason = reason.replace(self._api_key, "(key)")[:500] if self._api_key else reason[:500]
        self.failed += 1
        self.last_failure, self.last_failure_time = reason, now()
        log.warning("%s failed: %s", self, reason)
        return OtherModelFailed(f"The model that {self.role} names failed; the service's log says why.", reason=reason)

    async def _lines(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        request = {
            "model": self.name,
            "api_base": self._api_base,
            "api_key": self._api_key,
            "timeout": self._seconds,
            "body": body,
        }
        connections = await self._process.connections()
        async with connections.post(OTHER_PATH, msgspec.json.encode(request)) as response:
            rest = b""
            async for data in response.aiter_raw():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield msgspec.json.decode(line)


class OtherModels:
    """Those of the settings, and who is asked when. Raises `ConfigError` (`shared.redaction.outgoing`)."""

    def __init__(self, settings: Settings, process: AdapterProcess, watch: EngineWatch, metrics: Metrics) -> None:
        self._watch = watch
        self._metrics = metrics

        def made(role: OtherRole, name: str, base: str, key: str) -> OtherModel | None:
            if not name:
                return None
            outgoing = Outgoing.to_model(settings, name, base)
            return OtherModel(role, name, base, key, settings.other_model_seconds, process, outgoing)

        self.side = made("side_model", settings.side_model, settings.side_api_base, settings.side_api_key)
        self.fallback = made(
            "fallback_model", settings.fallback_model, settings.fallback_api_base, settings.fallback_api_key
        )

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return self.side is not None or self.fallback is not None

    def figures(self) -> dict[str, OtherFigures | None]:
        """For status, by role; `None` for one that is off."""
        return {
            "side_model": self.side.figures() if self.side else None,
            "fallback_model": self.fallback.figures() if self.fallback else None,
        }

    def order(self, incoming: Incoming, headers: Mapping[str, str]) -> Sequence[OtherModel | None]:
        """Who is asked for the answer, one after the other; `None` is the policy. While the engine is known to be away
        the policy comes last.

        A request for a certain version is about that version, and one that another service passed on stays here.
        """
        verdict, parameters = incoming.verdict, incoming.parameters
        if incoming.unable is not None:
            return self.instead(verdict, parameters, headers, incoming.unable)
        if not self._may_take(parameters, headers):
            return (None,)
        first, last = self._first(verdict), self._last()
        return (*first, None, *last) if self._watch.ready else (*first, *last, None)

    def instead(
        self, verdict: Verdict, parameters: Parameters, headers: Mapping[str, str], unable: OpenClawRLError
    ) -> Sequence[OtherModel]:
        """Who is asked for an answer that the policy is `unable` to give: as its engine is away, or as the prompt is
        too long for it, or wants an answer held to a schema by an engine that cannot do so, which a side turn's own
        model need not mind. Nobody where it is the request that is wrong.
        """
        if not self._may_take(parameters, headers):
            return ()
        if is_too_long(unable) or cannot_constrain(unable):
            return self._first(verdict)
        away = isinstance(unable, EngineError) and is_away(unable)
        return (*self._first(verdict), *self._last()) if away else ()

    def _may_take(self, parameters: Parameters, headers: Mapping[str, str]) -> bool:
        return self.any and parameters.version is None and ROUTED_HEADER not in headers

    def _first(self, verdict: Verdict) -> Sequence[OtherModel]:
        return (self.side,) if self.side is not None and verdict.kind == "side" else ()

    def _last(self) -> Sequence[OtherModel]:
        return (self.fallback,) if self.fallback is not None else ()

    def count(self, model: OtherModel, outcome: Literal["answered", "failed"]) -> None:
        """Show in the metrics how it went."""
        self._metrics.other_models.labels(model.role, outcome).inc()


def check_installed(settings: Settings) -> None:
    """Raise `ConfigError` where another model is wanted, and LiteLLM is not installed."""
    missing = missing_modules()
    if (settings.side_model or settings.fallback_model) and missing:
        raise ConfigError(
            f"side_model and fallback_model need {' and '.join(missing)}, which is not installed: "
            f"{install_command('dialects')}"
        )


def is_too_long(error: OpenClawRLError) -> bool:
    """Whether it is the policy's context that a prompt does not fit."""
    return isinstance(error, ContextLengthExceeded) or getattr(error, "code", None) == "context_length_exceeded"


def cannot_constrain(error: OpenClawRLError) -> bool:
    """Whether it is the schema of `response_format` that the policy cannot be held to."""
    return isinstance(error, BadRequest) and (error.param, error.code) == (FIELD, "unsupported_value")


def is_away(error: EngineError) -> bool:
    """Whether it is the engine that failed, not the request."""
    return error.status not in (400, 404)


def wire_request(incoming: Incoming) -> dict[str, Any]:
    """A request in OpenAI's words, without what only we understand."""
    chat, parameters = incoming.chat, incoming.parameters
    body: dict[str, Any] = {"messages": [_wire_message(one) for one in chat.messages], "stream": parameters.stream}
    for name in _SAMPLING:
        if getattr(parameters.sampling, name) != getattr(_DEFAULT, name):
            body[name] = getattr(parameters.sampling, name)
    if parameters.sampling.stop:
        body["stop"] = list(parameters.sampling.stop)
    if parameters.most_tokens is not None:
        body["max_tokens"] = parameters.most_tokens
    if parameters.sampling.json_schema == ANY_OBJECT:
        body[FIELD] = {"type": "json_object"}
    elif parameters.sampling.json_schema:
        schema = msgspec.json.decode(parameters.sampling.json_schema)
        body[FIELD] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": parameters.strict},
        }
    if chat.tools:
        body["tools"] = chat.tools
        if chat.forced_tool == ANY_TOOL:
            body["tool_choice"] = "required"
        elif chat.forced_tool:
            body["tool_choice"] = {"type": "function", "function": {"name": chat.forced_tool}}
        if not chat.parallel_calls:
            body["parallel_tool_calls"] = False
    return body


def _wire_message(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {
        name: message[name] for name in ("role", "content", "tool_call_id", "name") if name in message
    }
    if not isinstance(told["content"], str):
        told["content"] = [sent_part(part) for part in told["content"]]
    calls = message.get("tool_calls")
    if calls:
        told["content"] = told["content"] or None
        told["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": _text(call)}}
            for call in calls
        ]
    return told


def _text(call: Mapping[str, Any]) -> str:
    arguments = call["arguments"]
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
