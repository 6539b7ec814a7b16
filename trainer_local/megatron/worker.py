"""A process that torchrun starts for the Megatron-core trainer. Rank 0 becomes the learner (or the Python command given
as arguments); the others do what it says:

    torchrun --nnodes 2 --nproc-per-node 8 … -m openclaw_rl.trainer_local.megatron.worker
"""

from __future__ import annotations

import logging
import os
import signal
import sys

from openclaw_rl.shared.process import PARENT_VARIABLE, die_with_parent

log = logging.getLogger("megatron")

LEARNER = ("-m", "openclaw_rl.learner.main")


def main() -> int:
    """Become rank 0's program, or follow it until it ends; the exit code."""
    os.environ[PARENT_VARIABLE] = str(os.getppid())  # for the case that the agent is killed
    die_with_parent()
    if os.environ["RANK"] == "0":
        os.execv(sys.executable, [sys.executable, *(sys.argv[1:] or LEARNER)])
    logging.basicConfig(stream=sys.stderr, format=f"%(asctime)s %(levelname)s rank {os.environ['RANK']}: %(message)s")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rank 0 gets it too, closes, and ends this process with it
    return follow()


def follow() -> int:
    """Do what rank 0 says until it ends; the exit code."""
    import torch

    from openclaw_rl.trainer_local.megatron.process_group import RankFailed, is_lost, join
    from openclaw_rl.trainer_local.megatron.rank import Rank, perform

    torch.set_num_threads(1)
    group = join()
    trainers: dict[int, Rank] = {}
    while True:
        try:
            command = group.broadcast()
        except RuntimeError:
            return 0  # rank 0 has ended: its exit code says how
        try:
            perform(group, trainers, command)
        except RankFailed as error:
            log.warning("%s", error)
        except Exception as error:
            if isinstance(error, RuntimeError) and is_lost(error):
                log.error("another rank is gone: %s", error)
                return 1
            log.warning("%s: %s", command[1], error)  # every rank knows, and rank 0 raises it


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)  # threads of libraries may not end
