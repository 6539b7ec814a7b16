"""Simple tool use: tools with invented names, a request, the call, the result, a brief answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

_FOLDERS = ("", "", "", "src/", "docs/", "data/", "notes/", "config/", "/tmp/", "/home/user/", "tests/")
_STEMS = "README notes todo main config data report list setup index app test plan log shopping letter diary results NOTE CHANGES".split()
_ENDINGS = ".md .txt .py .json .csv .log .yaml .toml".split()
_COMMANDS = (
    "ls|ls -la|pwd|date|whoami|uptime|df -h|free -m|git status|git log|git diff|make test|echo hello|cat {file}|head {file}|"
    "tail -n 5 {file}|wc -l {file}|rm {file}|python {file}|touch {file}|grep error {file}|npm test|pytest|uname -a|hostname|ps aux"
).split("|")
_CITIES = (
    "Paris London Berlin Rome Madrid Vienna Oslo Tokyo Lima Cairo Delhi Boston Prague Lisbon Dublin Athens Zurich Warsaw Sydney Toronto"
).split()
_SKIES = "sunny cloudy rainy windy foggy snowy clear stormy".split()
_CONTENTS = (
    "The secret is {n}.|Buy milk and {n} eggs.|Meeting at {n} o'clock.|There are {n} open tasks.|Call Anna at {n}.|"
    "Version {n} is out.|The door code is {n}.|hello|Remember to water the plants.|All tests passed.|The train leaves at {n}."
).split("|")


@dataclass(frozen=True)
class ToolKind:
    """A family of tools that do the same thing under different names."""

    names: tuple[str, ...]
    parameters: tuple[str, ...]
    descriptions: tuple[str, ...]
    requests: tuple[str, ...]


KINDS = {
    "read": ToolKind(
        ("read", "read_file", "file_read", "open_file", "get_file", "cat"),
        ("path", "file_path", "file", "filename"),
        ("Read a file", "Read files", "Return the text of a file", "Reads a file from disk"),
        (
            "Read {v}", "read {v} please", "Please read {v}.", "Can you open {v}?", "What is in {v}?", "What does {v} say?",
            "Show me {v}", "Look at {v} and tell me what it says.", "please read {v} and tell me what is in it", "open the file {v}",
        ),
    ),
    "run": ToolKind(
        ("exec", "run", "run_command", "bash", "shell", "execute", "terminal"),
        ("command", "cmd", "script"),
        ("Run a shell command", "Run shell", "Execute a command", "Runs a command in the terminal"),
        ("Run {v}", "run {v} please", "Please run {v}.", "Can you run {v}?", "Execute {v}", "run the command {v}", "Please execute {v} for me."),
    ),
    "weather": ToolKind(
        ("get_weather", "weather", "current_weather", "weather_lookup", "get_current_weather"),
        ("city", "location", "place"),
        ("Get the weather", "Current weather of a city", "Look up the weather", "Returns the weather for a place"),
        (
            "What is the weather in {v}?", "How is the weather in {v}?", "weather in {v}", "Is it raining in {v}?",
            "What's the weather like in {v} today?", "Tell me the weather in {v}", "Do I need a coat in {v}?",
        ),
    ),
    "search": ToolKind(
        ("search", "web_search", "find", "lookup", "search_web"),
        ("query", "q", "text"),
        ("Search the web", "Look something up", "Find pages"),
        ("Search for {v}", "Look up {v}", "Can you search for {v}?", "find {v} on the web", "Please search {v}"),
    ),
}  # fmt: skip


def _value(random: Random, kind: str) -> str:
    file = random.choice(_FOLDERS) + random.choice(_STEMS) + random.choice(_ENDINGS)
    if kind == "read":
        return file
    if kind == "run":
        return random.choice(_COMMANDS).format(file=file)
    if kind == "weather":
        return random.choice(_CITIES)
    return random.choice("cheap flights|apple cake|train times|python lists|good books|old maps|bike shops|pancake recipe|how to knit".split("|"))


def sample_tools(random: Random, kinds: list[str]) -> list[dict[str, Any]]:
    """One tool of each kind, in the OpenAI form."""
    tools = []
    for kind in kinds:
        family = KINDS[kind]
        parameter = random.choice(family.parameters)
        properties: dict[str, Any] = {parameter: {"type": "string"}}
        if random.random() < 0.3:
            properties[parameter]["description"] = random.choice(("The value to use", "Required", f"The {parameter}"))
        if random.random() < 0.15:
            properties[random.choice(("limit", "timeout", "offset"))] = {"type": "number"}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": [parameter]}
        if random.random() < 0.2:
            schema["additionalProperties"] = False
        function = {"name": random.choice(family.names), "description": random.choice(family.descriptions), "parameters": schema}
        tools.append({"type": "function", "function": function})
    return tools


def sample_kinds(random: Random) -> list[str]:
    """One to four kinds of tools, in random order."""
    return random.sample(list(KINDS), random.choice((1, 1, 2, 2, 3, 4)))


def call_of(tool: dict[str, Any], value: str) -> dict[str, Any]:
    """The assistant message that calls `tool` with its required parameter."""
    function = tool["function"]
    arguments = {function["parameters"]["required"][0]: value}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": function["name"], "arguments": arguments}}],
    }


def sample_exchange(random: Random, tools: list[dict[str, Any]], kinds: list[str]) -> list[dict[str, Any]]:
    """A request, the call, its result and a brief answer."""
    index = random.randrange(len(kinds))
    kind = kinds[index]
    value = _value(random, kind)
    request = random.choice(KINDS[kind].requests).format(v=value)
    result, reply = _result(random, kind, value)
    return [
        {"role": "user", "content": request},
        call_of(tools[index], value),
        {"role": "tool", "tool_call_id": "call_1", "content": result},
        {"role": "assistant", "content": reply},
    ]


def _result(random: Random, kind: str, value: str) -> tuple[str, str]:
    if random.random() < 0.1:
        failure = random.choice(("not found", "permission denied", "timed out", "no such file", "failed"))
        return f"Error: {failure}", f"That did not work: {failure}."
    if kind == "weather":
        sky, degrees = random.choice(_SKIES), random.randint(2, 35)
        told = f"It is {sky} in {value}, {degrees} degrees."
        if random.random() < 0.5:
            return json.dumps({"sky": sky, "degrees": degrees}), told
        return f"{sky}, {degrees} degrees", told
    content = random.choice(_CONTENTS).format(n=random.randint(2, 99))
    if kind == "read":
        return content, random.choice((f"{value} says: {content}", f"The file says: {content}"))
    if kind == "run":
        return content, random.choice((f"The output is: {content}", f"{value} printed: {content}"))
    return content, f"I found this: {content}"
