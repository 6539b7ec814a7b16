"""The tools of a Responses request: those that the client runs are offered, those that a server runs are left out.

A client may put functions into a namespace: `{"type": "namespace", "name", "tools": [...]}`. The policy is offered one
flat list. Its calls go back with the function's own name and the field `namespace`, and the client sends them so in its
history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.proxy.dialects.dialect import check_tool, forced_server_tool, listed, refuse, require

_CLIENT_TOOLS = ("function", "custom")
CALLS = ("function_call", "custom_tool_call")
_ADDED = "additional_tools"
"""An item that offers further tools from its place in the history on."""
_CALL, _OUTPUT = "_call", "_call_output"
_RECORDS = ("computer_", "tool_search_", "mcp_", "ghost_snapshot")
"""The beginnings of other items that say what a tool did which is not offered here."""
_PARTS = frozenset(["input_text", "input_image"])


def as_functions(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """History items in which every tool that a client ran is a function: a shell or patch tool of OpenAI's models is
    named by the item's type. What a server's tool did is left out, as these tools are: it has no `call_id`.
    """
    written = (_as_function(item, str(item.get("type") or "message")) for item in items)
    return [item for item in written if item is not None]


def _as_function(item: dict[str, Any], kind: str) -> dict[str, Any] | None:
    if kind.startswith(_RECORDS):
        return None
    named = kind.removesuffix(_OUTPUT).removesuffix(_CALL)
    if named == kind or named in ("function", "custom_tool"):
        return item
    if kind.endswith(_OUTPUT):
        output = item.get("output")
        if isinstance(output, list) and any(
            not isinstance(part, dict) or part.get("type") not in _PARTS for part in output
        ):
            output = msgspec.json.encode(output).decode()
        return {
            "type": "function_call_output",
            "call_id": item.get("call_id") or item.get("id"),
            "output": output or "",
        }
    if not isinstance(item.get("call_id"), str):
        return None
    given = {name: value for name, value in item.items() if name not in ("type", "id", "call_id", "status")}
    arguments = msgspec.json.encode(given).decode()
    return {"type": "function_call", "call_id": item["call_id"], "name": named, "arguments": arguments}


class ResponsesTools:
    """The tools that `body` offers, in `offered`; `left_out` are the types of those that a server would run.

    Raises `BadRequest` for a tool that cannot be read, and for a `tool_choice` that only a server's tool could serve.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.offered: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self.choice = body.get("tool_choice")
        self._flat: dict[tuple[str, str], str] = {}  # by namespace and name
        tools = [] if body.get("tools") is None else listed(body["tools"], "tools")
        namespaces = self._read([*tools, *_added(body.get("input"))])
        taken = {str(tool["name"]) for tool in self.offered}
        for namespace, tool in namespaces:
            name = _unique(_joined(namespace, tool["name"]), taken)
            self._flat[namespace, tool["name"]] = name
            self.offered.append({**tool, "name": name})
        self._named = {name: named for named, name in self._flat.items()}
        self._choose()

    def flatten(self, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """History items with the flat names of the functions that were called."""
        return [self._flattened(item) for item in items if item.get("type") != _ADDED]

    def restore(self, item: dict[str, Any]) -> dict[str, Any]:
        """An output item as the client has to get it: a call with the function's own name and its namespace."""
        named = self._named.get(item.get("name", "")) if item.get("type") in CALLS else None
        return item if named is None else {**item, "namespace": named[0], "name": named[1]}

    def _read(self, tools: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
        """Sort the tools; the functions of namespaces, each with the namespace's name."""
        inside: list[tuple[str, dict[str, Any]]] = []
        for index, tool in enumerate(tools):
            where, kind = f"tools[{index}]", tool.get("type")
            if kind in _CLIENT_TOOLS:
                check_tool(tool, where, "parameters", dict | None)
                self.offered.append(tool)
            elif kind == "namespace":
                require(isinstance(tool.get("name"), str), f"{where}.name must be a string.", f"{where}.name")
                members = listed(tool.get("tools"), f"{where}.tools")
                for number, member in enumerate(members):
                    if member.get("type") in _CLIENT_TOOLS:
                        check_tool(member, f"{where}.tools[{number}]", "parameters", dict | None)
                        inside.append((tool["name"], member))
                    else:
                        self.left_out.append(str(member.get("type")))
            else:
                require(isinstance(kind, str), f"{where}.type must be a string.", f"{where}.type")
                self.left_out.append(str(kind))
        return inside

    def _choose(self) -> None:
        """Read `tool_choice`, with the flat name of a chosen function."""
        choice = self.choice
        if choice is None or choice in ("auto", "none"):
            return
        if choice == "required":
            self._refuse_forced()
            require(bool(self.offered), "tool_choice wants a call, but the request has no tools.", "tool_choice")
            return
        kind = choice.get("type") if isinstance(choice, dict) else None
        if kind in _CLIENT_TOOLS and isinstance(choice.get("name"), str):
            self.choice = self._flattened(choice)
            require(bool(self.offered), "tool_choice wants a call, but the request has no tools.", "tool_choice")
            return
        if kind == "allowed_tools":
            self._allow(choice)
            return
        if kind in self.left_out:
            self._refuse_forced()
        message = "tool_choice must be 'none', 'auto', 'required' or {'type': 'function', 'name': ...}."
        raise refuse(message, "tool_choice", "unsupported_value")

    def _allow(self, choice: Mapping[str, Any]) -> None:
        """Offer only the tools that the choice allows, and read its mode."""
        named = [self._flattened(tool).get("name") for tool in listed(choice.get("tools"), "tool_choice.tools")]
        self.offered = [tool for tool in self.offered if tool["name"] in named]
        self.choice = choice.get("mode") or "auto"
        require(self.choice in ("auto", "required"), "tool_choice.mode must be auto or required.", "tool_choice.mode")
        self._choose()

    def _refuse_forced(self) -> None:
        """A call is forced: a tool that is left out might be the one that is wanted."""
        require(not self.left_out, forced_server_tool(self.left_out), "tool_choice", "unsupported_value")

    def _flattened(self, named: dict[str, Any]) -> dict[str, Any]:
        namespace, name = named.get("namespace"), named.get("name")
        if not (isinstance(namespace, str) and namespace and isinstance(name, str)):
            return named
        flat = self._flat.get((namespace, name)) or _joined(namespace, name)
        return {field: value for field, value in named.items() if field != "namespace"} | {"name": flat}


def _added(items: Any) -> Iterable[dict[str, Any]]:
    """The tools that history items add."""
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and item.get("type") == _ADDED:
            yield from listed(item.get("tools"), f"input[{index}].tools")


def _joined(namespace: str, name: str) -> str:
    """The flat name; the same in every request, so that a conversation's calls stay the same."""
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def _unique(name: str, taken: set[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free
