"""Outputs that come back as user messages are next states by the environment, not by a person."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.chain import Chain, NextWords
from openclaw_rl.shared.messages.normalize import normalize_chat
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
