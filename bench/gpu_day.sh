#!/usr/bin/env bash
# Measure on a machine with an NVIDIA card everything that no CPU can show, in six steps of at most ten minutes each.
# docs/benchmarks.md says what each step needs and when it passes.
#
#   bench/gpu_day.sh [--device cuda:0] [STEP …]    STEP: 1 … 6, wheels or sglang; without one: 1 to 6
#   bench/gpu_day.sh --device cpu                  rehearse every line at tiny sizes
#
# Results, logs and profiles go to $OUT (.cache/gpu_day/DEVICE), models to $MODELS (.cache/gpu_day/models). $PYTHON is the
# interpreter; by default that of .venv, or python3 with the wheels of .whl, if that folder is there. Each step ends with
# a line "step N: pass" or "step N: FAIL", with what failed and what was skipped. A step that fails does not stop the
# others; the exit code is then 1.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

device=cuda:0 inside="" steps=()
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=$2; shift 2 ;;
    --inside) inside=$2; shift 2 ;; # a step on its own, started below
    wheels | sglang | [1-6]) steps+=("$1"); shift ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

LIMIT=${LIMIT:-600} # seconds of a step
OUT=${OUT:-$PWD/.cache/gpu_day/${device%%:*}}
MODELS=${MODELS:-$PWD/.cache/gpu_day/models}
ARCHIVE=.cache/rigs/sglang_cuda/sglang.tar.xz
mkdir -p "$OUT" "$MODELS"
OUT=$(cd "$OUT" && pwd) MODELS=$(cd "$MODELS" && pwd)

if [ "$device" = cpu ]; then
  small=tiny large=tiny medium=tiny short=256 lengths="256 512" long=512 longest=512 kernels="64 128"
  turns="2 4" hinted=2 scale=40 publishes=1 seconds=5 clients=2 answers=4 tokens=16 prompt=32
  repeats=1 quick="--set batch_size=2 --set epochs=2 --set rehearsals=2 --set anchors=1"
else
  small=small large=4b medium=0.6b short=2048 lengths="8192 20480 32768" long=20480 longest=8192
  kernels="1024 2048 4096 8192 12288 20480 32768"
  turns="8 16" hinted=8 scale=1 publishes=4 seconds=30 clients=8 answers=64 tokens=512 prompt=256
  repeats=3 quick=""
fi

on_cpu() { [ "$device" = cpu ]; }

# The interpreter, and the variables of all that it starts.
prepare() {
  export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
  export GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo # one machine, which may have no name of its own
  if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
  elif on_cpu; then
    # Megatron-core where there is no CUDA: the environment of its tests, which answers for it.
    python=$PWD/.cache/rigs/megatron_cpu/bin/python
    export PYTHONPATH="$PWD/tests/rigs/megatron_cpu/site:$PYTHONPATH"
  elif [ -d .whl ]; then
    python=python3
    if [ ! -e .site/.installed ] || [ -n "$(find .whl -newer .site/.installed -print -quit)" ]; then
      "$python" -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target .site .whl/*.whl || return 1
      touch .site/.installed
    fi
    export PYTHONPATH="$PWD/.site:$PYTHONPATH"
  else
    python=$PWD/.venv/bin/python
  fi
  "$python" -W ignore -c 'import megatron.core, openclaw_rl' && return
  echo "$python has no Megatron-core: .venv/bin/pip install -e '.[gpu]', or on a CPU: make rigs" >&2
  return 1
}

failed=0
# Run a command and remember whether it failed; later commands of the step run anyway.
try() {
  printf '+ %s\n' "$*"
  "$@"
  local code=$?
  [ $code = 0 ] || { failed=1; echo "failed with exit code $code: $*"; }
}

# A benchmark, its result in $OUT/NAME.json. That of an earlier run would pass for it if it failed.
bench() {
  local name=$1 module=$2
  shift 2
  rm -f "$OUT/$name.json"
  try "$python" -W ignore -m "bench.$module" "$@" --save "$OUT/$name.json"
}

megatron() { # NAME SIZE, and what else bench.megatron_gpu takes
  local name=$1 size=$2
  shift 2
  bench "$name" megatron_gpu --device "$device" --size "$size" --keep "$MODELS" --repeats "$repeats" "$@"
}

# The card and the trainer's arithmetic: kernels for shared prefixes, the optimizer's moves, a step next to a CPU's.
step_1() {
  on_cpu || try nvidia-smi
  try "$python" -m pytest -q -o addopts= -p no:cacheprovider -W ignore \
    tests/real/test_prefix_cuda.py tests/real/test_host_copies_cuda.py tests/trainer_local/training/test_optimizer.py \
    tests/trainer_local/training/test_masters.py tests/trainer_local/models/test_head_product.py
  # shellcheck disable=SC2086
  bench 1-attention attention_kernels --device "$device" --tokens $kernels
  megatron 1-bfloat16 $small --tokens $short --dtype bfloat16 --cases "LoRA;LoRA, recompute"
  megatron 1-float32 $small --tokens $short --dtype float32 --cases "LoRA, recompute"
}

# Speed and memory of a LoRA: straight sequences, then a conversation as OpenClaw has it, by method.
step_2() {
  local length method
  for length in $lengths; do
    megatron "2-$length" $large --no-agreement --tokens "$length" --cases "LoRA;LoRA, recompute"
  done
  for method in binary combined rehearse; do
    megatron "2-turns-$method" $large --no-agreement --tokens $long --turns 8 --floating --method $method \
      --cases "LoRA, recompute"
  done
}

# All weights, and the kernels that take the time.
step_3() {
  megatron 3-all-weights $large --no-agreement --tokens $longest --cases "all weights, recompute"
  megatron 3-offload $medium --no-agreement --tokens $longest \
    --cases "all weights, recompute;all weights, recompute, offload"
  megatron 3-profile $large --no-agreement --tokens $longest --turns 8 --floating --cases "LoRA;LoRA, recompute" \
    --profile "$OUT/3-profile"
}

# A conversation with shared prefixes and without: gradients, seconds, tokens.
step_4() {
  local common="--trainer megatron --device $device --size $large --lora --scale $scale --keep $MODELS"
  # shellcheck disable=SC2086
  bench 4-binary prefix_merge $common --turns $turns --method binary
  # shellcheck disable=SC2086
  bench 4-rehearse prefix_merge $common --turns $hinted --method rehearse
}

# The whole service: the embedded engine serves from the device, Megatron-core trains there, clients stream.
step_5() {
  local data=$OUT/5-service port model=$PWD/trainer_local/embedded/policy
  rm -rf "$data"
  port=$("$python" -c "from openclaw_rl.shared.process import claim_port
print(claim_port('127.0.0.1', 0, setting='engine_port'))")
  "$python" -W ignore -m openclaw_rl.trainer_local.embedded.server --model "$model" --device "$device" --port "$port" \
    --dtype float32 --checkpoints "$data/checkpoints" --incremental-streaming-output >"$OUT/5-engine.log" 2>&1 &
  local engine=$!
  # shellcheck disable=SC2086
  bench 5-live serve_while_training --publishes $publishes --seconds $seconds --clients $clients --data "$data" $quick \
    --set backend=megatron --set "model=$model" --set "engine_url=http://127.0.0.1:$port" \
    --set "device=${device%%:*}" --set rollout_gpus=0 --set actor_gpus=1
  kill $engine
  wait $engine
}

# Serving next to the trainer: logprobs of decoding, of scoring and of training; adapters swapped under load.
step_6() {
  local common="--trainer megatron --device $device --answers $answers --tokens $tokens --prompt-tokens $prompt"
  common="$common --clients $clients"
  local lend=() why=""
  rm -rf "$OUT"/6-embedded "$OUT"/6-sglang*/
  if ! on_cpu && [ -z "${OPENCLAW_RL_SGLANG_PYTHON:-}${OPENCLAW_RL_SGLANG_COMMAND:-}" ] && [ -e "$ARCHIVE" ]; then
    OPENCLAW_RL_SGLANG_COMMAND=$("$python" tests/rigs/sglang_cuda/start.py) || failed=1
    export OPENCLAW_RL_SGLANG_COMMAND
  fi
  # shellcheck disable=SC2086
  bench 6-embedded engine_mismatch $common --backend embedded --data "$OUT/6-embedded"
  if on_cpu && [ -x .cache/rigs/sglang/bin/python ]; then
    OPENCLAW_RL_SGLANG_COMMAND=$("$python" -c \
      'from tests.rigs.sglang_cpu import sglang_command; print(sglang_command("--lora-backend", "torch_native"))')
    export OPENCLAW_RL_SGLANG_COMMAND
  elif on_cpu; then
    why="SGLang's environment for a CPU is not there (make test-real builds it)"
  elif [ -z "${OPENCLAW_RL_SGLANG_PYTHON:-}${OPENCLAW_RL_SGLANG_COMMAND:-}" ]; then
    why="OPENCLAW_RL_SGLANG_PYTHON names no environment with SGLang (docs/gpu.md)"
  else
    # The trainer needs its part of the card too. SGLang takes the last of several arguments of one name.
    export OPENCLAW_RL_SGLANG_ARGS="--mem-fraction-static 0.4 --enable-memory-saver --enable-weights-cpu-backup \
      ${OPENCLAW_RL_SGLANG_ARGS:-}"
    lend=(--lend)
  fi
  if [ -n "$why" ]; then
    echo "SGLang is skipped: $why"
    return
  fi
  # shellcheck disable=SC2086
  bench 6-sglang engine_mismatch $common --backend megatron --data "$OUT/6-sglang" "${lend[@]}"
  on_cpu && return
  "$python" -c "
import pathlib, torch
from bench.random_model import kept_qwen3
kept_qwen3(pathlib.Path('$MODELS'), '$medium', device='$device', dtype=torch.bfloat16)"
  # shellcheck disable=SC2086
  bench 6-sglang-$medium engine_mismatch $common --backend megatron --data "$OUT/6-sglang-$medium" \
    --model "$MODELS/$medium-bfloat16" "${lend[@]}"
}

# Wheels for a machine that reaches no index: downloaded here, for that machine's Python and x86-64, to be copied there.
# They are what this project and its tests need next to torch, transformers, peft and accelerate, and what these bring.
wheels() {
  local name names pins platforms=() platform
  names="annotated-types cachetools charset-normalizer distro gguf httptools hypothesis iniconfig jiter json5 msgspec"
  names="$names openai openai-harmony pillow pluggy prime-pydantic-config prometheus-client py3langid pydantic"
  names="$names pydantic_core pytest pytest-asyncio pytest-timeout renderers requests sniffio sortedcontainers stamina"
  names="$names starlette tenacity tiktoken typing-inspection urllib3 uvicorn uvloop"
  pins=$(grep -h '^megatron-core==' tests/rigs/megatron_cpu/requirements.txt)
  for name in $names; do
    pins="$pins $(grep -i "^${name//[-_]/[-_]}==" constraints.txt)" || { echo "$name is not in constraints.txt" >&2; return 1; }
  done
  for platform in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do
    platforms+=(--platform "${platform}_x86_64")
  done
  mkdir -p .whl
  # shellcheck disable=SC2086
  python3 -m pip --isolated --disable-pip-version-check download --quiet --no-deps --only-binary=:all: \
    --python-version "${PYTHON_VERSION:-3.12}" --implementation cp "${platforms[@]}" --dest .whl $pins &&
    du -sh .whl
}

if [ -n "$inside" ]; then
  prepare || exit 1
  "step_$inside"
  exit $failed
fi

ended=0
[ ${#steps[@]} -gt 0 ] || steps=(1 2 3 4 5 6)
for step in "${steps[@]}"; do
  case $step in
    wheels) wheels || ended=1; continue ;;
    # SGLang for such a machine (tests/rigs/sglang_cuda), for step 6.
    sglang) python3 tests/rigs/sglang_cuda/build.py || ended=1; continue ;;
  esac
  log=$OUT/step-$step.log begun=$SECONDS
  timeout --kill-after 30 "$LIMIT" bash "$0" --device "$device" --inside "$step" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]} took=$((SECONDS - begun))
  case $code in
    0) line="pass, $took s" ;;
    124 | 137) line="FAIL, it took more than $LIMIT s" ;;
    *) line="FAIL, $took s: $(grep -h '^FAIL: \|^failed with' "$log" | head -n 3 | tr '\n' ';')" ;;
  esac
  [ "$code" = 0 ] || ended=1
  skipped=$(grep -h 'is skipped: ' "$log" | head -n 1)
  echo "step $step: $line${skipped:+; $skipped}" | tee -a "$OUT/summary.txt"
done
exit $ended
