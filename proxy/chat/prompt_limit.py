"""Reject over-long prompts without tokenizing them completely.

Tokenizers need seconds a megabyte, and more than linear time for some texts. A prompt with many more characters than
the context has tokens is counted slice by slice, and only up to the point from which it cannot fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.equality import arguments_text
from openclaw_rl.shared.messages.normalize import ChatInput, text_of
from openclaw_rl.shared.rendering.prompter import Prompter

_CHARACTERS_PER_TOKEN = 4  # of ordinary text; prompts that are shorter are simply rendered
_SLICE = 16_384
_MARGIN = 1.05
"""Margin over the context length, as cutting a text can add tokens (in most tokenizers none at the end of a line or a
word)."""


def refuse_if_too_many(messages: Any, limit: int) -> None:
    """Raise `BadRequest` for more messages than the context has tokens (0: unknown): each takes some, and reading,
    placing and rendering so many takes seconds.
    """
    if limit and isinstance(messages, list) and len(messages) > limit:
        raise _refusal(
            f"you sent {len(messages)} messages, each of which takes several. Please reduce the number of the "
            "messages.",
            limit,
        )


async def refuse_if_too_long(chat: ChatInput, prompter: Prompter, limit: int) -> None:
    """Raise `BadRequest` if the prompt certainly does not fit `limit` tokens (0: unknown)."""
    texts = list(_texts(chat))
    if limit and sum(map(len, texts)) > _CHARACTERS_PER_TOKEN * limit:
        await asyncio.to_thread(_count, texts, prompter, limit)


def _count(texts: Sequence[str], prompter: Prompter, limit: int) -> None:
    """Takes time in proportion to the limit, not to the prompt."""
    counted = 0
    for text in texts:
        for part in _slices(text):
            counted += max(len(prompter.tokenizer.encode(part)) - 1, 0)
            if counted > limit * _MARGIN:
                raise _refusal(
                    f"your messages resulted in more than {counted} tokens, of which only the first were counted. "
                    "Please reduce the length of the messages.",
                    limit,
                )


def _refusal(problem: str, limit: int) -> BadRequest:
    return BadRequest(
        f"This model's maximum context length is {limit} tokens. However, {problem}",
        code="context_length_exceeded",
        param="messages",
    )


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
