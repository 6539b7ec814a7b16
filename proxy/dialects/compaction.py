"""Compaction of a Responses conversation by the service: the policy writes a summary that stands for the history.

A client asks for it at `/v1/responses/compact`, or by an item `compaction_trigger` at the end of its input. It gets an
item of type `compaction` and sends that at the beginning of its next input. For OpenAI's clients its content is opaque;
here it holds the summary, so nothing has to be kept for it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from openclaw_rl.shared.errors import BadRequest

COMPACT_PATH = "/v1/responses/compact"
TRIGGER = "compaction_trigger"
ITEM = "compaction"
INSTRUCTION = (
    "Context checkpoint compaction: write a handoff summary for another LLM that will continue this conversation. Say "
    "what was asked, what has been done and decided, what was found (files, values, names), and what is left to do. "
    "Be brief. Text only: do not call tools."
)
SUMMARY = "Here is a summary of the conversation to date:\n\n"
_ITEMS = (ITEM, "compaction_summary")
_SEAL = "openclaw-rl-summary-1:"


def is_triggered(body: Mapping[str, Any]) -> bool:
    """True if the input ends with a request for compaction."""
    items = body.get("input")
    last = items[-1] if isinstance(items, list) and items else None
    return isinstance(last, dict) and last.get("type") == TRIGGER


def summary_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the request that makes the summary: the history, and the instruction as its last message."""
    items = body.get("input")
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    if isinstance(items, list):
        kept = [item for item in items if not (isinstance(item, dict) and item.get("type") == TRIGGER)]
        items = [*kept, {"type": "message", "role": "user", "content": INSTRUCTION}]
    dropped = ("tools", "tool_choice", "parallel_tool_calls", "text")
    return {name: value for name, value in body.items() if name not in dropped} | {"input": items}


def compaction_item(digits: str, summary: str) -> dict[str, Any]:
    """The item that stands for a conversation with this summary."""
    sealed = _SEAL + base64.urlsafe_b64encode(summary.encode()).decode()
    return {"id": f"cmp_{digits}", "type": ITEM, "encrypted_content": sealed}


def spelled_out(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items with the summaries in them as messages. Raises `BadRequest` for one that another service made."""
    return [_message(index, item) if item.get("type") in _ITEMS else item for index, item in enumerate(items)]


def kept_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of the user that stay in a compacted conversation, as items."""
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    kept = []
    for item in items if isinstance(items, list) else ():
        if item.get("role") == "user" and item.get("type", "message") == "message":
            content = item["content"]
            parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
            kept.append({**item, "type": "message", "content": parts})
    return kept


def _message(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    sealed = item.get("encrypted_content")
    try:
        if not isinstance(sealed, str) or not sealed.startswith(_SEAL):
            raise ValueError
        summary = base64.b64decode(sealed.removeprefix(_SEAL), b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise BadRequest(
            f"input[{index}] is a compaction that another service made: it cannot be read here. Begin a new "
            "conversation, or send the history itself.",
            param=f"input[{index}].encrypted_content",
            code="unsupported_value",
        ) from None
    return {"type": "message", "role": "user", "content": SUMMARY + summary}
