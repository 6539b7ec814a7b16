from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.commands import env as command
from openclaw_rl.cli.commands.env import EnvOptions, check, folder_of, own_settings
from openclaw_rl.cli.main import app
from openclaw_rl.environments import throttle
from openclaw_rl.environments.kinds import KINDS
from openclaw_rl.shared.errors import ConfigError
from tests.environments import parity
from tests.environments.test_runner import Service
from tests.environments.test_throttle import status
from tests.scripted import completion, plain, serving

PARITY = str(parity.__file__)


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
    assert (found["method"], found["kl_base"], found["batch_size"], found["seed"]) == ("binary", 0.01, 64, 3)
    assert (found["learning_rate"], found["max_version_lag"]) == (0.004, 2)
    assert own_settings(EnvOptions(action="run", environment="sums")) == {"train": False, "temperature": 1.0}
    monkeypatch.setenv("OPENCLAW_RL_METHOD", "combined")
    monkeypatch.setenv("LEARNING_RATE", "1e-4")  # of the guides
    left = own_settings(options)
    assert "method" not in left and "learning_rate" not in left and left["kl_base"] == 0.01


def test_a_model_of_your_own_keeps_the_methods_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_RL_MODEL", "Qwen/Qwen3-0.6B")
    found = own_settings(EnvOptions(action="train", environment="sums"))
    assert "learning_rate" not in found and found["max_version_lag"] == 2


def test_a_policy_that_has_seen_how_to_act_takes_the_tiny_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ACTING", tmp_path)
    found = own_settings(EnvOptions(action="train", environment="sums"))
    assert (found["model"], found["learning_rate"]) == (str(tmp_path), 0.004)
    assert own_settings(EnvOptions(action="run", environment="sums"))["model"] == str(tmp_path)
    monkeypatch.setenv("OPENCLAW_RL_MODEL", "tiny")
    assert "model" not in own_settings(EnvOptions(action="train", environment="sums"))


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


def test_a_run_that_cannot_be_starts_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "own_service", None)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "attempts.jsonl").write_text('{"event":"run","run":"r","options":{}}\n')
    shop = "examples/environments/shop.py"
    ended = CliRunner().invoke(app, ["env", "run", shop, "--out", str(folder), "--episodes", "2"])
    assert isinstance(ended.exception, ConfigError) and "add --resume" in str(ended.exception)


class Policy(Service):
    """A stand-in for a whole service, whose policy answers with the number of answers so far."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self.training = "running"
        self.capture = True
        self.step = 8

    def __call__(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        if path == "/v1/models":
            return plain({"data": [{"id": "policy"}, {"id": "policy@0"}]})
        if path.startswith("/rl/status"):
            said = {**status(0, training=self.training), "version": {"live": self.answers // self.step}}
            said |= {"capture": self.capture, "why_untrained": "all 4 attempts ended alike"}
            return plain(said | {"learning": {"turns_a_step": 8, "max_version_lag": 8}})
        if path == "/v1/chat/completions":
            self.answers += 1
            return plain(completion("1" * self.answers))
        return super().__call__(path, body, headers)


def test_training_stands_between_two_measures_against_a_scripted_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(throttle, "IDLE_SECONDS", 0.0)
    policy = Policy()
    with serving(policy) as service:
        chosen = {"action": "train", "environment": PARITY, "url": service.url, "key": "KEY", "out": tmp_path}
        sizes = {"group": 4, "episodes": 8, "held_out": 2, "concurrency": 1}
        command.env(**chosen, **sizes, as_json=True)
        result = json.loads(capsys.readouterr().out)
        assert [result[name]["attempts"] for name in ("before", "train", "after")] == [2, 8, 2]
        assert (result["train"]["rate"], result["version"], result["group"]) == (0.5, 1, 4)
        started = list(policy.started.values())
        assert [body["train"] for body in started] == [False] * 2 + [True] * 8 + [False] * 2
        assert [body["task"] for body in started[:2]] == [body["task"] for body in started[-2:]]
        command.env(**chosen, **sizes, resume=True)
        shown, said = capsys.readouterr()
        assert len(policy.started) == 12 and "held-out, after" in shown and "version 1 is live" in shown
        assert "no version was made" not in said, "the first run made it"
        policy.training = "paused"
        with pytest.raises(ConfigError, match=r"training is paused at .*openclaw-rl resume"):
            command.env(**chosen | {"out": tmp_path / "other"}, **sizes)
        policy.training, policy.capture = "running", False
        with pytest.raises(ConfigError, match="capture is off at"):
            command.env(**chosen | {"out": tmp_path / "third"}, **sizes)


def test_training_that_makes_no_version_says_why_against_a_scripted_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(throttle, "IDLE_SECONDS", 0.0)
    policy = Policy()
    policy.step = 1000
    with serving(policy) as service:
        chosen = {"action": "train", "environment": PARITY, "url": service.url, "key": "KEY", "out": tmp_path}
        command.env(**chosen, group=2, episodes=2, held_out=0)
    assert "no version was made. all 4 attempts ended alike" in capsys.readouterr().err


def test_a_run_without_a_folder_gets_a_new_one_and_the_last_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = EnvOptions(action="run", environment="./my env.py")
    with pytest.raises(ConfigError, match="no run to resume in data/env/my_env"):
        folder_of(replace(options, resume=True))
    for name in ("my_env.py-run", "my_env.py-run-2"):
        found = folder_of(options)
        assert found == Path("data/env") / name
        found.mkdir(parents=True)
        (found / "attempts.jsonl").touch()
        assert folder_of(replace(options, resume=True)) == found
    assert folder_of(replace(options, out=Path("here"))) == Path("here")


@pytest.mark.parametrize(
    "spec",
    ["mcp:env API_KEY=abc-1234-def server", "mcp:https://u/mcp?a=1&key=abc-1234-def", "mcp:env K='abc-1234-d' s"],
)
def test_a_key_in_the_command_gets_into_no_name_and_no_log(spec: str) -> None:
    options = EnvOptions(action="train", environment=spec)
    kept = [options.named_folder, command._identity(options), options.title]
    assert "1234" not in str(kept) and options.title.startswith("mcp:") and "…" in options.title


def test_a_measure_trains_nothing_against_a_scripted_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = Policy()
    with serving(policy) as service:
        command.env(action="run", environment=PARITY, url=service.url, key="KEY", out=tmp_path, episodes=4)
    assert [body["train"] for body in policy.started.values()] == [False] * 4
    assert "0.50" in capsys.readouterr().out


def test_a_mistake_in_an_environment_ends_the_run_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(Path(PARITY).read_text().replace("return Verdict(", "return dict("))
    with serving(Policy()) as service, pytest.raises(ConfigError, match=r"evaluate\(\) of Parity returned dict"):
        command.env(action="run", environment=str(wrong), url=service.url, key="KEY", out=tmp_path / "run")
    assert f"{tmp_path}/run/attempts.jsonl; the same command with --resume continues" in capsys.readouterr().err
