from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.speaker import command_score, read_user


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/good", (1.0, "")),
        ("/good thanks a lot", (1.0, "thanks a lot")),
        ("/bad too long\nand wrong", (-1.0, "too long\nand wrong")),
        ("/Good", (1.0, "")),
        ("/BAD@bot\nno tables", (-1.0, "no tables")),
        ("/ good", (1.0, "")),
        ("[Sun 2026-11-22 06:42 UTC] /good fine", (1.0, "fine")),
        ("/new", None),
        ("/good/bad", None),
        ("/goodness", None),
        ("good", None),
    ],
)
def test_typed_scores(text: str, expected: tuple[float, str] | None) -> None:
    assert command_score(read_user({"role": "user", "content": text})) == expected


@pytest.mark.parametrize("text", ["/etc/hosts is empty", "/good/bad", "/usr\nand /var", "1/2"])
def test_text_that_only_begins_like_a_command_is_said_by_a_person(text: str) -> None:
    assert read_user({"role": "user", "content": text}).speaker == "person"
