from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.fixtures.openclaw import CASES, FERN
from tests.processes import HTTP, Proxy

HELLO = [{"role": "user", "content": "hello"}]


def test_an_end_that_comes_late_is_not_that_of_the_next_conversation(service: Proxy) -> None:
    session = {"x-session-id": "late-end"}
    service.chat(HELLO, headers=session)
    with service.client() as client:

        def done(age: float) -> dict[str, Any]:
            body = {"session_id": "late-end", "age_seconds": age}
            return dict(client.post("/rl/session-done", json=body).json())

        assert (done(0.0)["episode"], done(0.0)["ended"]) == (0, False)
        service.chat(HELLO, headers=session)
        late = done(3600.0)
        assert (late["ended"], late["detail"]) == (False, "Episode 1 of session 'late-end' began after that.")
        assert done(0.0)["episode"] == 1


def test_a_new_conversation_ends_the_one_before_whose_end_was_not_reported(service: Proxy) -> None:
    session = {"x-session-id": "unended"}
    new = session | {"x-session-new": "reset"}
    turns = [service.chat(HELLO, headers=one).headers["x-openclaw-rl-turn"] for one in (session, session, new)]
    found = [service.journal().turn(turn) for turn in turns]
    assert [turn.episode for turn in found if turn is not None] == [0, 0, 1]
    row = service.journal().session("unended")
    assert row is not None
    assert [(one.ended is None, one.reason) for one in row.episodes] == [(False, "reset"), (True, "")]
    service.chat(HELLO, headers=new | {"x-turn-type": "side"})
    row = service.journal().session("unended")
    assert row is not None and len(row.episodes) == 2


def test_words_that_end_in_half_an_emoji_are_kept(service: Proxy) -> None:
    turn = service.chat(HELLO, headers={"x-session-id": "half-emoji"}).headers["x-openclaw-rl-turn"]
    said = {"text": "no lists \ud83d", "detail": "\udc4e", "reason": "done \ud83d", "reward": 1}
    with service.client() as client:
        for path in ("feedback", "outcome", "session-done"):
            response = client.post(f"/rl/{path}", content=json.dumps({"session_id": "half-emoji", **said}))
            assert response.status_code == 200, response.text
    assert [one.text for one in service.journal().feedback_for(turn)] == ["no lists \ufffd"]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("feedback", {"session_id": "numbers", "score": 10**400}, 400, "score"),
        ("outcome", {"session_id": "numbers", "reward": 10**400}, 400, "reward"),
        ("feedback", {"turn_id": "turn_\ud83d", "score": 1}, 404, "turn_id"),
    ],
)
def test_values_that_no_column_holds_are_refused(
    service: Proxy, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    service.chat(HELLO, headers={"x-session-id": "numbers"})
    with service.client() as client:
        response = client.post(f"/rl/{path}", content=json.dumps(body))
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)


def test_a_page_beyond_all_numbers_is_refused(service: Proxy) -> None:
    with service.client() as client:
        response = client.get("/rl/sessions", params={"limit": "1" * 5000})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "limit")


def test_a_session_id_in_any_script_is_one_session_in_header_and_body(service: Proxy) -> None:
    name = "Küche 三"
    turn = service.chat(HELLO, headers={"x-session-id": name.encode()}).headers["x-openclaw-rl-turn"]
    with service.client() as client:
        by_body = client.post("/rl/feedback", json={"session_id": name, "thumb": "up"}).json()
        by_header = client.post("/rl/feedback", json={"thumb": "up"}, headers={b"x-session-id": name.encode()}).json()
    assert by_body["turn_id"] == by_header["turn_id"] == turn


@pytest.mark.parametrize(
    "name", ["a/b", "a//b/", "/", "a%2Fb", "50%", "a?b#c", "a b", "..a", "a/../b", "Küche 三", "[red]x[/y]", "x" * 256]
)
@pytest.mark.parametrize("where", ["header", "body"])
def test_a_session_can_be_asked_for_by_any_id_that_was_taken(service: Proxy, name: str, where: str) -> None:
    name = f"{name}" if len(name) == 256 else f"{name}{where}"
    named = {"headers": {"x-session-id": name.encode()}} if where == "header" else {"metadata": {"session_id": name}}
    turn = service.chat(HELLO, **named).headers["x-openclaw-rl-turn"]
    with service.client() as client:
        found = client.get(f"/rl/sessions/{quote(name, safe='')}")
        assert found.status_code == 200, found.text
        assert found.json()["session_id"] == name
        assert turn in [one["turn_id"] for one in found.json()["turns"]]
        assert client.post("/rl/feedback", json={"session_id": name, "score": 1}).json()["turn_id"] == turn
        assert client.post("/rl/session-done", json={"session_id": name}).json()["ended"] is True


@pytest.mark.parametrize("name", [".", "..", "a\nb", "x" * 257, "\ud83d"])
def test_an_id_that_could_not_be_asked_for_is_refused_where_a_client_names_it(service: Proxy, name: str) -> None:
    with service.client() as client:
        sent = json.dumps({"model": "policy", "messages": HELLO, "metadata": {"session_id": name}})
        refused = client.post("/v1/chat/completions", content=sent)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "metadata.session_id"
    if name.isascii() and name.isprintable():
        refused = service.chat(HELLO, headers={"x-session-id": name})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "X-Session-Id")
        assert "/rl/sessions" in refused.json()["error"]["message"] or "256" in refused.json()["error"]["message"]


def test_a_user_that_is_too_long_for_a_session_id_is_passed_over(service: Proxy) -> None:
    answer = service.chat(HELLO, user="session_" + "x" * 300)
    assert answer.status_code == 200
    assert (
        answer.headers["x-openclaw-rl-session"].startswith("session_")
        and len(answer.headers["x-openclaw-rl-session"]) < 100
    )


def test_the_end_of_a_session_that_is_not_open_is_no_error_and_says_why(service: Proxy) -> None:
    service.chat(HELLO, headers={"x-session-id": "done-twice"})
    with service.client() as client:

        def end(name: str) -> dict[str, Any]:
            response = client.post("/rl/session-done", json={"session_id": name, "reason": "new"})
            assert response.status_code == 200  # clients end sessions that had no turn, and end them again
            return dict(response.json())

        assert end("done-twice") | {"detail": ""} == {
            "session_id": "done-twice",
            "episode": 0,
            "ended": True,
            "detail": "",
        }
        again = end("done-twice")
        assert (again["ended"], again["episode"]) == (False, None)
        assert "already ended: new" in again["detail"]
        unknown = end("done-typo")
        assert (unknown["ended"], unknown["episode"]) == (False, None)
        assert "no session 'done-typo'" in unknown["detail"]
    assert service.journal().session("done-typo") is None


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/rl/feedback", {"session_id": "unknown", "score": 1}, 404, "session_id"),
        ("/rl/feedback", {"turn_id": "turn_x", "score": 1}, 404, "turn_id"),
        ("/rl/feedback", {"turn_id": 5, "score": 1}, 400, "turn_id"),
        ("/rl/feedback", {"session_id": "s", "score": 2}, 400, "score"),
        ("/rl/feedback", {"session_id": "s", "score": True}, 400, "score"),
        ("/rl/feedback", {"session_id": "s", "thumb": "sideways"}, 400, "thumb"),
        ("/rl/feedback", {"session_id": "s"}, 400, "score"),
        ("/rl/feedback", {"session_id": "s", "text": 5}, 400, "text"),
        ("/rl/feedback", {"score": 1}, 400, "session_id"),
        ("/rl/feedback", {"session_id": 5, "score": 1}, 400, "session_id"),
        ("/rl/outcome", {"session_id": "unknown", "reward": 1}, 404, "session_id"),
        ("/rl/outcome", {"session_id": "s"}, 400, "reward"),
        ("/rl/outcome", {"session_id": "s", "reward": "good"}, 400, "reward"),
        ("/rl/outcome", {"session_id": "unknown", "pending": True}, 404, "session_id"),
        ("/rl/outcome", {"session_id": "s", "pending": "yes"}, 400, "pending"),
        ("/rl/outcome", {"session_id": "s", "pending": True, "reward": 1}, 400, "pending"),
        ("/rl/session-done", {}, 400, "session_id"),
    ],
)
def test_control_requests_that_make_no_sense(
    service: Proxy, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    with service.client() as client:
        response = client.post(path, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)


def test_an_unknown_id_is_answered_with_404(service: Proxy) -> None:
    with service.client() as client:
        for path in ("/rl/turns/turn_x", "/rl/turns/chatcmpl-x", "/rl/sessions/unknown", "/v1/models/policy@99"):
            assert client.get(path).status_code == 404, path
        assert client.delete("/rl/sessions/unknown").status_code == 404
        assert client.get("/rl/sessions?limit=x").status_code == 400
        assert client.get("/rl/sessions?limit=100000").status_code == 400


def test_an_outcome_is_kept_and_null_is_no_verdict(service: Proxy) -> None:
    service.chat(HELLO, headers={"x-session-id": "task"})
    with service.client() as client:
        for reward in (0.25, None):
            answer = client.post("/rl/outcome", json={"session_id": "task", "reward": reward, "detail": "tests"})
            assert answer.json() == {"session_id": "task", "episode": 0, "reward": reward}
            outcome = service.journal().outcome("task")
            assert outcome is not None and outcome.reward == reward


def test_an_outcome_can_be_announced_for_the_open_episode(service: Proxy) -> None:
    service.chat(HELLO, headers={"x-session-id": "announced"})
    with service.client() as client:
        announced = {"session_id": "announced", "pending": True}
        answer = client.post("/rl/outcome", json=announced)
        assert answer.json() == {"session_id": "announced", "episode": 0, "pending": True}
        assert service.journal().outcome("announced") is None
        client.post("/rl/session-done", json={"session_id": "announced"})
        assert client.post("/rl/outcome", json=announced).status_code == 404


def test_status_tells_classes_backlog_and_processes(service: Proxy) -> None:
    service.chat(HELLO)
    with service.client() as client:
        started = time.monotonic()
        status = client.get("/rl/status").json()
        assert time.monotonic() - started < 1.0
    assert status["version"]["engine"] == 0
    chat = next(entry for entry in status["classes"] if entry["reason"] == "chat")
    assert (chat["kind"], chat["description"]) == ("main", "no sign of a utility call")
    assert chat["count"] > 0
    assert set(status["backlog"]) == {"unjudged", "ready", "groups", "quarantined"}
    assert status["processes"]["proxy"]["pid"] == service.process.pid
    assert status["processes"]["engine"]["alive"] is True
    assert status["ready"] is True
    assert status["turns"]["main"] > 0


def test_training_is_paused_and_resumed_for_everybody(service: Proxy) -> None:
    with service.client() as client:
        for path, state in (("/rl/pause", "paused"), ("/v1/rl/resume", "running")):
            assert client.post(path).json() == {"training": state}
            assert client.get("/rl/status").json()["training"] == state
            assert service.journal().get_control("train") == state


def test_sessions_are_listed_explained_and_forgotten(service: Proxy) -> None:
    name = "odd/session id:ü%2F"
    quoted = "odd%2Fsession%20id:%C3%BC%252F"
    with service.client() as client:
        body = {"messages": HELLO, "max_tokens": 4, "metadata": {"session_id": name}}
        chat = client.post("/v1/chat/completions", json=body)
        assert chat.headers["x-openclaw-rl-session"] == "odd/session id:%C3%BC%252F"
        listed = client.get("/rl/sessions?limit=1000").json()["items"]
        mine = next(row for row in listed if row["session_id"] == name)
        assert (mine["main"], mine["side"], mine["settled"], mine["trained"], mine["episodes"]) == (1, 0, 0, 0, 1)
        detail = client.get(f"/rl/sessions/{quoted}").json()
        assert detail["turns"][0]["turn_id"] == chat.headers["x-openclaw-rl-turn"]
        explained = client.get(f"/rl/turns/{chat.json()['id']}").json()
        assert explained["turn"]["session_id"] == name
        assert explained["turn"]["messages"] == HELLO
        assert client.delete(f"/rl/sessions/{quoted}").json() == {
            "session_id": name,
            "forgotten": True,
            "pending": False,
            "versions": [],
        }
        assert client.get(f"/rl/sessions/{quoted}").status_code == 404
        assert client.get(f"/rl/turns/{chat.json()['id']}").status_code == 404
        offset = client.get("/rl/sessions?limit=1&offset=1").json()["items"]
        assert len(offset) <= 1


def test_models_and_versions_are_listed(service: Proxy) -> None:
    with service.client() as client:
        names = [model["id"] for model in client.get("/v1/models").json()["data"]]
        assert names[:2] == ["policy", "policy@0"]
        card = client.get("/v1/models/policy").json()
        assert card["context_length"] > 1000
        assert isinstance(client.get("/rl/versions").json()["versions"], list)


def test_metrics_speak_prometheus(service: Proxy) -> None:
    service.chat(HELLO)
    with service.client() as client:
        text = client.get("/metrics").text
    for name in (
        "requests_total",
        "turns_total",
        "answer_tokens_total",
        "first_token_seconds_bucket",
        "active_answers",
    ):
        assert f"openclaw_rl_{name}" in text
    assert 'kind="main",reason="chat",status="complete"' in text


def test_health_needs_no_key(service: Proxy) -> None:
    assert HTTP.get(f"{service.url}/healthz").json() == {"status": "ok"}
    ready = HTTP.get(f"{service.url}/readyz")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "engine": "ok", "journal": "ok"})


def test_every_openclaw_request_is_served_and_taken_for_what_it_is(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    with proxy.client() as client:
        for case, headers in [(case, {}) for case in CASES] + [(case, case.headers) for case in CASES]:
            response = client.post("/v1/chat/completions", json=case.body, headers=headers)
            assert response.status_code == 200, response.text
            assert response.text.endswith("data: [DONE]\n\n")
            assert response.headers["x-openclaw-rl-kind"] == case.kind, case.name
            if case.session:
                assert response.headers["x-openclaw-rl-session"] == case.session, case.name
    session = proxy.journal().session(FERN)
    assert session is not None
    assert (session.main, session.side) == (10, 8)


def test_silence_ends_an_episode(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(session_idle_seconds=0.5)
    proxy.chat(HELLO, headers={"x-session-id": "silent"})
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        session = proxy.journal().session("silent")
        if session is not None and session.episodes[0].ended is not None:
            assert session.episodes[0].reason == "idle"
            return
        time.sleep(0.05)
    pytest.fail("the episode is still open")


def test_heartbeats_keep_no_episode_open(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(session_idle_seconds=0.6)
    person, heartbeat = {"x-session-id": "calm"}, {"x-session-id": "calm", "x-turn-type": "side"}
    proxy.chat(HELLO, headers=person)
    deadline = time.monotonic() + 10
    ended = False
    while not ended:
        assert time.monotonic() < deadline, "heartbeats kept the episode open"
        assert proxy.chat(HELLO, headers=heartbeat).status_code == 200
        session = proxy.journal().session("calm")
        assert session is not None
        ended = session.episodes[0].ended is not None
    assert session.episodes[0].reason == "idle"
    proxy.chat(HELLO, headers=heartbeat)  # belongs to what was there before, and begins nothing
    proxy.chat(HELLO, headers=person)
    session = proxy.journal().session("calm")
    assert session is not None
    assert [turn.episode for turn in session.turns if turn.kind == "main"] == [0, 1]
    assert {turn.episode for turn in session.turns if turn.kind == "side"} == {0}


def test_feedback_keeps_an_episode_open(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(session_idle_seconds=2.0)
    proxy.chat(HELLO, headers={"x-session-id": "busy"})
    session = proxy.journal().session("busy")
    assert session is not None
    with proxy.client() as client:
        client.post("/rl/feedback", json={"session_id": "busy", "score": 1})
    later = proxy.journal().session("busy")
    assert later is not None and later.last_seen > session.last_seen
