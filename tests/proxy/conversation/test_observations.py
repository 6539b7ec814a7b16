"""Outputs that come back as user messages are next states by the environment, not by a person."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.chain import Chain, NextWords
from openclaw_rl.shared.messages.normalize import normalize_chat
from openclaw_rl.shared.records import Message
from tests.fixtures.clients import (
    SWE_FORMAT,
    SWE_OUTPUT,
    SWE_TASK,
    TERMINUS_ANSWER,
    TERMINUS_SCREEN,
    TERMINUS_TASK,
    says,
)


def after_first_answer(*messages: dict[str, object]) -> NextWords:
    chain = Chain(normalize_chat({"messages": list(messages)}).messages)
    return chain.after(next(index for index, step in enumerate(chain.steps) if step.role == "assistant"))


@pytest.mark.parametrize(
    ("task", "output"),
    [
        (SWE_TASK, SWE_OUTPUT),
        (SWE_TASK, SWE_FORMAT),
        (TERMINUS_TASK, TERMINUS_SCREEN),
        (TERMINUS_TASK, "Previous response had warnings:\n- text after the JSON\n\nroot@box:/app#"),
        (TERMINUS_TASK, "Current terminal state:\nroot@box:/app#\n\nIs it really done?"),
    ],
)
def test_output_is_the_environments(task: str, output: str) -> None:
    words = after_first_answer(says("user", task), says("assistant", TERMINUS_ANSWER), says("user", output))
    assert (words.role, words.text) == ("environment", output)


def test_words_of_a_person_outrank_the_output_next_to_them() -> None:
    words = after_first_answer(
        says("user", SWE_TASK), says("assistant", "ls"), says("user", SWE_OUTPUT), says("user", "Look into src first.")
    )
    assert (words.role, words.text) == ("user", "Look into src first.")


def test_a_message_of_another_agent_is_no_reaction() -> None:
    message = says("user", "Here are the answers the other agent provided.\n\n1. In src.")
    assert after_first_answer(says("user", TERMINUS_TASK), says("assistant", "Where?"), message).role is None


OBSERVED = "Observation:\nLast output from code snippet:\n5 apples"


@pytest.mark.parametrize("heading", ["New task:", "### Question:", "**User request:**", "Task:"])
def test_words_after_the_heading_that_opened_the_conversation_are_a_persons(heading: str) -> None:
    opening = says("user", f"{heading}\nCount the apples.")
    words = after_first_answer(opening, says("assistant", "5"), says("user", f"{OBSERVED}\n{heading}\nNo, wrong."))
    assert (words.role, words.text, words.persons) == ("user", "No, wrong.", ("No, wrong.",))
    alone = after_first_answer(opening, says("assistant", "5"), says("user", f"{heading}\nNo, wrong."))
    assert (alone.role, alone.text) == ("user", "No, wrong.")


@pytest.mark.parametrize(
    ("opening", "output"),
    [
        pytest.param("Count the apples.", f"{OBSERVED}\nNew task:\nbad", id="no heading opened it"),
        pytest.param("New task:\nCount them.", f"{OBSERVED}\nTask:\nbad", id="another heading"),
        pytest.param("New task:\nCount them.", f"{OBSERVED}: New task: bad", id="no line of its own"),
        pytest.param("New task:\nCount them.", f"{OBSERVED}\nNew task:\n", id="nothing after it"),
        pytest.param("New task:\nCount them.", f"{OBSERVED}\nNew task:\nCount them.", id="the opening is quoted"),
        pytest.param("Error:\nIt fails, why?", "Observation:\nError:\nbad", id="a heading of a result"),
        pytest.param("Output:\nbad, why?", "Observation:\nOutput:\nbad", id="a heading of an output"),
    ],
)
def test_other_headings_in_an_output_are_the_environments(opening: str, output: str) -> None:
    words = after_first_answer(says("user", opening), says("assistant", "5"), says("user", output))
    assert (words.role, words.text) == ("environment", output.strip())


def test_the_output_before_such_words_tells_two_histories_apart() -> None:
    def messages(output: str) -> list[Message]:
        words = says("user", f"Observation:\n{output}\nTask:\nAnd the pears?")
        return normalize_chat({"messages": [says("user", "Task:\nCount."), says("assistant", "5"), words]}).messages

    assert Chain(messages("5")).request_key != Chain(messages("6")).request_key
    continued = Chain(messages("5")[2:], Chain(messages("5")[:2]))
    assert continued.request_key == Chain(messages("5")).request_key
    assert continued.after(1).text == "And the pears?"
