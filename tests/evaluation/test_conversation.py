from __future__ import annotations

import pytest

from openclaw_rl.evaluation.conversation import converse, sessions_needed, until_satisfied
from openclaw_rl.evaluation.personas import Student, create
from openclaw_rl.evaluation.problems import take
from openclaw_rl.shared.chat_client import ChatClient
from tests.evaluation.pupil import PLAIN, STRUCTURED, Pupil
from tests.scripted import scripted


async def test_requests_are_ordinary_and_carry_the_full_history_against_a_scripted_service() -> None:
    (problem,) = take("train", 1, 1)
    async with scripted(Pupil(learns_after=1)) as service, ChatClient(service.url, "KEY") as client:
        conversation = await converse(client, Student(1), problem)
    histories = [body["messages"] for _, body, _ in service.requests]
    assert [message["role"] for message in histories[1]] == ["user", "assistant", "user"]
    assert histories[1][:1] == histories[0]
    assert histories[1][1]["content"] == STRUCTURED
    for _, body, headers in service.requests:
        assert set(body) <= {"model", "messages", "stream", "max_tokens"}
        assert not any(name.startswith("x-") for name in headers)
    assert conversation.interactions[0].reaction.mood == "complaint"
    assert conversation.replies[1].text == PLAIN


async def test_it_never_reacts_more_often_than_allowed_against_a_scripted_service() -> None:
    async with scripted(Pupil(learns_after=0)) as service, ChatClient(service.url, "KEY") as client:
        for problem in take("train", 1, 10):
            assert len((await converse(client, Student(1), problem, most=1)).interactions) == 1
            assert 1 <= len((await converse(client, Student(1), problem, most=2)).interactions) <= 2


async def test_a_satisfied_student_thanks_and_leaves_against_a_scripted_service() -> None:
    pupil = Pupil(learns_after=1)
    pupil.reactions = 1
    (problem,) = take("train", 1, 1)
    async with scripted(pupil) as service, ChatClient(service.url, "KEY") as client:
        conversation = await converse(client, Student(1), problem, most=2)
    assert [interaction.reaction.mood for interaction in conversation.interactions] == ["thanks"]
    assert len(conversation.replies) == 2


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


async def test_sessions_continue_until_then_against_a_scripted_service() -> None:
    student = create("student", 1)
    async with scripted(Pupil(learns_after=4)) as service, ChatClient(service.url, "KEY") as client:
        held = await until_satisfied(client, student, student.tasks("train", 1), limit=20)
    assert sessions_needed(held) == len(held)
    assert held[-3:] == [1.0, 1.0, 1.0]
    assert held[0] == 0.0
    assert not any("x-rl-train" in headers for _, _, headers in service.requests)


async def test_and_end_at_the_limit_against_a_scripted_service() -> None:
    student = create("student", 1)
    async with scripted(Pupil(learns_after=0)) as service, ChatClient(service.url, "KEY") as client:
        held = await until_satisfied(client, student, student.tasks("train", 1), limit=4)
    assert (sessions_needed(held), len(held)) == (None, 4)
