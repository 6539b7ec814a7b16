"""Canonical messages to token ids, through `renderers`, at the speed of a chat.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shared.answer import Answer, AnswerParser
from shared.errors import BadRequest, ConfigError
from shared.families import family_of, model_config
from shared.normalize import ANY_TOOL, ChatInput, is_internal_context
from shared.pieces import PieceTokenizer
from shared.records import Message
from shared.vocab import Vocab, load_tokenizer

_HINT_HEADING = "\n\n[user's hint / instruction]\n"
_HEADS = 256
_COLD_CHARACTERS = 8000  # more than this to encode holds up the event loop for more than a few milliseconds


class Head:
    """A rendered system prompt with its tools. `json` is the inside of a JSON array of the ids, `digest` 16 bytes over
    them."""

    __slots__ = ("digest", "ids", "json")

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = array("I", ids)
        self.json = msgspec.json.encode(list(ids))[1:-1]
        self.digest = hashlib.blake2b(self.ids.tobytes(), digest_size=16).digest()


class Prompt:
    """Token ids of a prompt: those of `head` (None where nothing is shared), then `tail`.

    `forced` are the last ids of `tail` where the start of a tool call was written for the policy, and `forced_text`
    their text; the answer then begins inside that call. `reasoning_open` says that the prompt ends inside reasoning.
    """

    __slots__ = ("forced", "forced_text", "head", "reasoning_open", "tail")

    def __init__(
        self,
        head: Head | None,
        tail: list[int],
        *,
        forced: list[int],
        forced_text: str = "",
        reasoning_open: bool = False,
    ) -> None:
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
        return self.head.ids.tolist() + self.tail if self.head else list(self.tail)

    def json(self) -> bytes:
        """The ids as a JSON array."""
        tail = msgspec.json.encode(self.tail)
        if self.head is None:
            return tail
        return b"[" + self.head.json + (b"," + tail[1:] if self.tail else b"]")


class Prompter:
    """Renders prompts for, and parses answers of, the model in `folder`. Safe to use from several threads.

    `thinking` is the default of `render`. `stop_ids` end an answer, `vocab_size` counts the model's logits,
    `context_length` is what the model was made for, in tokens. Raises `ConfigError` for a model that cannot be served.
    """

    def __init__(self, folder: str | Path, *, thinking: bool = False, cache_bytes: int = 64 << 20) -> None:
        folder = Path(folder)
        self.family = family_of(folder)
        self.thinking = thinking
        config = model_config(folder)
        text_config = config.get("text_config") or config
        tokenizer = load_tokenizer(folder)
        self.vocab = Vocab(tokenizer, size=int(text_config.get("vocab_size") or 0), name=str(folder))
        self.vocab_size = self.vocab.size
        self.context_length = int(text_config.get("max_position_embeddings") or 0)
        grammar = self.family.grammar
        missing = [
            name for name in (grammar.call_open, grammar.call_close, grammar.stops[0]) if name not in self.vocab.added
        ]
        if missing:
            raise ConfigError(
                f"The tokenizer in {folder} lacks {', '.join(missing)}, which a {self.family.name} model needs. "
                "Use the tokenizer that belongs to the model."
            )
        self.stop_ids: tuple[int, ...] = tuple(
            self.vocab.added[name] for name in grammar.stops if name in self.vocab.added
        )
        self.tokenizer = PieceTokenizer(
            tokenizer, self.vocab, name=str(folder), eos_token_id=self.stop_ids[0], capacity=cache_bytes
        )
        self._renderers = {mode: self._renderer(mode) for mode in (False, True)}
        self._heads: dict[tuple[bool, str, bytes], Head | None] = {}
        self._lock = threading.Lock()

    def render(self, chat: ChatInput, *, hint: str | None = None, thinking: bool | None = None) -> Prompt:
        """The prompt of a chat request. `hint` is added to the last message the user wrote (`with_hint`). Raises
        `BadRequest`."""
        mode = self.thinking if thinking is None else thinking
        messages = with_hint(chat.messages, hint) if hint else chat.messages
        try:
            tools_json = chat.tools_json or msgspec.json.encode(chat.tools)
            head, tail = self._render(messages, chat.tools, tools_json, mode)
        except RecursionError as error:
            raise BadRequest("The request is nested too deeply to be rendered.", param="tools") from error
        forced, forced_text = self._force(chat.forced_tool) if chat.forced_tool else ([], "")
        return Prompt(head, tail + forced, forced=forced, forced_text=forced_text)

    async def render_async(self, chat: ChatInput, *, hint: str | None = None, thinking: bool | None = None) -> Prompt:
        """`render`, in a thread when there is much that was never encoded before, so that the event loop goes on."""
        if self.is_cold(chat, thinking=thinking):
            return await asyncio.to_thread(self.render, chat, hint=hint, thinking=thinking)
        return self.render(chat, hint=hint, thinking=thinking)

    def is_cold(self, chat: ChatInput, *, thinking: bool | None = None) -> bool:
        """Whether rendering this would have to encode a lot of text for the first time."""
        first = chat.messages[0]
        system = first["content"] if first["role"] == "system" else ""
        if len(system) + len(chat.tools_json) > _COLD_CHARACTERS:
            mode = self.thinking if thinking is None else thinking
            if (mode, system, chat.tools_json or msgspec.json.encode(chat.tools)) not in self._heads:
                return True
        for message in chat.messages[1 if system else 0 :]:
            content = message["content"]
            if len(content) > _COLD_CHARACTERS:
                piece = f"\n{content}\n" if message["role"] == "tool" else f"{message['role']}\n{content}"
                if piece not in self.tokenizer:
                    return True
        return False

    def parser(self, prompt: Prompt, chat: ChatInput, *, stop: Sequence[str] = ()) -> AnswerParser:
        """An incremental parser for the answer to `prompt`. `stop` are the client's stop strings."""
        return AnswerParser(
            self.vocab,
            self.family.grammar,
            calls=chat.calls,
            parallel_calls=chat.parallel_calls,
            stop=stop,
            reasoning_open=prompt.reasoning_open,
            forced_text=prompt.forced_text if prompt.forced else None,
        )

    def agrees(
        self, prompt: Prompt, response_ids: Sequence[int], answer: Answer, *, thinking: bool | None = None
    ) -> bool:
        """Whether `renderers` reads the finished answer as our parser did; a False is a bug in one of the two and worth
        counting.

        Answers that the two read differently on purpose are not compared: `Answer.irregular`, in which something
        malformed was given back as text or a stop string was cut off, and requests without tools, where call markup is
        text.
        """
        if answer.irregular:
            return True
        mode = self.thinking if thinking is None else thinking
        parsed = self._renderers[mode].parse_response([*prompt.forced, *response_ids])
        return answer.matches(
            parsed.content,
            parsed.reasoning_content or "",
            [(call.name, call.arguments) for call in parsed.tool_calls if call.status == "ok"],
        )

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The exact text of `ids`."""
        return self.vocab.decode(ids, skip_special_tokens=skip_special_tokens)

    def _renderer(self, thinking: bool) -> Any:
        from renderers import create_renderer  # heavy: importing this module stays cheap

        return create_renderer(self.tokenizer, self.family.config(thinking))

    def _render(
        self, messages: list[Message], tools: list[dict[str, Any]], tools_json: bytes, thinking: bool
    ) -> tuple[Head | None, list[int]]:
        first = messages[0]
        if len(messages) < 2 or first["role"] != "system" or messages[1]["role"] == "system":
            return None, self._whole(messages, tools, thinking)
        key = (thinking, first["content"], tools_json)
        with self._lock:
            known = key in self._heads
            head = self._heads.pop(key, None)
            if known:
                self._heads[key] = head
        if not known:
            head = self._prove(messages, tools, thinking)
            with self._lock:
                self._heads[key] = head
                while len(self._heads) > _HEADS:
                    del self._heads[next(iter(self._heads))]
        if head is None:
            return None, self._whole(messages, tools, thinking)
        return head, self._whole(messages[1:], [], thinking)

    def _prove(self, messages: list[Message], tools: list[dict[str, Any]], thinking: bool) -> Head | None:
        """The head of `messages`, or None where the ids of the whole are not those of the head and then those of the
        rest."""
        ids = self._whole(messages[:1], tools, thinking, generate=False)
        if ids + self._whole(messages[1:], [], thinking) != self._whole(messages, tools, thinking):
            return None
        return Head(ids)

    def _whole(
        self, messages: Sequence[Message], tools: list[dict[str, Any]], thinking: bool, *, generate: bool = True
    ) -> list[int]:
        ids: list[int] = self._renderers[thinking].render_ids(
            [self._protect(message) for message in messages],
            tools=self._protect_tools(tools) or None,
            add_generation_prompt=generate,
        )
        return ids

    def _protect(self, message: Message) -> dict[str, Any]:
        """The message in the renderer's field names, with every control token that its text spells out made
        harmless."""
        protect = self.tokenizer.protect
        content = message["content"]
        if not isinstance(content, str):
            content = [{**part, "text": protect(part["text"])} if part["type"] == "text" else part for part in content]
        else:
            content = protect(content)
        safe: dict[str, Any] = {"role": message["role"], "content": content}
        if reasoning := message.get("reasoning"):
            safe["reasoning_content"] = protect(reasoning)
        if calls := message.get("tool_calls"):
            safe["tool_calls"] = [
                {"name": protect(call["name"]), "arguments": protect(_arguments_text(call["arguments"]))}
                for call in calls
            ]
        return safe

    def _protect_tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        text = json.dumps(tools, ensure_ascii=False)
        safe = self.tokenizer.protect(text)
        if safe is text:
            return tools
        protected: list[dict[str, Any]] = json.loads(safe)
        return protected

    def _force(self, tool: str) -> tuple[list[int], str]:
        """Ids and text of the start of a call, written up to where the policy has to choose. Ends before a space, as
        tokens do."""
        text = '\n{"name":' if tool == ANY_TOOL else f'\n{{"name": {json.dumps(tool, ensure_ascii=False)}, "arguments":'
        opening = self.vocab.added[self.family.grammar.call_open]
        return [opening, *self.tokenizer.encode(self.tokenizer.protect(text))], text


def with_hint(messages: Sequence[Message], hint: str) -> list[Message]:
    """The messages with `hint` at the end of the last one that a user wrote: the context a teacher sees, which the
    policy did not.

    Messages that OpenClaw appends by itself do not count as written by a user while there is another. Where no user has
    spoken, the hint becomes a user message at the end.
    """
    changed = list(messages)
    users = [index for index, message in enumerate(changed) if message["role"] == "user"]
    written = [index for index in users if not is_internal_context(changed[index])]
    if not users:
        return [*changed, {"role": "user", "content": _HINT_HEADING.lstrip() + hint}]
    index = (written or users)[-1]
    content = changed[index]["content"]
    suffix = _HINT_HEADING + hint
    added = content + suffix if isinstance(content, str) else [*content, {"type": "text", "text": suffix}]
    changed[index] = {**changed[index], "content": added}
    return changed


def _arguments_text(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
