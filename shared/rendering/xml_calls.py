"""One tool call of Qwen3.5's grammar, read while it is being written:

    <function=NAME>
    <parameter=KEY>
    value
    </parameter>
    </function>

Values are text; what they mean is up to the tool's schema, as in the parsers of vLLM, SGLang and `renderers`: a
parameter declared a string stays as it is, everything else is JSON if it can be. Unlike there, only the line breaks
that the template puts around a value are dropped, not the white space of the value itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from openclaw_rl.shared.rendering.json_calls import CallText

_FUNCTION = re.compile(r"<function=([^>]+)>")
_PARAMETER = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_END = "</function>"
_CLOSED = re.compile(rf"</parameter>|{_END}")
_REACH = len("</parameter>")  # characters of it that may have come before

Schemas = Mapping[str, Mapping[str, Mapping[str, Any]]]


class XmlCallReader(CallText):
    """Takes the text between the call markers; arguments become certain one parameter at a time."""

    __slots__ = ("_pending", "_schemas", "_suspect")

    def __init__(self, schemas: Schemas | None = None) -> None:
        super().__init__()
        self._schemas = schemas or {}
        self._pending = ""
        self._suspect = False

    def push(self, text: str) -> str:
        """Reads on. Returns the arguments that became certain ("" for none); `name` may have become known meanwhile."""
        self._parts.append(text)
        if self.complete:
            self._suspect = self._suspect or not text.isspace()
            return ""
        self._pending += text
        if self.name is None:
            start = _FUNCTION.search(self._pending) if ">" in text else None
            if start is None:
                return ""
            self.name = start[1].strip()
            self._suspect = bool(self._pending[: start.start()].strip())
            self._pending = self._pending[start.end() :]
        elif ">" not in text or not _CLOSED.search(self._pending, max(0, len(self._pending) - len(text) - _REACH)):
            return ""
        written: list[str] = []
        end = 0
        for found in _PARAMETER.finditer(self._pending):
            written.append((", " if self._arguments or written else "{") + self._argument(found[1].strip(), found[2]))
            end = found.end()
        self._pending = self._pending[end:]
        if self._pending.lstrip().startswith(_END):
            self.complete = True
            self._suspect = self._suspect or bool(self._pending.lstrip().removeprefix(_END).strip())
            written.append("}" if self._arguments or written else "{}")
        self._arguments += written
        return "".join(written)

    def close(self) -> str:
        """The call is over. Returns the end of the arguments of one that did not close them itself."""
        if self.name is None or self.complete:
            return ""
        self._suspect = True
        self.complete = True
        end = "}" if self._arguments else "{}"
        self._arguments.append(end)
        return end

    def broken(self) -> bool:
        """True if the call was recognised, but does not keep to the grammar or to its schema."""
        return self.name is not None and self._suspect

    def _argument(self, key: str, text: str) -> str:
        value, fits = typed_value(text, self._schemas.get(self.name or "", {}).get(key))
        self._suspect = self._suspect or not fits
        return f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"


def schemas_of(tools: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The schema of each parameter of each tool, as far as they are given."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for tool in tools:
        function = tool.get("function")
        if not isinstance(function, dict):
            continue
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        given = properties if isinstance(properties, dict) else {}
        found[str(function.get("name"))] = {key: one for key, one in given.items() if isinstance(one, dict)}
    return found


def typed_value(text: str, schema: Mapping[str, Any] | None) -> tuple[Any, bool]:
    """The value that a parameter's text stands for, and whether its schema allows that."""
    declared = schema.get("type") if schema else None
    if declared == "string" or declared == ["string"]:
        return text, True
    branches = (schema.get("anyOf") or schema.get("oneOf") or ()) if schema else ()
    may_be_text = any(isinstance(branch, dict) and branch.get("type") == "string" for branch in branches)
    try:
        return json.loads(text.strip(), parse_constant=_no_constant), True
    except (ValueError, RecursionError):
        return text, may_be_text


def _no_constant(name: str) -> Any:
    raise ValueError(name)
