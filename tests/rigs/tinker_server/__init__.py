"""Starts SkyRL's Tinker-compatible server on this machine's CPU, an implementation of the protocol that is not ours.

Both Tinker clients train and sample through it, and the Fireworks client trains; `launch.py` says what is put in place.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.shared.process import claim_port
from tests.processes import ROOT
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import running

KEY = "tml-test-key"
"""Any key of this form is taken."""
COMPILED = ROOT / ".cache" / "jax"
START_SECONDS = (
    480.0  # its imports and the model take two cores a quarter of a minute, on a busy machine many times that
)
STALE_SECONDS = 120
"""Models whose client has been silent for this long are let go."""


@dataclass
class TinkerServer:
    """A running server: what clients are given, and where its log is."""

    url: str
    base_model: str
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def run_tinker_server(
    policy: Path, folder: Path, *, shim: bool = True, recognise: bool = False, adapters: int = 12, rank: int = 16
) -> Iterator[TinkerServer]:
    """A server of the Hugging Face folder `policy` until the block ends. In `folder` are its log, its checkpoints and
    its database: started there again it knows its checkpoints, and no model in training.

    `shim`: for tinker 0.38.0; without it for 0.24.1 and for Fireworks. `recognise`: a request of training that comes
    again under its sequence number is not made again, as at Tinker itself. `adapters`: how many models in training and
    sampled versions it holds, the base model one of them; `rank`: the largest of them. Skips the test where its
    environment is not there.
    """
    python = environment("tinker_server") / "bin" / "python"
    port = claim_port("127.0.0.1", 0, setting="port")
    COMPILED.mkdir(parents=True, exist_ok=True)
    options = {"max_lora_adapters": adapters, "max_lora_rank": rank, "train_micro_batch_size": 1}
    command = [
        *(str(python), str(Path(__file__).with_name("launch.py")), "api"),
        *("--base-model", str(policy), "--backend", "jax", "--backend-config", json.dumps(options)),
        *("--checkpoints-base", str(folder / "checkpoints"), "--database-url", f"sqlite:///{folder / 'tinker.db'}"),
        *("--session-timeout-sec", str(STALE_SECONDS), "--session-cleanup-interval-sec", "10"),
        *("--port", str(port), *(["--shim"] if shim else []), *(["--recognise"] if recognise else [])),
    ]
    variables = clean_environment(
        folder,
        JAX_PLATFORMS="cpu",
        JAX_COMPILATION_CACHE_DIR=str(COMPILED),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        HF_HUB_OFFLINE="1",
    )
    url, log = f"http://127.0.0.1:{port}", folder / "tinker_server.log"
    ready = f"{url}/readyz"
    with running(command, folder, variables, log, ready=ready, seconds=START_SECONDS) as process:
        yield TinkerServer(url, str(policy), log, process)
