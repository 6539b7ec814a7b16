"""The two ways to write a prompt, a family's writer of the `renderers` library or the model's own chat template, and
the choice between them.

The library's are faster to cut and come with a second reader of answers, but each is written for certain checkpoints.
By itself (`auto`) a model is served as the family of its `model_type`, if its tokenizer has that family's tokens and
the library writes what the folder's chat template writes, which is tried at start; else that template writes. Without
a template there is nothing to go by, and a person has to say `plain`.

Where the template has no place for tools, or answers with its calls cannot be read, they are written in words
(`shared.rendering.tool_words`).
"""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.errors import BadRequest, ConfigError
from openclaw_rl.shared.messages.images import images_in
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.rendering.chat_template import PLAIN_STOPS, ChatTemplate
from openclaw_rl.shared.rendering.families import (
    AUTO,
    CHOICES,
    FAMILIES,
    MODEL_TYPES,
    PLAIN,
    REFUSE,
    TEMPLATE,
    WORDS,
    Family,
    Grammar,
    read_grammar,
)
from openclaw_rl.shared.rendering.template_limits import (
    CALL_ID,
    arguments_of,
    find_limits,
    fit_messages,
    positional_ids,
)
from openclaw_rl.shared.rendering.tokenizer import PieceTokenizer
from openclaw_rl.shared.rendering.tool_words import words_grammar, write_in_words

log = logging.getLogger("rendering")

_NO_PLACE = (
    "This model's chat template has no place for tools, and tools = template allows nothing else. Send the request "
    "without tools, set tools = auto, or serve a model that was trained to call them."
)
_REFUSED = "This service takes no tools: its setting tools is refuse. Send the request without tools."


class Writer:
    """Writes messages as token ids; `refuses_tools` says why it does not write the tools of a request, "" where it
    does; `in_words`: tools, calls and results are written in words (`shared.rendering.tool_words`); `cuttable`: it is
    worth trying to write the start of a prompt apart from the rest."""

    refuses_tools = ""
    in_words = False
    cuttable = False

    def ids(
        self, messages: Sequence[Message], tools: list[dict[str, Any]], *, thinking: bool, generate: bool = True
    ) -> array[int]:
        """The ids of a conversation, up to where the answer begins if `generate`. Raises `BadRequest`."""
        raise NotImplementedError

    def read(
        self, ids: list[int], prompt_end: list[int], tools: list[dict[str, Any]], *, thinking: bool
    ) -> tuple[str, str, list[tuple[str, Any]]] | None:
        """Content, reasoning and calls of an answer as a second reader sees them, None where there is none."""
        return None


class LibraryWriter(Writer):
    """A family that `renderers` writes. Raises `ConfigError` where the tokenizer does not fit it."""

    cuttable = True

    def __init__(self, family: Family, tokenizer: PieceTokenizer, *, name: str) -> None:
        from renderers import create_renderer  # heavy: importing this module stays cheap

        assert family.config is not None
        self._tokenizer = tokenizer
        try:
            self._renderers = {mode: create_renderer(tokenizer, family.config(mode)) for mode in (False, True)}
        except (AssertionError, ValueError) as error:
            raise ConfigError(f"{name} cannot be written as {family.name}: {error}") from error
        self._limits = find_limits(
            lambda messages, tools: tokenizer.decode(self._ids(messages, tools, thinking=True, generate=True)),
            name=name,
        )

    def ids(
        self, messages: Sequence[Message], tools: list[dict[str, Any]], *, thinking: bool, generate: bool = True
    ) -> array[int]:
        safe = [self._protected(message) for message in fit_messages(self._limits, messages)]
        return self._ids(safe, _protected_tools(self._tokenizer, tools), thinking=thinking, generate=generate)

    def _ids(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], *, thinking: bool, generate: bool
    ) -> array[int]:
        options: dict[str, Any] = {"tools": list(tools) or None, "add_generation_prompt": generate}
        if images_in(messages):
            # One placeholder an image: how many tokens it takes is settled in `shared.messages.images`.
            options["process_multimodal"] = False

        def write() -> list[int]:
            ids: list[int] = self._renderers[thinking].render(list(messages), **options).token_ids
            return ids

        try:
            return self._tokenizer.put_together(write)
        except (ValueError, TypeError) as error:
            raise BadRequest(
                f"This model's template cannot write these messages: {error}", param="messages", code="invalid_value"
            ) from error

    def read(
        self, ids: list[int], prompt_end: list[int], tools: list[dict[str, Any]], *, thinking: bool
    ) -> tuple[str, str, list[tuple[str, Any]]] | None:
        parsed = self._renderers[thinking].parse_response(ids, tools=tools or None, prompt_ids=prompt_end)
        calls = [(call.name, call.arguments) for call in parsed.tool_calls if call.status == "ok"]
        return parsed.content, parsed.reasoning_content or "", calls

    def _protected(self, message: Message) -> dict[str, Any]:
        """The message in the library's field names, with every control token that its text spells out made harmless."""
        protect = self._tokenizer.protect
        safe: dict[str, Any] = {"role": message["role"], "content": _protected_content(self._tokenizer, message)}
        if reasoning := message.get("reasoning"):
            safe["reasoning_content"] = protect(reasoning)
        if calls := message.get("tool_calls"):
            safe["tool_calls"] = [
                {"name": protect(call["name"]), "arguments": protect(str(arguments_of(call, spelled=True)))}
                for call in calls
            ]
        return safe


class TemplateWriter(Writer):
    """A model folder's own chat template. Raises `ConfigError` for one that cannot even write what a user says.

    What the template cannot write is folded into what it can (`shared.rendering.template_limits`). `closes` is the
    control token that follows an answer in the history, "" where there is none. `takes_tools`: the template itself
    writes tools, calls and results. `sample` is a conversation with a call as it writes it, `call_ids` the
    form of a call's id.
    """

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: PieceTokenizer,
        *,
        name: str,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._template = template
        self._options = options or {}
        self._tokenizer = tokenizer
        self._limits = find_limits(lambda messages, tools: template.write(messages, tools), name=name)
        self.takes_tools = self._limits.tools and self._limits.calls
        self.refuses_tools = "" if self._limits.tools else _NO_PLACE
        self.closes = tokenizer.first_control(self._limits.closes)
        self.sample = self._limits.sample
        self.call_ids = CALL_ID

    def ids(
        self, messages: Sequence[Message], tools: list[dict[str, Any]], *, thinking: bool, generate: bool = True
    ) -> array[int]:
        safe, tools = [self._protected(message) for message in messages], _protected_tools(self._tokenizer, tools)
        if self.in_words:
            safe, tools = write_in_words(safe, tools), []
        written = self._template.write(
            self._for_template(fit_messages(self._limits, safe)),
            tools,
            generate=generate,
            **{"enable_thinking": thinking, **self._options},
        )
        return self._tokenizer.encode_prompt(written)

    def _protected(self, message: Message) -> Message:
        """The message with every control token that its texts spell out made harmless."""
        protect = self._tokenizer.protect
        safe: Message = {**message, "content": _protected_content(self._tokenizer, message)}
        for field in ("reasoning", "name"):
            if text := message.get(field):
                safe[field] = protect(text)
        if calls := message.get("tool_calls"):
            safe["tool_calls"] = [
                {**call, "name": protect(call["name"]), "arguments": self._tokenizer.protect_all(call["arguments"])}
                for call in calls
            ]
        return safe

    def _for_template(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages in Hugging Face's field names; ids of calls by their position."""
        ids = positional_ids(messages, self.call_ids)
        written: list[dict[str, Any]] = []
        for message in messages:
            content = message["content"]
            if self._limits.parts and isinstance(content, str):
                content = [{"type": "text", "text": content}]
            named: dict[str, Any] = {"role": message["role"], "content": content}
            if reasoning := message.get("reasoning"):
                named["reasoning_content"] = named["reasoning"] = named["thinking"] = reasoning
            if calls := message.get("tool_calls"):
                functions = [
                    {"name": call["name"], "arguments": arguments_of(call, spelled=self._limits.spelled)}
                    for call in calls
                ]
                named["tool_calls"] = [
                    {"id": ids[call["id"]], "type": "function", "function": function}
                    for call, function in zip(calls, functions, strict=True)
                ]
            if message["role"] == "tool":
                named["tool_call_id"] = ids.get(message.get("tool_call_id", ""), "call00000")
            if name := message.get("name"):
                named["name"] = name
            written.append(named)
        return written


class ChosenFamily(msgspec.Struct, frozen=True):
    """`closes` is the control token after an answer in the history ("" for none); `text_stops` are texts that end an
    answer as the tokens do."""

    family: Family
    writer: Writer
    closes: str = ""
    text_stops: tuple[str, ...] = ()


def choose(
    name: str,
    config: dict[str, Any],
    template: ChatTemplate | None,
    tokenizer: PieceTokenizer,
    *,
    tools: str = AUTO,
    folder: str,
) -> ChosenFamily:
    """The family called `name`, or for `auto` the one that fits the model; `tools` is the setting. Raises `ConfigError`
    saying what to do."""
    if name not in CHOICES:
        raise ConfigError(f"family = {name!r} is no family; choose one of {', '.join(CHOICES)}")
    model_type = config.get("model_type")
    if name in FAMILIES:
        known: Family | None = FAMILIES[name]
    else:
        known = FAMILIES.get(MODEL_TYPES.get(model_type, "")) if name == AUTO and isinstance(model_type, str) else None
    own = None
    if template is not None and name not in FAMILIES:
        own = TemplateWriter(template, tokenizer, name=folder, options=known.options if known else None)
    if name == PLAIN:
        assert own is not None
        return _own_template(PLAIN, Grammar(), own, tokenizer, tools, PLAIN_STOPS)
    missing = [token for token in known.needs if token not in tokenizer.controls] if known else []
    if known is not None and not missing and own is None and tools == WORDS:
        raise ConfigError(
            f"tools = words needs a chat template, and {folder} is written as {known.name} without one. Set tools = "
            "auto; or put a chat_template.jinja into the folder, and leave family = auto."
        )
    if known is not None and not missing and tools != WORDS:
        library = LibraryWriter(known, tokenizer, name=folder)
        if own is None or _same_prompts(library, own, tokenizer):
            library.refuses_tools = _REFUSED if tools == REFUSE else ""
            return ChosenFamily(known, library)
        log.info("the chat template in %s is not the one of %s: it renders by itself", folder, known.name)
    if own is not None and template is not None:
        grammar = read_grammar(template.source + own.sample, tokenizer.controls)
        return _own_template(TEMPLATE, grammar, own, tokenizer, tools)
    lacks = (
        f"The tokenizer in {folder} lacks {', '.join(missing)}, with which a {known.name} model is written"
        if known
        else ""
    )
    if name in FAMILIES:
        raise ConfigError(f"{lacks}. Use the tokenizer that belongs to the model, or set family = auto.")
    raise ConfigError(
        f"The model in {folder} (model_type {model_type!r}) has no chat template, so nothing says how conversations "
        "are written for it. Set family = plain (--family plain) to write plain text, User: and Assistant:, put a "
        "chat_template.jinja into the folder, or serve a model that was trained to chat."
        + (f" {lacks}: perhaps it is not the tokenizer that belongs to the model." if lacks else "")
    )


def _own_template(
    name: str, grammar: Grammar, own: TemplateWriter, tokenizer: PieceTokenizer, tools: str, stops: tuple[str, ...] = ()
) -> ChosenFamily:
    """A model that its own template writes, with its tools as the setting `tools` says: by default as the template
    does, if it writes all of them and the calls in answers can be read."""
    if tools == REFUSE:
        own.refuses_tools = _REFUSED
    elif tools == WORDS or (tools == AUTO and not (own.takes_tools and grammar.calls)):
        own.refuses_tools, own.in_words = "", True
        grammar = words_grammar(grammar, tokenizer.controls)
    elif grammar.calls == "kimi":
        own.call_ids = "functions.{name}:{number}"
    closes = "" if grammar.calls == "harmony" else own.closes  # which closes each message of an answer
    return ChosenFamily(Family(name, grammar), own, closes, stops)


def _same_prompts(library: LibraryWriter, template: TemplateWriter, tokenizer: PieceTokenizer) -> bool:
    """True if both write the same text for conversations of every usual shape.

    One thing is left out on purpose: with reasoning off, the library repeats the empty reasoning block of the prompt in
    the history, as it was sampled; most templates leave it out there.
    """
    rule, asked = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where is it?"}
    answer, next_one = {"role": "assistant", "content": "Here."}, {"role": "user", "content": "And that?"}
    call = {"id": "c", "name": "look", "arguments": {"where": "there", "often": 2}}
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": "nothing", "tool_call_id": "c"}
    parameters = {"type": "object", "properties": {"where": {"type": "string"}, "often": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": parameters}}]
    cases: list[tuple[list[Message], list[dict[str, Any]], bool]] = [
        ([asked], [], True),
        ([rule, asked], [], True),
        ([rule, asked], [], False),
        ([rule, asked, answer, next_one], [], True),
        ([rule, asked], tools, True),
        ([rule, asked, calling, result], tools, True),
    ]
    for messages, offered, thinking in cases:
        try:
            written = library.ids(messages, offered, thinking=thinking)
            if tokenizer.decode(written) != tokenizer.decode(template.ids(messages, offered, thinking=thinking)):
                return False
        except BadRequest:
            return False
    return True


def _protected_content(tokenizer: PieceTokenizer, message: Message) -> str | list[dict[str, Any]]:
    content = message["content"]
    if isinstance(content, str):
        return tokenizer.protect(content)
    return [{**part, "text": tokenizer.protect(part["text"])} if part["type"] == "text" else part for part in content]


def _protected_tools(tokenizer: PieceTokenizer, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not tools:
        return tools
    text = msgspec.json.encode(tools).decode()  # as quick as `json` is slow, and markers are spelled alike in both
    if tokenizer.protect(text) is text:
        return tools
    protected: list[dict[str, Any]] = json.loads(tokenizer.protect(json.dumps(tools, ensure_ascii=False)))
    return protected
