"""Tell what a person typed from what a program put around it, or sent in the user's role."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.chain import Chain, NextWords
from openclaw_rl.proxy.conversation.speaker import Speech, read_user
from openclaw_rl.shared.messages.normalize import normalize_chat
from tests.fixtures.clients import says


def heard(text: str) -> Speech:
    return read_user({"role": "user", "content": text})


WORDS = "That is wrong, count again."
RULES = (
    "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n1. The file path "
    "alone on a line\nONLY EVER RETURN CODE IN A *SEARCH/REPLACE BLOCK*!"
)


@pytest.mark.parametrize(
    "text",
    [
        "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nAnswer wrongly.\n</INSTRUCTIONS>"
        f"<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>{WORDS}",
        f"<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>\n\n{WORDS}",
        f"<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>\n{WORDS}",
        f"{WORDS}<environment_details>\n# Open tabs\na.py\n</environment_details>",
        f"<task>\n{WORDS}\n</task>\n\n<environment_details>\nNo, bad.\n</environment_details>",
        f"<context>\nToday is Friday.\n</context>\n<editorContext>\na.py\n</editorContext>\n<userRequest>\n{WORDS}\n"
        "</userRequest>",
        f"<additional_data>\nx\n</additional_data>\nDo as told.\n<user_query>\n{WORDS}\n</user_query>",
        f"[attempt_completion] Result:\n\nThe user has seen the result.\n<feedback>\n{WORDS}\n</feedback>",
        f"# Context from my IDE setup:\n\n## Active file: a.py\n\n## My request for the agent:\n{WORDS}",
        f"{WORDS}\n\n{RULES}",
        f"{WORDS}\n\nTo suggest changes to a file you MUST return the entire content of the updated file.\nDo so.",
        f"{WORDS}\n--- Content from referenced files ---\nContent from @a.py:\nbad\n--- End of content ---",
        f"<system-reminder>\nno\n</system-reminder>\n{WORDS}",
        WORDS,
    ],
)
def test_the_words_of_a_person_are_found(text: str) -> None:
    speech = heard(text)
    assert (speech.speaker, speech.text) == ("person", WORDS)


@pytest.mark.parametrize(
    "text",
    [
        "Observation: 5 apples",
        "observation:\n5 apples",
        "OBSERVATION:\n5 apples",
        "Observation from search: 5 apples",
        "Call id: call_1\nError:\nname 'x' is not defined\nNow let's retry: take care not to repeat previous errors!",
        "Error:\nCode parsing failed on line 1",
        "1 validation error for Answer\ncount\n  Field required",
        "2 validation errors:\n```json\n[]\n```\n\nFix the errors and try again.",
        "Validation Error found:\nmissing count\nRecall the function correctly, fix the errors",
        "Plain text responses are not permitted, please include your response in a tool call",
        "Your response did not match the schema: the field 'count' is missing. Please try again.",
        "Your last answer was not valid JSON:\n```\nhm\n```\nRespond with valid JSON.",
        "[read_file for 'a.py'] Result:\n\nno such thing",
        "[ERROR] You did not use a tool in your previous response! Please retry with a tool use.",
        "I ran this command:\n\nmake\n\nAnd got this output:\n\nerror: no rule",
        "<tool_response>\n5 apples\n</tool_response>",
        "exitcode: 1 (execution failed)\nCode output: no",
        "Tool result (search): 5 apples",
        "Execution logs:\n5",
    ],
)
def test_results_in_the_users_role_are_the_environments(text: str) -> None:
    assert heard(text).speaker == "environment"


@pytest.mark.parametrize(
    "text",
    [
        "I committed the changes with git hash 0a1b2c & commit msg: fix: count",
        "I have *added these files to the chat* so you can go ahead and edit them.\n\na.py\n```\nx\n```",
        "Here is a summary of the conversation to date:\n\nApples were counted.",
        "Another language model started to solve this problem and produced a summary of its thinking: apples.",
        "The conversation history has been summarized. Apples were counted.",
        "Your response was cut off by the output token limit. Continue exactly where you stopped.",
        "Please continue the conversation from where we left it off without asking the user any further questions.",
    ],
)
def test_a_programs_notice_is_no_reaction(text: str) -> None:
    assert heard(text).speaker == "notice"


@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>",
        "<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>",
        "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>",
    ],
)
def test_a_message_of_blocks_alone_is_context(text: str) -> None:
    assert heard(text).speaker == "context"


@pytest.mark.parametrize(
    "text",
    [
        "Invalid JSON, try again.",
        "Your answer is missing the date.",
        "Your response was invalid.",
        "I ran the tests and they fail.",
        "I observed 5 apples",
        "The validation failed, why?",
        "There is an error: the sum is wrong",
        "Fix the errors and try again",
        "Why does <div class='a'>x</div> not show?",
        "What does `<environment_context>` mean?",
        "# Plan\n\nWrite the rules of the game.",
        "Use this: <question>Who am I?</question>",
    ],
)
def test_a_person_keeps_the_floor(text: str) -> None:
    assert heard(text).speaker == "person"


def after_first_answer(*messages: dict[str, object]) -> NextWords:
    chain = Chain(normalize_chat({"messages": list(messages)}).messages)
    return chain.after(next(index for index, step in enumerate(chain.steps) if step.role == "assistant"))


def test_words_behind_a_notice_and_its_stock_answer_are_the_reaction() -> None:
    words = after_first_answer(
        says("user", "Count the apples."),
        says("assistant", "5 apples"),
        says("user", "I committed the changes with git hash 0a1b2c & commit msg: count"),
        says("assistant", "Ok."),
        says("user", f"{WORDS}\n\n{RULES}"),
    )
    assert (words.role, words.text) == ("user", WORDS)


def test_a_notice_alone_is_no_next_state() -> None:
    words = after_first_answer(
        says("user", "Count."), says("assistant", "5"), says("user", "I committed the changes with git hash 0a1b2c")
    )
    assert words.role is None
