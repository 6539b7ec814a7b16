from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cli.commands.demo import DemoOptions, demo, service_settings, summary
from openclaw_rl.evaluation.arm import Arm, Plan, Point
from openclaw_rl.evaluation.probe import Probe
from openclaw_rl.shared.errors import ConfigError


def _arm(seed: int, before: float, after: float) -> Arm:
    points = [Point(0, 0, Probe(10, before, 0.9, {})), Point(32, 4, Probe(10, after, 0.8, {}))]
    return Arm(Plan(seed), points=points, version=4)


def test_the_json_line_has_means_before_and_after_and_their_intervals() -> None:
    runs = {"trained": [_arm(1, 0.1, 0.9), _arm(2, 0.2, 1.0)], "control": [_arm(1, 0.1, 0.1), _arm(2, 0.2, 0.2)]}
    result = summary(DemoOptions(seeds=2), runs)
    assert result["interactions"] == 32
    assert result["seeds"] == 2
    assert result["trained"]["style"] == [0.15, 0.95]
    assert result["trained"]["accuracy"] == [0.9, 0.8]
    assert result["control"]["style"] == [0.15, 0.15]
    # Two seeds 0.1 apart: 12.706 times 0.05.
    assert result["trained"]["style_ci"] == pytest.approx([0.6353, 0.6353], abs=1e-4)


def test_a_running_service_means_one_seed() -> None:
    assert DemoOptions(url="http://127.0.0.1:1", key="K").seed_count == 1
    assert DemoOptions().seed_count == 3
    with pytest.raises(ConfigError, match="--seeds 1"):
        demo(seeds=2, url="http://127.0.0.1:1", key="K")
    with pytest.raises(ConfigError, match="give --key"):
        demo(seeds=1, url="http://127.0.0.1:1")


def test_nonsense_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        demo(interactions=0)


def test_backend_model_and_method_are_those_of_the_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = DemoOptions(backend="tinker", model="Qwen/Qwen3-8B", method="opd")
    assert service_settings(options) == {"backend": "tinker", "model": "Qwen/Qwen3-8B", "method": "opd"}
    assert service_settings(DemoOptions()) == {"model": "tiny"}
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)  # the services run elsewhere
    assert service_settings(DemoOptions(model="mine")) == {"model": str(tmp_path / "mine")}


def test_a_provider_that_cannot_be_used_is_said_before_any_service_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setenv("OPENCLAW_RL_BACKEND_FALLBACK", "embedded")  # two arms on another policy would prove nothing
    with pytest.raises(ConfigError, match=r"set TINKER_API_KEY \(tinker_api_key\)"):
        demo(backend="tinker")
