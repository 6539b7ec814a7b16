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
from tests.fixtures.openclaw import call


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


SAID = "I have changed both files, and it builds again now."
PASTED = [
    "Build failed:\nsrc/a.c:3: error: x undeclared",
    "3 tests failed:\n- test_a\n- test_b",
    "The command `make` failed with error 2",
    "Observation: the button is still green, not blue.",
    "The result of the function is wrong, it should be 12",
    "File 'a.txt' was not created. Try again.",
    "Traceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 'x'\n\nfix this and run again",
]


@pytest.mark.parametrize("pasted", PASTED)
def test_a_result_that_no_call_can_have_had_is_a_persons(pasted: str) -> None:
    words = after_first_answer(says("user", "Rename it."), says("assistant", SAID), says("user", pasted))
    assert (words.role, words.persons) == ("user", (pasted,))


def test_a_block_of_code_is_no_call_next_to_calls_that_are_no_text() -> None:
    asked = [
        says("user", "Rename it."),
        {"role": "assistant", "tool_calls": [call("read", "{}", "call_1")], "content": None},
        {"role": "tool", "content": "x", "tool_call_id": "call_1"},
    ]
    coded = says("assistant", f"{SAID}\n```python\nx = 1\n```")
    chain = Chain(normalize_chat({"messages": [*asked, coded, says("user", PASTED[0])]}).messages)
    assert chain.after(3).role == "user"
    assert after_first_answer(says("user", "Rename it."), coded, says("user", PASTED[0])).role == "environment"


@pytest.mark.parametrize(
    "answer",
    [
        "I look at the files.\n<code>\nls()\n</code>",
        "I look at the files.\nAction: ls",
        'I look at the files.\n{"command": "ls"}',
        "I look at the files.\nls(path='a')",
        "ls -la",
        "Look.",
    ],
)
def test_an_answer_that_may_call_something_has_a_result(answer: str) -> None:
    words = after_first_answer(says("user", "Go."), says("assistant", answer), says("user", "Observation: a.py"))
    assert words.role == "environment"


@pytest.mark.parametrize(
    "report",
    [
        "Your answer could not be parsed: no tool call found. Try again with a valid tool call.",
        "Output validation failed: 1 validation error for Answer\nname\n  Field required",
        "I ran this command:\n\nls\n\nAnd got this output:\n\na.py",
        "New Terminal Output:\n\nroot@box:/app#",
        "exitcode: 1 (execution failed)\nCode output: bad",
    ],
)
def test_a_report_about_the_answer_needs_no_call(report: str) -> None:
    words = after_first_answer(says("user", "Go."), says("assistant", SAID), says("user", report))
    assert words.role == "environment"


def test_a_program_labels_its_results_alike() -> None:
    moves = ["I will open the fridge and look into it.", "Now I take the milk out of the fridge."]
    heard = [says("user", "Fetch the milk."), says("assistant", moves[0]), says("user", "Observation: It is open.")]
    heard += [says("assistant", moves[1]), says("user", "Observation: You have the milk.")]
    chain = Chain(normalize_chat({"messages": heard}).messages)
    assert chain.after(3).role == "environment"
