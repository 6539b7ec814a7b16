"""Refuses prompts that are far too long before all of them is tokenized.

Tokenizers need seconds a megabyte, and more than linear time for some texts. A prompt with many more characters than
the context has tokens is therefore counted slice by slice, and no further than to the point from which it cannot fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.normalize import ChatInput, text_of
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.rendering.prompter import Prompter

_CHARACTERS_PER_TOKEN = 4  # of ordinary text; prompts that are shorter are simply rendered
_SLICE = 16_384
_MARGIN = 1.05
"""How much more the slices have to count than the context holds: cutting text can add tokens, in most tokenizers none
where a line or a word ends."""


def characters(chat: ChatInput) -> int:
    """How much text a prompt holds, about."""
    return len(chat.tools_json) + sum(_size(message) for message in chat.messages)


def may_exceed(size: int, limit: int) -> bool:
    """Whether a prompt of `size` characters is worth counting before it is rendered; `limit` in tokens, 0 for none."""
    return bool(limit) and size > _CHARACTERS_PER_TOKEN * limit


def refuse_if_too_many(messages: Any, limit: int) -> None:
    """Raise `BadRequest` where there are more messages than the context has tokens (0: nobody knows): each takes some,
    and reading, placing and rendering so many takes seconds.
    """
    if limit and isinstance(messages, list) and len(messages) > limit:
        raise BadRequest(
            f"This model's maximum context length is {limit} tokens. However, you sent {len(messages)} messages, "
            "each of which takes several. Please reduce the number of the messages.",
            code="context_length_exceeded",
            param="messages",
        )


def refuse_if_too_long(chat: ChatInput, prompter: Prompter, limit: int) -> None:
    """Count until it is certain that the prompt does not fit `limit` tokens, and raise `BadRequest` then. Takes time in
    proportion to the limit, not to the prompt; call it in a thread.
    """
    counted = 0
    for text in _texts(chat):
        for part in _slices(text):
            counted += max(len(prompter.tokenizer.encode(part)) - 1, 0)
            if counted > limit * _MARGIN:
                raise BadRequest(
                    f"This model's maximum context length is {limit} tokens. However, your messages resulted in more "
                    f"than {counted} tokens, of which only the first were counted. Please reduce the length of the "
                    "messages.",
                    code="context_length_exceeded",
                    param="messages",
                )


def _size(message: Message) -> int:
    size = len(text_of(message)) + len(message.get("reasoning", ""))
    return size + sum(len(_arguments(call)) for call in message.get("tool_calls", ()))


def _texts(chat: ChatInput) -> Iterator[str]:
    yield chat.tools_json.decode()
    for message in chat.messages:
        yield text_of(message)
        yield message.get("reasoning", "")
        for call in message.get("tool_calls", ()):
            yield _arguments(call)


def _arguments(call: dict[str, Any]) -> str:
    arguments = call["arguments"]
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def _slices(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + _SLICE
        if end < len(text):
            cut = max(text.rfind("\n", start + _SLICE // 2, end), text.rfind(" ", start + _SLICE // 2, end))
            end = cut if cut > start else end
        yield text[start:end]
        start = end
