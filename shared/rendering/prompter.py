"""Canonical messages to token ids, at the speed of a chat.

Who writes a prompt (a family's writer of the `renderers` library, or the model's own chat template) is settled once.
The start of a prompt (system prompt and tools, easily nine tenths of it) is rendered once and kept as a `Head`: ids,
their JSON, and a digest. Whether a prompt may be cut there is not assumed: for each head the two parts are compared
once with the whole, and where they differ the whole is rendered every time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.answer import Answer
from openclaw_rl.shared.messages.hint import with_hint
from openclaw_rl.shared.messages.images import Vision, images_in, placed, read_vision
from openclaw_rl.shared.messages.normalize import ANY_TOOL, TEXT_ONLY, ChatInput
from openclaw_rl.shared.records import Message, PromptImage
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
    vocabulary_size,
)
from openclaw_rl.shared.rendering.family_choice import choose
from openclaw_rl.shared.rendering.history_cache import GROWN, Histories
from openclaw_rl.shared.rendering.ids_json import spelled
from openclaw_rl.shared.rendering.seen_text import Novelty
from openclaw_rl.shared.rendering.tokenizer import PieceTokenizer
from openclaw_rl.shared.rendering.vocabulary import Vocab, load_tokenizer
from openclaw_rl.shared.rendering.xml_calls import schemas_of
from openclaw_rl.shared.settings.settings import Settings

_HEADS = 256
_LONG_PROMPT = 32_000  # characters; a template takes some 4 ms for 100,000
_LONGEST_IMAGES = 1 << 20  # tokens, where a model does not say how long its context is
_PROMPT_END = 64  # tokens in which the start of an answer is looked for
_MANY_MESSAGES = 250  # the library takes some 15 µs for one
_COLD_CHARACTERS = 4000  # more than this to encode holds up the event loop for more than a few milliseconds


class Head:
    """A rendered system prompt with its tools. `json` is the inside of a JSON array of the ids, `digest` 16 bytes over
    them."""

    __slots__ = ("digest", "ids", "json")

    def __init__(self, ids: array[int]) -> None:
        self.ids = ids
        self.json = msgspec.json.encode(ids.tolist())[1:-1]
        self.digest = hashlib.blake2b(self.ids.tobytes(), digest_size=16).digest()


class Prompt:
    """Token ids of a prompt: those of `head` (None where nothing is shared), then `tail`.

    `forced` are the last ids of `tail` where the start of a tool call was written for the policy, and `forced_text`
    their text; the answer then begins inside that call. `reasoning_open` says that the prompt ends inside reasoning.
    `tools` are those that it offers, `images` the data URLs of those that stand in it, as `vision` sees them. `taken`
    says how much was taken out of the messages before they were written (`shared.redaction.outgoing`), by kind.
    """

    __slots__ = ("forced", "forced_text", "head", "images", "reasoning_open", "tail", "taken", "tools", "vision")

    def __init__(
        self,
        head: Head | None,
        tail: Sequence[int],
        *,
        forced: list[int],
        forced_text: str = "",
        reasoning_open: bool = False,
        tools: list[dict[str, Any]] | None = None,
        images: Sequence[str] = (),
        vision: Vision | None = None,
        taken: Mapping[str, int] | None = None,
    ) -> None:
        self.tools = tools or []
        self.taken = taken or {}
        self.images = images
        self.vision = vision
        self.head = head
        self.tail = tail
        self.forced = forced
        self.forced_text = forced_text
        self.reasoning_open = reasoning_open

    @property
    def length(self) -> int:
        """Number of tokens."""
        return (len(self.head.ids) if self.head else 0) + len(self.tail)

    def ids(self) -> list[int]:
        """All ids, in order."""
        return self.packed().tolist()

    def packed(self) -> array[int]:
        """All ids, in order, as unsigned 32-bit integers."""
        ids = array("I", self.head.ids) if self.head else array("I")
        ids.extend(self.tail)
        return ids

    def placed_images(self) -> list[PromptImage]:
        """Its images with their places, in order."""
        return placed(self.images, self.vision.spans(self.packed())) if self.images and self.vision else []

    def json(self) -> bytes:
        """The ids as a JSON array."""
        ids = self.tail if isinstance(self.tail, array) else array("I", self.tail)
        parts = [self.head.json] if self.head else []
        return b"[" + b",".join([*parts, *spelled(ids)]) + b"]"


class Prompter:
    """Renders prompts for, and parses answers of, the model in `folder`. Safe to use from several threads.

    `tokenizer` is the tokenizer's folder, if not the model's own; `family` is one of
    `shared.rendering.families.CHOICES`;
    `thinking` is the default of `render`. `stop_ids` end an answer; `own_stop_ids` are those of them that the model's
    files do not name, so that an engine has to be told; `text_stops` are texts that end one too. `vocab_size` counts
    the model's logits, `context_length` is what the model was made for, in tokens; `blind` says why it takes no images,
    "" where it does; `outgoing` takes out of prompts what may not leave. Raises `ConfigError` for a model that cannot
    be served.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tokenizer: str | Path = "",
        family: str = AUTO,
        thinking: bool = False,
        cache_bytes: int = 32 << 20,
        outgoing: Outgoing | None = None,
    ) -> None:
        folder = Path(folder)
        self.outgoing = outgoing
        words = Path(tokenizer) if tokenizer else folder
        self.thinking = thinking
        config = model_config(folder)
        template = None if family == PLAIN else load_template(words, folder)
        loaded = load_tokenizer(words, template.source if template else "")
        self.vocab = Vocab(loaded, size=vocabulary_size(config), name=str(words))
        self.vocab_size = self.vocab.size
        self.context_length = context_length(config)
        named = special_tokens(words)
        ends = [number for number in end_tokens(folder, config) if 0 <= number < self.vocab_size]
        if named.get("eos_token") in self.vocab.added:
            ends.append(self.vocab.added[named["eos_token"]])
        if family == PLAIN:
            first = loaded.encode("a").ids[:1]
            template = plain_template(words, begin=first == [self.vocab.added.get(named.get("bos_token", ""))])
        self.tokenizer = PieceTokenizer(
            loaded, self.vocab, name=str(words), eos_token_id=ends[0] if ends else None, capacity=cache_bytes
        )
        chosen = choose(family, config, template, self.tokenizer, folder=str(folder))
        self.family, self._writer, self.text_stops = chosen.family, chosen.writer, chosen.text_stops
        controls = self.vocab.added
        seeing = read_vision(folder, config, controls) if self.family.images else TEXT_ONLY
        self.vision: Vision | None = None if isinstance(seeing, str) else seeing
        self.blind: str = seeing if isinstance(seeing, str) else ""
        closing = [controls[stop] for stop in (*self.family.grammar.stops, chosen.closes) if stop in controls]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys((*closing, *ends)))
        self.own_stop_ids: tuple[int, ...] = tuple(stop for stop in self.stop_ids if stop not in ends)
        self._heads: dict[tuple[bool, str, bytes], Head | None] = {}
        self._histories = Histories(self._writer, capacity=cache_bytes // 4)
        self._novelty = Novelty(self.tokenizer)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: Settings) -> Prompter:
        """The one that the settings name. Raises `ConfigError`."""
        return cls(
            settings.model_folder,
            tokenizer=settings.tokenizer,
            family=settings.family,
            thinking=settings.thinking,
            outgoing=Outgoing.to_backend(settings),
        )

    def render(self, chat: ChatInput, *, hint: str | None = None, thinking: bool | None = None) -> Prompt:
        """The prompt of a chat request. `hint` is added to the last message the user wrote (`with_hint`). Raises
        `BadRequest`."""
        mode = self.thinking if thinking is None else thinking
        grammar = self.family.grammar
        if chat.tools and not self._writer.takes_tools:
            raise BadRequest(
                "This model's chat template has no place for tools. Send the request without tools, or serve a model "
                "that was trained to call them.",
                param="tools",
                code="unsupported_value",
            )
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
        self._novelty.remember(messages, tools_json)
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
            taken=taken,
        )

    async def render_async(self, chat: ChatInput, *, hint: str | None = None, thinking: bool | None = None) -> Prompt:
        """`render`, in a thread when there is much that was never encoded before, so that the event loop goes on."""
        if self.is_cold(chat, thinking=thinking):
            return await asyncio.to_thread(self.render, chat, hint=hint, thinking=thinking)
        return self.render(chat, hint=hint, thinking=thinking)

    def is_cold(self, chat: ChatInput, *, thinking: bool | None = None) -> bool:
        """Whether rendering this takes long: a lot of text has to be encoded for the first time, there are very many
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
        return self._novelty.of_text(tools_json) + self._novelty.of_messages(messages) > _COLD_CHARACTERS

    def parser(self, prompt: Prompt, chat: ChatInput, *, stop: Sequence[str] = ()) -> AnswerParser:
        """An incremental parser for the answer to `prompt`. `stop` are the client's stop strings."""
        grammar = self.family.grammar
        return AnswerParser(
            self.vocab,
            grammar,
            calls=chat.calls,
            parallel_calls=chat.parallel_calls,
            stop=(*self.text_stops, *stop),
            reasoning_open=prompt.reasoning_open,
            forced_text=prompt.forced_text if prompt.forced else None,
            stop_ids=self.stop_ids,
            schemas=schemas_of(chat.tools) if grammar.calls in ("xml", "bare") else None,
        )

    def agrees(
        self, prompt: Prompt, response_ids: Sequence[int], answer: Answer, *, thinking: bool | None = None
    ) -> bool:
        """Whether a second reader, where the family has one, reads the finished answer as our parser did; a False is a
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

    def told(self) -> str:
        """How this model is written and read, for people."""
        grammar = self.family.grammar
        how = {PLAIN: "as plain text", TEMPLATE: "by its own chat template"}.get(self.family.name, "as renderers does")
        calls = {"json": "JSON tool calls", "xml": "XML tool calls", "bare": "JSON answers as tool calls"}
        ends = [repr(self.decode([stop])) for stop in self.stop_ids] + [repr(stop) for stop in self.text_stops]
        return (
            f"family {self.family.name}: written {how}; "
            f"{'reasoning' if grammar.think_open in self.vocab.added else 'no reasoning'} and "
            f"{calls.get(grammar.calls, 'no tool calls')} are read; "
            f"images are {f'refused: {self.blind}' if self.blind else 'taken, where the engine sees'}; "
            f"an answer ends at {' or '.join(ends) or 'its token limit only'}"
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
        with self._lock:
            known = key in self._heads
            head = self._heads.pop(key, None)
            if known:
                self._heads[key] = head
        if not known:
            head = self._prove(messages[:GROWN], tools, thinking) if self._writer.cuttable else None
            with self._lock:
                self._heads[key] = head
                while len(self._heads) > _HEADS:
                    del self._heads[next(iter(self._heads))]
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
        """Whether a prompt ends inside reasoning that the template opened."""
        grammar, controls = self.family.grammar, self.vocab.added
        opening, closing = controls.get(grammar.think_open), controls.get(grammar.think_close)
        if opening is None or closing is None:
            return False
        ends = {closing, *self.stop_ids}
        last = next((number for number in reversed(tail[-_PROMPT_END:]) if number == opening or number in ends), None)
        return last == opening

    def _force(self, tool: str, reasoning_open: bool) -> tuple[list[int], str]:
        """Ids and text of the start of a call, written up to where the policy has to choose. Ends before a space, as
        tokens do."""
        grammar = self.family.grammar
        if grammar.calls == "xml":
            text = "\n<function=" if tool == ANY_TOOL else f"\n<function={tool}>\n"
        else:
            start = "" if grammar.calls == "bare" else "\n"
            name = json.dumps(tool, ensure_ascii=False)
            text = f'{start}{{"name":' if tool == ANY_TOOL else f'{start}{{"name": {name}, "{grammar.arguments}":'
        before = f"\n{grammar.think_close}\n\n" if reasoning_open else ""
        opening = before + grammar.call_open
        return self.tokenizer.encode(opening + self.tokenizer.protect(text)), text


def _tools_json(chat: ChatInput) -> bytes:
    return chat.tools_json or msgspec.json.encode(chat.tools)
