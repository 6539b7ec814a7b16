"""A chat request, read, understood and placed, before anything is sampled for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from openclaw_rl.proxy.chat import prompt_limit
from openclaw_rl.proxy.chat.parameters import Parameters, read_parameters
from openclaw_rl.proxy.chat.response_format import check_schema
from openclaw_rl.proxy.conversation.bridge import TOO_LONG, Bridge, Written
from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.classification_rules import own_rules
from openclaw_rl.proxy.conversation.classify import FEEDBACK, Evidence, Verdict, classify
from openclaw_rl.proxy.conversation.openclaw import Reaction, reactions
from openclaw_rl.proxy.conversation.placement import Conversations, Placement
from openclaw_rl.proxy.conversation.session_id import fresh_session, session_of
from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.shared.errors import BadRequest, ContextLengthExceeded, EngineError, OpenClawRLError
from openclaw_rl.shared.messages.normalize import ChatInput, clean_text, normalize_chat
from openclaw_rl.shared.records import new_id, now
from openclaw_rl.shared.rendering.prompter import Prompt, Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.turn_rules import parse_rules

if TYPE_CHECKING:
    from openclaw_rl.proxy.chat.fallback_models import OtherModels

_NEVER = frozenset(("never", "no", "off", "false", "0"))
_LARGE_BODY = 1 << 18  # bytes; images of this size take a millisecond to read
_LONGEST_REASON = 64
_NO_PROMPT = Prompt(None, [], forced=[])


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `tracked`: its content is kept; `ends_session`: it carries `X-Session-Done`; `begins_session`: why
    the conversation that its session had before is over (`X-Session-New`), "" where it goes on. `thinking` is `None`
    for the default. `note` is what the turn says about how it was asked ("" for nothing). `written` tells how the
    prompt came to be, where the turn is recorded. `unable` is why the policy cannot answer, where another model will;
    the prompt is empty then.
    """

    arrived: float
    chat: ChatInput
    chain: Chain
    parameters: Parameters
    verdict: Verdict
    placement: Placement
    reactions: list[Reaction]
    prompt: Prompt
    thinking: bool | None
    tracked: bool
    ends_session: bool
    begins_session: str = ""
    note: str = ""
    dialect: str = "chat"
    written: Written | None = None
    unable: OpenClawRLError | None = None


class Reader:
    """Turns bytes into an `Incoming`."""

    def __init__(
        self,
        settings: Settings,
        names: ModelNames,
        prompter: Prompter,
        conversations: Conversations,
        watch: EngineWatch,
        others: OtherModels,
    ) -> None:
        self._settings = settings
        self._names = names
        self._prompter = prompter
        self._conversations = conversations
        self._bridge = Bridge(prompter.vocab)
        self._watch = watch
        self._others = others
        self._rules = own_rules(parse_rules(settings.classification_rules))

    async def read(self, headers: Mapping[str, str], data: bytes, dialect: str = "chat") -> Incoming:
        """Read a chat request. Raises `RequestError`, `ContextLengthExceeded` or `JournalError`; nothing has been
        stored then.
        """
        arrived = now()
        body = decode_object(data)
        parameters = read_parameters(body, names=self._names, max_output_tokens=self._settings.max_output_tokens)
        prompt_limit.refuse_if_too_many(body.get("messages"), self._limit)
        chat = await self._normalized(body, len(data))
        chain = await self._conversations.chains.of(chat.messages)
        evidence = Evidence.of(
            headers,
            chat.messages,
            bool(body.get("tools")),
            chain.speeches,
            dialect=dialect,
            model=parameters.model,
            max_tokens=parameters.most_tokens,
            feedback=chain.answers_feedback,
        )
        verdict = classify(evidence, self._rules)
        thinking, prompt, unable = _thinking(body), _NO_PROMPT, None
        try:
            thinking = self._held(parameters, chat, thinking)
            if prompt_limit.may_exceed(prompt_limit.characters(chat), self._limit):
                await asyncio.to_thread(prompt_limit.refuse_if_too_long, chat, self._prompter, self._limit)
            prompt = await self._render(chat, thinking)
            parameters = self.fit(parameters, prompt.length)
        except OpenClawRLError as error:
            if not self._others.instead(verdict, parameters, headers, error):
                raise
            prompt, unable = _NO_PROMPT, error
        tracked = self._settings.capture and headers.get("x-rl-train", "").strip().lower() not in _NEVER
        if tracked:
            kind = "main" if verdict.reason == FEEDBACK else verdict.kind  # it is about the main turn before it
            placement = await self._conversations.place(headers, body, chain, kind)
        else:
            placement = _unplaced(headers, body, chain, verdict)
        incoming = Incoming(
            arrived=arrived,
            chat=chat,
            chain=chain,
            parameters=parameters,
            verdict=verdict,
            placement=placement,
            reactions=reactions(chat.messages, headers.get("x-openclaw-reactions", "")) if tracked else [],
            prompt=prompt,
            thinking=thinking,
            tracked=tracked,
            ends_session=is_true(headers.get("x-session-done", "")),
            begins_session=headers.get("x-session-new", "").strip()[:_LONGEST_REASON],
            dialect=dialect,
            unable=unable,
        )
        return self.bridged(incoming, prompt) if tracked and unable is None else incoming

    def bridged(self, incoming: Incoming, rendered: Prompt) -> Incoming:
        """The request with a rendered prompt, in which the tokens that were sampled before stand again, as far as they
        say the same. Raises `ContextLengthExceeded`.
        """
        prompt, written = rendered, None
        if incoming.tracked:
            parent, why = self._conversations.sampled_before(incoming.placement)
            prompt, written = self._bridge.extend(rendered, parent, why)
            if self._limit and prompt.length >= self._limit:
                prompt, written = self._bridge.extend(rendered, None, TOO_LONG)
        parameters = self.fit(incoming.parameters, prompt.length)
        return msgspec.structs.replace(incoming, prompt=prompt, written=written, parameters=parameters)

    def _held(self, parameters: Parameters, chat: ChatInput, thinking: bool | None) -> bool | None:
        """Whether to think: not where the answer is held to a schema. Raises `BadRequest`, or `EngineError` while
        nobody knows whether the engine can do that.
        """
        if not parameters.sampling.json_schema:
            return thinking
        if self._watch.info is None:
            raise EngineError(self._watch.error)
        check_schema(chat, thinking, constrains=self._watch.info.constrains)
        return False

    async def prompt_tokens(self, data: bytes) -> int:
        """Length of the prompt of a chat request. Raises `BadRequest`."""
        body = decode_object(data)
        self._names.read(body.get("model"))
        chat = await self._normalized(body, len(data))
        return (await self._render(chat, _thinking(body))).length

    async def _normalized(self, body: Mapping[str, Any], size: int) -> ChatInput:
        """The canonical input; where images may come, a large body is read in a thread. Raises `BadRequest`."""
        blind = self.blind
        if blind or size < _LARGE_BODY:
            return normalize_chat(body, blind=blind)
        return await asyncio.to_thread(normalize_chat, body, blind=blind)

    async def _render(self, chat: ChatInput, thinking: bool | None) -> Prompt:
        """The prompt. Raises `BadRequest`."""
        try:
            return await self._prompter.render_async(chat, thinking=thinking)
        except BaseException as error:
            # The tokenizers library panics, past `Exception`, at millions of one character in a row.
            if type(error).__name__ != "PanicException":
                raise
            raise BadRequest(f"The messages cannot be tokenized: {error}", param="messages") from error

    @property
    def blind(self) -> str:
        """Why no images are taken, "" where they are."""
        if not self._prompter.blind and self._watch.info is not None and not self._watch.info.sees:
            return "the engine takes text only (SGLang takes images: engine_url)"
        return self._prompter.blind

    @property
    def _limit(self) -> int:
        """Tokens that the context holds, 0 where nobody knows."""
        return self._watch.context_length or self._prompter.context_length

    def fit(self, parameters: Parameters, prompt_tokens: int) -> Parameters:
        """The parameters with as many answer tokens as the context still holds, as OpenAI treats its upper bound.
        Raises `ContextLengthExceeded`.
        """
        limit = self._limit
        if not limit:
            return parameters
        if prompt_tokens >= limit:
            raise ContextLengthExceeded(
                prompt_tokens=prompt_tokens, requested_tokens=parameters.most_tokens or 0, context_length=limit
            )
        room = limit - prompt_tokens
        if parameters.sampling.max_tokens <= room:
            return parameters
        sampling = msgspec.structs.replace(parameters.sampling, max_tokens=room)
        return msgspec.structs.replace(parameters, sampling=sampling)


def decode_object(data: bytes) -> dict[str, Any]:
    """A request body as a JSON object. Raises `BadRequest`."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        body = _decode_leniently(data)
    if not isinstance(body, dict):
        raise BadRequest(f"The body must be a JSON object, not {_name(body)}.", code="invalid_json")
    return body


def is_true(value: str) -> bool:
    """Whether a header's value says yes."""
    return value.strip().lower() in ("1", "true", "yes", "on")


def _decode_leniently(data: bytes) -> Any:
    """JSON with half surrogate pairs, which clients make by cutting emoji in two; they become U+FFFD wherever they
    are: nothing further on can write them.
    """
    try:
        return _whole(json.loads(data, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}", code="invalid_json") from error


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(name): _whole(item) for name, item in value.items()}
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _name(value: Any) -> str:
    return {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}.get(type(value), "a number")


def _thinking(body: Mapping[str, Any]) -> bool | None:
    """Whether the client asks for reasoning, in one of the ways that clients do; `None` if it says nothing."""
    template = body.get("chat_template_kwargs")
    if isinstance(template, dict) and isinstance(template.get("enable_thinking"), bool):
        return bool(template["enable_thinking"])
    return False if body.get("reasoning_effort") == "none" else None


def _unplaced(headers: Mapping[str, str], body: Mapping[str, Any], chain: Chain, verdict: Verdict) -> Placement:
    named = session_of(headers, body, chain)
    session_id, source = named or (fresh_session(verdict.kind), "new")
    return Placement(
        turn_id=new_id("turn"),
        session_id=session_id,
        source=source,
        kind=verdict.kind,
        parent=None,
        parent_reason="not recorded",
        request_key=chain.request_key,
        words=None,
    )
