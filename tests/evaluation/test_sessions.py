from __future__ import annotations

import pytest

from openclaw_rl.evaluation.client import ChatClient
from openclaw_rl.evaluation.personas import create
from openclaw_rl.evaluation.sessions import sessions_needed, until_satisfied
from tests.evaluation.pupil import Pupil
from tests.evaluation.scripted import scripted


@pytest.mark.parametrize(
    ("scores", "needed"),
    [
        ([1, 1, 1], 3),
        ([0, 1, 1, 0, 1, 0.75, 1, 0], 7),
        ([1, 1, 0.5, 1, 1], None),
        ([], None),
    ],
)
def test_three_first_replies_in_a_row_satisfy(scores: list[float], needed: int | None) -> None:
    assert sessions_needed(scores) == needed


async def test_sessions_go_on_until_then_against_a_scripted_service() -> None:
    student = create("student", 1)
    async with scripted(Pupil(learns_after=4)) as service, ChatClient(service.url, "KEY") as client:
        held = await until_satisfied(client, student, student.tasks("train", 1), limit=20)
    assert held.needed == len(held.scores)
    assert held.scores[-3:] == [1.0, 1.0, 1.0]
    assert held.scores[0] == 0.0
    assert not any("x-rl-train" in headers for _, _, headers in service.requests)


async def test_and_end_at_the_limit_against_a_scripted_service() -> None:
    student = create("student", 1)
    async with scripted(Pupil(learns_after=0)) as service, ChatClient(service.url, "KEY") as client:
        held = await until_satisfied(client, student, student.tasks("train", 1), limit=4)
    assert (held.needed, len(held.scores)) == (None, 4)
