"""A scripted model behind HTTP, and judges that ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from openclaw_rl.learner.judge import votes
from openclaw_rl.learner.judge.create import create
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.judge.scripted_model import ScriptedModel


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    server = ScriptedModel()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vote that fails is not tried again."""
    monkeypatch.setattr(votes, "TRIES", 1)


@pytest.fixture
async def judge(model: ScriptedModel) -> AsyncIterator[Callable[..., Judge]]:
    """Makes judges by settings; those of LiteLLM ask the scripted model."""
    made: list[Judge] = []

    def build(**changes: Any) -> Judge:
        fields = {"judge": f"openai/scripted@{model.url}", "model_keys": "judge=key, hint=key"}
        made.append(create(Settings(**(fields | changes))))
        return made[-1]

    yield build
    for one in made:
        await one.close()
