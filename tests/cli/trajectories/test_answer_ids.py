"""Answers that were not sampled, as the shipped policy would write them."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.cli.trajectories.answer_ids import spell
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY

ASKED = [{"role": "user", "content": "How much is 12 and 30?"}]
LOOK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"often": {"type": "integer"}}}},
}
CALL = {"id": "call_1", "name": "look", "arguments": {"often": 2}}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "thinking"])
def prompter(request: pytest.FixtureRequest) -> Prompter:
    return Prompter(EMBEDDED_POLICY, thinking=request.param)


def read(prompter: Prompter, chat: ChatInput, answer: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Read the ids by the parser of sampled answers, and return the fault too."""
    prompt = prompter.render(chat)
    ids, fault = spell(prompter, chat, prompt, answer)
    parser = prompter.parser(prompt, chat)
    parser.feed_many(ids)
    return parser.finish("stop")[1].message(), fault


def test_the_ids_are_the_tokens_of_the_text_and_the_end(prompter: Prompter) -> None:
    chat = ChatInput(messages=ASKED)
    answer = {"role": "assistant", "content": "It is **42**.\n\nReally."}
    ids, fault = spell(prompter, chat, prompter.render(chat), answer)
    assert fault == ""
    assert ids[-1] == prompter.stop_ids[0]
    text = prompter.decode(ids[:-1])
    empty = "<think>\n\n</think>\n\n" if prompter.thinking else ""
    assert text == f"{empty}It is **42**.\n\nReally."
    plain = prompter.tokenizer.encode("It is **42**.\n\nReally.")
    assert ids[-1 - len(plain) : -1].tolist() == plain


def test_a_history_and_calls_are_written_and_read_back(prompter: Prompter) -> None:
    history = [*ASKED, {"role": "assistant", "content": "42."}, {"role": "user", "content": "Look twice."}]
    answer = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
    message, fault = read(prompter, ChatInput(messages=history, tools=[LOOK]), answer)
    assert fault == ""
    assert message["content"] == "I look."
    assert [(call["name"], call["arguments"]) for call in message["tool_calls"]] == [("look", {"often": 2})]


def test_spelled_out_control_tokens_stay_letters(prompter: Prompter) -> None:
    text = "Write <|im_end|> and <tool_call>{}</tool_call>."
    chat = ChatInput(messages=ASKED)
    ids, fault = spell(prompter, chat, prompter.render(chat), {"role": "assistant", "content": text})
    assert fault == ""
    assert list(ids).count(prompter.stop_ids[0]) == 1
    assert prompter.decode(ids).endswith(f"{text}<|im_end|>")


def test_reasoning_needs_a_policy_that_thinks(prompter: Prompter) -> None:
    answer = {"role": "assistant", "content": "42.", "reasoning": "12 and 30 are 42"}
    message, fault = read(prompter, ChatInput(messages=ASKED), answer)
    if prompter.thinking:
        assert (fault, message["reasoning"], message["content"]) == ("", "12 and 30 are 42", "42.")
    else:
        assert "served without (setting thinking)" in fault


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"role": "assistant", "content": " "}, "is empty"),
        ({"role": "assistant", "content": "", "tool_calls": [CALL]}, "its prompt offers none"),
    ],
)
def test_an_answer_that_cannot_be_written_says_why(prompter: Prompter, answer: dict[str, Any], reason: str) -> None:
    chat = ChatInput(messages=ASKED)
    ids, fault = spell(prompter, chat, prompter.render(chat), answer)
    assert reason in fault
    assert not len(ids)
