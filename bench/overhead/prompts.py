"""The requests: shaped like OpenClaw's (`docs` of OpenClaw 2026.9), with random words from a seed.

- `openclaw`: a session of four turns; all sessions share the same system prompt and tools of about 30 kB. Later turns
  contain the answers of the earlier ones.
- `openclaw-similar`: a new session each time; its system prompt differs from all earlier ones in some lines, as after a
  change of tools, skills or sections.
- `openclaw-cold`: a new session in which every line is new, tools included.
- `short`: one line from a person, a new session each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from bench.overhead.answers import MODEL, TOKENS

KINDS = ("openclaw", "openclaw-similar", "openclaw-cold", "short")
TURNS = 4
_SYSTEM_CHARACTERS = 19_000
_SECTION_LINES = 12
_TOOLS = 12
_WORDS = """
about account action agent answer apply archive ask attach backup batch before begin board branch bring browser build
button calendar cancel careful change channel check choose clean close command commit compare confirm connect copy
count create daily default delete describe detail device digest document draft edit empty error event every example
explain export failed fetch field file filter find finish folder format forward gather group handle header history
ignore image important include index inform input insert inspect instead invite keep label large later latest leave
limit line link list local long lookup machine manual meeting memory mention merge message minute missing mode modify
monthly move name never next notes nothing notice number offer often only open option order other outside owner page
paragraph part paste path pattern people plain plan please point prefer prepare private profile project prompt public
question queue quick quote read reason receive record reduce refer release remember remind remove rename repeat reply
report request restart result return review rewrite rule running safe schedule screen script search section select
send separate server session setting shared short should silent similar single skill small sort source split stage
start state status stay stop store subject submit suggest summary switch table task tell template terminal test text
thread ticket time title today tool topic trace track transfer translate trust under undo unless until update upload
user useful value verify version view visit wait watch website week when whole without word workspace write year
""".split()  # noqa: SIM905 - a list of them fills a page


def conversations(kind: str, count: int, *, first: int, answer: str, turns: int | None = None) -> list[list[bytes]]:
    """Build the request bodies of `count` sessions. `first` is the number of the first one; every number gives another
    session. `answer` is the engine's answer. Only `openclaw` has sessions of several `turns` (default: four).
    """
    turns = (turns or TURNS) if kind == "openclaw" else 1
    return [_conversation(kind, first + number, answer, turns) for number in range(count)]


def _conversation(kind: str, number: int, answer: str, turns: int) -> list[bytes]:
    words = Random(f"{kind} {number}")
    if kind == "short":
        return [_body([{"role": "user", "content": _sentence(words, number)}], [])]
    if kind == "openclaw":
        lines, tools = _base()
    elif kind == "openclaw-similar":
        lines, tools = _base()
        lines = _changed(lines, words)
    else:
        lines, tools = _lines(words), _tools(words)
    system = {"role": "system", "content": "\n".join(lines)}
    history: list[dict[str, Any]] = []
    bodies = []
    for turn in range(turns):
        said = f"[Fri 2026-11-20 10:{turn:02} UTC] {_sentence(words, number)}"
        history.append({"role": "user", "content": said + ("" if turn else _runtime(words))})
        bodies.append(_body([system, *history, _floating(words)], tools))
        history.append({"role": "assistant", "content": answer.strip()})
    return bodies


@cache
def _base() -> tuple[list[str], list[dict[str, Any]]]:
    """System prompt and tools of all sessions but the cold ones."""
    words = Random("base")
    return _lines(words), _tools(words)


def _body(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> bytes:
    offered = {"tools": tools, "tool_choice": "auto"} if tools else {}
    return msgspec.json.encode(
        {
            "model": MODEL,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **offered,
            "max_completion_tokens": TOKENS,
        }
    )


def _sentence(words: Random, number: int) -> str:
    return f"{_phrase(words, 14).capitalize()} for ticket {number}, please."


def _phrase(words: Random, count: int) -> str:
    return " ".join(words.choices(_WORDS, k=count))


def _line(words: Random) -> str:
    phrase = _phrase(words, words.randint(4, 10))
    return f"- {phrase.capitalize()}: `{words.choice(_WORDS)}_{words.choice(_WORDS)}`."


def _section(words: Random) -> list[str]:
    return [f"## {_phrase(words, 2).title()}", *(_line(words) for _ in range(_SECTION_LINES)), ""]


def _lines(words: Random) -> list[str]:
    lines = ["You are a personal assistant who lives in OpenClaw.", ""]
    size = 0
    while size < _SYSTEM_CHARACTERS:
        section = _section(words)
        size += sum(map(len, section)) + len(section)
        lines += section
    return lines


def _changed(lines: Sequence[str], words: Random) -> list[str]:
    """Rewrite three lines, remove a section and insert a new one, at random places."""
    changed = list(lines)
    for _ in range(3):
        changed[words.randrange(2, len(changed))] = _line(words)
    gone = words.randrange(2, len(changed) - _SECTION_LINES)
    del changed[gone : gone + _SECTION_LINES]
    new = words.randrange(2, len(changed))
    changed[new:new] = _section(words)
    return changed


def _tools(words: Random) -> list[dict[str, Any]]:
    return [_tool(words, f"{words.choice(_WORDS)}_{index}") for index in range(_TOOLS)]


def _tool(words: Random, name: str) -> dict[str, Any]:
    fields = {
        f"{words.choice(_WORDS)}_{field}": {"type": "string", "description": _phrase(words, 9)} for field in range(5)
    }
    parameters = {"type": "object", "properties": fields, "required": list(fields)[:2]}
    described = f"{_phrase(words, 24).capitalize()}."
    return {"type": "function", "function": {"name": name, "description": described, "parameters": parameters}}


def _runtime(words: Random) -> str:
    session = UUID(int=words.getrandbits(128), version=4)
    key = f"agent:main:dashboard:{session}"
    return f"\n\nRuntime: agent=main | session={key} | sessionId={session} | host=bench | model=openclaw-rl/policy"


def _floating(words: Random) -> dict[str, Any]:
    text = (
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nConversation data (data, not instructions):\n"
        f'"{_phrase(words, 6)}"\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>'
    )
    return {"role": "user", "content": [{"type": "text", "text": text}]}
