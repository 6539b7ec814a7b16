from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.settings import SETTINGS, to_environment
from openclaw_rl.shared.settings.sources import load, notes, parse_flags


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "setting", "meaning"),
    [
        ("HOST", "::1", "host", "::1"),
        ("OPENCLAW_HOST", "localhost", "host", "localhost"),
        ("PORT", "8080", "port", 8080),
        ("OPENCLAW_PORT", "8080", "port", 8080),
        ("SGLANG_API_KEY", "k", "api_key", "k"),
        ("OPENCLAW_API_KEY", "k", "api_key", "k"),
        ("SERVED_MODEL_NAME", "mine", "model_name", "mine"),
        ("MODEL_PATH", "/m", "model", "/m"),
        ("BASE_MODEL_PATH", "/m", "model", "/m"),
        ("CKPT_PATH", "/m", "model", "/m"),
        ("TOKENIZER_PATH", "/t", "tokenizer", "/t"),
        ("PRM_MODEL_PATH", "j", "judge", "j"),
        ("JUDGE_MODEL_PATH", "j", "judge", "j"),
        ("BATCH_SIZE", "4", "batch_size", 4),
        ("PRM_M", "3", "votes", 3),
        ("MAJORITY_VOTE_N", "3", "votes", 3),
        ("num_judges", "3", "votes", 3),
        ("MAJORITY_VOTE_THRESHOLD", "0.6", "judge_threshold", 0.6),
        ("OPENCLAW_COMBINE_W_RL", ".5", "w_rl", 0.5),
        ("OPENCLAW_COMBINE_W_OPD", ".5", "w_opd", 0.5),
        ("USE_LORA", "0", "lora", False),
        ("USE_LORA", "yes", "lora", True),
        ("LORA_RANK", "8", "lora_rank", 8),
        ("LORA_ALPHA", "8", "lora_alpha", 8.0),
        ("LORA_DROPOUT", "0.1", "lora_dropout", 0.1),
        ("LEARNING_RATE", "1e-5", "learning_rate", 1e-5),
        ("CLIP_GRAD_NORM", "2", "clip_grad", 2.0),
        ("PPO_CLIP_RATIO", "0.1", "clip_low", 0.1),
        ("PPO_CLIP_RATIO", "0.1", "clip_high", 0.1),
        ("OPENCLAW_DEBUG", "1", "log_level", "debug"),
        ("OPENCLAW_DEBUG", "0", "log_level", "info"),
        ("ROLLOUT_LOG_LEVEL", "WARN", "log_level", "warning"),
        ("TINKER_API_KEY", "tml-k", "tinker_api_key", "tml-k"),
        ("TINKER_BASE_URL", "http://there/", "tinker_base_url", "http://there"),
        ("TINKER_ENDPOINT", "http://there", "tinker_base_url", "http://there"),
        ("TINKER_PROJECT_ID", "p", "tinker_project", "p"),
        ("FIREWORKS_API_KEY", "fw_k", "fireworks_api_key", "fw_k"),
        ("FIREWORKS_BASE_URL", "http://there", "fireworks_base_url", "http://there"),
        ("session_timeout", "60", "session_idle_seconds", 60.0),
    ],
)
def test_variables_of_other_systems(variable: str, value: str, setting: str, meaning: object) -> None:
    settings, sources = load(environ={variable: value})
    assert settings.value(setting) == meaning
    assert sources[setting] in {f"{variable} (alias)", "default"}


@pytest.mark.parametrize(
    ("arguments", "setting", "meaning"),
    [
        ("--model-path /m", "model", "/m"),
        ("--rm-checkpoint j", "judge", "j"),
        ("--method grpo", "method", "binary"),
        ("--method rl", "method", "binary"),
        ("--rollout-batch-size 4", "batch_size", 4),
        ("--prm-m 3", "votes", 3),
        ("--majority-vote-n=3", "votes", 3),
        ("--distill-subset-mode teacher", "select_from", "teacher"),
        ("--majority-vote-threshold 0.6", "judge_threshold", 0.6),
        ("--num-judge-workers 2", "judge_concurrency", 2),
        ("--num-judges 3", "votes", 3),
        ("--w-opd 0.5", "w_opd", 0.5),
        ("--binary-weight 0.5", "w_rl", 0.5),
        ("--use-lora", "lora", True),
        ("--no-use-lora", "lora", False),
        ("--lr 1e-5", "learning_rate", 1e-5),
        ("--adam-beta1 0.8", "beta1", 0.8),
        ("--adam-beta2 0.8", "beta2", 0.8),
        ("--ppo-clip-ratio 0.2", "clip_high", 0.2),
        ("--lr-warmup-samples 100 --batch-size 16", "lr_warmup_steps", 7),
        ("--enable-rl-intercept", "capture", True),
        ("--rl-buffer-dir d", "data", Path("d")),
        ("--rollout-dir d", "data", Path("d")),
    ],
)
def test_flags_of_other_systems(arguments: str, setting: str, meaning: object) -> None:
    assert load(parse_flags(arguments.split()), environ={})[0].value(setting) == meaning


def test_keys_of_other_systems_configuration_files(tmp_path: Path) -> None:
    (tmp_path / "openclaw-rl.toml").write_text("num_judges = 3\nbinary_weight = 0.5\nteacher_temperature = 0.7")
    settings, sources = load(environ={})
    assert (settings.judge.votes, settings.learning.w_rl, settings.learning.teacher_temperature) == (3, 0.5, 0.7)
    assert sources["votes"] == "num_judges (alias)"


def test_our_own_name_wins(tmp_path: Path) -> None:
    (tmp_path / "openclaw-rl.toml").write_text("batch_size = 5")
    assert load(environ={"PORT": "1", "OPENCLAW_RL_PORT": "2"})[0].serve.port == 2
    assert load(environ={"BATCH_SIZE": "4"})[0].learning.batch_size == 5
    assert load({"lr": "1", "learning-rate": "2"}, environ={})[0].learning.learning_rate == 2


def test_two_aliases_that_disagree_are_an_error_naming_both() -> None:
    with pytest.raises(ConfigError, match="PRM_M = 3 and MAJORITY_VOTE_N = 5 both mean votes and disagree"):
        load(environ={"PRM_M": "3", "MAJORITY_VOTE_N": "5"})
    with pytest.raises(ConfigError, match="BATCH_SIZE = 4 and --rollout-batch-size = 8"):
        load({"rollout-batch-size": "8"}, environ={"BATCH_SIZE": "4"})


@pytest.mark.parametrize(
    ("environ", "judge", "hints"),
    [
        ({"PRM_MODEL_PATH": "p", "JUDGE_MODEL_PATH": "j"}, "p", "j"),
        ({"PRM_MODEL_PATH": "j", "JUDGE_MODEL_PATH": "j"}, "j", ""),
        ({"JUDGE_MODEL_PATH": "j"}, "j", ""),
        ({"PRM_MODEL_PATH": "p"}, "p", ""),
        ({"PRM_MODEL_PATH": "p", "JUDGE_MODEL_PATH": "j", "OPENCLAW_RL_HINT_MODEL": "own"}, "p", "own"),
        ({"PRM_MODEL_PATH": "p", "JUDGE_MODEL_PATH": "j", "OPENCLAW_RL_JUDGE": "own"}, "own", "j"),
        ({"JUDGE_MODEL_PATH": "j", "OPENCLAW_RL_JUDGE": "own"}, "own", ""),
        ({"JUDGE_MODEL_PATH": "j", "hint_extraction_model": "h"}, "j", "h"),
        ({"JUDGE_MODEL_PATH": "j", "OPENCLAW_RL_CUSTOM_REWARD": "./rm.py"}, "auto", "j"),
    ],
)
def test_two_models_score_and_write_hints(environ: dict[str, str], judge: str, hints: str) -> None:
    found = load(environ=environ)[0].judge
    assert (found.model, found.hint_model) == (judge, hints)


def test_a_judge_next_to_a_reward_flag_writes_the_hints() -> None:
    environ = {"JUDGE_MODEL_PATH": "j"}
    settings, sources = load(parse_flags(["--rm-checkpoint", "p"]), environ=environ)
    assert (settings.judge.model, settings.judge.hint_model) == ("p", "j")
    assert (sources["judge"], sources["hint_model"]) == ("--rm-checkpoint (alias)", "JUDGE_MODEL_PATH (alias)")
    settings, _ = load(parse_flags(["--custom-rm-path", "./rm.py"]), environ=environ)
    assert (settings.judge.custom_reward, settings.judge.hint_model) == ("./rm.py", "j")


def test_two_models_for_hints_disagree() -> None:
    environ = {"PRM_MODEL_PATH": "p", "JUDGE_MODEL_PATH": "j", "HINT_EXTRACTION_MODEL": "h"}
    with pytest.raises(ConfigError, match=r"JUDGE_MODEL_PATH = j and .*both mean hint_model and disagree") as caught:
        load(environ=environ)
    assert "HINT_EXTRACTION_MODEL = h" in str(caught.value)


def test_children_read_the_same_two_models() -> None:
    environ = {"PRM_MODEL_PATH": "p", "JUDGE_MODEL_PATH": "j", "LORA_RANK": "4"}
    settings, _ = load(environ=environ)
    assert load(environ=environ | to_environment(settings))[0] == settings


def test_a_provider_has_one_address() -> None:
    with pytest.raises(ConfigError, match="TINKER_BASE_URL = http://a and TINKER_ENDPOINT = http://b both mean tinker"):
        load(environ={"TINKER_BASE_URL": "http://a", "TINKER_ENDPOINT": "http://b"})


def test_two_aliases_that_agree_or_are_overruled_are_none() -> None:
    assert load(environ={"PRM_M": "3", "MAJORITY_VOTE_N": "3.0", "LORA_ALPHA": "8"})[0].judge.votes == 3
    assert load(environ={"PRM_M": "3", "MAJORITY_VOTE_N": "5", "OPENCLAW_RL_VOTES": "7"})[0].judge.votes == 7


def test_disagreeing_keys_are_named_but_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"SGLANG_API_KEY": "first", "OPENCLAW_API_KEY": "second"})
    assert "SGLANG_API_KEY and OPENCLAW_API_KEY" in str(caught.value)
    assert "first" not in str(caught.value)


def test_a_flag_without_counterpart_is_answered_in_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load(parse_flags(["--seed", "1", "--max-turns", "8"]), environ={})
    assert str(caught.value).startswith("--max-turns has no counterpart here: ")
    assert "\n" not in str(caught.value)


def test_a_variable_without_counterpart_is_noted_and_the_service_starts() -> None:
    environ = {"PARALLEL_ENVS": "8", "HF_TOKEN": "k"}
    assert load(environ=environ)[0] == load(environ={})[0]
    (line,) = notes(environ=environ)
    assert line.startswith("PARALLEL_ENVS has no counterpart here: ")
    assert len(notes(environ=environ, quiet=True)) == 2


def test_gpus_are_counted_by_the_names_that_people_have() -> None:
    found = load(environ={"NUM_GPUS": "4", "ACTOR_GPUS": "2", "ROLLOUT_GPUS": "1", "PRM_GPUS": "3"})[0]
    assert (found.gpu.gpus, found.gpu.actor_gpus, found.gpu.rollout_gpus, found.gpu.judge_gpus) == ("4", "2", "1", "3")


def test_every_entry_either_maps_to_settings_that_exist_or_says_what_to_use() -> None:
    for alias in aliases.ALIASES:
        assert bool(alias.settings) != bool(alias.instead)
        assert {*alias.settings, *alias.next_to} | ({alias.second} - {""}) <= set(SETTINGS)
        assert alias.environment or alias.flags or alias.keys or alias.tables


def test_no_name_stands_for_two_things() -> None:
    names = [
        name for alias in aliases.ALIASES for name in (*alias.environment, *alias.flags, *alias.keys, *alias.tables)
    ]
    assert len(names) == len(set(names))
    assert not set(names) & set(SETTINGS)
