from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.evaluation.arm import Plan, run, settled
from openclaw_rl.shared.chat_client import ChatClient
from tests.evaluation.pupil import Pupil
from tests.scripted import plain, scripted


async def test_an_arm_has_exactly_its_interactions_and_probes_them_against_a_scripted_service() -> None:
    shown: list[str] = []
    async with scripted(Pupil(learns_after=8)) as service, ChatClient(service.url, "KEY") as client:
        plan = Plan(seed=1, interactions=19, problems=6, glances=4)
        arm = await run(client, plan, changed=lambda arm: shown.append(arm.doing))
    assert [point.interactions for point in arm.points] == [0, 8, 16, 19]
    assert [point.probe.count for point in arm.points] == [6, 4, 4, 6]
    assert [point.probe.style for point in arm.points] == [0.0, 1.0, 1.0, 1.0]
    assert arm.before.forms == {"base": 6}
    assert arm.version == 1
    assert len(arm.interactions) == 19
    assert arm.late == 0
    assert {"probing", "talking", "learning", "done"} <= set(shown)


async def test_only_probes_ask_not_to_be_learned_from_against_a_scripted_service() -> None:
    async with scripted(Pupil()) as service, ChatClient(service.url, "KEY") as client:
        arm = await run(client, Plan(seed=2, interactions=8, problems=5, glances=5))
    chats = [(body, headers) for path, body, headers in service.requests if path.startswith("/v1/chat")]
    probes = [body for body, headers in chats if headers.get("x-rl-train") == "never"]
    assert len(probes) == 10
    # The same questions before and after.
    assert sorted(str(body["messages"]) for body in probes[:5]) == sorted(str(body["messages"]) for body in probes[5:])
    talked = [body for body, headers in chats if "x-rl-train" not in headers]
    assert len(arm.turns) == len(talked)
    asked = {body["messages"][0]["content"] for body in talked}
    assert not asked & {body["messages"][0]["content"] for body in probes}


async def test_a_learner_that_is_not_done_in_time_is_reported_and_not_waited_for_against_a_scripted_service() -> None:
    async with scripted(Pupil(busy=1_000_000)) as service, ChatClient(service.url, "KEY") as client:
        arm = await run(client, Plan(seed=3, interactions=8, problems=2, glances=2, patience=0.3))
    assert arm.late == 1


async def test_a_control_does_not_wait_for_untrained_samples_against_a_scripted_service() -> None:
    pupil = Pupil(learns_after=0, busy=1_000_000)
    async with scripted(pupil) as service, ChatClient(service.url, "KEY") as client:
        arm = await run(client, Plan(seed=3, interactions=8, problems=2, glances=2, trained=False))
    assert arm.late == 0
    assert arm.after.style == 0.0


@pytest.mark.parametrize(
    ("learner", "done"),
    [
        ({"state": "waiting for a first signal", "detail": "8 samples wait"}, True),
        ({"state": "waiting for samples", "detail": "8 of 16"}, True),
        ({"state": "waiting for samples", "detail": "3 of 8"}, False),
        ({"state": "training", "detail": "8 turns"}, False),
        (None, False),
    ],
)
async def test_a_learner_that_waits_for_more_than_is_ready_is_not_waited_for_against_a_scripted_service(
    learner: dict[str, str] | None, done: bool
) -> None:
    def respond(path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        processes = {} if learner is None else {"learner": {"alive": True, "detail": learner}}
        status = {"backlog": {"unjudged": 0, "ready": 8}, "training": "running", "processes": processes}
        return plain(status if path == "/rl/status" else {"versions": []})

    async with scripted(respond) as service, ChatClient(service.url, "KEY") as client:
        assert await settled(client, batch=8, patience=0.3) is done


async def test_acknowledged_turns_that_the_service_does_not_know_are_reported_against_a_scripted_service() -> None:
    pupil = Pupil()
    pupil.forgotten.add("turn_4")
    async with scripted(pupil) as service, ChatClient(service.url, "KEY") as client:
        arm = await run(client, Plan(seed=4, interactions=4, batch=4, problems=2, glances=2))
    assert arm.lost == ["turn_4"]
