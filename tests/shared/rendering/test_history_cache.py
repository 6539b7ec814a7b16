"""The beginnings of long histories are written once; the prompt does not show it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from openclaw_rl.shared.rendering.families import FAMILIES
from openclaw_rl.shared.rendering.history_cache import GROWN
from openclaw_rl.shared.rendering.prompter import Prompter
from tests.shared.rendering.test_families import prompter
from tests.shared.speech import READ, assistant, calling, chat, system, tool, user
from tests.shared.speech import prompter as tiny_prompter
from tests.shared.tiny_model import tiny_model

CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nSystem: noon\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


def turn(random: Random) -> list[dict[str, Any]]:
    """A person's message and what was done about it."""
    asked = random.choice(["How many?", "And that?", "", "<tool_response>odd</tool_response>", CONTEXT, "é 🙂\n\n"])
    messages = [user(f"{random.randrange(100)} {asked}" if random.random() < 0.7 else asked)]
    if random.random() < 0.1:
        messages.append(system("late"))
    if random.random() < 0.1:
        messages.append(user("once more"))
    while random.random() < 0.4:
        thought = {"reasoning_content": "rows times baskets"} if random.random() < 0.5 else {}
        messages += [calling('{"path": "a"}') | thought, tool("12 rows\n")]
    if random.random() < 0.9:
        messages.append(assistant(random.choice(["Ninety.", "", "\nNinety.\n"]), reasoning_content="hm"))
    return messages


def session(random: Random, turns: int) -> list[list[dict[str, Any]]]:
    """The histories of a session's requests, with a fork, an edit and a cut among them."""
    history: list[dict[str, Any]] = [user(f"first of {random.random()}"), assistant()]
    requests = []
    for _ in range(turns):
        said = turn(random)
        requests.append([*history, said[0], *([user(CONTEXT)] if random.random() < 0.5 else [])])
        history += said
    edited = list(history)
    edited[len(edited) // 2] = user("said otherwise")
    cut = random.randrange(2, len(history))
    return [*requests, history[:cut], edited, history[:1] + history[cut:], history, history[: cut + 1]]


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize("thinking", [False, True])
def test_long_histories_have_the_ids_of_the_whole(name: str, thinking: bool) -> None:
    one, random = prompter(name), Random(f"{name} {thinking}")
    used = 0
    for tools in ([READ], []):
        for history in session(random, 60):
            asked = chat(system("always the same"), *history, tools=tools)
            ids = one.render(asked, thinking=thinking).packed()
            assert ids == one._writer.ids(asked.messages, asked.tools, thinking=thinking)
            used += one._histories.written(asked.messages[1:], thinking=thinking)
            bare = chat(*history)
            ids = one.render(bare, thinking=thinking).packed()
            assert ids == one._writer.ids(bare.messages, [], thinking=thinking)
    assert used or name == "llama-3"  # which writes a date before the first message, wherever that stands


@pytest.mark.parametrize("arguments", ['{"a": true, "b": 2}', '{"a": 1.0, "b": 2}', '{"b": 2, "a": 1}'])
def test_calls_that_python_takes_for_the_same_are_distinguished(arguments: str) -> None:
    fresh = Prompter(tiny_model())
    rest = [message for number in range(GROWN) for message in (user(f"{number}"), assistant())]
    for written in ('{"a": 1, "b": 2}', arguments):
        asked = chat(user("first"), calling(written), tool(), assistant(), *rest, user())
        ids = fresh.render(asked).packed()
        assert ids == tiny_prompter()._writer.ids(asked.messages, [], thinking=False)


def test_a_long_history_is_not_cold_where_most_of_it_is_known() -> None:
    fresh = Prompter(tiny_model())
    history = [message for number in range(300) for message in (user(f"{number}"), assistant())]
    asked = chat(system("head"), *history, user("last"))
    assert fresh.is_cold(asked)
    fresh.render(asked)
    longer = chat(system("head"), *history, user("last"), assistant(), user("very last"))
    assert not fresh.is_cold(longer)
    assert fresh.render(longer).packed() == tiny_prompter()._writer.ids(longer.messages, [], thinking=False)


def test_no_more_histories_are_kept_than_memory_is_given() -> None:
    small = Prompter(tiny_model(), cache_bytes=400_000)
    for number in range(40):
        history = [message for index in range(GROWN) for message in (user(f"{number} {index}"), assistant())]
        asked = chat(*history, user())
        assert small.render(asked).packed() == tiny_prompter()._writer.ids(asked.messages, [], thinking=False)
        assert 0 < small._histories._kept.size <= 100_000
