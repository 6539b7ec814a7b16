"""Stands for the process in Harbor's environment: answers each trial by what the name of its task's folder says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from openclaw_rl.environments.attempt import Attempt
from openclaw_rl.environments.harbor.protocol import (
    ENCODER,
    ORDER_DECODER,
    SETUP_DECODER,
    Answer,
    RunTrial,
    TrialEnded,
    TrialRefused,
)


def answer(content: Answer) -> None:
    sys.stdout.buffer.write(ENCODER.encode(content) + b"\n")
    sys.stdout.buffer.flush()


setup = SETUP_DECODER.decode(sys.stdin.buffer.readline())
for line in sys.stdin.buffer:
    order = ORDER_DECODER.decode(line)
    if not isinstance(order, RunTrial):
        answer(TrialEnded(0, Attempt(reward=None, status="env_error")))
        Path(setup.folder, "stopped").write_text(str(order.number))
        continue
    name = Path(order.folder).name
    if name == "refused":
        answer(TrialRefused(order.number, "it needs a container"))
    elif name == "dies":
        print("no memory left", file=sys.stderr, flush=True)
        os._exit(1)
    elif name != "hangs":
        detail = {
            "folder": order.folder,
            "files": sorted(os.listdir(order.folder)) if os.path.isdir(order.folder) else [],
            "key": order.endpoint.api_key,
            "variables": sorted(os.environ),
            "trials": setup.folder,
        }
        answer(TrialEnded(order.number, Attempt(reward=1.0, detail=detail)))
