"""`calls`: make the one right call among one to three tools. Some are what agents really offer (reading files, weather,
search), others are made up for the task from a verb and a noun. Combinations of a tool and a value are held out.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from openclaw_rl.environments.families.family import WORDS, FamilyTask, TaskFamily, definition, split_of
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tools.checks import MadeCall

KINDS = ("read", "weather", "search", "other")
COUNTS = (1, 1, 1, 2, 2, 3)
"""Numbers of tools offered."""


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with one parameter: its kind, its definition, and the words that a request may name it by."""

    kind: str
    parameter: str
    definition: dict[str, Any]
    slots: dict[str, str]


def draw(random: Random, split: Split) -> FamilyTask:
    """A task of the split."""
    offered = _tools(random)
    tool = random.choice(offered)
    name = tool.slots["name"]
    value = _value(random, tool.kind)
    while split_of(name, value) != split:
        value = _value(random, tool.kind)
    request = random.choice(WORDS[tool.kind]["requests"]).format(v=value, **tool.slots)
    arguments, result = {tool.parameter: value}, _result(random, tool.kind)

    def respond(given: dict[str, Any]) -> str:
        if given != arguments:
            raise ValueError("not found")
        return result

    return FamilyTask(
        request=request,
        tools=[one.definition for one in offered],
        call=MadeCall(name=name, arguments=arguments),
        value=respond,
    )


def _tools(random: Random) -> list[OfferedTool]:
    """One to three tools in random order, of different kinds, or made up."""
    size = random.choice(COUNTS)
    offered: dict[str, OfferedTool] = {}
    while len(offered) < size:
        kind = random.choices(KINDS, weights=[WORDS[kind]["weight"] for kind in KINDS])[0]
        tool = _tool(random, kind)
        if kind == "other" or all(one.kind != kind for one in offered.values()):
            offered.setdefault(tool.slots["name"], tool)
    return list(offered.values())


def _tool(random: Random, kind: str) -> OfferedTool:
    words = WORDS[kind]
    verb, noun = random.choice(WORDS["verbs"]), random.choice(WORDS["nouns"])
    slots = {"verb": verb, "Verb": verb.capitalize(), "noun": noun}
    slots["name"] = random.choice(words["names"]).format(**slots)
    parameter = random.choice(words["parameters"])
    description = random.choice(words["descriptions"]).format(**slots)
    return OfferedTool(
        kind=kind,
        parameter=parameter,
        definition=definition(slots["name"], description, {parameter: {"type": "string"}}),
        slots=slots,
    )


def _value(random: Random, kind: str) -> str:
    """A value as tools of the kind take it; for those made up a file, a city, a query, a name or a number."""
    if kind == "other":
        kind = random.choice(("read", "weather", "search", "word", "word"))
    stem = random.choice(WORDS["stems"])
    if kind == "read":
        return f"{random.choice(WORDS['folders'])}{stem}{random.choice(WORDS['endings'])}"
    if kind == "weather":
        return str(random.choice(WORDS["cities"]))
    if kind == "word":
        return str(random.choice((random.choice(WORDS["people"]), random.randint(2, 99), stem)))
    things, city = random.choice(WORDS["things"]), random.choice(WORDS["cities"])
    return str(random.choice(WORDS["queries"])).format(things=things, city=city)


def _result(random: Random, kind: str) -> str:
    if kind == "weather":
        return f"{random.choice(WORDS['skies'])}, {random.randint(2, 35)} degrees"
    if kind == "other" and random.random() < 0.5:
        return random.choice(("ok", "done"))
    return str(random.choice(WORDS["contents"])).format(n=random.randint(2, 99))


CALLS = TaskFamily("calls", draw)
