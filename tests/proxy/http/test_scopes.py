"""Keys with scopes: stored as digests, admitted within their scopes, revoked at once."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from openclaw_rl.proxy.http.auth import Admission, scopes_of
from openclaw_rl.shared.api_keys import SCOPES, KeyFile, KeyScope
from openclaw_rl.shared.errors import ConfigError, Forbidden, Unauthorized
from tests.processes import Proxy

HELLO = [{"role": "user", "content": "hello"}]


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/chat/completions", "chat"),
        ("POST", "/v1/responses", "chat"),
        ("POST", "/v1/messages", "chat"),
        ("GET", "/v1/models/policy", "chat"),
        ("GET", "/rl/turns/turn_1/answer", "read or chat"),
        ("POST", "/rl/feedback", "feedback"),
        ("POST", "/v1/rl/feedback", "feedback"),
        ("POST", "/rl/session-done", "feedback"),
        ("GET", "/rl/status", "read"),
        ("GET", "/v1/rl/turns/turn_1", "read or chat"),
        ("GET", "/rl/sessions/answer", "read"),
        ("GET", "/metrics", "read"),
        ("POST", "/rl/pause", "admin"),
        ("DELETE", "/rl/sessions/one", "admin"),
        ("POST", "/rl/versions/1/promote", "admin"),
        ("POST", "/rl/something-new", "admin"),
        ("GET", "/something-new", "admin"),
        ("POST", "/rl/turns/turn_1/answer", "admin"),
    ],
)
def test_each_route_needs_a_scope(method: str, path: str, scope: str) -> None:
    assert " or ".join(scopes_of(method, path)) == scope


def test_a_key_is_shown_once_and_stored_as_a_digest(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    key = file.create("bob", ["feedback", "chat"])
    assert key not in file.path.read_text() and key.removeprefix("clawrl-") not in file.path.read_text()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    (stored,) = file.listed()
    assert (stored.name, stored.scopes) == ("bob", ("chat", "feedback"))
    assert file.find(key) == stored and file.find(key + "x") is None and file.find("\udc80") is None
    with pytest.raises(ConfigError, match="there is a key 'bob' already"):
        file.create("bob", ["chat"])


def test_a_revoked_key_is_unknown_at_once_and_its_number_is_not_given_again(tmp_path: Path) -> None:
    file, seen = KeyFile(tmp_path), KeyFile(tmp_path)
    first, second = file.create("one", ["chat"]), file.create("two", ["chat"])
    assert seen.find(first) is not None and seen.find(second) is not None
    file.revoke("two")
    assert seen.find(second) is None and seen.find(first) is not None
    with pytest.raises(ConfigError, match="no key 'two'; there are: one"):
        file.revoke("two")
    file.create("three", ["read"])
    assert [key.number for key in file.listed()] == [1, 3]


def test_a_damaged_file_admits_no_key_and_says_so(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    key = file.create("one", ["admin"])
    file.path.write_text("{")
    assert KeyFile(tmp_path).find(key) is None
    with pytest.raises(ConfigError, match=r"keys\.json cannot be read"):
        file.listed()


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_does_what_its_scope_says_and_no_more(tmp_path: Path, scope: KeyScope) -> None:
    file = KeyFile(tmp_path)
    key = file.create("one", [scope])
    admission = Admission(["owner"], file)
    routes = {
        "chat": ("POST", "/v1/messages"),
        "feedback": ("POST", "/rl/outcome"),
        "read": ("GET", "/rl/status"),
        "admin": ("POST", "/rl/pause"),
    }
    for wanted, (method, path) in routes.items():
        assert admission.admit(bearer("owner"), method, path) == 0
        if scope in (wanted, "admin"):
            assert admission.admit({"x-api-key": key}, method, path) == 1
        else:
            with pytest.raises(Forbidden, match=rf"has no scope {wanted}, which .* \(it has {scope}\)"):
                admission.admit(bearer(key), method, path)
    with pytest.raises(Unauthorized):
        admission.admit(bearer("clawrl-unknown"), "GET", "/rl/status")


def test_a_running_proxy_follows_the_file(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    file = KeyFile(Path(proxy.journal().path).parent)
    key = file.create("bob", ["chat"])
    with httpx.Client(base_url=proxy.url, headers=bearer(key), trust_env=False, timeout=60) as client:
        assert client.post("/v1/chat/completions", json={"model": "policy", "messages": HELLO}).status_code == 200
        refused = client.get("/rl/sessions")
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "insufficient_scope"
        file.revoke("bob")
        assert client.get("/v1/models").status_code == 401
