"""An answer as a client sees it: the pieces it comes in, and the whole. `shared.rendering.answer_parser` makes both
of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.messages.equality import parse_arguments
from openclaw_rl.shared.messages.normalize import assistant_message
from openclaw_rl.shared.records import Message

DeltaKind = Literal["content", "reasoning", "call_start", "call_arguments"]


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer. `text` is the content, reasoning or arguments to append; `index` counts calls; a
    `call_start` has id and name."""

    kind: DeltaKind
    text: str = ""
    index: int = -1
    call_id: str = ""
    name: str = ""


class Call(msgspec.Struct, frozen=True):
    """A tool call of an answer. `arguments` is the text the client got: JSON unless the policy wrote something else."""

    id: str
    name: str
    arguments: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A finished answer; the deltas in one piece.

    `finish_reason` is OpenAI's `stop`, `length` or `tool_calls`, or `abort`. `irregular` says that something in it does
    not follow the grammar (a malformed, unfinished or broken call, text after a call) or was cut off by a stop string.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[Call, ...] = ()
    finish_reason: str = "stop"
    irregular: bool = False

    def message(self) -> Message:
        """The canonical assistant message, equal (`shared.messages.equality`) to what a client will echo."""
        calls = [
            {"id": call.id, "name": call.name, "arguments": parse_arguments(call.arguments)} for call in self.tool_calls
        ]
        return assistant_message(self.content, self.reasoning, calls)

    def matches(self, content: str, reasoning: str, calls: Sequence[tuple[str, Any]]) -> bool:
        """True if another reading of the same ids found the same; white space at the ends does not count."""
        own = [(call.name, parse_arguments(call.arguments)) for call in self.tool_calls]
        other = [(name, parse_arguments(value) if isinstance(value, str) else value or {}) for name, value in calls]
        return (
            self.content == content.strip()
            and self.reasoning == reasoning.strip()
            and [(name, _stripped(value)) for name, value in own] == [(name, _stripped(value)) for name, value in other]
        )


def _stripped(arguments: Any) -> Any:
    """Arguments without white space around their texts, which other readers drop."""
    if isinstance(arguments, dict):
        return {key: value.strip() if isinstance(value, str) else value for key, value in arguments.items()}
    return arguments
