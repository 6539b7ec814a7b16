"""The limits in the entry for clients."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.connect.provider_entry import context_note, output_limit, provider_entry
from openclaw_rl.shared.settings.settings import Settings


@pytest.mark.parametrize(
    ("most", "context", "limit"),
    [
        (1024, 32_768, 8192),
        (1024, 16_384, 8192),
        (16_384, 131_072, 16_384),
        (8192, 131_072, 8192),
        (1024, 8192, 1024),  # SmolLM2: OpenClaw's prompt needs the rest
        (8192, 8192, 4096),
        (100_000, 32_768, 16_384),
        (1024, 0, 8192),  # unknown
        (16_384, 0, 16_384),
    ],
)
def test_an_answer_has_8192_tokens_where_the_context_allows_it(most: int, context: int, limit: int) -> None:
    assert output_limit(most, context) == limit


def entry_of(settings: Settings, monkeypatch: pytest.MonkeyPatch, **card: Any) -> dict[str, Any]:
    """The entry for a service that describes its model with this card."""
    monkeypatch.setattr(Service, "get", lambda *_: card)
    provider = provider_entry(settings, Service("http://service", "k"))["models"]["providers"]["clawrl"]
    entry: dict[str, Any] = provider["models"][0]
    return entry


def test_the_entry_of_a_stand_in_for_a_providers_model_has_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(backend="tinker", model="Qwen/Qwen3-8B")
    entry = entry_of(settings, monkeypatch, context_length=40_960)
    assert (entry["contextWindow"], entry["maxTokens"]) == (40_960, 8192)


def test_the_entry_of_a_stand_in_with_an_unknown_context_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(Settings(backend="tinker", model="Qwen/Qwen3-8B"), monkeypatch, context_length=0)
    assert "contextWindow" not in entry and entry["maxTokens"] == 8192
    assert context_note(entry) == ""
