"""The prompt of a placed request: rendered, continued from tokens that were sampled before, fitted to the context.

Over-long prompts are rejected without tokenizing them completely. Tokenizers need seconds a megabyte, and more than
linear time for some texts. A prompt with many more characters than the context has tokens is counted slice by
slice, and only up to the point from which it cannot fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from openclaw_rl.proxy.chat.parameters import Parameters, check_schema
from openclaw_rl.proxy.chat.request import PlacedRequest, RenderedRequest, over_long
from openclaw_rl.proxy.conversation.bridge import TOO_LONG, Bridge
from openclaw_rl.proxy.conversation.placement import Conversations
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.shared.errors import BadRequest, ContextLengthExceeded, EngineError
from openclaw_rl.shared.messages.equality import arguments_text
from openclaw_rl.shared.messages.normalize import ChatInput, text_of
from openclaw_rl.shared.rendering.prompt import Prompt
from openclaw_rl.shared.rendering.prompter import Prompter

_CHARACTERS_PER_TOKEN = 4  # of ordinary text; prompts that are shorter are simply rendered
_SLICE = 16_384
_MARGIN = 1.05
"""Margin over the context length, as cutting a text can add tokens (in most tokenizers none at the end of a line or a
word)."""


class PromptRenderer:
    """Turns a `PlacedRequest` into a `RenderedRequest`."""

    def __init__(self, prompter: Prompter, watch: EngineWatch, conversations: Conversations) -> None:
        self._prompter = prompter
        self._watch = watch
        self._conversations = conversations
        self._bridge = Bridge(prompter.vocab)

    async def render(self, request: PlacedRequest) -> RenderedRequest:
        """Raises `BadRequest`, `ContextLengthExceeded`, or `EngineError` if a schema needs an engine that is away."""
        thinking = request.thinking
        if request.parameters.sampling.json_schema:
            if self._watch.info is None:
                raise EngineError(self._watch.error)
            check_schema(request.chat, thinking, constrains=self._watch.info.constrains)
            thinking = False
        await _refuse_if_too_long(request.chat, self._prompter, self._watch.context_length)
        return self.with_prompt(request, await self.tokenize(request.chat, thinking))

    async def count(self, chat: ChatInput, thinking: bool | None) -> int:
        """The number of tokens of a conversation's prompt. One that certainly does not fit the context is counted slice
        by slice and not kept, within a few tokens. Raises `BadRequest`.
        """
        texts = list(_texts(chat))
        if _is_long(texts, self._watch.context_length):
            return await asyncio.to_thread(_count, texts, self._prompter, self._watch.context_length, to_end=True)
        return (await self.tokenize(chat, thinking)).length

    async def tokenize(self, chat: ChatInput, thinking: bool | None) -> Prompt:
        """The prompt of a conversation. Raises `BadRequest`."""
        try:
            return await self._prompter.render_async(chat, thinking=thinking)
        except BaseException as error:
            # The tokenizers library panics, past `Exception`, at millions of one character in a row.
            if type(error).__name__ != "PanicException":
                raise
            raise BadRequest(f"The messages cannot be tokenized: {error}", param="messages") from error

    def with_prompt(self, request: PlacedRequest, rendered: Prompt, note: str = "") -> RenderedRequest:
        """The request with this prompt, with sampled tokens as far as they spell it. Raises `ContextLengthExceeded`."""
        prompt, written = rendered, None
        if request.tracked:
            parent, why = self._conversations.sampled_before(request.placement)
            prompt, written = self._bridge.extend(rendered, parent, why)
            if 0 < self._watch.context_length <= prompt.length:
                prompt, written = self._bridge.extend(rendered, None, TOO_LONG)
        fields = msgspec.structs.asdict(request) | {"parameters": self._fit(request.parameters, prompt.length)}
        return RenderedRequest(**fields | {"prompt": prompt, "written": written, "note": note})

    def _fit(self, parameters: Parameters, prompt_tokens: int) -> Parameters:
        """The parameters with as many answer tokens as the context holds. Raises `ContextLengthExceeded`."""
        limit = self._watch.context_length
        room = limit - prompt_tokens
        if not limit or parameters.sampling.max_tokens <= room:
            return parameters
        if room <= 0:
            requested = parameters.most_tokens or 0
            raise ContextLengthExceeded(prompt_tokens=prompt_tokens, requested_tokens=requested, context_length=limit)
        sampling = msgspec.structs.replace(parameters.sampling, max_tokens=room)
        return msgspec.structs.replace(parameters, sampling=sampling)


def without_prompt(request: PlacedRequest) -> RenderedRequest:
    """The request for other models, where the policy cannot answer it."""
    return RenderedRequest(**msgspec.structs.asdict(request), prompt=Prompt(None, []))


async def _refuse_if_too_long(chat: ChatInput, prompter: Prompter, limit: int) -> None:
    """Raise `BadRequest` if the prompt certainly does not fit `limit` tokens (0: unknown)."""
    texts = list(_texts(chat))
    if _is_long(texts, limit):
        await asyncio.to_thread(_count, texts, prompter, limit)


def _is_long(texts: Sequence[str], limit: int) -> bool:
    """True for texts with many more characters than `limit` tokens (0: unknown) usually have."""
    return 0 < _CHARACTERS_PER_TOKEN * limit < sum(map(len, texts))


def _count(texts: Sequence[str], prompter: Prompter, limit: int, *, to_end: bool = False) -> int:
    """The tokens of texts. Takes time in proportion to the limit, not to the texts, unless they are counted `to_end`.
    Raises `BadRequest`.
    """
    counted = 0
    for text in texts:
        for part in _slices(text):
            counted += max(len(prompter.tokenizer.encode(part)) - 1, 0)
            if counted > limit * _MARGIN and not to_end:
                raise over_long(f"your messages resulted in more than {counted} tokens", limit)
    return counted


def _texts(chat: ChatInput) -> Iterator[str]:
    yield chat.tools_json.decode()
    for message in chat.messages:
        yield text_of(message)
        yield message.get("reasoning", "")
        for call in message.get("tool_calls", ()):
            yield arguments_text(call)


def _slices(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + _SLICE
        if end < len(text):
            cut = max(text.rfind("\n", start + _SLICE // 2, end), text.rfind(" ", start + _SLICE // 2, end))
            end = cut if cut > start else end
        yield text[start:end]
        start = end
