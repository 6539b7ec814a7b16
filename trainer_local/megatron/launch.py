"""Starting the processes that train together, with torchrun's agent.

Each rank runs the learner's program: rank 0 is the learner, the others follow it. The agent ends all when one is
gone; the supervisor restarts the learner, which continues from the live version's checkpoint. One GPU needs none of
this, and on several machines the user starts torchrun.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import uuid

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, launch_agent

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import inherited_placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron import hang
from openclaw_rl.trainer_local.models.device import choose_device
from openclaw_rl.trainer_local.placement.assignments import parse_gpus

log = logging.getLogger("megatron")

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
WORKER = "openclaw_rl.trainer_local.megatron.worker"
SHUTDOWN_SECONDS = 5
"""Time for ranks to end after SIGTERM; the learner takes up to 3 s."""


def under_torchrun() -> bool:
    """True if torchrun's agent started this process."""
    return all(name in os.environ for name in TORCHRUN)


def launch(settings: Settings) -> int | None:
    """Run this program again as rank 0 of as many processes as train, under torchrun's agent; the exit code once all
    have ended. `None`, without doing anything, where one process is enough or this is one of them already. Raises
    `ConfigError`.
    """
    if under_torchrun():
        return None
    count = ranks_for(settings, choose_device(settings.engine.device))
    if count == 1:
        return None
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-ranks-") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            local_addr="127.0.0.1",
            max_restarts=0,  # the learner's supervisor restarts it, with back-off, and reports it
            shutdown_timeout=SHUTDOWN_SECONDS,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            launch_agent(config, sys.executable, ["-m", WORKER, *sys.orig_argv[1:]])
        except SignalException:
            pass
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            how = f"exit code {failure.exitcode}" if failure.exitcode > 0 else failure.signal_name()
            log.error("rank %d of the trainer ended (%s), and all the others with it%s", rank, how, _explain(how))
            return max(1, failure.exitcode)
    return 0


def _explain(how: str) -> str:
    """The meaning of a rank that NCCL has ended; "" for others."""
    if how != "SIGABRT":
        return ""
    return (
        ". NCCL ends a rank whose collective took longer than "
        f"{hang.TIMEOUT}; the lines above name it, and ranks without such a line hang"
    )


def ranks_for(settings: Settings, device: torch.device) -> int:
    """Number of training processes: one for each visible GPU of the placement; on a CPU `actor_gpus`, or one for each
    part of the model. Raises `ConfigError` if tensor parallelism does not divide them.
    """
    parts = settings.gpu.tensor_parallel
    planned = _planned(settings)
    if under_torchrun():
        count, source = int(os.environ["WORLD_SIZE"]), "processes under torchrun"
    elif device.type == "cuda" and device.index is None:
        visible = torch.cuda.device_count()
        count, source = min(planned or visible, visible), "GPUs to train on"
    elif device.type == "cuda":
        count, source = 1, f"GPU to train on (device = {device})"
    else:
        count, source = planned or parts, "processes to train in (actor_gpus)"
    if count % parts:
        raise ConfigError(f"tensor_parallel = {parts} does not divide the {count} {source}: set it to a divisor")
    return count


def _planned(settings: Settings) -> int:
    """Number of training GPUs by the inherited placement, else by `actor_gpus`; 0 if neither is set."""
    placement = inherited_placement()
    if placement is not None:
        return len(placement.train)
    spec = parse_gpus(settings.gpu.actor_gpus, "actor_gpus")
    return len(spec) if isinstance(spec, tuple) else spec or 0
