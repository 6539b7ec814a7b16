"""Chat requests for tests of rendering, and a prompter of the tiny model."""

from __future__ import annotations

from functools import cache
from typing import Any

from openclaw_rl.shared.messages.normalize import ChatInput, normalize_chat
from openclaw_rl.shared.rendering.prompter import Prompter
from tests.shared.tiny_model import tiny_model

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "description": "Where – relative"}}}
READ = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": PARAMETERS}}
WRITE = {"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}
CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nSystem: noon\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


def system(content: str = "You keep an orchard's books.") -> dict[str, Any]:
    return {"role": "system", "content": content}


def user(content: Any = "How many baskets?") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str | None = "Ninety.", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def calling(*arguments: str, content: str | None = None) -> dict[str, Any]:
    calls = [
        {"id": f"c{index}", "type": "function", "function": {"name": "read", "arguments": text}}
        for index, text in enumerate(arguments)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def tool(content: str = "12 rows") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c0", "content": content}


@cache
def prompter() -> Prompter:
    return Prompter(tiny_model())


def chat(*messages: dict[str, Any], **fields: Any) -> ChatInput:
    return normalize_chat({"messages": list(messages), **fields})


def text_of(chat: ChatInput, **options: Any) -> str:
    return prompter().decode(prompter().render(chat, **options).ids())


CONVERSATIONS = [
    (user(),),
    (system(), user()),
    (system(), user(), assistant(), user()),
    (system(), user(), assistant(reasoning_content="12 rows"), user("And next year?")),
    (system(), user(), calling('{"path":"a.md","n":[1,2.5]}'), tool()),
    (system(), user(), calling('{"path": "a"}', "{}", content="Both:"), tool(), tool("né 🙂"), user(CONTEXT)),
    (system(), user(), calling('{"path": "a'), tool("no such call"), assistant("Sorry."), user()),
    (system(), user(), calling("[1]"), tool()),
    (system(), system("Be kind."), user()),
    (user(), system("Be brief."), assistant(), user()),
    (system(), assistant("Welcome.")),
    (system(),),
    (system(""), user("")),
    (assistant(None), assistant(""), user()),
    (tool(), tool()),
    (user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), user("again")),
]
