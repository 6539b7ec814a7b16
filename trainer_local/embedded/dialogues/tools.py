"""Simple tool use: tools under many names, a request, the call, the result, a brief answer."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from trainer_local.embedded.dialogues.problems import lexicon, phrases


def _value(random: Random, kind: str) -> str:
    words = phrases()["tools"]
    file = random.choice(words["folders"]) + random.choice(words["stems"]) + random.choice(words["endings"])
    if kind == "read":
        return str(file)
    if kind == "run":
        return str(random.choice(words["commands"])).format(file=file)
    if kind == "weather":
        return str(random.choice(words["cities"]))
    things = random.choice(lexicon()["objects"])[1]
    return str(random.choice(words["queries"])).format(things=things, city=random.choice(words["cities"]))


def sample_tools(random: Random, kinds: list[str]) -> list[dict[str, Any]]:
    """One tool of each kind, in the OpenAI form."""
    tools = []
    for kind in kinds:
        family = phrases()["tools"]["kinds"][kind]
        parameter = random.choice(family["parameters"])
        properties: dict[str, Any] = {parameter: {"type": "string"}}
        if random.random() < 0.3:
            properties[parameter]["description"] = random.choice(("The value to use", "Required", f"The {parameter}"))
        if random.random() < 0.15:
            properties[random.choice(("limit", "timeout", "offset"))] = {"type": "number"}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": [parameter]}
        if random.random() < 0.2:
            schema["additionalProperties"] = False
        function = {
            "name": random.choice(family["names"]),
            "description": random.choice(family["descriptions"]),
            "parameters": schema,
        }
        tools.append({"type": "function", "function": function})
    return tools


def sample_kinds(random: Random) -> list[str]:
    """One to four kinds of tools, in random order."""
    return random.sample(list(phrases()["tools"]["kinds"]), random.choice((1, 1, 2, 2, 2, 3)))


def call_of(tool: dict[str, Any], value: str) -> dict[str, Any]:
    """The assistant message that calls `tool` with its required parameter."""
    function = tool["function"]
    arguments = {function["parameters"]["required"][0]: value}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": function["name"], "arguments": arguments}}
        ],
    }


def sample_exchange(random: Random, tools: list[dict[str, Any]], kinds: list[str]) -> list[dict[str, Any]]:
    """A request, the call, its result and a brief answer."""
    index = random.randrange(len(kinds))
    kind = kinds[index]
    value = _value(random, kind)
    request = random.choice(phrases()["tools"]["kinds"][kind]["requests"]).format(v=value)
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
        sky, degrees = random.choice(phrases()["tools"]["skies"]), random.randint(2, 35)
        told = f"It is {sky} in {value}, {degrees} degrees."
        if random.random() < 0.5:
            return json.dumps({"sky": sky, "degrees": degrees}), told
        return f"{sky}, {degrees} degrees", told
    content = random.choice(phrases()["tools"]["contents"]).format(n=random.randint(2, 99))
    if kind == "read":
        return content, random.choice((f"{value} says: {content}", f"The file says: {content}"))
    if kind == "run":
        return content, random.choice((f"The output is: {content}", f"{value} printed: {content}"))
    return content, f"I found this: {content}"
