from __future__ import annotations

import pytest

from proxy.speech import command_score, read_user


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/good", (1.0, "")),
        ("/good thanks a lot", (1.0, "thanks a lot")),
        ("/bad too long\nand wrong", (-1.0, "too long\nand wrong")),
        ("/new", None),
        ("/goodness", None),
        ("good", None),
    ],
)
def test_typed_scores(text: str, expected: tuple[float, str] | None) -> None:
    assert command_score(read_user({"role": "user", "content": text})) == expected
