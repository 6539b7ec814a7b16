from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cli.service import plan
from openclaw_rl.cli.service.plan import ServicePlan
from openclaw_rl.shared.settings.named_models import SMOLLM2
from openclaw_rl.shared.settings.settings import Settings


@pytest.mark.parametrize(("given", "used"), [("auto", SMOLLM2.temperature), (0.7, 0.7)])
def test_the_original_of_a_named_model_is_sampled_like_it(
    given: str | float, used: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "local_folder", lambda model, *, setting: str(tmp_path))
    settings = Settings(model=SMOLLM2.hub_name, temperature=given)
    assert ServicePlan.from_settings(settings, ("engine", "proxy")).downloaded().settings.engine.temperature == used


def test_any_other_model_is_sampled_as_its_files_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "local_folder", lambda model, *, setting: str(tmp_path))
    found = ServicePlan.from_settings(Settings(model="Qwen/Qwen3-0.6B"), ("engine", "proxy")).downloaded()
    assert found.settings.engine.temperature == "auto"
