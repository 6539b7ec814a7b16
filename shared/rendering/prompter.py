"""Canonical messages to token ids, at the speed of a chat.

Who writes a prompt (a family's writer of the `renderers` library, or the model's own chat template) is settled once.
The start of a prompt (system prompt and tools, easily nine tenths of it) is rendered once and kept as a `Head`: ids,
their JSON, and a digest. Whether a prompt may be cut there is not assumed: for each head the two parts are compared
once with the whole, and where they differ the whole is rendered every time.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.cache import SharedCache
from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.answer import Answer
from openclaw_rl.shared.messages.hint import with_hint
from openclaw_rl.shared.messages.images import Vision, images_in, read_vision
from openclaw_rl.shared.messages.normalize import ANY_TOOL, TEXT_ONLY, ChatInput, text_of
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.rendering.answer_parser import AnswerParser
from openclaw_rl.shared.rendering.chat_template import load_template, plain_template, special_tokens
from openclaw_rl.shared.rendering.families import (
    AUTO,
    PLAIN,
    TEMPLATE,
    context_length,
    end_tokens,
    model_config,
    usual_temperature,
    vocabulary_size,
)
from openclaw_rl.shared.rendering.history_cache import GROWN, Histories
from openclaw_rl.shared.rendering.prompt import Head, Prompt
from openclaw_rl.shared.rendering.section_calls import HARMONY_CALL, SECTIONS, SectionReader
from openclaw_rl.shared.rendering.tokenizer import PieceTokenizer
from openclaw_rl.shared.rendering.vocabulary import Vocab, load_tokenizer
from openclaw_rl.shared.rendering.writers import choose
from openclaw_rl.shared.rendering.xml_calls import schemas_of
from openclaw_rl.shared.settings.settings import Settings

_HEADS = 256
_KNOWN_TEXTS = 20_000
_SHORT = 256  # characters; shorter texts are not worth remembering
_LONG_PROMPT = 32_000  # characters; a template takes some 4 ms for 100,000
_LONGEST_IMAGES = 1 << 20  # tokens, where a model does not say how long its context is
_PROMPT_END = 64  # tokens in which the start of an answer is looked for
_MANY_MESSAGES = 250  # the library takes some 15 µs for one
_COLD_CHARACTERS = 4000  # more than this to encode holds up the event loop for more than a few milliseconds


class Prompter:
    """Renders prompts for, and parses answers of, the model in `folder`. Safe to use from several threads.

    `tokenizer` is the tokenizer's folder, if not the model's own; `family` is one of
    `shared.rendering.families.CHOICES`; `tools` is the setting of that name; `thinking` is the default of `render`,
    `temperature` that of sampling (without it, the one that the model's files recommend). `stop_ids` end an answer;
    `own_stop_ids` are those of them that the model's files do not name, for the engine;
    `text_stops` are texts that end one too. `vocab_size` counts the model's logits, `context_length` is what the model
    was made for, in tokens; `blind` says why it takes no images, "" where it does; `outgoing` takes out of prompts what
    may not leave. Raises `ConfigError` for a model that cannot be served.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tokenizer: str | Path = "",
        family: str = AUTO,
        tools: str = AUTO,
        thinking: bool = False,
        temperature: float | None = None,
        cache_bytes: int = 32 << 20,
        outgoing: Outgoing | None = None,
    ) -> None:
        folder = Path(folder)
        self.outgoing = outgoing
        words = Path(tokenizer) if tokenizer else folder
        self.thinking = thinking
        self.temperature = usual_temperature(folder) if temperature is None else temperature
        config = model_config(folder)
        template = None if family == PLAIN else load_template(words, folder)
        loaded = load_tokenizer(words, template.source if template else "")
        self.vocab = Vocab(loaded, size=vocabulary_size(config), name=str(words))
        self.vocab_size = self.vocab.size
        self.context_length = context_length(config)
        named = special_tokens(words)
        eos_ids = [number for number in end_tokens(folder, config) if 0 <= number < self.vocab_size]
        if named.get("eos_token") in self.vocab.added:
            eos_ids.append(self.vocab.added[named["eos_token"]])
        if family == PLAIN:
            first = loaded.encode("a").ids[:1]
            template = plain_template(words, begin=first == [self.vocab.added.get(named.get("bos_token", ""))])
        self.tokenizer = PieceTokenizer(
            loaded, self.vocab, name=str(words), eos_token_id=eos_ids[0] if eos_ids else None, capacity=cache_bytes
        )
        chosen = choose(family, config, template, self.tokenizer, tools=tools, folder=str(folder))
        self.family, self._writer, self.text_stops = chosen.family, chosen.writer, chosen.text_stops
        form = self.family.grammar.calls
        self._section = SectionReader(form, self.tokenizer) if form in SECTIONS else None
        controls = self.vocab.added
        seeing = read_vision(folder, config, controls) if self.family.images else TEXT_ONLY
        self.vision: Vision | None = None if isinstance(seeing, str) else seeing
        self.blind: str = seeing if isinstance(seeing, str) else ""
        closing = [controls[stop] for stop in (*self.family.grammar.stops, chosen.closes) if stop in controls]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys((*closing, *eos_ids)))
        self.own_stop_ids: tuple[int, ...] = tuple(stop for stop in self.stop_ids if stop not in eos_ids)
        # `None` in a tuple: a start that cannot be cut off.
        self._heads = SharedCache[tuple[bool, str, bytes], tuple[Head | None]](_HEADS)
        self._histories = Histories(self._writer, capacity=cache_bytes // 4)
        # By their hashes: a collision holds up the event loop once, and makes no prompt wrong.
        self._encoded = SharedCache[int, bool](_KNOWN_TEXTS)

    @classmethod
    def from_settings(cls, settings: Settings) -> Prompter:
        """The one that the settings name. Raises `ConfigError`."""
        return cls(
            settings.engine.model_folder,
            tokenizer=settings.engine.tokenizer,
            family=settings.engine.family,
            tools=settings.engine.tools,
            thinking=settings.serve.thinking,
            temperature=None if settings.engine.temperature == "auto" else settings.engine.temperature,
            outgoing=Outgoing.to_backend(settings),
        )

    def render(self, chat: ChatInput, *, hint: str | None = None, thinking: bool | None = None) -> Prompt:
        """The prompt of a chat request. `hint` is added to the last message the user wrote (`with_hint`). Raises
        `BadRequest`."""
        mode = self.thinking if thinking is None else thinking
        grammar = self.family.grammar
        if chat.tools and self._writer.refuses_tools:
            raise BadRequest(self._writer.refuses_tools, param="tools", code="unsupported_value")
        if chat.forced_tool and not grammar.calls:
            raise BadRequest(
                "tool_choice asks for a tool call, but this model has no grammar for calls that could be begun for it. "
                "Use tool_choice 'auto' or 'none', or serve a model of a family in docs/models.md that calls tools.",
                param="tool_choice",
                code="unsupported_value",
            )
        sent, taken = chat, None
        try:
            if self.outgoing is not None:
                sent = self.outgoing.chat(chat)
                taken = None if sent is chat else self.outgoing.taken(chat)
                hint = self.outgoing.text(hint) if hint else hint
            messages = with_hint(sent.messages, hint) if hint else sent.messages
            tools_json = _tools_json(sent)
            head, tail = self._render(messages, sent.tools, tools_json, mode)
            head, tail, images = self._see(head, tail, messages)
        except RecursionError as error:
            raise BadRequest("The request is nested too deeply to be rendered.", param="tools") from error
        for text in (*_texts(messages), tools_json):
            if len(text) >= _SHORT and hash(text) not in self._encoded:
                self._encoded.put(hash(text), True)
        reasoning_open = self._reasons(tail)
        forced, forced_text = self._force(chat.forced_tool, reasoning_open) if chat.forced_tool else ([], "")
        return Prompt(
            head,
            tail + array("I", forced) if forced else tail,
            forced=forced,
            forced_text=forced_text,
            reasoning_open=reasoning_open and not forced,
            tools=chat.tools,
            images=images,
            vision=self.vision,
            taken=taken or {},
        )

    async def render_async(self, chat: ChatInput, *, hint: str | None = None, thinking: bool | None = None) -> Prompt:
        """`render`, in a thread when there is much that was never encoded before, which would block the event loop."""
        if self.is_cold(chat, thinking=thinking):
            return await asyncio.to_thread(self.render, chat, hint=hint, thinking=thinking)
        return self.render(chat, hint=hint, thinking=thinking)

    def is_cold(self, chat: ChatInput, *, thinking: bool | None = None) -> bool:
        """True if rendering this takes long: a lot of text has to be encoded for the first time, there are very many
        messages, or a template has to write a long prompt, which it does as a whole every time."""
        length = len(chat.tools_json) + sum(len(message["content"]) for message in chat.messages)
        if not self._writer.cuttable and length > _LONG_PROMPT:
            return True
        if self.outgoing is not None:
            if self.outgoing.fresh(chat) > _COLD_CHARACTERS:
                return True
            chat = self.outgoing.chat(chat)
        mode = self.thinking if thinking is None else thinking
        first, messages, tools_json = chat.messages[0], chat.messages, _tools_json(chat)
        if first["role"] == "system" and (mode, first["content"], tools_json) in self._heads:
            messages, tools_json = messages[1:], b""
        messages = messages[self._histories.written(messages, thinking=mode) :]
        if len(messages) > _MANY_MESSAGES:
            return True
        return sum(map(self._unknown, (tools_json, *_texts(messages)))) > _COLD_CHARACTERS

    def _unknown(self, text: str | bytes) -> int:
        """The approximate number of characters of a text that would have to be encoded."""
        if len(text) >= _SHORT and hash(text) in self._encoded:
            return 0
        return self.tokenizer.unknown(text) if isinstance(text, str) else len(text)

    def parser(self, prompt: Prompt, chat: ChatInput, *, stop: Sequence[str] = ()) -> AnswerParser:
        """An incremental parser for the answer to `prompt`. `stop` are the client's stop strings."""
        grammar = self.family.grammar
        return AnswerParser(
            self.vocab,
            grammar,
            calls=bool(chat.tools),
            parallel_calls=chat.parallel_calls,
            stop=(*self.text_stops, *stop),
            reasoning_open=prompt.reasoning_open,
            forced_text=prompt.forced_text if prompt.forced else None,
            forced_ids=prompt.forced,
            section=self._section,
            stop_ids=self.stop_ids,
            schemas=None if grammar.calls == "json" else schemas_of(chat.tools),
        )

    def agrees(
        self, prompt: Prompt, response_ids: Sequence[int], answer: Answer, *, thinking: bool | None = None
    ) -> bool:
        """True if a second reader, where the family has one, reads the finished answer as our parser did; a False is a
        bug in one of the two and worth counting.

        Answers that the two read differently on purpose are not compared: `Answer.irregular`, in which something
        malformed was given back as text or a stop string was cut off, and requests without tools, where call markup is
        text.
        """
        if answer.irregular:
            return True
        mode = self.thinking if thinking is None else thinking
        written = len(prompt.tail) - len(prompt.forced)
        end = list(prompt.tail[max(0, written - _PROMPT_END) : written])
        read = self._writer.read([*prompt.forced, *response_ids], end, prompt.tools, thinking=mode)
        if read is None or not all(isinstance(name, str) for name, _ in read[2]):
            return True  # JSON that looks like a call of an object or a number is one to the library, and text to us
        return answer.matches(*read)

    def describe(self) -> str:
        """Describe to people how this model is written and read."""
        grammar = self.family.grammar
        how = {PLAIN: "as plain text", TEMPLATE: "by its own chat template"}.get(self.family.name, "as renderers does")
        calls = {"": "no tool calls", "json": "JSON tool calls", "xml": "XML tool calls"}
        calls |= {"bare": "JSON answers as tool calls", "harmony": "channels with tool calls"}
        reasons = grammar.calls == "harmony" or grammar.think_open in self.vocab.added  # Harmony: the channel analysis
        offered = "refused" if self._writer.refuses_tools else "written in words" if self._writer.in_words else "taken"
        stops = [repr(self.decode([stop])) for stop in self.stop_ids] + [repr(stop) for stop in self.text_stops]
        return (
            f"family {self.family.name}: written {how}; "
            f"{'reasoning' if reasons else 'no reasoning'} and "
            f"{calls.get(grammar.calls, f'tool calls ({grammar.calls})')} are read; tools are {offered}; "
            f"images are {f'refused: {self.blind}' if self.blind else 'taken, where the engine sees'}; "
            f"an answer ends at {' or '.join(stops) or 'its token limit only'}"
        )

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The exact text of `ids`."""
        return self.vocab.decode(ids, skip_special_tokens=skip_special_tokens)

    def _render(
        self, messages: list[Message], tools: list[dict[str, Any]], tools_json: bytes, thinking: bool
    ) -> tuple[Head | None, array[int]]:
        first = messages[0]
        if first["role"] != "system" and not tools:
            return None, self._histories.ids(messages, thinking=thinking)
        if len(messages) < 2 or first["role"] != "system" or messages[1]["role"] == "system":
            return None, self.write(messages, tools, thinking)
        key = (thinking, first["content"], tools_json)
        known = self._heads.get(key)
        if known is None:
            known = (self._prove(messages[:GROWN], tools, thinking) if self._writer.cuttable else None,)
            self._heads.put(key, known)
        (head,) = known
        if head is None:
            return None, self.write(messages, tools, thinking)
        return head, self._histories.ids(messages[1:], thinking=thinking)

    def _see(
        self, head: Head | None, tail: array[int], messages: Sequence[Message]
    ) -> tuple[Head | None, array[int], Sequence[str]]:
        """The prompt with as many placeholders as its images take tokens, and the images."""
        images = images_in(messages)
        if not images:
            return head, tail, ()
        if self.vision is None:
            raise BadRequest(f"The request holds images, but {self.blind}.", param="messages", code="unsupported_value")
        limit = self.context_length or _LONGEST_IMAGES
        ids = self.vision.expand((head.ids + tail if head else tail).tolist(), images, limit)
        return None, array("I", ids), [image["image_url"]["url"] for image in images]

    def _prove(self, messages: list[Message], tools: list[dict[str, Any]], thinking: bool) -> Head | None:
        """The head of `messages`, or None where the ids of the whole are not those of the head and then those of the
        rest."""
        try:
            ids = self.write(messages[:1], tools, thinking, generate=False)
            rest = self.write(messages[1:], [], thinking)
        except BadRequest:  # there are templates that write no part by itself
            return None
        return Head(ids) if ids + rest == self.write(messages, tools, thinking) else None

    def write(
        self, messages: Sequence[Message], tools: list[dict[str, Any]], thinking: bool, *, generate: bool = True
    ) -> array[int]:
        """The ids of a conversation, whole, up to where an answer begins if `generate`. Raises `BadRequest`."""
        return self._writer.ids(messages, tools, thinking=thinking, generate=generate)

    def _reasons(self, tail: Sequence[int]) -> bool:
        """True if a prompt ends inside reasoning that the template opened."""
        grammar, controls = self.family.grammar, self.vocab.added
        opening, closing = controls.get(grammar.think_open), controls.get(grammar.think_close)
        if opening is None or closing is None:
            return False
        closing_ids = {closing, *self.stop_ids}
        last = next(
            (number for number in reversed(tail[-_PROMPT_END:]) if number == opening or number in closing_ids), None
        )
        return last == opening

    def _force(self, tool: str, reasoning_open: bool) -> tuple[list[int], str]:
        """Ids and text of the start of a call, written up to where the policy has to choose. Ends before a space, as
        tokens do."""
        grammar = self.family.grammar
        before = f"\n{grammar.think_close}\n\n" if reasoning_open else ""
        if self._section is not None or grammar.calls == "harmony":
            start, _, end = (self._section.begins if self._section else HARMONY_CALL).partition("{name}")
            text = start if tool == ANY_TOOL else start + self.tokenizer.protect(tool) + end
            return self.tokenizer.encode(before + text), text
        if grammar.calls == "xml":
            text = "\n<function=" if tool == ANY_TOOL else f"\n<function={tool}>\n"
        else:
            start = "" if grammar.calls == "bare" else "\n"
            name = json.dumps(tool, ensure_ascii=False)
            text = f'{start}{{"name":' if tool == ANY_TOOL else f'{start}{{"name": {name}, "{grammar.arguments}":'
        opening = before + grammar.call_open
        return self.tokenizer.encode(opening + self.tokenizer.protect(text)), text


def _tools_json(chat: ChatInput) -> bytes:
    return chat.tools_json or msgspec.json.encode(chat.tools)


def _texts(messages: Sequence[Message]) -> Iterable[str | bytes]:
    for message in messages:
        yield text_of(message)
        if reasoning := message.get("reasoning"):
            yield reasoning
        for call in message.get("tool_calls") or ():
            yield msgspec.json.encode(call["arguments"])
