from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.evaluation import user as users
from openclaw_rl.evaluation.personas import create, take
from openclaw_rl.evaluation.probe import probe
from openclaw_rl.evaluation.user import ModelUser, UserError, read_reaction, read_score
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import ConfigError
from tests.evaluation.pupil import Pupil
from tests.scripted import Responder, completion, plain, scripted


def _says(text: str) -> Responder:
    return lambda path, body, headers: plain(
        {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", **completion(text)}
    )


def test_a_score_is_the_last_boxed_one_of_five() -> None:
    assert read_score("At first \\boxed{1}, but no: \\boxed{ 0.25 }") == 0.25
    for text in ("0.5", "\\boxed{0.3}", "\\boxed{2}", "\\boxed{.}", ""):
        with pytest.raises(UserError):
            read_score(text)


def test_a_reaction_is_the_last_json_object() -> None:
    said = read_reaction('I think {so}. ```json\n{"satisfied": false, "message": "No bold,\nplease."}\n```')
    assert (said.mood, said.text) == ("complaint", "No bold,\nplease.")
    assert read_reaction('{"satisfied": true, "message": "Thanks!"}').mood == "thanks"
    for text in ("Thanks!", '{"satisfied": "yes", "message": "Thanks!"}', '{"satisfied": true, "message": " "}'):
        with pytest.raises(UserError):
            read_reaction(text)


@pytest.mark.parametrize("persona", ["student", "ta", "teacher"])
async def test_the_model_gets_its_persona_and_the_conversation_against_a_scripted_model(persona: str) -> None:
    pytest.importorskip("litellm")
    async with scripted(_says("Well: \\boxed{0.75}")) as model:
        user = ModelUser("openai/m", persona, api_base=f"{model.url}/v1", api_key="KEY")
        assert await user.score("What is {reply}?", "It is {question} **8**.") == 0.75
    ((_, body, headers),) = model.requests
    prompt = body["messages"][0]["content"]
    assert users._prompt(persona) in prompt
    assert "What is {reply}?" in prompt
    assert "It is {question} **8**." in prompt
    assert "\\boxed{0.25}" in prompt
    assert headers["authorization"] == "Bearer KEY"


async def test_reactions_come_by_a_request_of_their_own_against_a_scripted_model() -> None:
    pytest.importorskip("litellm")
    async with scripted(_says('{"satisfied": false, "message": "Shorter, please."}')) as model:
        user = ModelUser("openai/m", "student", api_base=f"{model.url}/v1", api_key="KEY")
        reaction = await user.react("5 + 3?", "**8**", attempt=2)
    assert (reaction.mood, reaction.text) == ("complaint", "Shorter, please.")
    assert "number 2" in model.requests[0][1]["messages"][0]["content"]


async def test_a_model_that_gives_no_score_fails_and_is_never_neutral_against_a_scripted_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("litellm")
    monkeypatch.setattr(users, "PAUSE", 0.0)
    async with scripted(_says("Quite nice.")) as model:
        user = ModelUser("openai/m", "student", api_base=f"{model.url}/v1", api_key="KEY")
        with pytest.raises(UserError, match="3 times: no score"):
            await user.score("5 + 3?", "8")
    assert len(model.requests) == 3


async def test_unscored_replies_are_left_out_of_the_mean_and_counted_against_scripted_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("litellm")
    monkeypatch.setattr(users, "PAUSE", 0.0)
    student = create("student", 1)
    tasks = take(student, "held-out", 1, 4)

    def some(path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        hopeless = tasks[0].text in body["messages"][0]["content"]
        made = _says("Hm." if hopeless else "\\boxed{0.5}")(path, body, headers)
        assert made is not None
        return made

    async with scripted(some) as model, scripted(Pupil()) as service, ChatClient(service.url, "KEY") as client:
        user = ModelUser("openai/m", "student", api_base=f"{model.url}/v1", api_key="KEY")
        found = await probe(client, tasks, persona=student, user=user)
    assert (found.count, found.unscored, found.style) == (4, 1, 0.5)
    assert [reply.score for reply in found.replies] == [None, 0.5, 0.5, 0.5]
    assert "no score" in found.replies[0].failure


def test_there_are_prompts_for_the_personas_only() -> None:
    pytest.importorskip("litellm")
    with pytest.raises(ConfigError, match="student, ta, teacher"):
        ModelUser("openai/m", "parrot")
