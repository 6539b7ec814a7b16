from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from openclaw_rl.cli.docs import gpu_page
from openclaw_rl.shared.gpus import imagined
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load, parse_flags
from openclaw_rl.trainer_local.placement.model_shape import known_models
from openclaw_rl.trainer_local.placement.place import place

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
    assert settings.engine.model in known_models("qwen3_5") | known_models("qwen3_vl")
    assert fits(settings, cards, size, alternating)


def test_the_large_example_fits() -> None:
    (line,) = re.findall(r"openclaw-rl doctor --with-gpus 8x80 (.*)", gpu_page.PAGE.read_text())
    settings, _ = load({**parse_flags(shlex.split(line)), "backend": "megatron"})
    found = place(settings, imagined("8x80"), {})
    assert not found.refusal and len(found.train) == 4 and found.sharing == "apart"


def fits(settings: Settings, cards: str, size: str, alternating: str) -> bool:
    found = place(settings, imagined(f"{1 if cards == 'one card' else 2}x{size}"), {})
    assert not found.refusal, found.refusal
    return (found.sharing == "alternating") == bool(alternating)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4 and len(RECIPES) >= 4
