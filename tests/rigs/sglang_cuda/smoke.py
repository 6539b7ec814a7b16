#!/usr/bin/env python3
"""Start SGLang by OPENCLAW_RL_SGLANG_COMMAND with the tiny policy, ask it, end it; print the seconds of each stage.

    OPENCLAW_RL_SGLANG_COMMAND=$(python3 start.py) python3 smoke.py [--memory]    `--memory`: lend it too (needs a card)

A quick check before step 6 of bench/gpu_day.sh, which measures. SGLang's log is .cache/rigs/sglang_cuda/smoke.log.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from socket import socket
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
LOG = ROOT / ".cache" / "rigs" / "sglang_cuda" / "smoke.log"
WAIT = 300.0
PROMPT = list(range(10, 74))
ARGUMENTS = (
    *("--served-model-name", "policy", "--host", "127.0.0.1", "--context-length", "8192", "--sleep-on-idle"),
    *("--enable-fp32-lm-head", "--mem-fraction-static", "0.4", "--enable-lora", "--max-lora-rank", "16"),
    *("--max-loras-per-batch", "4", "--lora-target-modules", "q_proj", "k_proj", "v_proj", "o_proj"),
    *("gate_proj", "up_proj", "down_proj"),
)


def main() -> int:
    """Return 1 if a stage failed, with the end of SGLang's log."""
    memory = "--memory" in sys.argv
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = shlex.split(os.environ["OPENCLAW_RL_SGLANG_COMMAND"])
    words += ["--model-path", str(ROOT / "trainer_local" / "embedded" / "policy"), "--port", str(port), *ARGUMENTS]
    words += ["--enable-memory-saver", "--enable-weights-cpu-backup"] if memory else []
    variables = {**os.environ, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}
    with LOG.open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, env=variables, start_new_session=True)
    try:
        check(f"http://127.0.0.1:{port}", server, memory)
    except Exception as error:
        print(f"FAIL: {error!r}\n{LOG}:\n{LOG.read_text(errors='replace')[-6000:]}", flush=True)
        return 1
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    return 0


def check(url: str, server: subprocess.Popen[bytes], memory: bool) -> None:
    """Run all stages. Raises at the first that fails."""
    begun = time.monotonic()

    def report(stage: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {stage}", flush=True)

    wait_until_healthy(url, server)
    report("healthy")
    sampled = generate(url, PROMPT, tokens=32)
    report("answered (kernels are compiled now)")
    compare(url, sampled)
    report("scored the answer as it was sampled")
    if memory:
        post(url, "/pause_generation", {"mode": "retract"})
        for path in ("/release_memory_occupation", "/resume_memory_occupation"):
            post(url, path, {"tags": ["kv_cache", "weights"]})
        post(url, "/continue_generation", {})
        compare(url, sampled)
        report("lent its memory, and scored the answer again")


def wait_until_healthy(url: str, server: subprocess.Popen[bytes]) -> None:
    """Raises if SGLang ends or takes longer than WAIT."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"SGLang ended with exit code {server.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"not healthy after {WAIT} s")


def compare(url: str, sampled: dict[str, Any]) -> None:
    """Raises if the logprobs of sampling and of scoring differ by more than 0.05 nats in the mean."""
    flush(url)
    scored = generate(url, PROMPT + sampled["output_ids"], tokens=1, start=len(PROMPT) - 1)
    first = [entry[0] for entry in sampled["meta_info"]["output_token_logprobs"]]
    second = [entry[0] for entry in scored["meta_info"]["input_token_logprobs"]][-len(first) :]
    apart = sum(abs(one - other) for one, other in zip(first, second, strict=True)) / len(first)
    if not apart < 0.05:
        raise RuntimeError(f"sampling and scoring differ by {apart:.4f} nats in the mean")


def flush(url: str) -> None:
    """Empty the prefix cache. SGLang refuses while it still stores an answer."""
    for attempt in range(30):
        try:
            post(url, "/flush_cache", {})
            return
        except urllib.error.HTTPError:
            if attempt == 29:
                raise
            time.sleep(0.2)


def generate(url: str, ids: list[int], *, tokens: int, start: int = -1) -> dict[str, Any]:
    """Sample at temperature 1, with the logprobs of the prompt from `start` on."""
    sampling = {"max_new_tokens": tokens, "temperature": 1.0, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling, "return_logprob": True, "logprob_start_len": start}
    answer: dict[str, Any] = json.loads(post(url, "/generate", body))
    return answer


def post(url: str, path: str, body: dict[str, Any]) -> bytes:
    """Send JSON and return the answer. Raises `HTTPError` if it is refused."""
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(url + path, json.dumps(body).encode(), headers), timeout=180
    ) as got:
        answer: bytes = got.read()
    return answer


if __name__ == "__main__":
    sys.exit(main())
