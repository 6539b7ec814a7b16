"""The key of an episode in every dialect, by the unmodified clients' requests."""

from __future__ import annotations

from typing import Any

from tests.clients.conftest import Captured
from tests.processes import Proxy

REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 8},
    "/v1/messages": {"messages": [{"role": "user", "content": "What is 4 + 4?"}], "max_tokens": 8},
    "/v1/responses": {"input": "What is 5 + 4?", "max_output_tokens": 8},
}


def begin(proxy: Proxy) -> tuple[str, dict[str, str]]:
    """Begin an attempt: its session, and the headers of an agent in it."""
    with proxy.client() as client:
        begun = client.post("/rl/session-start", json={}).json()
    return begun["session_id"], {"x-api-key": begun["api_key"], "authorization": ""}


def test_an_agent_is_in_its_session_in_every_dialect_and_reads_no_other_answer(captured: Captured) -> None:
    session_id, agent = begin(captured.proxy)
    _, other = begin(captured.proxy)
    with captured.proxy.client(**agent) as client, captured.proxy.client(**other) as spy:
        answers = [client.post(path, json={"model": "policy", **body}) for path, body in REQUESTS.items()]
        assert [answer.status_code for answer in answers] == [200] * 3, [answer.text for answer in answers]
        more = {"model": "policy", "input": "And 6 + 4?", "max_output_tokens": 8}
        named = more | {"previous_response_id": answers[-1].json()["id"]}
        followed = client.post("/v1/responses", json=named)
        assert followed.status_code == 200, followed.text
        assert spy.post("/v1/responses", json=named).status_code == 400
        turns = [answer.headers["x-openclaw-rl-turn"] for answer in (*answers, followed)]
        assert client.get(f"/v1/rl/turns/{turns[0]}").status_code == 403
    journal = captured.proxy.journal()
    steps = [journal.attempt_of(turn) for turn in turns]
    assert [(step.session_id, step.step_index) for step in steps if step is not None] == [
        (session_id, number) for number in range(4)
    ]
    last = journal.turn(turns[-1])
    assert last is not None and last.parent_turn_id == turns[2]
