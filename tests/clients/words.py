"""Words of the conversations of this folder."""

from __future__ import annotations

from typing import Any

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": "read_file", "description": "Read a file", "parameters": SCHEMA}}
]
RESPONSES_TOOLS: Any = [
    {"type": "function", "name": "read_file", "description": "Read a file", "parameters": SCHEMA, "strict": False}
]
ANTHROPIC_TOOLS: Any = [{"name": "read_file", "description": "Read a file", "input_schema": SCHEMA}]

PATHS = ["notes/today.md", "notes/älter.md"]
TWO_CALLS = "I read both." + "".join(
    f'\n<tool_call>\n{{"name": "read_file", "arguments": {{"path": "{path}"}}}}\n</tool_call>' for path in PATHS
)
THOUGHT = "<think>\nTwo and two,\nthat is four.\n</think>\n\nIt is 4."
