"""A conversation with a hint in it: the context that a teacher sees, and the policy did not."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.messages.normalize import is_internal_context
from openclaw_rl.shared.records import Message

_HEADING = "\n\n[user's hint / instruction]\n"


def with_hint(messages: Sequence[Message], hint: str) -> list[Message]:
    """The messages with `hint` at the end of the last one that a user wrote.

    Messages that OpenClaw appends by itself do not count as written by a user while there is another. Where no user has
    spoken, the hint becomes a user message at the end.
    """
    changed = list(messages)
    users = [index for index, message in enumerate(changed) if message["role"] == "user"]
    written = [index for index in users if not is_internal_context(changed[index])]
    if not users:
        return [*changed, {"role": "user", "content": _HEADING.lstrip() + hint}]
    index = (written or users)[-1]
    content = changed[index]["content"]
    suffix = _HEADING + hint
    added = content + suffix if isinstance(content, str) else [*content, {"type": "text", "text": suffix}]
    changed[index] = {**changed[index], "content": added}
    return changed
