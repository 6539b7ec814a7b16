from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.shared.tiny_tokenizers import CHATML, byte_level, write_folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def conversations(folder: Path, *flags: str) -> tuple[bool, str]:
    result = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", "--model", str(folder), *flags])
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "conversations"]
    assert (result.exit_code == 0) == check["ok"]
    return check["ok"], check["told"]


def test_doctor_says_how_conversations_are_written_or_why_they_cannot_be(tmp_path: Path) -> None:
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    folder = write_folder(tmp_path / "model", tokenizer, config={"model_type": "gpt2"})
    (folder / "model.safetensors").write_bytes(b"")
    ok, told = conversations(folder)
    assert not ok and "no chat template" in told and "--family plain" in told
    ok, told = conversations(folder, "--family", "plain")
    assert ok and "as plain text" in told and "User:" in told
    (folder / "chat_template.jinja").write_text(CHATML)
    ok, told = conversations(folder)
    assert ok and "by its own chat template; no reasoning and no tool calls" in told and "<|im_end|>" in told
    ok, told = conversations(folder, "--family", "nonsense")
    assert not ok and "'nonsense' is no family; choose one of auto" in told


def told(*flags: str) -> dict[str, Any]:
    return json.loads(CliRunner().invoke(app, ["doctor", "--json", "--port", "0", *flags]).stdout)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--judge", "policy"),
        ("--judge", "engine:models/judge"),
        ("--judge", "engine:http://127.0.0.1:30001"),
        ("--judge", "reward-model:models/rm", "--hint-model", "policy"),
        ("--judge", "openai/mine", "--judge-api-base", "http://localhost:8000/v1"),
    ],
    ids=str,
)
def test_nothing_leaves_the_machine_for_judges_that_run_here(flags: tuple[str, ...]) -> None:
    assert told(*flags)["leaves_the_machine"] == []


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--judge", "openai/gpt"), "go to the judge openai/gpt at its provider"),
        (("--hint-model", "openai/gpt"), "go to the hint model openai/gpt at its provider"),
        (("--judge", "engine:http://10.0.0.7:30001"), "go to the judge's engine at http://10.0.0.7:30001"),
        (
            ("--judge", "engine:models/judge", "--judge-engine-url", "http://10.0.0.7:30001"),
            "go to the judge's engine at http://10.0.0.7:30001",
        ),
        (("--judge", "./mine.py:Judge"), "go to your own code ./mine.py:Judge (judge)"),
        (("--custom-reward", "mine.py"), "go to your own code mine.py (custom_reward)"),
    ],
    ids=str,
)
def test_what_leaves_the_machine_for_a_judge_is_said(flags: tuple[str, ...], line: str) -> None:
    (leaving,) = told(*flags)["leaves_the_machine"]
    assert leaving.startswith("conversations") and line in leaving


def test_a_judge_that_means_nothing_is_bad() -> None:
    (check,) = [check for check in told("--judge", "/no/such/model")["checks"] if check["name"] == "judge"]
    assert check["ok"] is False and "no config.json" in check["told"]


@pytest.mark.parametrize(
    ("flag", "code", "said"),
    [
        ("--judge", "", "there is no such file"),
        ("--judge", "class Judge:\n    def __init__(self, settings): pass\n", "has no method `judge`"),
        ("--custom-reward", "get_reward_model = lambda config: 3\n", "neither `judge` nor `score`"),
        ("--custom-reward", "def get_reward_model(config): raise RuntimeError('no weights')\n", "no weights"),
    ],
)
def test_a_judge_of_ones_own_that_cannot_be_made_is_bad(tmp_path: Path, flag: str, code: str, said: str) -> None:
    path = tmp_path / "mine.py"
    if code:
        path.write_text(code)
    (check,) = [check for check in told(flag, str(path))["checks"] if check["name"] == "judge"]
    assert check["ok"] is False and said in check["told"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--custom-loss", "./nope.py"), "custom_loss = './nope.py': ./nope.py: there is no such file"),
        (("--custom-loss", "math:nope"), "has no 'nope'"),
        (("--custom-rollout", "./nope.py"), "there is no such file"),
        (("--method", "./nope.py:mine"), "there is no such file"),
        (("--method", "tests.fixtures.breaks:mine"), "cannot be loaded: ZeroDivisionError"),
        (("--custom-loss", "tests.fixtures.breaks:loss"), "cannot be loaded: ZeroDivisionError"),
        (("--anchor-prompts", "nope.txt"), "anchor_prompts = 'nope.txt' cannot be read"),
        (("--guard-probes", "nope.jsonl"), "guard_probes"),
        (("--resume", "nope"), "is no checkpoint"),
    ],
    ids=str,
)
def test_what_the_learner_would_not_find_is_bad(flags: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", *flags])
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "learning"]
    assert result.exit_code != 0 and not check["ok"] and said in check["told"]


def test_an_engine_given_as_the_backend_is_told_where_it_belongs() -> None:
    for name in ("sglang", "vllm"):
        (check,) = [check for check in told("--backend", name)["checks"] if check["name"] == "backend"]
        assert not check["ok"] and "--engine-url" in check["told"]


def test_figures_for_wandb_leave_the_machine_unless_it_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (leaving,) = told("--wandb", "team/ours")["leaves_the_machine"]
    assert "figures of every step" in leaving and leaving.endswith("W&B project team/ours at https://api.wandb.ai")
    monkeypatch.setenv("WANDB_MODE", "offline")
    answer = told("--wandb", "team/ours", "--tensorboard", "true")
    assert answer["leaves_the_machine"] == []
    checks = {check["name"]: check for check in answer["checks"]}
    assert checks["packages [tensorboard]"]["ok"] is not False
    assert checks["packages [wandb]"]["ok"] is not False, "learning goes on without"
