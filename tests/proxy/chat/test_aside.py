"""Tell words of a person from those of a program by the system text of the conversation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import Proxy

OWN, KEEPER = "You are a patient gardener.", "You keep short records of talks."
TOOLS = [{"type": "function", "function": {"name": "water", "parameters": {"type": "object", "properties": {}}}}]
ORDERS = ["Summarize the conversation in two sentences.", "Please give this conversation a short title."]


def says(*texts: str, system: str) -> list[dict[str, Any]]:
    messages = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *messages] if system else messages


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("keeper", "kept"), [(KEEPER, TOOLS), (KEEPER, None), ("", None)])
def test_an_order_under_another_system_text_is_side_and_no_reaction(
    service: Proxy, order: str, keeper: str, kept: list[dict[str, Any]] | None
) -> None:
    question = f"Which fern is dry? {ORDERS.index(order)} {keeper} {bool(kept)}"
    first = service.chat(says(question, system=OWN), tools=TOOLS)
    answer = first.json()["choices"][0]["message"]["content"] or ""
    aside = service.chat(says(question, answer, order, system=keeper), tools=kept)
    assert aside.headers["x-openclaw-rl-kind"] == "side"
    if kept or order == ORDERS[0]:
        assert aside.headers["x-openclaw-rl-reason"] == "aside"
    service.chat(says(question, answer, "No, wrong.", system=OWN), tools=TOOLS)
    state = service.journal().next_state(first.headers["x-openclaw-rl-turn"])
    assert state is not None and state.text == "No, wrong."


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("today", ["Friday", "Saturday", ""])
def test_a_person_asks_under_the_conversations_own(service: Proxy, order: str, today: str) -> None:
    question = f"Which ivy is dry? {ORDERS.index(order)} {today}"
    system = f"{OWN} You answer all that people ask about plants and gardens. Today is "
    first = service.chat(says(question, system=system + "Friday"), tools=TOOLS)
    answer = first.json()["choices"][0]["message"]["content"] or ""
    asked = service.chat(says(question, answer, order, system=today and system + today), tools=TOOLS)
    assert (asked.headers["x-openclaw-rl-kind"], asked.headers["x-openclaw-rl-reason"]) == ("main", "tools")
    state = service.journal().next_state(first.headers["x-openclaw-rl-turn"])
    assert state is not None and state.text == order
