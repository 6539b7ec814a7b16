from __future__ import annotations

import time

import httpx
import pytest

from tests.processes import Proxy

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("prefix", ["/rl", "/v1/rl"])
def test_feedback_on_a_session_is_about_its_last_main_turn(service: Proxy, prefix: str) -> None:
    session = {"x-session-id": f"fb{prefix}"}
    main = service.chat(HELLO, headers=session).headers["x-openclaw-rl-turn"]
    service.chat(HELLO, headers=session | {"x-turn-type": "side"})
    with service.client() as client:
        response = client.post(f"{prefix}/feedback", json={"session_id": f"fb{prefix}", "score": 1, "text": "thanks"})
    answer = response.json()
    assert (answer["turn_id"], answer["score"]) == (main, 1.0)
    assert response.headers["x-openclaw-rl-kind"] == "control"
    given = service.journal().feedback_for(main)
    assert [(one.feedback_id, one.score, one.text, one.source) for one in given] == [
        (answer["feedback_id"], 1.0, "thanks", "api")
    ]


def test_feedback_takes_thumbs_turns_and_headers(service: Proxy) -> None:
    chat = service.chat(HELLO, headers={"x-session-id": "fb-many"})
    turn = chat.headers["x-openclaw-rl-turn"]
    with service.client() as client:
        by_turn = client.post("/rl/feedback", json={"turn_id": turn, "thumb": "down"}).json()
        by_answer = client.post("/rl/feedback", json={"turn_id": chat.json()["id"], "score": 0.5}).json()
        by_header = client.post("/rl/feedback", json={"text": "hm"}, headers={"x-session-id": "fb-many"}).json()
    assert [one["turn_id"] for one in (by_turn, by_answer, by_header)] == [turn] * 3
    assert [one["score"] for one in (by_turn, by_answer, by_header)] == [-1.0, 0.5, None]


def test_feedback_that_comes_late_is_about_what_had_been_answered_when_it_was_said(service: Proxy) -> None:
    session = {"x-session-id": "fb-late"}
    turns = []
    for _ in range(2):
        turns.append(service.chat(HELLO, headers=session).headers["x-openclaw-rl-turn"])
        time.sleep(0.3)
    arrived = [turn.timings.finished for turn in map(service.journal().turn, turns) if turn is not None]
    age = time.time() - (arrived[0] + arrived[1]) / 2
    with service.client() as client:
        late = client.post("/rl/feedback", json={"session_id": "fb-late", "score": 1, "age_seconds": age}).json()
        soon = client.post("/rl/feedback", json={"session_id": "fb-late", "score": -1, "age_seconds": 0}).json()
        client.post("/rl/feedback", json={"turn_id": turns[1], "score": 0.5, "age_seconds": 60})
        never = client.post("/rl/feedback", json={"session_id": "fb-late", "score": -1, "age_seconds": 86400})
        wrong = client.post("/rl/feedback", json={"session_id": "fb-late", "score": -1, "age_seconds": -1})
    assert [late["turn_id"], soon["turn_id"]] == turns
    assert (never.status_code, wrong.status_code) == (404, 400)
    assert [one.score for one in service.journal().feedback_for(turns[1])] == [0.5, -1]


def test_feedback_that_is_sent_twice_counts_once(service: Proxy) -> None:
    turn = service.chat(HELLO, headers={"x-session-id": "fb-twice"}).headers["x-openclaw-rl-turn"]
    said = {"turn_id": turn, "score": 1, "feedback_id": "fb_0123456789abcdef", "source": "command"}
    with service.client() as client:
        answers = [client.post("/rl/feedback", json=said).json() for _ in range(2)]
        wrong = [
            client.post("/rl/feedback", json=said | {"feedback_id": one})
            for one in ("mine", said["feedback_id"] + "\n")
        ]
    assert answers[0] == answers[1] and answers[0]["feedback_id"] == said["feedback_id"]
    assert [(one.feedback_id, one.source) for one in service.journal().feedback_for(turn)] == [
        (said["feedback_id"], "extension")
    ]
    assert [(one.status_code, one.json()["error"]["param"]) for one in wrong] == [(400, "feedback_id")] * 2


def test_feedback_after_the_end_belongs_to_the_last_main_turn(service: Proxy) -> None:
    turn = service.chat(HELLO, headers={"x-session-id": "ended"}).headers["x-openclaw-rl-turn"]
    with service.client() as client:
        for expected in (True, False):
            body = {"session_id": "ended", "session_key": "agent:main:main", "reason": "new"}
            answer = client.post("/v1/rl/session-done", json=body, headers={"x-session-done": "true"}).json()
            assert answer["ended"] is expected
        late = client.post("/rl/feedback", json={"session_id": "ended", "score": -1}).json()
    assert late["turn_id"] == turn
    again = service.chat(HELLO, headers={"x-session-id": "ended"})
    second = service.journal().turn(again.headers["x-openclaw-rl-turn"])
    assert second is not None and second.episode == 1


def test_typed_feedback_is_answered_aside_and_counts_for_the_answer_before(service: Proxy) -> None:
    session = {"x-session-id": "fb-typed", "x-turn-type": "main"}
    messages: list[dict[str, str]] = []

    def ask(words: str) -> httpx.Response:
        messages.append({"role": "user", "content": words})
        answer = service.chat(messages, headers=session)
        messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        return answer

    first = ask("How deep do I plant tulips?").headers["x-openclaw-rl-turn"]
    good, bad = ask("/good clear"), ask("/bad no, too long")
    assert {(one.headers["x-openclaw-rl-kind"], one.headers["x-openclaw-rl-reason"]) for one in (good, bad)} == {
        ("side", "feedback-command")
    }
    after = ask("And crocuses?")
    assert after.headers["x-openclaw-rl-kind"] == "main"
    journal = service.journal()
    given = journal.feedback_for(first)
    assert [(one.score, one.text, one.source) for one in given] == [
        (1.0, "clear", "command"),
        (-1.0, "no, too long", "command"),
    ]
    state = journal.next_state(first)
    assert state is not None and (state.text, state.next_turn_id) == (
        "And crocuses?",
        after.headers["x-openclaw-rl-turn"],
    )
    session_row = journal.session("fb-typed")
    assert session_row is not None and (session_row.main, session_row.side) == (2, 2)
