"""Starts the real SGLang on this machine's CPU. `make test-real` makes its environment; see README.md."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openclaw_rl.shared.process import claim_port
from tests.processes import ROOT, Engine
from tests.rigs.programs import running

VERSION = "0.5.23"
ENVIRONMENT = ROOT / ".cache" / "rigs" / "sglang"
VARIABLES = {
    # 0: that engine wants kernels for AMX, the plain PyTorch path runs on any processor.
    "SGLANG_USE_CPU_ENGINE": "0",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
ON_A_CPU = (
    *("--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--grammar-backend", "none"),
    *("--disable-cuda-graph", "--disable-overlap-schedule", "--skip-server-warmup"),
    "--sleep-on-idle",  # its scheduler would keep a core busy with waiting
    *("--max-total-tokens", "65536", "--max-running-requests", "8", "--mem-fraction-static", "0.3"),
)
"""SGLang's arguments on a machine without a GPU, except the model to serve."""
LORA = (
    *("--enable-lora", "--max-lora-rank", "16", "--max-loras-per-batch", "6", "--lora-backend", "torch_native"),
    *("--lora-target-modules", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    *("--enable-priority-scheduling", "--schedule-low-priority-values-first"),
)
"""Arguments of a server that holds versions as adapters."""
START_SECONDS = 480.0  # importing everything that it imports takes one core a minute, on a busy machine several


def program() -> list[str]:
    """The command that starts it, before its arguments. Raises `RuntimeError` where it is not installed."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"{ENVIRONMENT} is not there: `make test-real` makes it")
    return [str(python), str(Path(__file__).with_name("serve.py"))]


def sglang_command(*arguments: str) -> str:
    """The setting of this name: our launcher's arguments come before these."""
    variables = [f"{name}={value}" for name, value in VARIABLES.items()]
    return f"env {shlex.join([*variables, *program()])} {{args}} {shlex.join([*ON_A_CPU, *arguments])}"


@contextmanager
def run_sglang(policy: Path, folder: Path, *arguments: str) -> Iterator[Engine]:
    """An SGLang server that serves the Hugging Face folder `policy` in float32 until the block ends; its log is in
    `folder`.

    `arguments` are further ones of its own command line. Raises `RuntimeError` with the log when it does not start.
    """
    port = claim_port("127.0.0.1", 0, setting="engine_port")
    command = [
        *(*program(), "--model-path", str(policy), "--served-model-name", "policy"),
        *("--host", "127.0.0.1", "--port", str(port), *ON_A_CPU, *arguments),
    ]
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    url, log = f"http://127.0.0.1:{port}", folder / "sglang.log"
    with running(command, folder, own | VARIABLES, log, ready=f"{url}/health", seconds=START_SECONDS) as process:
        yield Engine(url, port, policy, process, log)
