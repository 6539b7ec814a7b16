from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cli.docs import start_pages


@pytest.mark.parametrize("path", start_pages.PAGES, ids=lambda path: path.name)
def test_the_outputs_are_what_the_commands_print(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "<!-- output of" in text
    assert text == start_pages.page(text), "run: make docs"
