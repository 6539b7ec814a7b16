"""Conversations with an engine at a provider: the redacted text that it gets, and the text that is kept here."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("detect_secrets")

from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.redaction.redactor import Redactor
from tests.proxy.other_server import KEY as OTHER_KEY
from tests.proxy.other_server import run_other_server
from tests.proxy.scripted_engine import scripted_service
from tests.proxy.test_bridged import SYSTEM, Letters, ask, continues, turns

KEY = f"ghp_{'a1B2' * 9}"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_a_scripted_engine_gets_no_secret_and_the_journal_keeps_what_was_said(
    policy_folder: Path, tmp_path: Path
) -> None:
    outgoing = Outgoing(Redactor(personal=False))
    async with scripted_service(policy_folder, tmp_path, "I will.", engine=Letters, outgoing=outgoing) as (
        client,
        service,
        _,
    ):
        first, one = await ask(client, SYSTEM, user(f"Log in with {KEY}"))
        _, two = await ask(client, SYSTEM, user(f"Log in with {KEY}"), first, user("And again"))
        before, after = await turns(service, one, two)
        sent = service.prompter.decode(list(after.prompt_ids))
        assert KEY not in sent and "Log in with [SECRET]" in sent
        assert before.messages[-1]["content"] == f"Log in with {KEY}"
        assert "1 SECRET" in before.error and before.untrainable == ""
        assert after.parent_turn_id == before.turn_id and continues(before, after)


async def test_the_next_prompt_continues_an_answer_with_something_like_a_secret_of_a_scripted_engine(
    policy_folder: Path, tmp_path: Path
) -> None:
    outgoing, says = Outgoing(Redactor(personal=False)), 'Set password = "correct-horse".'
    async with scripted_service(policy_folder, tmp_path, says, engine=Letters, outgoing=outgoing) as (
        client,
        service,
        _,
    ):
        first, one = await ask(client, SYSTEM, user("How?"))
        assert first["content"] == says
        _, two = await ask(client, SYSTEM, user("How?"), first, user("Thanks"))
        before, after = await turns(service, one, two)
        assert continues(before, after) and after.error == ""
        outgoing._said.clear()  # as after a restart
        _, three = await ask(client, SYSTEM, user("How?"), first, user("Thanks a lot"))
        (rendered,) = await turns(service, three)
        assert 'password = "[SECRET]"' in service.prompter.decode(list(rendered.prompt_ids))


async def test_a_model_elsewhere_gets_no_secret_and_one_on_this_machine_gets_it(
    policy_folder: Path, tmp_path: Path
) -> None:
    side = {"x-turn-type": "side"}
    with run_other_server() as other:
        for place, here in (("0.0.0.0", False), ("127.0.0.1", True)):
            base = other.url.replace("127.0.0.1", place)
            settings = {"side_model": f"openai/small@{base}", "model_keys": f"side={OTHER_KEY}"}
            async with scripted_service(policy_folder, tmp_path / place, "Hm.", **settings) as (client, _, _):
                body = {"model": "policy", "messages": [user(f"Name this chat about {KEY}")]}
                response = await client.post("/v1/chat/completions", json=body, headers=side)
                assert response.status_code == 200, response.text
            assert other.requests[-1]["messages"][-1]["content"] == (
                f"Name this chat about {KEY if here else '[SECRET]'}"
            )
