"""Requests to a LiteLLM Proxy as our provider passes them on; tests/real drives the real one."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.shared.litellm.callback import deployment, session_fields


def call(headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    received = {"headers": headers or {}, "body": body}
    return {"api_base": "http://127.0.0.1:1/v1", "litellm_params": {"proxy_server_request": received}}


def test_the_policys_place_is_the_deployments_or_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert deployment({**call(), "api_key": "k"}) == ("http://127.0.0.1:1/v1", {"authorization": "Bearer k"})
    monkeypatch.setenv("POLICY_API_BASE", "http://127.0.0.1:2/v1")
    monkeypatch.setenv("POLICY_API_KEY", "other")
    assert deployment({}) == ("http://127.0.0.1:2/v1", {"authorization": "Bearer other"})
    monkeypatch.delenv("POLICY_API_BASE")
    with pytest.raises(ValueError, match="set api_base"):
        deployment({})


def test_only_headers_of_ours_are_passed_on_never_the_clients_key() -> None:
    headers = {
        "X-Session-Id": "s",
        "X-RL-Train": "never",
        "X-OpenClaw-Session-Key": "agent:main",
        "Authorization": "Bearer litellm's",
        "Cookie": "c",
    }
    _, passed = deployment(call(headers))
    assert passed == {"x-session-id": "s", "x-rl-train": "never", "x-openclaw-session-key": "agent:main"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"litellm_session_id": "s"}, {"session_id": "s"}),
        ({"litellm_session_id": "s", "session_id": "t"}, {"session_id": "t"}),
        ({"metadata": {"session_id": "s", "tags": ["a"]}}, {"metadata": {"session_id": "s"}}),
        ({"user": "u", "temperature": 1, "session_id": 7}, {"user": "u"}),
        ({}, {}),
    ],
)
def test_fields_that_name_a_session_are_kept(body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert session_fields(call(**body)) == expected
