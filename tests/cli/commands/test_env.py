from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.commands import env as command
from openclaw_rl.cli.commands.env import EnvOptions, check, own_settings
from openclaw_rl.cli.main import app
from openclaw_rl.environments.kinds import KINDS
from openclaw_rl.shared.errors import ConfigError


def test_the_list_names_every_kind_and_your_own() -> None:
    shown = CliRunner().invoke(app, ["env", "list"]).output
    assert all(entry.help[:40] in shown for entry in KINDS.values()) and "./FILE.py" in shown
    listed = json.loads(CliRunner().invoke(app, ["env", "list", "--json"]).output)["environments"]
    assert len(listed) == len(KINDS) + 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"action": "run"}, "env run needs an environment; openclaw-rl env list shows them"),
        ({"episodes": 0}, "at least 1"),
        ({"timeout": 0.0}, "--timeout is more than 0"),
        ({"episodes": 20}, "--episodes 20 is no multiple of --group 8: a group is complete or useless"),
        ({"group": 1}, "--group 1 compares nothing"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    chosen = {"action": "train", "environment": "sums"} | options
    if options.get("action") == "run":
        chosen["environment"] = ""
    with pytest.raises(ConfigError, match=said):
        check(EnvOptions(**chosen))


def test_attempts_and_groups_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLOUT_ARGS", raising=False)
    train, run = EnvOptions(action="train", environment="sums"), EnvOptions(action="run", environment="sums")
    assert (train.members, train.attempts) == (8, 512) and (run.members, run.attempts) == (1, 64)
    assert EnvOptions(action="run", environment="sums", group=4).attempts == 256
    for value in ("--rollout-batch-size 64 --num-rollouts-per-prompt 4", "--n-samples-per-prompt=4 \\\n --lr 1"):
        monkeypatch.setenv("ROLLOUT_ARGS", value)
        assert train.members == 4


def test_an_own_service_learns_from_rewards_as_the_tiny_policy_can(monkeypatch: pytest.MonkeyPatch) -> None:
    options = EnvOptions(action="train", environment="sums", seed=3)
    found = own_settings(options)
    assert (found["method"], found["kl_base"], found["batch_size"], found["seed"]) == ("binary", 0.01, 128, 3)
    assert found["learning_rate"] == 0.004
    assert own_settings(EnvOptions(action="run", environment="sums")) == {"train": False, "temperature": 1.0}
    monkeypatch.setenv("OPENCLAW_RL_METHOD", "combined")
    monkeypatch.setenv("LEARNING_RATE", "1e-4")  # of the guides
    left = own_settings(options)
    assert "method" not in left and "learning_rate" not in left and left["kl_base"] == 0.01


def test_a_model_of_your_own_keeps_the_methods_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_RL_MODEL", "Qwen/Qwen3-0.6B")
    assert "learning_rate" not in own_settings(EnvOptions(action="train", environment="sums"))


def test_the_guides_names_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[EnvOptions] = []
    monkeypatch.setattr(command, "check", lambda options: seen.append(options) or exit(3))
    guide = {"ENV_TYPE": "toolcall", "PARALLEL_ENVS": "64", "MAX_STEPS": "20", "TOOLS_CONFIG": "./tools_config.json"}
    ended = CliRunner(env=guide).invoke(app, ["env", "train", "--num-rollouts-per-prompt", "4"])
    assert ended.exit_code == 3
    (found,) = seen
    assert (found.environment, found.concurrency, found.max_steps) == ("toolcall", 64, 20)
    assert (found.tools_config, found.members) == ("./tools_config.json", 4)
    CliRunner(env={"MAX_GUI_STEPS": "30"}).invoke(app, ["env", "train", "sums"])
    assert seen[-1].max_steps == 30


def test_a_run_that_cannot_be_starts_no_service(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "own_service", None)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "attempts.jsonl").write_text('{"event":"run","run":"r","options":{}}\n')
    shop = "examples/environments/shop.py"
    ended = CliRunner().invoke(app, ["env", "run", shop, "--out", str(folder), "--episodes", "2"])
    assert isinstance(ended.exception, ConfigError) and "add --resume" in str(ended.exception)
