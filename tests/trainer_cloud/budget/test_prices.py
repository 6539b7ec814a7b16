from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_cloud.budget.prices import SHIPPED, Cost, Price, Prices, cost
from tests.processes import ROOT


def test_every_shipped_price_says_since_when_and_where_it_was_found() -> None:
    content = tomllib.loads(SHIPPED.read_text())
    models = [fields for table in content.values() for name, fields in table.items() if name != "note"]
    assert len(models) > 10
    for fields in models:
        assert fields["as_of"] and fields["source"]
        assert fields["sample"] >= fields["prefill"] > fields.get("cached", 0) >= 0
    Prices.load()


def test_the_table_ships_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert any(SHIPPED.match(pattern) for pattern in project["tool"]["setuptools"]["package-data"]["*"])


def test_tokens_cost_their_price_and_an_unknown_one_is_said() -> None:
    prices = Prices.load()
    known = prices.for_model("tinker", "Qwen/Qwen3-8B")
    assert known is not None and known.sample is not None
    assert cost(known, {"sample": 2_000_000, "step": 1}) == Cost(2 * known.sample)
    assert cost(None, {"prefill": 5, "train": 0}) == Cost(0.0, ("prefill",))
    partly = prices.for_model("tinker", "Qwen/Qwen3.6-27B")
    assert cost(partly, {"train": 7}).unknown == ("train",)
    assert prices.for_model("tinker", "author/unknown") is None


def test_cached_tokens_have_a_price_or_cost_what_others_do() -> None:
    known = Prices.load().for_model("tinker", "Qwen/Qwen3-8B")
    assert known is not None and known.cached is not None and known.prefill is not None
    assert known.cached == pytest.approx(known.prefill / 5)
    assert cost(known, {"prefill": 1_000_000, "cached": 1_000_000}).dollars == pytest.approx(1.2 * known.prefill)
    assert cost(Price(prefill=2.0), {"cached": 500_000}) == Cost(1.0)
    assert cost(Price(sample=2.0), {"cached": 5}) == Cost(0.0, ("cached",))


def test_a_file_of_ones_own_replaces_single_models(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('[tinker."Qwen/Qwen3-8B"]\ntrain = 1\n[fireworks."accounts/me/models/x"]\nsample = 0.5\n')
    prices = Prices.load(str(file))
    changed = prices.for_model("tinker", "Qwen/Qwen3-8B")
    assert changed is not None and (changed.train, changed.prefill) == (1, None)
    added, kept = (
        prices.for_model("fireworks", "accounts/me/models/x"),
        prices.for_model("tinker", "openai/gpt-oss-20b"),
    )
    assert added is not None and kept is not None and kept.train


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tinker."a/b"]\nsample = 1\ntrain = "much"', ["line 3", "tinker.a/b: train", "'much'"]),
        ('[tinker."a/b"]\nsample = -1', ["line 2", "sample = -1"]),
        ('\n[tinker."a/b"]\nprice = 1\nsample = 1', ["line 3", "unknown field `price`", "prefill"]),
        ('[tinker."a/b"]\nsample = 1\nin-put = 2', ["line 3", "in-put = 2", "unknown field"]),
        ('[tinker."a/b"]\nsource = "me"', ["line 1", "says no price"]),
        ('[tinker."a/b"]\nsample = 1\nas_of = "today"', ["line 3", "as_of", "a date such as"]),
        ('[tonker."a/b"]\nsample = 1', ["line 1", "'tonker'", "tinker and fireworks"]),
        ("[tinker]\nsample = 1", ["line 2", "no table"]),
        ("[tinker\n", ["no TOML", "line 1"]),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_field(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Prices.load(str(file))
    for word in ["mine.toml", *words]:
        assert word in str(caught.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml.*No such file"):
        Prices.load(str(tmp_path / "gone.toml"))
