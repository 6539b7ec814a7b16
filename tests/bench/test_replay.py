from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.replay import ReplayFailed, headers_for, load, replay
from openclaw_rl.evaluation.service import RunningService
from openclaw_rl.shared.errors import ConfigError
from tests.scripted import events, piece, plain, scripted

CHAT = {
    "path": "/v1/chat/completions",
    "headers": {
        "Authorization": "Bearer theirs",
        "content-length": "5",
        "x-turn-type": "main",
        "user-agent": "Somebody/1",
    },
    "body": {"model": "policy", "stream": True, "messages": [{"role": "user", "content": "hello"}]},
}
DONE = {"path": "/v1/rl/session-done", "headers": {"x-session-id": "s1"}, "body": {"session_id": "s1"}}
FEEDBACK = {"path": "/v1/rl/feedback", "headers": {"x-session-id": "s1"}, "body": {"session_id": "s1", "score": 1}}


def _folder(tmp_path: Path, **files: Any) -> Path:
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_recordings_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    recordings = load(_folder(tmp_path, b=DONE, a=CHAT))
    assert [(one.file, one.is_control) for one in recordings] == [("a.json", False), ("b.json", True)]


def test_a_folder_that_is_none_is_empty_or_holds_something_else_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        load(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"no \*.json"):
        load(tmp_path)
    with pytest.raises(ConfigError, match=r"a\.json is no recorded request"):
        load(_folder(tmp_path, a={"path": "/v1/chat/completions"}))


def test_headers_are_sent_as_recorded_but_for_the_key_and_the_connection(tmp_path: Path) -> None:
    (recording,) = load(_folder(tmp_path, a=CHAT))
    assert headers_for(recording, "OURS", strip=False) == {
        "authorization": "Bearer OURS",
        "user-agent": "Somebody/1",
        "x-turn-type": "main",
    }
    assert headers_for(recording, "OURS", strip=True) == {"authorization": "Bearer OURS", "user-agent": "Somebody/1"}


def _respond(feedback_on: str) -> Any:
    turns = iter(("turn_1", "turn_2"))

    def respond(path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        if path.endswith("/feedback"):
            return plain({"turn_id": feedback_on, "feedback_id": "fb", "score": 1})
        if path.startswith(("/v1/rl/session-done", "/rl/sessions/")):
            return plain({"session_id": "s1", "episode": 0, "ended": True})
        taken = {"kind": "main", "reason": "plain chat", "session": "s1", "turn": next(turns)}
        return events(
            piece("hi", "stop"),
            "[DONE]",
            headers="".join(f"x-openclaw-rl-{name}: {value}\r\n" for name, value in taken.items()),
        )

    return respond


async def test_each_request_is_shown_as_the_service_took_it_against_a_scripted_service(tmp_path: Path) -> None:
    recordings = load(_folder(tmp_path, a=CHAT, b=CHAT, c=DONE, d=FEEDBACK))
    async with scripted(_respond("turn_2")) as service:
        taken = await replay(RunningService(service.url, "OURS"), recordings, strip=True)
    assert [(one.file, one.kind, one.session) for one in taken] == [
        ("a.json", "main", "s1"),
        ("b.json", "main", "s1"),
        ("c.json", "control", "s1"),
        ("d.json", "control", "s1"),
    ]
    assert taken[2].reason == "session-done: episode 0 ended"
    assert taken[3].reason == "feedback +1 on b.json"
    assert all(headers["authorization"] == "Bearer OURS" for _, _, headers in service.requests)


async def test_feedback_that_lands_elsewhere_is_a_failure_against_a_scripted_service(tmp_path: Path) -> None:
    recordings = load(_folder(tmp_path, a=CHAT, b=CHAT, c=DONE, d=FEEDBACK))
    async with scripted(_respond("turn_1")) as service:
        with pytest.raises(ReplayFailed, match=r"applied to a\.json, not on the last main turn b\.json"):
            await replay(RunningService(service.url, "OURS"), recordings, strip=False)


async def test_a_refused_request_is_a_failure_against_a_scripted_service(tmp_path: Path) -> None:
    recordings = load(_folder(tmp_path, a=CHAT))
    async with scripted(lambda *_: plain({"error": {"message": "no"}}, 400)) as service:
        with pytest.raises(ReplayFailed, match=r"a\.json was answered with 400"):
            await replay(RunningService(service.url, "OURS"), recordings, strip=False)
