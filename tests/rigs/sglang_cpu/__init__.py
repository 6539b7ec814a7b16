"""Starts the real SGLang on this machine's CPU. `make test-real` makes its environment; see README.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.process import claim_port
from tests.processes import ROOT, Engine
from tests.rigs.programs import running

VERSION = "0.5.23"
ENVIRONMENT = ROOT / ".cache" / "rigs" / "sglang"
LORA = (
    *("--enable-lora", "--max-lora-rank", "16", "--max-loras-per-batch", "6", "--lora-backend", "torch_native"),
    *("--lora-target-modules", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    *("--enable-priority-scheduling", "--schedule-low-priority-values-first"),
)
"""Arguments of a server that holds versions as adapters."""
START_SECONDS = 480.0  # importing everything that it imports takes one core a minute, on a busy machine several


@contextmanager
def run_sglang(policy: Path, folder: Path, *arguments: str) -> Iterator[Engine]:
    """An SGLang server that serves the Hugging Face folder `policy` in float32 until the block ends; its log is in
    `folder`.

    `arguments` are further ones of its own command line. Raises `RuntimeError` with the log when it does not start.
    """
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"{ENVIRONMENT} is not there: `make test-real` makes it")
    port = claim_port("127.0.0.1", 0, setting="engine_port")
    command = [
        *(str(python), str(Path(__file__).with_name("serve.py"))),
        *("--model-path", str(policy), "--served-model-name", "policy"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native"),
        *("--sampling-backend", "pytorch", "--grammar-backend", "none"),
        *("--disable-cuda-graph", "--disable-overlap-schedule", "--skip-server-warmup"),
        *("--max-total-tokens", "65536", "--max-running-requests", "8", "--mem-fraction-static", "0.3"),
        *arguments,
    ]
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
        # 0: that engine wants kernels for AMX, the plain PyTorch path runs on any processor.
        **{"SGLANG_USE_CPU_ENGINE": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    }
    url, log = f"http://127.0.0.1:{port}", folder / "sglang.log"
    with running(command, folder, environment, log, ready=f"{url}/health", seconds=START_SECONDS) as process:
        yield Engine(url, port, policy, process, log)
