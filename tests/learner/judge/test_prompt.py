from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from openclaw_rl.learner.judge.prompt import HINT, JUDGE, JudgePrompt
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.records import NextState
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn


@pytest.mark.parametrize("version", [JUDGE, HINT])
def test_the_files_that_come_with_us_have_every_place(version: str) -> None:
    made = turn(1, question="Ask {answer}?", answer="Said.")
    text = JudgePrompt.builtin(version).fill(made, NextState(turn_id=made.turn_id, role="tool", text="Came {role}."))
    assert "[user]\nAsk {answer}?" in text and "Said." in text and "Came {role}." in text and "role: tool" in text


def test_very_long_parts_are_cut() -> None:
    long = turn(1, question="q" * 100_000 + " end of the request", answer="a" * 100_000)
    after = NextState(turn_id=long.turn_id, role="tool", text="t" * 100_000 + "{answer}")
    text = JudgePrompt.builtin(JUDGE).fill(long, after)
    assert len(text) < 40_000
    assert "end of the request" in text and "characters left out" in text


def test_tool_calls_and_images_are_said_in_words() -> None:
    made = turn(
        1,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                    {"type": "text", "text": "What is this?"},
                ],
            }
        ],
    )
    calling = {"role": "assistant", "content": "", "tool_calls": [{"name": "look", "arguments": {"at": 1}}]}
    made = msgspec.structs.replace(made, answer=calling)
    text = JudgePrompt.builtin(JUDGE).fill(made, NextState(turn_id=made.turn_id, role="tool", text="ok"))
    assert "(an image)\nWhat is this?" in text and "(calls look with {'at': 1})" in text


def test_a_prompt_of_ones_own_must_be_there_and_show_what_is_judged(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        JudgePrompt.from_settings(Settings(judge_prompt=str(tmp_path / "none.md")))
    file = tmp_path / "half.md"
    file.write_text("Judge {answer}.")
    with pytest.raises(ConfigError, match=r"no place for \{next_state\}"):
        JudgePrompt.from_settings(Settings(judge_prompt=str(file)))
