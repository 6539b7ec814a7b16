"""A process of the Megatron-core trainer other than rank 0. Rank 0 starts it on its own machine; torchrun starts one
for every GPU of several, rank 0 among them, whose learner then takes this one's place:

    torchrun --nnodes 2 --nproc-per-node 8 … -m openclaw_rl.trainer_local.megatron.worker
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from datetime import timedelta

import torch
from torch.distributed.rendezvous import rendezvous

from openclaw_rl.trainer_local.megatron.leader import CHILD, LAYOUT, START_SECONDS, ready
from openclaw_rl.trainer_local.megatron.process_group import FOREVER, RankFailed, World
from openclaw_rl.trainer_local.megatron.rank import Replica, perform

log = logging.getLogger("megatron")


def main() -> int:
    """Do what rank 0 says until it says no more; the exit code."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        os.execv(sys.executable, [sys.executable, "-m", "openclaw_rl.learner.main"])
    if CHILD in sys.argv:
        threading.Thread(target=_end_with_leader, name="watch-leader", daemon=True).start()
    logging.basicConfig(stream=sys.stderr, format=f"%(asctime)s %(levelname)s rank {rank}: %(message)s")
    torch.set_num_threads(1)
    store, _, _ = next(iter(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS))))
    store.wait([LAYOUT], FOREVER)
    kind, tensor_parallel, generation = json.loads(store.get(LAYOUT))
    store.set(ready(rank), str(generation))
    store.set_timeout(FOREVER)
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    world = World(store, rank, size, tensor_parallel, device)
    replicas: dict[int, Replica] = {}
    while (command := world.told()) is not None:
        try:
            perform(world, replicas, command)
        except RankFailed as error:
            log.warning("%s", error)
        except RuntimeError:
            log.exception("rank 0 or another rank is gone")
            return 1
        except Exception as error:  # every rank knows of it, and rank 0 tells
            log.warning("%s: %s", command[1], error)
    world.close()
    return 0


def _end_with_leader() -> None:
    """The other end of this pipe is rank 0's, and closes when that ends."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)  # threads of libraries may not end
