"""Simple tool use: tools under many names, a request, the call, the result, a brief answer.

Four families are what agents really offer (reading files, running commands, weather, search), one takes two numbers,
and `other` makes up a tool from a verb and a noun: with those the policy learns to take names and parameters from the
definition in its prompt, not from memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.shipped_policy.dialogues.problems import phrases
from openclaw_rl.evaluation.problems import PEOPLE, THINGS

KINDS = ("read", "run", "weather", "search", "sum", "other")
_WEIGHTS = (4, 4, 3, 3, 2, 4)


@dataclass(frozen=True)
class Tool:
    """A tool as offered (`definition`, in the OpenAI form), its `kind`, its required `parameters`, and for a made-up
    one the `verb` and the `noun` of its name.
    """

    kind: str
    definition: dict[str, Any]
    parameters: tuple[str, ...]
    verb: str = ""
    noun: str = ""

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.definition["function"]["name"])


def sample_tools(random: Random) -> list[Tool]:
    """One to three tools of different kinds, in random order."""
    count = random.choice((1, 1, 2, 2, 2, 3))
    kinds: list[str] = []
    while len(kinds) < count:
        kind = random.choices(KINDS, weights=_WEIGHTS)[0]
        if kind == "other" or kind not in kinds:
            kinds.append(kind)
    return [_tool(random, kind) for kind in kinds]


def _tool(random: Random, kind: str) -> Tool:
    family = phrases()["tools"]["kinds"][kind]
    verb = noun = ""
    if kind == "other":
        verb, noun = random.choice(family["verbs"]), random.choice(family["nouns"])
        name = random.choice((f"{verb}_{noun}", f"{verb}_{noun}", f"{noun}_{verb}", f"{verb}_the_{noun}"))
        description = random.choice((f"{verb.capitalize()} a {noun}", f"{verb.capitalize()}s the {noun}", f"{noun}s"))
        parameters: tuple[str, ...] = (random.choice(family["parameters"]),)
    else:
        name, description = random.choice(family["names"]), random.choice(family["descriptions"])
        chosen = random.choice(family["parameters"])
        parameters = tuple(chosen) if kind == "sum" else (chosen,)
    properties: dict[str, Any] = {
        parameter: {"type": "number" if kind == "sum" else "string"} for parameter in parameters
    }
    if random.random() < 0.3:
        parameter = parameters[0]
        properties[parameter]["description"] = random.choice(("The value to use", "Required", f"The {parameter}"))
    if random.random() < 0.15:
        properties[random.choice(("limit", "timeout", "offset"))] = {"type": "number"}
    offered = definition(name, description, properties, parameters)
    if random.random() < 0.2:
        offered["function"]["parameters"]["additionalProperties"] = False
    return Tool(kind, offered, parameters, verb, noun)


def definition(
    name: str, description: str, properties: dict[str, Any], required: Sequence[str] | None = None
) -> dict[str, Any]:
    """A tool in the OpenAI form; all `properties` (JSON schemas by name) are required unless `required` says else."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def call_message(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The assistant message that calls the tool `name`."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def sample_exchange(random: Random, tools: list[Tool]) -> list[dict[str, Any]]:
    """A request that needs one of the tools, the call, its result and a brief answer."""
    tool = random.choice(tools)
    requests = phrases()["tools"]["kinds"][tool.kind]["requests"]
    if tool.kind == "sum":
        left, right = random.randint(0, 20), random.randint(0, 20)
        values: tuple[Any, ...] = (left, right)
        request = random.choice(requests).format(a=left, b=right, name=tool.name)
        result, reply = str(left + right), random.choice((f"The result is {left + right}.", f"It is {left + right}."))
    else:
        value = sample_value(random, tool.kind)
        values = (value,)
        slots = {"v": value, "name": tool.name, "verb": tool.verb, "Verb": tool.verb.capitalize(), "noun": tool.noun}
        request = random.choice(requests).format(**slots)
        result, reply = _result(random, tool.kind, value)
    if random.random() < 0.1:
        failure = random.choice(("not found", "permission denied", "timed out", "no such file", "failed"))
        result, reply = f"Error: {failure}", f"That did not work: {failure}."
    return [
        {"role": "user", "content": request},
        call_message(tool.name, dict(zip(tool.parameters, values, strict=True))),
        {"role": "tool", "tool_call_id": "call_1", "content": result},
        {"role": "assistant", "content": reply},
    ]


def sample_value(random: Random, kind: str) -> str:
    """A value as tools of `kind` take it: a path, a command, a city, a query; for `other` any of them, or a word."""
    words = phrases()["tools"]
    if kind == "other":
        kind = random.choice(("read", "weather", "search", "word", "word"))
    file = random.choice(words["folders"]) + random.choice(words["stems"]) + random.choice(words["endings"])
    if kind == "read":
        return str(file)
    if kind == "run":
        return str(random.choice(words["commands"])).format(file=file)
    if kind == "weather":
        return str(random.choice(words["cities"]))
    if kind == "word":
        names = PEOPLE
        return random.choice((random.choice(names), str(random.randint(2, 99)), random.choice(words["stems"])))
    things = random.choice(THINGS)
    return str(random.choice(words["queries"])).format(things=things, city=random.choice(words["cities"]))


def quoting_drill(random: Random) -> tuple[str, str]:
    """Values to put into JSON: "As path: notes.md; src/app.py" and '{"path": "notes.md"}; {"path": "src/app.py"}'.

    After a space a word is another token than after a quotation mark; so many pairs for so few tokens teach which
    belong together.
    """
    values = [
        sample_value(random, random.choice(("read", "read", "run", "weather", "search", "word")))
        for _ in range(random.randint(2, 5))
    ]
    parameter = random.choice(
        phrases()["tools"]["kinds"]["other"]["parameters"] + ["path", "file_path", "command", "query", "city"]
    )
    return f"As {parameter}: {'; '.join(values)}", "; ".join(json.dumps({parameter: value}) for value in values)


def _result(random: Random, kind: str, value: str) -> tuple[str, str]:
    if kind == "weather":
        sky, degrees = random.choice(phrases()["tools"]["skies"]), random.randint(2, 35)
        told = f"It is {sky} in {value}, {degrees} degrees."
        if random.random() < 0.5:
            return json.dumps({"sky": sky, "degrees": degrees}), told
        return f"{sky}, {degrees} degrees", told
    if kind == "other" and random.random() < 0.5:
        return random.choice(("ok", "done", '{"ok": true}')), random.choice(("Done.", f"Done: {value}."))
    content = random.choice(phrases()["tools"]["contents"]).format(n=random.randint(2, 99))
    if kind == "read":
        return content, random.choice((f"{value} says: {content}", f"The file says: {content}"))
    if kind == "run":
        return content, random.choice((f"The output is: {content}", f"{value} printed: {content}"))
    return content, f"I found this: {content}"
