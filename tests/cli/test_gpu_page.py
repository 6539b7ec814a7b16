from __future__ import annotations

import re
import tomllib

import pytest

from cli import gpu_page
from shared.gpus import imagined
from shared.placement import plan
from shared.settings import Settings

EXAMPLES = re.findall(
    r"```toml\n# (one card|two cards) of (\d+) GB(: alternating)?\n(.*?)```", gpu_page.PAGE.read_text(), re.S
)


def test_the_tables_are_what_the_code_says() -> None:
    text = gpu_page.PAGE.read_text("utf-8")
    assert text == gpu_page.page(text), "run: make docs"


@pytest.mark.parametrize(("cards", "size", "alternating", "settings"), EXAMPLES)
def test_an_example_fits_the_card_that_it_names(cards: str, size: str, alternating: str, settings: str) -> None:
    gpus = imagined(f"{1 if cards == 'one card' else 2}x{size}")
    found = plan(Settings(**tomllib.loads(settings)), gpus, {})
    assert not found.refusal
    assert (found.sharing == "alternating") == bool(alternating)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4
