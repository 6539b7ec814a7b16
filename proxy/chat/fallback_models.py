"""Other models that may answer: `side_model` the side turns, `fallback_model` all turns while the engine is away.

They are LiteLLM models, asked through the adapter process. Their answers are recorded but never trained on, since they
are not the policy's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple

import msgspec

from openclaw_rl.proxy.chat.parameters import ANY_OBJECT, RESPONSE_FORMAT
from openclaw_rl.proxy.chat.request import ChatRequest
from openclaw_rl.proxy.dialects.headers import OTHER_PATH
from openclaw_rl.proxy.dialects.process import AdapterProcess, missing_modules
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.shared.errors import (
    BadRequest,
    ConfigError,
    ContextLengthExceeded,
    EngineError,
    OpenClawRLError,
    RequestError,
)
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.messages.equality import arguments_text
from openclaw_rl.shared.messages.images import sent_part
from openclaw_rl.shared.messages.normalize import ANY_TOOL
from openclaw_rl.shared.records import Message, Sampling, now
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.settings.model_reference import read_model
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

OtherRole = Literal["side_model", "fallback_model"]

SECONDS_TO_BEGIN = 60.0
_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
_DEFAULT = Sampling()
_LONGEST_REASON = 500


class OtherModelFailed(RequestError):
    """502: another model that was to answer failed. `reason` is for the operator; clients do not get it."""

    status = 502
    type = "server_error"
    code = "other_model_error"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class OtherFigures(msgspec.Struct):
    """The state of another model for status; `last_failure` is "" if there was none."""

    model: str
    answered: int = 0
    failed: int = 0
    last_failure: str = ""
    last_failure_time: float | None = None


class OtherModel:
    """`role` is the setting that names it, `name` its LiteLLM name. `outgoing` redacts the requests to it."""

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
        self.figures = OtherFigures(name)
        self._address = {"model": name, "api_base": api_base, "api_key": api_key, "timeout": seconds}
        self._api_key = api_key
        self._seconds = seconds
        self._process = process
        self._outgoing = outgoing

    def __str__(self) -> str:
        return f"{self.role} {self.name}"

    async def ask(self, request: ChatRequest) -> AsyncIterator[dict[str, Any]]:
        """The events of its answer, as `proxy.dialects.fallback` writes them. Raises `OtherModelFailed`."""
        try:
            if self._outgoing is not None:
                chat = await asyncio.to_thread(self._outgoing.chat, request.chat)
                request = msgspec.structs.replace(request, chat=chat)
            async with aclosing(self._events(wire_request(request))) as events:
                async with asyncio.timeout(self._seconds):
                    event = await anext(events)
                while True:
                    if "error" in event:
                        raise self._failure(event["error"])
                    yield event
                    if "finish" in event:
                        self.figures.answered += 1
                        return
                    event = await anext(events)
        except TimeoutError as error:
            raise self._failure(f"no answer within {self._seconds:g} s") from error
        except StopAsyncIteration:
            raise self._failure("its answer ended too early") from None
        except OSError as error:
            raise self._failure(f"the adapter process broke off: {error!r}") from error
        except OtherModelFailed:
            raise
        except RequestError as error:
            raise self._failure(error.message) from error

    def _failure(self, reason: str) -> OtherModelFailed:
        reason = (reason.replace(self._api_key, "(key)") if self._api_key else reason)[:_LONGEST_REASON]
        self.figures.failed += 1
        self.figures.last_failure, self.figures.last_failure_time = reason, now()
        log.warning("%s failed: %s", self, reason)
        return OtherModelFailed(f"The model that {self.role} names failed; the service's log says why.", reason=reason)

    async def _events(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        data = msgspec.json.encode({**self._address, "body": body})
        async with self._process.post(OTHER_PATH, data) as response:
            rest = b""
            async for data in response.aiter_raw():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield msgspec.json.decode(line)


class AnswerPlan(NamedTuple):
    """The models that are asked for an answer, one after the other; `None` is the policy.

    `reason` says why the policy is not asked first, `error` why it cannot be asked at all.
    """

    order: Sequence[OtherModel | None] = (None,)
    reason: str = ""
    error: OpenClawRLError | None = None


class OtherModels:
    """The other models of the settings, and when each is asked. Raises `ConfigError` (`shared.redaction.outgoing`)."""

    def __init__(self, settings: Settings, process: AdapterProcess, watch: EngineWatch) -> None:
        self._watch = watch

        def create(role: OtherRole, text: str, key: str) -> OtherModel | None:
            if not text:
                return None
            model = read_model(text, role)
            outgoing = Outgoing.to_model(settings, model.name, model.url)
            return OtherModel(role, model.name, model.url, key, SECONDS_TO_BEGIN, process, outgoing)

        self.side = create("side_model", settings.serve.side_model, settings.cloud.key_of("side"))
        self.fallback = create("fallback_model", settings.serve.fallback_model, settings.cloud.key_of("fallback"))

    def __bool__(self) -> bool:
        return self.side is not None or self.fallback is not None

    def figures(self) -> dict[str, OtherFigures | None]:
        """For status, by role; `None` for one that is off."""
        return {
            "side_model": self.side.figures if self.side else None,
            "fallback_model": self.fallback.figures if self.fallback else None,
        }

    def plan(self, request: ChatRequest) -> AnswerPlan:
        """The plan for a request that the policy can answer; it comes last while the engine is known to be away."""
        if not self._may_answer(request):
            return AnswerPlan()
        first, last = self._for_side(request), self._for_outage()
        order = (*first, None, *last) if self._watch.ready else (*first, *last, None)
        away = order[0] is not None and not self._watch.ready
        return AnswerPlan(order, f"the engine is away: {self._watch.error}" if away else "")

    def plan_without_policy(self, request: ChatRequest, error: OpenClawRLError) -> AnswerPlan | None:
        """The plan for a request that the policy cannot answer, `None` if no other model may.

        A side turn's model takes prompts that are too long for the policy, and schemas that the engine cannot hold an
        answer to; both models take requests for an engine that is away. Other errors are the request's own.
        """
        first = self._for_side(request) if self._may_answer(request) else ()
        if isinstance(error, ContextLengthExceeded) or getattr(error, "code", None) == "context_length_exceeded":
            order, reason = first, "the prompt is too long for the policy"
        elif isinstance(error, BadRequest) and (error.param, error.code) == (RESPONSE_FORMAT, "unsupported_value"):
            order, reason = first, "the policy cannot be held to the schema that is asked for"
        elif isinstance(error, EngineError) and is_away(error) and self._may_answer(request):
            order, reason = (*first, *self._for_outage()), f"the engine is away: {error}"
        else:
            return None
        return AnswerPlan(order, reason, error) if order else None

    def _may_answer(self, request: ChatRequest) -> bool:
        """A request for a certain version is about that version, and one that another service passed on stays here."""
        return bool(self) and request.parameters.version is None and not request.routed

    def _for_side(self, request: ChatRequest) -> Sequence[OtherModel]:
        return (self.side,) if self.side is not None and request.kind == "side" else ()

    def _for_outage(self) -> Sequence[OtherModel]:
        return (self.fallback,) if self.fallback is not None else ()


def check_installed(settings: Settings) -> None:
    """Raise `ConfigError` where another model is wanted, and LiteLLM is not installed."""
    missing = missing_modules()
    if (settings.serve.side_model or settings.serve.fallback_model) and missing:
        raise ConfigError(
            f"side_model and fallback_model need {' and '.join(missing)}, which is not installed: "
            f"{install_command('dialects')}"
        )


def is_away(error: EngineError) -> bool:
    """Recognize a failure of the engine, not of the request."""
    return error.status not in (400, 404)


def wire_request(request: ChatRequest) -> dict[str, Any]:
    """A request in OpenAI's format, without our own extensions."""
    chat, parameters = request.chat, request.parameters
    body: dict[str, Any] = {"messages": [_wire_message(one) for one in chat.messages], "stream": parameters.stream}
    for name in _SAMPLING:
        if getattr(parameters.sampling, name) != getattr(_DEFAULT, name):
            body[name] = getattr(parameters.sampling, name)
    if parameters.sampling.stop:
        body["stop"] = list(parameters.sampling.stop)
    if parameters.most_tokens is not None:
        body["max_tokens"] = parameters.most_tokens
    if parameters.sampling.json_schema == ANY_OBJECT:
        body[RESPONSE_FORMAT] = {"type": "json_object"}
    elif parameters.sampling.json_schema:
        schema = msgspec.json.decode(parameters.sampling.json_schema)
        body[RESPONSE_FORMAT] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": parameters.strict},
        }
    if chat.tools:
        body["tools"] = chat.tools
        if chat.forced_tool:
            one = {"type": "function", "function": {"name": chat.forced_tool}}
            body["tool_choice"] = "required" if chat.forced_tool == ANY_TOOL else one
        if not chat.parallel_calls:
            body["parallel_tool_calls"] = False
    return body


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {
        name: message[name] for name in ("role", "content", "tool_call_id", "name") if name in message
    }
    if not isinstance(wire["content"], str):
        wire["content"] = [sent_part(part) for part in wire["content"]]
    calls = message.get("tool_calls")
    if calls:
        wire["content"] = wire["content"] or None
        wire["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": arguments_text(call)},
            }
            for call in calls
        ]
    return wire
