"""Keys with scopes: stored as digests, admitted within their scopes, revoked at once."""

from __future__ import annotations

import errno
import re
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from openclaw_rl.proxy.dashboard import sign_in
from openclaw_rl.proxy.http.auth import Admission, Caller, scopes_of
from openclaw_rl.proxy.routes import control
from openclaw_rl.shared.api_keys import SCOPES, KeyFile, KeyScope, StoredKey
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
        ("GET", "/rl/turns/turn_1/answer", "read"),
        ("POST", "/rl/feedback", "feedback"),
        ("POST", "/v1/rl/feedback", "feedback"),
        ("POST", "/rl/session-done", "feedback"),
        ("POST", "/rl/session-start", "chat"),
        ("GET", "/rl/status", "read or chat or feedback"),
        ("GET", "/v1/rl/turns/turn_1", "read"),
        ("GET", "/rl/sessions/answer", "read"),
        ("GET", "/metrics", "read"),
        ("DELETE", "/rl/dashboard/token", "read"),
        ("POST", "/rl/dashboard/ticket", "admin"),
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


def test_a_key_of_the_name_of_a_revoked_one_has_the_same_owner(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    file.create("bob", ["chat"])
    file.revoke("bob")
    for no_name in ("", "a@@b"):
        with pytest.raises(ConfigError, match="is no name for a key"):
            file.create(no_name, ["chat"], owner="")
    again = file.find(file.create("bob", ["read"]))
    assert again is not None and (again.number, again.owned_by) == (2, "bob")


def test_no_name_of_an_older_key_makes_it_another_owners() -> None:
    older = [StoredKey(number, name, ("chat",), "", 0.0) for number, name in ((7, "a@@bob"), (8, "@bob"), (9, ""))]
    assert [key.owned_by for key in older] == ["key 7", "key 8", "key 9"]


def test_a_damaged_file_admits_no_key_and_says_so(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    key = file.create("one", ["admin"])
    file.path.write_text("{")
    assert KeyFile(tmp_path).find(key) is None
    with pytest.raises(ConfigError, match=r"keys\.json cannot be read"):
        file.listed()


def test_keys_count_again_once_their_file_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    key = KeyFile(tmp_path).create("one", ["chat"])
    seen = KeyFile(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", full)
        assert seen.find(key) is None
    assert seen.find(key) is not None


def test_no_change_is_lost_when_several_are_made_at_once(tmp_path: Path) -> None:
    names = [f"key {number}" for number in range(24)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: KeyFile(tmp_path).create(name, ["chat"]), names))
    listed = KeyFile(tmp_path).listed()
    assert sorted(key.name for key in listed) == sorted(names)
    assert [key.number for key in listed] == list(range(1, len(names) + 1))


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_does_what_its_scope_says_and_no_more(tmp_path: Path, scope: KeyScope) -> None:
    file = KeyFile(tmp_path)
    key = file.create("one", [scope])
    admission = Admission(["owner"], file)
    routes = {
        "chat": ("POST", "/v1/messages"),
        "feedback": ("POST", "/rl/outcome"),
        "read": ("GET", "/rl/sessions"),
        "admin": ("POST", "/rl/pause"),
    }
    for wanted, (method, path) in routes.items():
        assert admission.admit(bearer("owner"), method, path) == Caller()
        if scope in (wanted, "admin"):
            caller = admission.admit({"x-api-key": key}, method, path)
            assert caller == Caller(1, "one", scope == "admin")
            assert caller.sees("one") and caller.sees("two") == caller.sees("") == (scope == "admin")
        else:
            with pytest.raises(Forbidden, match=rf"has no scope {wanted}, which .* \(it has {scope}\)"):
                admission.admit(bearer(key), method, path)
    with pytest.raises(Unauthorized):
        admission.admit(bearer("clawrl-unknown"), "GET", "/rl/status")


def test_without_keys_everyone_is_let_in() -> None:
    assert Admission([]).admit({}, "GET", "/rl/status") == Caller()


CLIENTS = {
    *(("POST", f"/v1/{path}") for path in ("chat/completions", "responses", "messages", "messages/count_tokens")),
    *(("POST", f"/rl/{path}") for path in ("feedback", "outcome", "session-done", "session-start")),
    *(("GET", path) for path in ("/v1/models", "/v1/models/policy", "/rl/status")),
}
"""What a client's key opens, and nothing else."""


def test_a_clients_key_opens_its_routes_and_the_admin_key_all() -> None:
    admission = Admission(["first", "second"], admin_key="boss")
    others = {(method, f"/rl{path}") for path, method, _ in (*control.ROUTES, *sign_in.ROUTES)} - CLIENTS
    assert len(others) > 10
    for method, path in CLIENTS:
        assert admission.admit(bearer("second"), method, path) == Caller(1, admin=False), path
    for method, path in others | {("GET", "/metrics"), ("GET", "/v1/rl/versions"), ("GET", "/v1/rl/turns/turn_1")}:
        with pytest.raises(Forbidden, match=r"takes the admin key.*This is a client key.*OPENCLAW_RL_ADMIN_KEY"):
            admission.admit(bearer("second"), method, path)
    for method, path in CLIENTS | others:
        assert admission.admit(bearer("boss"), method, path) == Caller(2), path


def test_our_adapter_alone_looks_up_an_answer_for_a_client(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    keys = ("client", file.create("bob", ["chat"]))
    admission = Admission(["client"], file, lambda headers: headers.get("mark") == "ours", admin_key="boss")
    for key in keys:
        ours = bearer(key) | {"mark": "ours"}
        assert not admission.admit(ours, "GET", "/v1/rl/turns/turn_1/answer").admin
        for method, path in (("GET", "/rl/sessions"), ("POST", "/rl/turns/turn_1/exclude")):
            with pytest.raises(Forbidden):
                admission.admit(ours, method, path)
        with pytest.raises(Forbidden):
            admission.admit(bearer(key) | {"mark": "made up"}, "GET", "/rl/turns/turn_1/answer")


def test_one_key_does_everything_where_it_is_the_admin_key_too_or_there_is_none() -> None:
    for admission in (Admission(["one", "two"], admin_key="one"), Admission(["one"])):
        assert admission.admit(bearer("one"), "POST", "/rl/pause") == Caller()
    assert Admission([], admin_key="boss").admit(bearer("boss"), "POST", "/rl/pause") == Caller()
    with pytest.raises(Unauthorized):
        Admission([], admin_key="boss").admit({}, "GET", "/rl/status")


def test_the_page_says_of_each_route_whose_it_is() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "routes.md").read_text()
    table = page[page.index("| key | routes |") :].partition("\n\n")[0]
    (line,) = (line for line in table.splitlines() if line.startswith("| client"))
    named = set(re.findall(r"`(GET|POST) (/\S+)`", line))
    assert {(method, path) for method, path in CLIENTS if path.startswith("/rl/")} <= named
    for method, path in named:
        assert set(scopes_of(method, path.replace("…", "x"))) & {"chat", "feedback"}, path


def test_a_key_reads_and_judges_only_what_its_owner_made(service: Proxy) -> None:
    file = KeyFile(service.data)
    scopes: list[KeyScope] = ["chat", "feedback", "read"]
    name = {"x-session-id": "mine"}
    with ExitStack() as stack:
        alice, bob, ops, owner = (
            stack.enter_context(service.client(**bearer(key)))
            for key in (
                *(file.create(one, scopes) for one in ("alice", "bob")),
                file.create("ops", ["admin"]),
                service.key,
            )
        )
        body = {"model": "policy", "messages": HELLO, "max_tokens": 4}
        said = [one.post("/v1/chat/completions", json=body, headers=name) for one in (alice, bob, owner)]
        turn, _, _ = (one.headers["x-openclaw-rl-turn"] for one in said)
        assert f"{turn} (main, " in service.log.read_text()
        sessions = [unquote(one.headers["x-openclaw-rl-session"]) for one in said]
        assert sessions == ["mine@@alice", "mine@@bob", "mine"]

        turns = (f"/rl/turns/{turn}", f"/rl/turns/{turn}/answer", f"/rl/turns/{turn}/tokens")
        named = [f"/rl/sessions/mine@@alice{what}" for what in ("", "/transcript", "/consequences")]
        for path in (*turns, "/rl/sessions/mine", "/rl/sessions/mine/transcript", *named):
            assert alice.get(path).status_code == 200, path
        for path in (*turns, *named):
            there, none = bob.get(path), bob.get(path.replace(turn, "turn_none").replace("mine", "none"))
            assert there.status_code == none.status_code == 404
            assert there.json()["error"]["code"] == none.json()["error"]["code"]
            assert ops.get(path).status_code == owner.get(path).status_code == 200
        listed = [{row["session_id"] for row in one.get("/rl/sessions").json()["items"]} for one in (alice, bob)]
        assert listed == [{"mine@@alice"}, {"mine@@bob"}]
        assert set(sessions) <= {row["session_id"] for row in ops.get("/rl/sessions").json()["items"]}

        assert ops.get("/rl/sessions?day=2026-02-30").status_code == 400
        for path in ("/rl/settings", "/rl/logs", "/rl/data", "/rl/evals"):
            assert (bob.get(path).status_code, ops.get(path).status_code) == (403, 200), path
        for path in ("/rl/wishes", "/rl/verdicts?by=day"):
            assert bob.get(path).json()["items"] == [], path
        assert bob.post(f"/rl/turns/{turn}/exclude").status_code == 403
        assert owner.post(f"/rl/turns/{turn}/exclude").json() == {"turn_id": turn, "excluded": True}
        assert alice.get("/rl/sessions/mine/transcript").json()["items"][0]["excluded"] is True
        assert owner.delete(f"/rl/turns/{turn}/exclude").json() == {"turn_id": turn, "excluded": False}
        assert "".join(one["text"] for one in alice.get(turns[2]).json()["pieces"])

        named = {"model": "policy", "input": "go on", "previous_response_id": turn.replace("turn_", "resp_")}
        assert bob.post("/v1/responses", json=named).status_code == 400
        assert bob.post("/rl/feedback", json={"turn_id": turn, "score": -1}).status_code == 404
        for path in ("feedback", "outcome", "session-done"):
            fields = {"session_id": "mine@@alice", "score": -1, "reward": -1}
            assert bob.post(f"/rl/{path}", json=fields).status_code == 400
            assert bob.post(f"/rl/{path}", json={**fields, "session_id": "mine"}).json()["session_id"] == "mine@@bob"
        journal = service.journal()
        assert journal.feedback_for(turn) == [] and journal.outcome("mine@@alice") is None
        row = journal.session("mine@@alice")
        assert row is not None and row.episodes[0].ended is None
        assert ops.post("/rl/feedback", json={"session_id": "mine@@alice", "score": 1}).json()["turn_id"] == turn
        with closing(sqlite3.connect(journal.path)) as older, older:  # named by a client before there were owners
            older.execute("UPDATE sessions SET owner = '' WHERE session_id = 'mine@@bob'")
        assert bob.get("/rl/sessions/mine").status_code == 404
        assert alice.delete("/rl/sessions/mine").status_code == 403
        assert ops.delete("/rl/sessions/mine@@alice").json()["forgotten"] is True
        assert journal.session("mine@@alice") is None and journal.session("mine") is not None


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
