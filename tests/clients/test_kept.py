"""Storage of a session in any dialect: all of it can be forgotten, and a turn that must not be kept is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Judgement, Turn, Vote
from tests.clients.conftest import Captured
from tests.processes import Proxy
from tests.shared.journal_records import sample_of

SECRET = "xylophone-4711"
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": f"Chat of {SECRET}."}]}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": f"Messages of {SECRET}."}]}),
    "responses": ("/v1/responses", {"input": f"Responses of {SECRET}."}),
}


def on_disk(folder: Path) -> list[str]:
    """The files that hold the secret, in any part of them that a reader of the disk would find."""
    return [path.name for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def ask(proxy: Proxy, headers: dict[str, str]) -> list[str]:
    """One request in each dialect, one of them streamed; the ids of their turns."""
    turns = []
    with proxy.client(**headers) as client:
        for number, (path, body) in enumerate(REQUESTS.values()):
            limit = {"max_output_tokens": 8} if path == "/v1/responses" else {"max_tokens": 8}
            response = client.post(path, json={"model": "policy", "stream": number == 1, **limit, **body})
            assert response.status_code == 200, response.text
            turns.append(response.headers["x-openclaw-rl-turn"])
    return turns


@pytest.mark.parametrize("word", ["never", "off"])
def test_a_turn_that_must_not_be_kept_is_not_kept_in_any_dialect(captured: Captured, word: str) -> None:
    turns = ask(captured.proxy, {"x-rl-train": word, "x-session-id": f"unkept-{word}"})
    with captured.proxy.client() as client:
        assert [client.get(f"/rl/turns/{turn}").status_code for turn in turns] == [404] * 3
        assert client.get(f"/rl/sessions/unkept-{word}").status_code == 404
        assert client.post("/rl/feedback", json={"turn_id": turns[0], "text": SECRET}).status_code == 404
    assert on_disk(captured.proxy.data) == []


def test_with_capture_off_nothing_is_kept_in_any_dialect(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(capture=False)
    turns = ask(proxy, {"x-session-id": "off"})
    with proxy.client() as client:
        assert [client.get(f"/rl/turns/{turn}").status_code for turn in turns] == [404] * 3
        assert client.get("/rl/sessions").json()["items"] == []
        going_on = {
            "model": "policy",
            "input": "And?",
            "previous_response_id": f"resp_{turns[2].removeprefix('turn_')}",
        }
        assert client.post("/v1/responses", json=going_on).status_code == 400
        classes = client.get("/rl/status").json()["classes"]
    assert [(one["kind"], one["count"]) for one in classes] == [("main", 3)], "the requests are counted"
    assert on_disk(proxy.data) == []


def test_forgetting_a_session_leaves_nothing_of_it(captured: Captured) -> None:
    session = {"x-session-id": f"of {SECRET}"}
    turns = ask(captured.proxy, session)
    turns += ask(captured.proxy, session | {"x-turn-type": "side"})
    journal = captured.proxy.journal()
    found = [turn for turn in map(journal.turn, turns) if turn is not None]
    assert {(turn.kind, turn.dialect) for turn in found} == {(k, d) for k in ("main", "side") for d in REQUESTS}
    judge(journal, found[0])
    with captured.proxy.client() as client:
        named = {"session_id": session["x-session-id"]}
        assert client.post("/rl/feedback", json={**named, "score": -1, "text": f"no {SECRET}"}).status_code == 200
        assert client.post("/rl/outcome", json={**named, "reward": 1, "detail": SECRET}).status_code == 200
        answer = journal.turn(turns[0])
        assert answer is not None
        history = [*REQUESTS["chat"][1]["messages"], {"role": "assistant", "content": answer.answer["content"]}]
        more = {"role": "user", "content": f"That was wrong, {SECRET}."}
        captured.proxy.chat([*history, more], headers=session)
        listed = client.get("/rl/sessions").json()["items"]
        [row] = [row for row in listed if row["session_id"] == session["x-session-id"]]
        assert (row["main"], row["side"]) == (4, 3)
        assert on_disk(captured.proxy.data)
        gone = client.delete(f"/rl/sessions/{session['x-session-id']}")
        assert gone.json() == {**named, "forgotten": True, "pending": False, "versions": []}
        assert client.delete(f"/rl/sessions/{session['x-session-id']}").status_code == 404
        assert [client.get(f"/rl/turns/{turn}").status_code for turn in turns] == [404] * 6
    assert on_disk(captured.proxy.data) == []


def judge(journal: Journal, turn: Turn) -> None:
    """Judge a turn as a learner does, with the secret in every text of it."""
    vote = Vote(text=f"I think of {SECRET}", score=-1.0, hint=f"Say {SECRET}")
    journal.add_judgement(
        Judgement(turn_id=turn.turn_id, score=-1.0, hint=vote.hint, votes=(vote,), judge="scripted", reason=SECRET)
    )
    journal.add_sample(sample_of(turn, hint=vote.hint))
