"""kill -9 of the learner, the engine and the proxy while the student talks: each comes back, nothing acknowledged is
lost.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import psutil
import pytest

from openclaw_rl.evaluation.arm import Arm, Plan, run
from openclaw_rl.evaluation.service import RunningService, own_service
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.gather import gather

MODULES = {
    "learner": "openclaw_rl.learner.main",
    "engine": "openclaw_rl.trainer_local.embedded.server",
    "proxy": "openclaw_rl.proxy.main",
}
BACK_SECONDS = 60.0


def _child(service: RunningService, role: str) -> psutil.Process | None:
    """The supervisor's child with this role."""
    assert service.pid is not None
    for process in psutil.Process(service.pid).children(recursive=True):
        try:
            if MODULES[role] in process.cmdline():
                return process
        except psutil.NoSuchProcess:
            continue
    return None


async def _kill_and_wait_for_another(service: RunningService, role: str) -> None:
    victim = _child(service, role)
    assert victim is not None, f"no {role} is running"
    victim.kill()
    if role == "proxy":  # its port still takes connections
        async with httpx.AsyncClient(trust_env=False, timeout=BACK_SECONDS) as http:
            assert (await http.get(f"{service.url}/healthz")).status_code == 200
    deadline = time.monotonic() + BACK_SECONDS
    while time.monotonic() < deadline:
        successor = _child(service, role)
        if successor is not None and successor.pid != victim.pid:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"the {role} did not come back within {BACK_SECONDS:.0f} s")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_student_continues_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    plan = Plan(seed=1, interactions=8, batch=4, problems=2, glances=1, patience=120.0)
    reached = {count: asyncio.Event() for count in (1, 5, 7)}
    settings = {"batch_size": plan.batch, "rehearsals": 4, "anchors": 2, "seed": 1}

    def changed(arm: Arm) -> None:
        for count, event in reached.items():
            if len(arm.interactions) >= count:
                event.set()

    async with own_service(settings, keep=tmp_path) as service, ChatClient(service.url, service.key) as client:
        arms: list[Arm] = []

        async def talk() -> None:
            arms.append(await run(client, plan, changed=changed))

        async def kill() -> None:
            for (_, event), role in zip(sorted(reached.items()), MODULES, strict=True):
                await event.wait()
                await _kill_and_wait_for_another(service, role)

        await gather(talk(), kill())
        (arm,) = arms
        assert len(arm.interactions) == plan.interactions
        assert arm.lost == []
        assert arm.version >= 1
        for turn in arm.turns:
            assert (await client.get(f"/rl/turns/{turn}"))["turn"]["status"] == "complete"
        sessions = (await client.get("/rl/sessions", limit=100))["items"]
        assert sum(session["main"] for session in sessions) >= len(arm.turns)
