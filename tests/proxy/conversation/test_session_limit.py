"""The limit of active sessions: admission, refusal with a time to come back, and places that become free again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.proxy.scripted_engine import scripted_service

CHAT = "/v1/chat/completions"


async def say(client: httpx.AsyncClient, session: str, **headers: str) -> httpx.Response:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": f"Hello from {session}."}], "max_tokens": 8}
    return await client.post(CHAT, json=body, headers={"x-session-id": session, **headers})


async def test_a_session_too_many_is_refused_and_running_ones_never(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.", max_sessions=2) as (client, service, _):
        assert [(await say(client, name)).status_code for name in ("a", "b", "a", "b")] == [200] * 4
        refused = await say(client, "c")
        assert refused.status_code == 429 and float(refused.headers["retry-after"]) >= 1
        error = refused.json()["error"]
        assert error["code"] == "rate_limit_exceeded"
        assert "2 sessions are active (max_sessions)" in error["message"] and "session-done" in error["message"]
        assert (await say(client, "b")).status_code == 200
        assert await service.journal.session("c") is None
        status = (await client.get("/rl/status")).json()["limits"]["sessions"]
        assert (status["places"], status["active"], status["refused"]) == (2, 2, 1)


async def test_a_session_that_ends_makes_room_at_once(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.", max_sessions=1) as (client, service, _):
        for name in ("a", "b", "c"):
            assert (await say(client, name)).status_code == 200
            assert (await say(client, "next")).status_code == 429
            if name == "a":
                await client.post("/rl/session-done", json={"session_id": "a"})
            elif name == "b":
                await client.delete("/rl/sessions/b")
            else:
                assert (await say(client, "c", **{"x-session-done": "true"})).status_code == 200
        assert (await say(client, "d")).status_code == 200
        service.sessions.idle_seconds = -1.0  # everything is silent for too long
        assert await service.sessions.end_idle() == 1
        assert (await say(client, "e")).status_code == 200


async def test_side_calls_and_requests_without_capture_take_no_place(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.", max_sessions=1) as (client, _, _):
        assert (await say(client, "side", **{"x-turn-type": "side"})).status_code == 200
        assert (await say(client, "unkept", **{"x-rl-train": "never"})).status_code == 200
        assert (await say(client, "a")).status_code == 200
        assert (await say(client, "b")).status_code == 429
        assert (await say(client, "other", **{"x-turn-type": "side"})).status_code == 200
        assert (await say(client, "other", **{"x-rl-train": "never"})).status_code == 200


async def test_a_proxy_that_starts_again_knows_who_was_active(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.", max_sessions=2) as (client, _, _):
        assert (await say(client, "a")).status_code == (await say(client, "b")).status_code == 200
    async with scripted_service(policy_folder, tmp_path, "Hi.", max_sessions=2) as (client, _, _):
        assert (await say(client, "c")).status_code == 429
        assert (await say(client, "a")).status_code == (await say(client, "b")).status_code == 200


async def test_a_session_that_another_process_ended_makes_room(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.", max_sessions=1) as (client, service, _):
        assert (await say(client, "a")).status_code == 200
        await service.journal.end_episode("a", "idle")
        service.session_limit._active["a"] = 0.0  # as if it had been let in long ago
        service.session_limit._looked = -10.0
        assert (await say(client, "b")).status_code == 200
        assert await service.journal.active_sessions() == ["b"]


async def test_without_a_limit_there_is_none(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.") as (client, service, _):
        assert {(await say(client, f"s{number}")).status_code for number in range(20)} == {200}
        assert service.session_limit.figures() is None
        assert (await client.get("/rl/status")).json()["limits"]["sessions"] is None
