from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from openclaw_rl.cli.docs import gpu_page
from openclaw_rl.shared.gpus import imagined
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load, parse_flags
from openclaw_rl.trainer_local.placement.known_models import QWEN3_5, QWEN3_VL
from openclaw_rl.trainer_local.placement.place import plan

EXAMPLES = re.findall(
    r"```toml\n# (one card|two cards) of (\d+) GB(: alternating)?\n(.*?)```", gpu_page.PAGE.read_text(), re.S
)

RECIPES = re.findall(
    r"```sh\n# (one card|two cards) of (\d+) GB(: alternating)?[^\n]*\nopenclaw-rl serve (.*?)```",
    gpu_page.PAGE.read_text(),
    re.S,
)


def test_the_tables_are_what_the_code_says() -> None:
    text = gpu_page.PAGE.read_text("utf-8")
    assert text == gpu_page.page(text), "run: make docs"


@pytest.mark.parametrize(("cards", "size", "alternating", "settings"), EXAMPLES)
def test_an_example_fits_the_card_that_it_names(cards: str, size: str, alternating: str, settings: str) -> None:
    assert fits(Settings(**tomllib.loads(settings)), cards, size, alternating)


@pytest.mark.parametrize(("cards", "size", "alternating", "flags"), RECIPES)
def test_a_recipe_fits_the_card_that_it_names(cards: str, size: str, alternating: str, flags: str) -> None:
    settings, _ = load(parse_flags(shlex.split(flags.replace("\\\n", " "))))
    assert settings.model in (*QWEN3_5, *QWEN3_VL)
    assert fits(settings, cards, size, alternating)


def fits(settings: Settings, cards: str, size: str, alternating: str) -> bool:
    found = plan(settings, imagined(f"{1 if cards == 'one card' else 2}x{size}"), {})
    assert not found.refusal, found.refusal
    return (found.sharing == "alternating") == bool(alternating)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4 and len(RECIPES) >= 4
