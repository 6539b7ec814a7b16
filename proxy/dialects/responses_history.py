"""The parts of a Responses request that have to be looked up: the answer that it continues, items that it only names.

The ids of a response and of its items are made of the turn's digits, so both are found in the journal while the turn is
kept there. A turn that is not kept (`X-RL-Train: never`, no capture, forgotten) is refused with that reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from openclaw_rl.proxy.dialects.dialect import listed, refuse
from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.equality import arguments_text

_REFERENCE = "item_reference"
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "fc"}
_ITEM_ID = re.compile(r"\A(msg|rs|fc)_([0-9a-f]{32})(?:_(\d{1,4}))?\Z")
_RESPONSE_ID = re.compile(r"\Aresp_([0-9a-f]{32})\Z")
_SHOWN = 100
_NOT_KEPT = "only recorded and complete answers of this service can be named by id, until they are forgotten."


class ItemIds:
    """The ids of the items of a turn's answer, in order: `msg_DIGITS`, then `msg_DIGITS_1`… for each kind of item."""

    def __init__(self, digits: str) -> None:
        self._digits = digits
        self._ids: list[str] = []
        self._counts: dict[str, int] = {}

    def at(self, index: int, kind: str) -> str:
        """The id of the item at `index`; the items before it have been asked for."""
        if index >= len(self._ids):
            prefix = _PREFIXES.get(kind, "item")
            number = self._counts[prefix] = self._counts.get(prefix, -1) + 1
            self._ids.append(f"{prefix}_{self._digits}" + (f"_{number}" if number else ""))
        return self._ids[index]

    def known(self, index: int) -> str | None:
        """The id at `index` if it has been given."""
        return self._ids[index] if 0 <= index < len(self._ids) else None


def previous_turn(body: Mapping[str, Any]) -> str | None:
    """The turn that `previous_response_id` names. Raises `BadRequest`."""
    identity = body.get("previous_response_id")
    if identity is None:
        return None
    found = _RESPONSE_ID.match(identity) if isinstance(identity, str) else None
    if found is None:  # it would be part of a URL
        raise unknown_previous(identity)
    return f"turn_{found[1]}"


def unknown_previous(identity: Any) -> BadRequest:
    """The error for a previous response that is not kept here."""
    return refuse(
        f"Previous response with id {repr(identity)[:_SHOWN]} not found: {_NOT_KEPT} Send the whole input instead.",
        "previous_response_id",
        "previous_response_not_found",
    )


def referenced_turns(body: Mapping[str, Any]) -> list[str]:
    """The turns whose items the input names, each once. Raises `BadRequest` for ids that are none of ours."""
    items = body.get("input")
    named = []
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and _names_item(item):
            found = _ITEM_ID.match(str(item.get("id")))
            if found is None:
                raise _unknown_item(index, item)
            named.append(f"turn_{found[2]}")
    return list(dict.fromkeys(named))


def with_items(body: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """The body with the items themselves, out of these answers (canonical messages, by turn), in place of their names.

    Raises `BadRequest` for a turn that has no answer here.
    """
    items: list[Any] = []
    for index, item in enumerate(body["input"]):
        if not (isinstance(item, dict) and _names_item(item)):
            items.append(item)
            continue
        found = _ITEM_ID.match(str(item["id"]))
        assert found is not None
        answer = answers.get(f"turn_{found[2]}")
        if answer is None:
            raise _unknown_item(index, item)
        same = [one for one in _items_of(answer) if _PREFIXES[one["type"]] == found[1]]
        number = int(found[3] or 0)
        # All text of an answer is one message here: a second one says nothing that the first did not.
        if number >= len(same) and found[1] == "fc":
            raise _unknown_item(index, item)
        items += same[number : number + 1]
    return {**body, "input": items}


def continued(body: Mapping[str, Any], turn: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the history of `turn` (as `/rl/turns/{id}` shows it) before its input.

    New instructions replace the old ones, which stand first. Raises `BadRequest` where there is no answer to continue.
    """
    if turn.get("status") != "complete":
        raise unknown_previous(body.get("previous_response_id"))
    messages = list(turn["messages"])
    if body.get("instructions") and messages and messages[0]["role"] == "system":
        del messages[0]
    items = [item for message in [*messages, turn["answer"]] for item in _items_of(message)]
    new = body.get("input")
    if new is None:  # the answer itself is all that is asked about
        new = []
    if isinstance(new, str):
        new = [{"type": "message", "role": "user", "content": new}]
    return {**body, "input": [*items, *listed(new, "input")]}


def _items_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A canonical message as input items."""
    role, content = message["role"], message["content"]
    if role == "tool":
        output = content if isinstance(content, str) else [_part(part, "input") for part in content]
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id", ""), "output": output}]
    items: list[dict[str, Any]] = []
    if message.get("reasoning"):
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": message["reasoning"]}]})
    if content or role != "assistant":
        kind = "output" if role == "assistant" else "input"
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        items.append({"type": "message", "role": role, "content": [_part(part, kind) for part in parts]})
    for call in message.get("tool_calls") or ():
        named = {"call_id": call["id"], "name": call["name"], "arguments": arguments_text(call)}
        items.append({"type": "function_call", **named})
    return items


def _names_item(item: Mapping[str, Any]) -> bool:
    """True for a reference; OpenAI's clients may leave out its type."""
    return item.get("type") == _REFERENCE or (set(item) == {"id"} and isinstance(item["id"], str))


def _unknown_item(index: int, item: Mapping[str, Any]) -> BadRequest:
    where = f"input[{index}]"
    message = f"{where} refers to the item {str(item.get('id'))[:100]!r}, which is not stored here: {_NOT_KEPT}"
    return refuse(f"{message} Send the item itself.", where, "item_not_found")


def _part(part: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": f"{kind}_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"]}
