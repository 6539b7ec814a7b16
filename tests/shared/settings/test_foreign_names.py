"""Every name that people's scripts for other systems hold is understood, or answered with what to do instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.backends import backend
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.settings import SETTINGS, Settings
from openclaw_rl.shared.settings.sources import BY_FLAG, load, notes, parse_flags


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def understood(settings: Settings, changes: dict[str, Any]) -> None:
    """The settings are the defaults but for these."""
    plain = load(environ={})[0]
    assert {name: settings.value(name) for name in changes} == changes
    assert any(plain.value(name) != value for name, value in changes.items())


VARIABLES: list[tuple[str, str, dict[str, Any]]] = [
    ("HOST", "::1", {"host": "::1"}),
    ("OPENCLAW_HOST", "::1", {"host": "::1"}),
    ("PORT", "8000", {"port": 8000}),
    ("OPENCLAW_PORT", "8000", {"port": 8000}),
    ("SGLANG_API_KEY", "k", {"api_key": "k"}),
    ("OPENCLAW_API_KEY", "k", {"api_key": "k"}),
    ("PROXY_HOST", "::1", {"host": "::1"}),
    ("PROXY_PORT", "8000", {"port": 8000}),
    ("SERVED_MODEL_NAME", "mine", {"model_name": "mine"}),
    ("MODEL_NAME", "Qwen/Qwen3-8B", {"model": "Qwen/Qwen3-8B"}),
    ("METHOD", "combine", {"method": "combined"}),
    ("METHOD", "rl", {"method": "binary"}),
    ("CONTEXT_LENGTH", "32768", {"context_length": 32768}),
    ("TP", "2", {"rollout_tensor_parallel": 2}),
    ("TP_SIZE", "2", {"rollout_tensor_parallel": 2}),
    ("MODEL_PATH", "/m", {"model": "/m"}),
    ("BASE_MODEL_PATH", "/m", {"model": "/m"}),
    ("CKPT_PATH", "/m", {"model": "/m"}),
    ("HF_CKPT", "/m", {"model": "/m"}),
    ("TOKENIZER_PATH", "/t", {"tokenizer": "/t"}),
    ("PRM_MODEL_PATH", "/p", {"judge": "/p"}),
    ("PRM_MODEL_PATH", "Qwen/Qwen3-8B", {"judge": "engine:Qwen/Qwen3-8B"}),
    ("JUDGE_MODEL_PATH", "meta-llama/Llama-3.1-8B", {"judge": "engine:meta-llama/Llama-3.1-8B"}),
    ("JUDGE_MODEL_PATH", "/j", {"judge": "/j"}),
    ("HINT_EXTRACTION_MODEL", "h", {"hint_model": "h"}),
    ("JUDGE_MODEL", "j", {"judge": "j"}),
    ("BATCH_SIZE", "4", {"batch_size": 4}),
    ("GRAD_ACCUM_STEPS", "2", {"grad_accumulation": 2}),
    ("PRM_M", "3", {"votes": 3}),
    ("MAJORITY_VOTE_N", "5", {"votes": 5}),
    ("MAJORITY_VOTE_THRESHOLD", "0.6", {"judge_threshold": 0.6}),
    ("MAJORITY_VOTING", "true", {"votes": 3}),
    ("PRM_TEMPERATURE", "0.9", {"judge_temperature": 0.9}),
    ("PRM_MAX_NEW_TOKENS", "8192", {"judge_max_tokens": 8192}),
    ("PRM_MAX_TOKENS", "4096", {"judge_max_tokens": 4096}),
    ("KL_LOSS_COEF", "0.02", {"kl_base": 0.02}),
    ("OPENCLAW_COMBINE_W_RL", ".5", {"w_rl": 0.5}),
    ("OPENCLAW_COMBINE_W_OPD", ".5", {"w_opd": 0.5}),
    ("OPENCLAW_TOPK_W_RL", ".5", {"w_rl": 0.5}),
    ("OPENCLAW_TOPK_W_OPD", ".5", {"w_opd": 0.5}),
    ("OPENCLAW_TOPK_K", "8", {"select_k": 8}),
    ("OPENCLAW_TOPK_SUBSET_MODE", "overlap", {"select_from": "overlap"}),
    ("OPENCLAW_TOPK_ADV_DIFF_CLIP", "2.0", {"advantage_clip": 2.0}),
    ("OPENCLAW_TOPK_HINT_SELECTION", "sequence_optimal", {"hint_selection": "overlap-sequence"}),
    ("OPENCLAW_TOPK_HINT_SELECTION", "token_optimal", {"hint_selection": "overlap-token"}),
    ("OPENCLAW_TOPK_HINT_SELECTION", "shortest", {"hint_selection": "shortest"}),
    ("USE_LORA", "false", {"lora": False}),
    ("LORA_RANK", "8", {"lora_rank": 8}),
    ("LORA_ALPHA", "8", {"lora_alpha": 8.0}),
    ("LORA_DROPOUT", "0.1", {"lora_dropout": 0.1}),
    ("LORA_ARGS", "--use-lora --lora-rank 64 --lora-alpha=128", {"lora_rank": 64, "lora_alpha": 128.0, "lora": True}),
    ("LEARNING_RATE", "5e-7", {"learning_rate": 5e-7}),
    ("CLIP_GRAD_NORM", "0.5", {"clip_grad": 0.5}),
    ("PPO_CLIP_RATIO", "0.1", {"clip_low": 0.1, "clip_high": 0.1}),
    ("TRAIN_EPOCHS", "2", {"epochs": 2}),
    (
        "OPTIMIZER_ARGS",
        "\n--lr 1e-6 \\\n--weight-decay 0.01 --adam-beta1 0.8 --lr-warmup-samples 16 --num-epochs 2\n",
        {"learning_rate": 1e-6, "weight_decay": 0.01, "beta1": 0.8, "lr_warmup_steps": 2, "epochs": 2},
    ),
    ("ROLLOUT_ARGS", "--rollout-batch-size 32 --rollout-function-path mine.py", {"batch_size": 32}),
    ("REWARD_ARGS", "--custom-rm-path ./rm.py --reward-aggregation majority", {"custom_reward": "./rm.py"}),
    ("CKPT_ARGS", "--save-interval 100 --save-dir './my folder'", {"checkpoints": "./my folder"}),
    ("GRPO_ARGS", "--kl-loss-coef 0.02", {"kl_base": 0.02}),
    ("OPD_ARGS", "--custom-loss-function-path ./loss.py", {"custom_loss": "./loss.py"}),
    ("COMBINE_ARGS", "--w-rl 0.5", {"w_rl": 0.5}),
    ("PERF_ARGS", "--gradient-checkpointing", {"recompute": True}),
    ("PRM_ARGS", "--prm-m 3 --prm-max-new-tokens 8192", {"votes": 3, "judge_max_tokens": 8192}),
    ("CUSTOM_ARGS", "--custom-generate-function-path ./generate.py", {"custom_generate": "./generate.py"}),
    ("SGLANG_ARGS", "--context-length 32768", {"context_length": 32768}),
    ("MISC_ARGS", "--seed 7", {"seed": 7}),
    ("MIN_TURNS", "3", {"min_turns": 3}),
    ("TEACHER_TEMPERATURE", "0.7", {"teacher_temperature": 0.7}),
    ("USE_GRADIENT_CHECKPOINTING", "true", {"recompute": True}),
    ("CKPT_SAVE_DIR", "c", {"checkpoints": "c"}),
    ("SAVE_CKPT", "c", {"checkpoints": "c"}),
    ("RESUME_CKPT", "r", {"resume": "r"}),
    ("RESUME_FROM_CKPT", "r", {"resume": "r"}),
    ("NUM_GPUS", "4", {"gpus": "4"}),
    ("ACTOR_GPUS", "2", {"actor_gpus": "2"}),
    ("TRAIN_GPUS", "0,1", {"actor_gpus": "0,1"}),
    ("ROLLOUT_GPUS", "4,5", {"rollout_gpus": "4,5"}),
    ("PRM_GPUS", "6", {"judge_gpus": "6"}),
    ("TINKER_API_KEY", "tml-k", {"tinker_api_key": "tml-k"}),
    ("TINKER_ENDPOINT", "http://there", {"tinker_base_url": "http://there"}),
    ("TINKER_PROJECT_ID", "p", {"tinker_project": "p"}),
    ("FIREWORKS_API_KEY", "fw_k", {"fireworks_api_key": "fw_k"}),
    ("OPENCLAW_DEBUG", "true", {"log_level": "debug"}),
    ("ROLLOUT_LOG_LEVEL", "DEBUG", {"log_level": "debug"}),
]


@pytest.mark.parametrize(("name", "value", "changes"), VARIABLES)
def test_a_variable_is_understood(name: str, value: str, changes: dict[str, Any]) -> None:
    understood(load(environ={name: value})[0], changes)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("DATA_PATH", "/conversations", "openclaw-rl import"),
        ("MAX_STEPS", "50", "openclaw-rl env"),
        ("MAX_GUI_STEPS", "50", "openclaw-rl env"),
        ("MAX_TURNS", "8", "openclaw-rl env"),
        ("PARALLEL_ENVS", "8", "openclaw-rl env"),
        ("ENV_TYPE", "terminal", "openclaw-rl env"),
        ("TASK_TYPE", "bash_commands", "/rl/outcome"),
        ("SCREENSHOT_BACKEND", "playwright", "/rl/outcome"),
        ("TOOLS_CONFIG", "tools.json", "openclaw-rl env"),
        ("SWE_BENCH_PATH", "/swe", "/rl/outcome"),
        ("VALUE_CLIP", "true", "clip_low"),
        ("VALUE_CLIP_RATIO", "0.2", "clip_low"),
        ("GAE_LAMBDA", "0.95", "gamma"),
        ("EVAL_FREQUENCY", "100", "openclaw-rl eval"),
        ("MODEL_SIZE", "7b", "model = "),
        ("TEACHER_MODEL_NAME", "Qwen/Qwen3-8B", "teacher = engine:FOLDER"),
        ("LOSS_FN", "cispo", "custom_loss"),
        ("OPENCLAW_EVAL_MODE", "1", "openclaw-rl eval"),
        ("EVAL_MODE", "1", "openclaw-rl eval"),
        ("MEM_FRACTION_STATIC", "0.8", "sglang_args"),
        ("OPENCLAW_OPD_TEACHER_LP_MAX_CONCURRENCY", "3", "together"),
        ("PRM_TEACHER_LOAD", "/t", "teacher"),
        ("REF_LOAD", "/t", "teacher"),
        ("ROLLOUT_ARGS", "--num-rollouts-per-prompt 4", "openclaw-rl env train --group"),
        ("ROLLOUT_ARGS", "--max-turns 10", "/rl/outcome"),
        ("REWARD_ARGS", "--reward-aggregation mean", "judge_threshold"),
        ("EVAL_ARGS", "--eval-frequency 100", "openclaw-rl eval"),
    ],
)
def test_a_variable_without_counterpart_is_answered_and_the_service_starts(name: str, value: str, remedy: str) -> None:
    assert load(environ={name: value})[0] == load(environ={})[0]
    (line,) = notes(environ={name: value})
    assert line.startswith(name) and remedy in line and "\n" not in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", "6000"),
        ("NNODES", "1"),
        ("NODE_RANK", "0"),
        ("GPUS_PER_NODE", "8"),
        ("HF_TOKEN", "k"),
        ("WANDB_API_KEY", "k"),
        ("WANDB_PROJECT", "mine"),
        ("USE_WANDB", "1"),
        ("OPENCLAW_RECORD_ENABLED", "1"),
        ("OPENCLAW_RECORD_FILE", "/r.jsonl"),
        ("OPENCLAW_PRM_RECORD_FILE", "/p.jsonl"),
        ("RECORD_DIR", "records/"),
        ("TOOL_CALL_PARSER", "qwen25"),
        ("REASONING_PARSER", "qwen3"),
        ("LOSS_FN", "ppo"),
        ("OPENCLAW_EVAL_MODE", "0"),
        ("SAVE_INTERVAL", "50"),
        ("ROLLOUT_ARGS", "--num-rollout-workers 4"),
        ("ROLLOUT_ARGS", "--async-collection"),
        ("WANDB_ARGS", "--wandb-project mine"),
    ],
)
def test_a_variable_that_another_program_reads_or_that_always_holds_is_said_by_doctor(name: str, value: str) -> None:
    assert notes(environ={name: value}) == []
    (line,) = notes(environ={name: value}, quiet=True)
    assert line.startswith(name)


def test_a_method_variable_of_another_program_sets_nothing() -> None:
    assert load(environ={"METHOD": "GET"}) == load(environ={})
    assert notes(environ={"METHOD": "GET"}, quiet=True) == []


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ("--model-path /m --port 8000 --gpu-ids 0,1", {"model": "/m", "port": 8000, "gpus": "0,1"}),
        ("--model-path /m --model-name qwen", {"model": "/m", "model_name": "qwen"}),
        ("--proxy-host ::1 --proxy-port 8000 --record-dir d", {"host": "::1", "port": 8000, "data": Path("d")}),
        ("--kl-loss-coef 0.02 --prm-max-tokens 64 --loss-fn ppo", {"kl_base": 0.02, "judge_max_tokens": 64}),
        ("--resume-from-ckpt r --eval-mode false", {"resume": "r"}),
        ("--enable-rl-intercept --rl-buffer-dir d", {"data": Path("d")}),
        ("--output-dir d --session-aware --async-collection", {"data": Path("d")}),
        ("--rollout-dir d --checkpoint-dir c --gpus 2,3", {"data": Path("d"), "checkpoints": "c", "gpus": "2,3"}),
        ("--save-interval 50 --save-dir c", {"checkpoints": "c"}),
        ("--num-epochs 1", {"epochs": 1}),
        ("--lr 1e-6 --clip-grad 0.5 --ppo-clip-ratio 0.1", {"learning_rate": 1e-6, "clip_grad": 0.5, "clip_high": 0.1}),
        ("--rm-checkpoint /p --reward-aggregation majority --num-rollout-workers 16", {"judge": "/p"}),
        (
            "--majority-vote-n 7 --majority-vote-threshold .6 --num-judge-workers 4",
            {"votes": 7, "judge_threshold": 0.6},
        ),
        ("--rm-checkpoint org/prm", {"judge": "engine:org/prm"}),
        ("--judge-model openai/gpt", {"judge": "openai/gpt"}),
        ("--num-rollouts-per-prompt 1 --rollout-batch-size 64", {"batch_size": 64}),
        ("--offload-optimizer-state --resume-from-checkpoint r", {"offload_optimizer": True, "resume": "r"}),
        ("--judge-model gpt-4 --consensus-threshold 0.6", {"judge": "gpt-4", "judge_threshold": 0.6}),
        ("--majority-voting --num-judges 5", {"votes": 5}),
        ("--majority-voting", {"votes": 3}),
        ("--tokenizer-path /t --grad-accum-steps 2 --num-gpus 4", {"tokenizer": "/t", "grad_accumulation": 2}),
        ("--train-gpus 0 --prm-gpus 1 --prm-temperature .9", {"actor_gpus": "0", "judge_temperature": 0.9}),
        ("--prm-max-new-tokens 64 --gradient-checkpointing", {"judge_max_tokens": 64, "recompute": True}),
        ("--no-use-gradient-checkpointing --session-tracking", {"recompute": False}),
        ("--method combine --lora", {"method": "combined", "lora": True}),
        ("--custom-loss-function-path ./x.py --custom-rm-path ./y.py", {"custom_loss": "./x.py"}),
        ("--custom-generate-function-path ./x.py --rollout-function-path ./y.py", {"custom_rollout": "./y.py"}),
        ("--hf-checkpoint /m --save /s --eps-clip 0.1", {"model": "/m", "checkpoints": "/s", "clip_low": 0.1}),
        ("--eps-clip-high 0.3 --rollout-temperature 0.6", {"clip_high": 0.3, "temperature": 0.6}),
        (
            "--rollout-max-response-len 2048 --rollout-max-context-len 16384 --global-batch-size 16",
            {"max_output_tokens": 2048, "context_length": 16384, "batch_size": 16},
        ),
        ("--advantage-estimator grpo --entropy-coef 0.01 --use-kl-loss --kl-loss-type k3", {"entropy": 0.01}),
        ("--distill-topk 20 --attention-dropout 0.0 --hidden-dropout 0.0", {"topk": 20}),
        ("--sglang-context-length 32768", {"context_length": 32768}),
        ("--optimizer adam --lr-decay-style cosine --n-samples-per-prompt 1", {"lr_schedule": "cosine"}),
        (
            "--tensor-model-parallel-size 4 --sequence-parallel --context-parallel-size 1 "
            "--expert-model-parallel-size 1 --expert-tensor-parallel-size 1 --rollout-num-gpus-per-engine 2",
            {"tensor_parallel": 4, "rollout_tensor_parallel": 2},
        ),
        (
            "--use-dynamic-batch-size --max-tokens-per-gpu 9216 --balance-data --recompute-granularity full "
            "--recompute-method uniform --recompute-num-layers 1 --colocate --attention-backend flash "
            "--reward-key score --disable-rollout-global-dataset",
            {"micro_batch_tokens": 9216},
        ),
    ],
)
def test_flags_are_understood(arguments: str, changes: dict[str, Any]) -> None:
    understood(load(parse_flags(arguments.split()), environ={})[0], changes)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ("--api-endpoint http://localhost:8000", "the proxy itself records"),
        ("--rollout-endpoint http://localhost:8000/rollout", "host and port"),
        ("--num-samples 10", "openclaw-rl sessions"),
        ("--teacher-model-name m", "teacher = engine:FOLDER"),
        ("--loss-fn cispo", "custom_loss"),
        ("--eval-mode", "openclaw-rl eval"),
        ("--wandb-project mine", "report_to"),
        ("--use-wandb", "report_to"),
        ("--max-turns 10", "/rl/outcome"),
        ("--parallel-envs 32", "/rl/outcome"),
        ("--benchmark swe-bench-lite", "/rl/outcome"),
        ("--num-rollouts-per-prompt 4", "rehearsals"),
        ("--reward-aggregation mean", "judge_threshold"),
        ("--session-aware false", "X-RL-Train: never"),
        ("--training-mode sync", "never stop the chat"),
        ("--max-steps 10000", "openclaw-rl pause"),
        ("--eval-frequency 100", "openclaw-rl eval"),
        ("--value-clip-ratio 0.2", "clip_low"),
        ("--value-clip", "clip_low"),
        ("--gae-lambda 0.95", "gamma"),
        ("--data-path /conversations", "openclaw-rl import"),
        ("--prompt-data /questions.jsonl", "openclaw-rl import"),
        ("--load /megatron", "resume"),
        ("--ref-load /megatron", "the setting teacher"),
        ("--num-rollout 3000", "openclaw-rl pause"),
        ("--n-samples-per-prompt 8", "rehearsals"),
        ("--advantage-estimator gae", "baseline"),
        ("--optimizer sgd", "AdamW"),
        ("--use-kl-loss false", "kl_base"),
        ("--attention-dropout 0.1", "lora_dropout"),
        ("--pipeline-model-parallel-size 2", "tensor_parallel"),
        ("--actor-num-gpus-per-node 4", "actor_gpus"),
        ("--actor-num-nodes 1", "actor_gpus"),
        ("--rollout-num-gpus 4", "rollout_gpus"),
        ("--prm-num-gpus 2", "judge_gpus"),
        ("--prm-num-gpus-per-engine 2", "judge_gpus"),
        ("--sglang-mem-fraction-static 0.8", "sglang_args"),
        ("--message-classification roles", "classification_rules"),
    ],
)
def test_a_flag_without_counterpart_is_refused_with_what_to_do(arguments: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match="here: ") as caught:
        load(parse_flags(arguments.split()), environ={})
    assert str(caught.value).startswith(arguments.split()[0]) and remedy in str(caught.value)


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_an_engine_as_the_backend_is_refused_with_what_to_do(name: str) -> None:
    settings = load(parse_flags(["--backend", name]), environ={})[0]
    with pytest.raises(ConfigError, match="--engine-url"):
        backend(settings.engine.backend)


def test_flags_in_variables_are_aliases(elsewhere: Path) -> None:
    environ = {"LORA_ARGS": "--lora-rank 64"}
    assert load(environ=environ)[1]["lora_rank"] == "LORA_ARGS --lora-rank (alias)"
    assert load(parse_flags(["--lora-rank", "8"]), environ=environ)[0].learning.lora_rank == 8
    with pytest.raises(ConfigError, match="LORA_RANK = 16 and LORA_ARGS --lora-rank = 64 both mean lora_rank"):
        load(environ=environ | {"LORA_RANK": "16"})
    assert load(environ=environ | {"LORA_RANK": "64.0"})[0].learning.lora_rank == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--lora-rnk 3", r"LORA_ARGS: --lora-rnk is no setting \(did you mean lora-rank\?\)"),
        ("--lora-rank", "LORA_ARGS: --lora-rank needs a value"),
        ("--lora-rank '3", "LORA_ARGS: No closing quotation"),
        ("rank 3", "LORA_ARGS: 'rank' is no flag"),
        ("--config other.toml", "LORA_ARGS: --config names our file on the command line"),
        ("--lora-rank none", "lora_rank = 'none' .from LORA_ARGS --lora-rank .alias.."),
    ],
)
def test_wrong_flags_in_variables_name_the_variable(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(environ={"LORA_ARGS": text})


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("GRPO_ARGS", "--eps-clip-middle 0.2", "--eps-clip-middle is no setting"),
        ("OPD_ARGS", "--distill-depth 50", "--distill-depth is no setting"),
        ("SGLANG_ARGS", "--sglang-router-policy x", "--sglang-router-policy is no setting"),
        ("MISC_ARGS", "--accumulate-allreduce-grads-in-fp32", "--accumulate-allreduce-grads-in-fp32 is no setting"),
        ("EVAL_ARGS", "all", "'all' is no flag"),
    ],
)
def test_flags_of_the_scripts_without_a_meaning_here_are_refused_with_what_to_do(
    name: str, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: {reason}.*; change {name}, or unset it$"):
        load(environ={name: text})


def test_a_relative_folder_in_a_path_is_no_hub_name(elsewhere: Path) -> None:
    (elsewhere / "models" / "judge").mkdir(parents=True)
    assert load(environ={"JUDGE_MODEL_PATH": "models/judge"})[0].judge.model == "models/judge"


TRAINING = """
model:
  name: small-1b   # what clients see
  checkpoint_path: /models/small
  tokenizer_path: /models/tokenizer
training:
  method: combine
  batch_size: 16
  gradient_accumulation_steps: 2
  learning_rate: 3e-6
  warmup_steps: 50
  max_steps: 5000
  ppo_clip_ratio: 0.1
  value_clip_ratio: 0.1
  gae_lambda: 0.9
  teacher_temperature: 0.9
  hint_extraction_model: openai/hints
  binary_weight: 0.25
  opd_weight: 0.75
rollout:
  num_workers: 2
  max_turns: 6
  session_aware: true
  parallel_envs: 4
evaluation:
  judge_model: openai/judge
  majority_voting: true
  num_judges: 5
  consensus_threshold: 0.6
  eval_frequency: 50
"""
FROM_TRAINING: dict[str, Any] = {
    "model": "/models/small",
    "model_name": "small-1b",
    "tokenizer": "/models/tokenizer",
    "method": "combined",
    "batch_size": 16,
    "grad_accumulation": 2,
    "learning_rate": 3e-6,
    "lr_warmup_steps": 50,
    "clip_low": 0.1,
    "clip_high": 0.1,
    "teacher_temperature": 0.9,
    "hint_model": "openai/hints",
    "w_rl": 0.25,
    "w_opd": 0.75,
    "judge": "openai/judge",
    "votes": 5,
    "judge_threshold": 0.6,
}
NOTED = {
    "training.max_steps": "openclaw-rl pause",
    "training.value_clip_ratio": "clip_low",
    "training.gae_lambda": "gamma",
    "rollout.max_turns": "/rl/outcome",
    "rollout.parallel_envs": "/rl/outcome",
    "evaluation.eval_frequency": "openclaw-rl eval",
}


def test_a_training_configuration_in_yaml(elsewhere: Path) -> None:
    (elsewhere / "training.yaml").write_text(TRAINING)
    flags = parse_flags(["--config", "training.yaml"])
    settings, sources = load(flags, environ={})
    understood(settings, FROM_TRAINING)
    assert (sources["batch_size"], sources["votes"]) == ("training.yaml", "evaluation.num_judges (alias)")
    said = {line.split(" ")[0]: line for line in notes(flags, environ={})}
    assert said.keys() == NOTED.keys()
    assert all(remedy in said[name] for name, remedy in NOTED.items())
    always = {line.split(" ")[0] for line in notes(flags, environ={}, quiet=True)} - said.keys()
    assert always == {"rollout.num_workers", "rollout.session_aware"}


def test_the_same_configuration_in_json_and_toml(elsewhere: Path) -> None:
    (elsewhere / "training.yaml").write_text(TRAINING)
    from_yaml = load({"config": "training.yaml"}, environ={})[0]
    tables = {
        "model": {"name": "small-1b", "checkpoint_path": "/models/small", "tokenizer_path": "/models/tokenizer"},
        "training": {
            **{name: value for name, value in FROM_TRAINING.items() if name in ("batch_size", "teacher_temperature")},
            **{"method": "combine", "gradient_accumulation_steps": 2, "learning_rate": 3e-6, "warmup_steps": 50},
            **{"ppo_clip_ratio": 0.1, "binary_weight": 0.25, "opd_weight": 0.75},
            "hint_extraction_model": "openai/hints",
        },
        "evaluation": {"judge_model": "openai/judge", "num_judges": 5, "consensus_threshold": 0.6, "judge": None},
    }
    (elsewhere / "training.json").write_text(json.dumps(tables))
    assert load({"config": "training.json"}, environ={})[0] == from_yaml
    del tables["evaluation"]["judge"]
    (elsewhere / "openclaw-rl.toml").write_text(
        "\n".join(
            f"[{table}]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in keys.items())
            for table, keys in tables.items()
        )
    )
    assert load(environ={})[0] == from_yaml


def test_a_rollout_configuration_in_json(elsewhere: Path) -> None:
    rollout = {
        "collection_mode": "async",
        "max_concurrent_sessions": 7,
        "session_timeout": 90,
        "trajectory_format": "multi_turn",
        "message_classification": {"main_line": ["user"], "side": ["tool"]},
        "reward_computation": {"type": "next_state_feedback", "aggregation": "majority", "num_samples": 3},
    }
    (elsewhere / "rollout.json").write_text(json.dumps({"rollout_config": rollout}))
    flags = {"config": "rollout.json"}
    settings, _ = load(flags, environ={})
    understood(settings, {"max_sessions": 7, "session_idle_seconds": 90.0, "votes": 3})
    (line,) = notes(flags, environ={})
    assert line.startswith("rollout_config.message_classification") and "classification_rules" in line
    assert len(notes(flags, environ={}, quiet=True)) == 5


def test_our_own_settings_in_yaml_and_json(elsewhere: Path) -> None:
    (elsewhere / "mine.yml").write_text(
        "port: 4000\nlearning: {batch_size: 3}\nmodel: /m\nguard:\n  max_kl: 0.3\nlora: off\n"
        "model_aliases: {gpt-4o: policy@3}\nclassification_rules:\n- {name: small, kind: side, model: haiku}\n"
    )
    settings, sources = load({"config": "mine.yml"}, environ={})
    changes = {"port": 4000, "batch_size": 3, "model": "/m", "guard_max_kl": 0.3, "lora": False}
    understood(settings, changes | {"model_aliases": "gpt-4o=policy@3"})
    assert "haiku" in settings.serve.classification_rules and sources["port"] == "mine.yml"
    (elsewhere / "mine.json").write_text('{"port": 4000, "learning": {"batch_size": 3}, "model": "/m"}')
    understood(load({"config": "mine.json"}, environ={})[0], {"port": 4000, "batch_size": 3, "model": "/m"})
    for name in ("empty.yaml", "empty.toml"):
        (elsewhere / name).write_text("")
        assert load({"config": name}, environ={})[0] == load(environ={})[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "training: {batchsize: 4}", r"'training.batchsize' is no setting \(did you mean batch_size\?\)"),
        ("a.yaml", "trainings: {batch_size: 4}", r"'trainings' is no setting"),
        ("a.yaml", "training: {batch_size: 4}\nbatch_size: 5", "batch_size is there twice, as 5 and as 4"),
        ("a.yaml", "evaluation: {num_judges: 3}\nevaluation: {num_judges: 5}", "'evaluation' is there twice"),
        ("a.yaml", "evaluation: {num_judges: 3}\nvotes: [1]", "votes holds a table or a list"),
        ("a.yaml", "training: {batch_size: {a: 1}}", "'training.batch_size' is no setting"),
        ("a.yaml", "training: {reward_aggregation: mean}", "training.reward_aggregation = mean is not possible here"),
        ("a.yaml", "rollout: {session_aware: no}", "rollout.session_aware = False is not possible here"),
        ("a.yaml", "evaluation: {majority_voting: no, num_judges: 3}", "majority_voting = False"),
        ("a.yaml", "training: {learning_rate: fast}", "learning_rate = 'fast' .from a.yaml."),
        ("a.yaml", "- 1", "cannot be read as YAML: it holds a list"),
        ("a.yaml", "a: [", "cannot be read as YAML"),
        ("a.yaml", "!!python/object/apply:os.system ['true']", "cannot be read as YAML"),
        ("a.json", '{"port": 1, "port": 2}', "cannot be read as JSON: 'port' is there twice"),
        ("a.json", "[1]", "cannot be read as JSON: it holds a list"),
        ("a.json", "{", "cannot be read as JSON"),
        ("a.toml", "max_steps = 5", "max_steps has no counterpart here: .*openclaw-rl pause"),
        ("a.toml", "gae_lambda = 5", "gae_lambda has no counterpart here"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(elsewhere: Path, name: str, text: str, message: str) -> None:
    (elsewhere / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        load({"config": name}, environ={})


# Every name in two guides to OpenClaw-RL, and in the lists that were made of its scripts.
WALKED_VARIABLES = """
    ACTOR_GPUS BASE_MODEL_PATH BATCH_SIZE CKPT_ARGS CKPT_PATH CKPT_SAVE_DIR CLIP_GRAD_NORM
    COMBINE_ARGS CUSTOM_ARGS DATA_PATH ENV_TYPE EVAL_ARGS FIREWORKS_API_KEY GPUS_PER_NODE
    GRAD_ACCUM_STEPS GRPO_ARGS HF_CKPT HF_TOKEN HOST JUDGE_MODEL_PATH
    LEARNING_RATE LORA_ALPHA LORA_ARGS LORA_DROPOUT LORA_RANK MAJORITY_VOTE_N
    MAJORITY_VOTE_THRESHOLD MASTER_ADDR MASTER_PORT MAX_GUI_STEPS MAX_STEPS MISC_ARGS MODEL_PATH MODEL_SIZE
    NNODES NODE_RANK NUM_GPUS OPD_ARGS OPENCLAW_API_KEY OPENCLAW_COMBINE_W_OPD OPENCLAW_COMBINE_W_RL
    OPENCLAW_DEBUG OPENCLAW_HOST OPENCLAW_PORT OPENCLAW_TOPK_ADV_DIFF_CLIP
    OPENCLAW_TOPK_HINT_SELECTION OPENCLAW_TOPK_K OPENCLAW_TOPK_SUBSET_MODE OPENCLAW_TOPK_W_OPD
    OPENCLAW_TOPK_W_RL OPTIMIZER_ARGS PARALLEL_ENVS PERF_ARGS PORT PPO_CLIP_RATIO PRM_ARGS PRM_GPUS PRM_M
    PRM_MODEL_PATH PRM_TEACHER_LOAD PRM_TEMPERATURE RESUME_CKPT REWARD_ARGS ROLLOUT_ARGS
    ROLLOUT_GPUS ROLLOUT_LOG_LEVEL SAVE_INTERVAL SCREENSHOT_BACKEND SERVED_MODEL_NAME SGLANG_API_KEY SGLANG_ARGS
    SWE_BENCH_PATH TASK_TYPE TINKER_API_KEY TINKER_ENDPOINT TINKER_PROJECT_ID TOKENIZER_PATH
    TOOLS_CONFIG TRAIN_EPOCHS TRAIN_GPUS USE_GRADIENT_CHECKPOINTING USE_LORA VALUE_CLIP
    WANDB_API_KEY WANDB_ARGS
"""
WALKED_FLAGS = """
    adam-beta1 adam-beta2 api-endpoint async-collection backend batch-size benchmark checkpoint-dir
    clip-grad custom-generate-function-path custom-loss-function-path custom-rm-path
    enable-rl-intercept gpu-ids gpus host lora lora-alpha lora-dropout lora-rank lr
    lr-warmup-samples majority-vote-n majority-vote-threshold max-turns method model model-name
    model-path num-epochs num-gpus num-judge-workers num-rollout-workers num-rollouts-per-prompt
    num-samples offload-optimizer-state output-dir parallel-envs port ppo-clip-ratio prm-m
    resume-from-checkpoint reward-aggregation rl-buffer-dir rm-checkpoint rollout-batch-size
    rollout-dir rollout-function-path save-dir save-interval session-aware use-lora w-opd w-rl
    weight-decay
"""
WALKED_KEYS = """
    model.name model.checkpoint_path model.tokenizer_path training.method training.batch_size
    training.gradient_accumulation_steps training.learning_rate training.warmup_steps
    training.max_steps training.ppo_clip_ratio training.value_clip_ratio training.gae_lambda
    training.teacher_temperature training.hint_extraction_model training.binary_weight
    training.opd_weight rollout.num_workers rollout.max_turns rollout.session_aware
    rollout.parallel_envs evaluation.judge_model evaluation.majority_voting evaluation.num_judges
    evaluation.consensus_threshold evaluation.eval_frequency rollout_config.collection_mode
    rollout_config.max_concurrent_sessions rollout_config.session_timeout
    rollout_config.trajectory_format rollout_config.message_classification
    rollout_config.reward_computation.type rollout_config.reward_computation.aggregation
    rollout_config.reward_computation.num_samples rollout_endpoint training_mode session_tracking
    min_turns
"""


@pytest.mark.parametrize("name", WALKED_VARIABLES.split())
def test_no_listed_variable_is_ignored(name: str) -> None:
    assert name in aliases.ARGUMENTS or aliases.in_environment({name: "x"})


@pytest.mark.parametrize("name", WALKED_FLAGS.split())
def test_no_listed_flag_is_unknown(name: str) -> None:
    assert name in aliases.flag_names() | BY_FLAG.keys()


@pytest.mark.parametrize("name", WALKED_KEYS.split())
def test_no_listed_key_of_a_file_is_unknown(name: str) -> None:
    assert name in SETTINGS or name.rpartition(".")[2] in SETTINGS or aliases.in_file({name: "x"})


def test_the_table_has_no_name_that_nothing_here_tries() -> None:
    """A name that is added to the table gets a line in one of these tests or in `test_aliases.py`."""
    tried = Path(__file__).read_text("utf-8").partition("WALKED_")[0] + Path(__file__).with_name(
        "test_aliases.py"
    ).read_text("utf-8")
    for alias in aliases.ALIASES:
        for name in (
            *alias.environment,
            *alias.flags,
            *alias.keys,
            *(name.rpartition(".")[2] for name in alias.tables),
        ):
            spellings = {name, name.upper(), name.replace("_", "-")}
            assert any(spelling in tried for spelling in spellings), name
