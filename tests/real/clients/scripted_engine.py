"""An engine that answers any client by one rule, over the wire of the real ones.

Asked to look into a file or to have a helper do something, it calls a tool that it is offered, with arguments that fit
its schema; held to a schema, it answers with an instance; else it says a sentence that quotes the request. It reads the
prompt alone, and no client by name.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.clients.engine_log import Logged, LoggedEngine, serve
from tests.processes import Engine

CONTEXT = 200_000
LOOK = "Look into the file"
"""The beginning of a request for a file, which is named next."""
HELP = "Have a helper"
"""The beginning of a request for a sub-agent."""
_BLOCK = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)
_FILE = re.compile(rf"{LOOK} (\S+\.\w+)")
_THOUGHT = re.compile(r"\A<think>.*?</think>\s*", re.DOTALL)
_PATH = re.compile(r"path|file", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>|[<>]")
_SUMMARY = re.compile(
    r"\b(?:produce|generate|write|put|wrap|in|inside|within|include)\b[^.\n<]{0,40}<(\w*(?:summary|snapshot))>"
)
"""A tag in which a summary is to be written, as many clients ask for it."""
_READS = re.compile(r"read|view|cat|open", re.IGNORECASE)
_RUNS = re.compile(r"bash|shell|exec|command|terminal", re.IGNORECASE)
_BEGINS = re.compile(r"(spawn|start|create|launch|new|ask|run)\w*_?\w*agent", re.IGNORECASE)
_DELEGATES = re.compile(r"^(agent|task|delegate\w*|subagent)$|helper|transfer|handoff", re.IGNORECASE)
_LISTED = re.compile(r"^\s*[-*] [*\"`]*([a-z][\w-]+)[*\"`]*:", re.MULTILINE)
_ENDS = re.compile(r"final|submit|finish|complete", re.IGNORECASE)

Wording = Callable[[str, str], str]
"""A client's own form of an answer, where it has one: of a sentence, and of a command that comes before it ("" for
none).
"""


class ScriptedEngine(LoggedEngine):
    """The engine. `wording` gives answers a client's form, for clients that read calls from the text."""

    def __init__(self) -> None:
        super().__init__("", EMBEDDED_POLICY)
        self.wording: Wording | None = None
        self._number = itertools.count(1)

    async def forward(self, request: web.Request) -> web.Response:
        """Every other route, as our own engines answer it."""
        info = {"weight_version": "0", "openclaw_rl": True, "live": 0, "versions": [0], "constrains": True}
        return web.json_response({"model_path": str(EMBEDDED_POLICY), "context_length": CONTEXT} | info)

    def answer(self, logged: Logged) -> str:
        """Return the answer to a prompt."""
        blocks = _BLOCK.findall(self.prompt(logged))
        begun = _THOUGHT.sub("", blocks.pop()[1]) if blocks[-1][0] == "assistant" else ""
        tools = _tools_in(blocks[0][1])
        role, newest = next((block for block in reversed(blocks) if block[0] != "assistant"), ("", ""))
        sentence = self._sentence(newest)
        if begun:
            return _continue(begun, tools, newest, sentence)
        if schema := logged.sampling.get("json_schema"):
            return json.dumps(fit(json.loads(schema), sentence, newest))
        result = newest.lstrip().startswith("<tool_response>")
        tool = None if role != "user" or result else _choose(tools, newest)
        if tool is not None:
            return _call(tool, newest)
        if self.wording is not None:
            found = _FILE.search(newest)
            return self.wording(sentence, f"cat {found[1]}" if found else "")
        return sentence

    def _sentence(self, newest: str) -> str:
        """One short sentence that quotes the end of the request without its markup."""
        lines = [line for line in _TAG.sub("", newest).splitlines() if line.strip()]
        quoted = " ".join((lines[-1] if lines else "nothing").split())[-60:]
        sentence = f"This is answer {next(self._number)}, to what ends with «{quoted}»."
        wrap = _SUMMARY.findall(newest)
        return f"<{wrap[-1]}>{sentence}</{wrap[-1]}>" if wrap else sentence


@contextmanager
def run_scripted_engine(folder: Path) -> Iterator[tuple[Engine, ScriptedEngine]]:
    """The engine as a service reaches it, and what sets its wording, until the block ends."""
    engine = ScriptedEngine()
    with serve(engine) as port:
        url = f"http://127.0.0.1:{port}"
        yield Engine(url, port, EMBEDDED_POLICY, process=None, log=folder / "engine.log"), engine


def fit(schema: dict[str, Any], sentence: str, request: str, name: str = "") -> Any:
    """Return a small instance of a schema: names of paths and commands get what the request names."""
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return fit(schema[key][0], sentence, request, name)
    if "const" in schema or schema.get("enum"):
        return schema.get("const", (schema.get("enum") or [None])[0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {one: fit(properties.get(one, {}), sentence, request, one) for one in _needed(schema)}
    if kind == "array":
        items = schema.get("items") or {}
        if "command" in name or name == "cmd":
            return _command(request).split()
        return [fit(items, sentence, request, name)] * max(1, schema.get("minItems", 1))
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
    if kind == "boolean":
        return False
    return None if kind == "null" else _string(name, sentence, request)


def _needed(schema: dict[str, Any]) -> list[str]:
    """The properties that an instance gets: those required, else one that says what to do, else the first."""
    offered = list(schema.get("properties", {}))
    said = [name for name in offered if name in ("prompt", "task", "message", "instructions")]
    return list(schema.get("required") or said or offered[:1])


def _string(name: str, sentence: str, request: str) -> str:
    file = _FILE.search(request)
    if file and _PATH.search(name):
        return file[1]
    if file and re.search(r"command|cmd|script|code", name, re.IGNORECASE):
        return _command(request)
    return sentence


def _command(request: str) -> str:
    file = _FILE.search(request)
    return f"cat {file[1]}" if file else "true"


def _tools_in(system: str) -> list[dict[str, Any]]:
    """The tools as templates write them, one a line; a client's own text may have the same tag."""
    found = [lines for lines in _TOOLS.findall(system) if lines.startswith('{"')]
    return [json.loads(line)["function"] for line in found[-1].splitlines()] if found else []


def _choose(tools: list[dict[str, Any]], request: str) -> dict[str, Any] | None:
    """The tool that does what is asked for, `None` if nothing is asked for or none does it."""
    if HELP in request:
        order = [_BEGINS, _DELEGATES]
    elif _FILE.search(request):
        files = [tool for tool in tools if _PATH.search(" ".join(_properties(tool)))]
        tools = [*files, *(tool for tool in tools if tool not in files)]
        order = [_READS, _RUNS, re.compile("")]
    else:
        order = [_ENDS] if tools and all(_ENDS.search(tool["name"]) for tool in tools) else []
    for words in order:
        for tool in tools:
            if words.search(tool["name"]):
                return tool
    return None


def _properties(tool: dict[str, Any]) -> list[str]:
    return list((tool.get("parameters") or {}).get("properties") or {})


def _call(tool: dict[str, Any], request: str) -> str:
    arguments = fit(tool.get("parameters") or {}, request.strip().rpartition(HELP)[2].strip(" :."), request)
    listed = _LISTED.search(tool.get("description", ""))
    for name in arguments:
        if listed and re.search(r"agent|type", name) and "enum" not in tool["parameters"]["properties"][name]:
            arguments[name] = listed[1]
    return "<tool_call>\n" + json.dumps({"name": tool["name"], "arguments": arguments}) + "\n</tool_call>"


def _continue(begun: str, tools: list[dict[str, Any]], request: str, sentence: str) -> str:
    """The rest of an answer whose beginning, a call of some tool, is forced."""
    chosen = _choose(tools, request) if "<tool_response>" not in request else None
    chosen = chosen or next((tool for tool in tools if _ENDS.search(tool["name"])), tools[0])
    named = next((tool for tool in tools if f'"name": "{tool["name"]}"' in begun), chosen)
    arguments = fit(named.get("parameters") or {}, sentence, request)
    whole = "<tool_call>\n" + json.dumps({"name": named["name"], "arguments": arguments}) + "\n</tool_call>"
    at = whole.find(begun.strip())
    return whole[at + len(begun.strip()) :] if at >= 0 else sentence
