"""Keys of episodes: whose they are, what they open, and every way to make one up."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from pathlib import Path

import msgspec
import pytest

from openclaw_rl.proxy.http.auth import Admission, Caller
from openclaw_rl.proxy.http.episode_keys import PREFIX, EpisodeClaim, _encode, _sign, issue_key, read_key
from openclaw_rl.shared.api_keys import KeyFile
from openclaw_rl.shared.errors import Forbidden, Unauthorized
from openclaw_rl.shared.journal import OpenAttempt
from tests.proxy.http.test_scopes import bearer

ATTEMPT = OpenAttempt("attempt_ü@@alice", 3, 1_795_000_000.123456, True, 0.0)
CLAIM = EpisodeClaim(ATTEMPT.session_id, 3, ATTEMPT.started)
CHAT = ("POST", "/v1/chat/completions")


def test_a_key_says_what_it_was_issued_for_and_who_signed_it() -> None:
    key = issue_key(CLAIM, "second")
    assert key.isascii() and key.startswith(PREFIX) and "second" not in key
    assert read_key(key, ["first", "second"]) == (CLAIM, 1)
    assert issue_key(CLAIM, "second") == key, "nothing is stored: it is the same after a restart"


def test_a_key_that_was_made_up_is_refused() -> None:
    key = issue_key(CLAIM, "secret")
    body, _, signature = key.removeprefix(PREFIX).partition(".")
    other = urlsafe_b64encode(msgspec.json.encode(msgspec.structs.replace(CLAIM, episode=4))).rstrip(b"=").decode()
    made_up = [
        issue_key(CLAIM, "another service's"),
        issue_key(CLAIM, ""),
        f"{PREFIX}{other}.{signature}",
        f"{PREFIX}{body}.",
        f"{PREFIX}{body}",
        f"{PREFIX}{body}.{signature[:-1]}",
        f"{PREFIX}{body}.{signature}.{signature}",
        f"{PREFIX}.",
        PREFIX,
        f"{PREFIX}ü.ü",
    ]
    assert [read_key(one, ["secret"]) for one in made_up] == [None] * len(made_up)
    no_claims = [f"{PREFIX}{body}.{_encode(_sign(body, ''))}" for body in ("", "a", "ü", "W10", "eyJ9")]
    assert [read_key(one, [""]) for one in no_claims] == [None] * len(no_claims), "without keys anyone can sign"
    admission = Admission(["secret"])
    for one in made_up:
        with pytest.raises(Unauthorized, match="wrong"):
            admission.admit(bearer(one), *CHAT)


def test_an_agent_has_the_place_and_the_owner_of_the_key_that_began_its_episode(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    alice = file.create("alice", ["chat"])
    admission = Admission(["first", "second"], file)
    for sent, number in (("second", 0), (alice, 1)):
        starter = admission.admit(bearer(sent), "POST", "/rl/session-start")
        key = admission.episode_key(starter, ATTEMPT)
        agent = admission.admit({"x-api-key": key}, *CHAT)
        claim = msgspec.structs.replace(CLAIM, number=number)
        assert agent == Caller(starter.key, "alice", admin=False, claim=claim)
    file.revoke("alice")
    with pytest.raises(Unauthorized, match="revoked"):
        admission.admit(bearer(key), *CHAT)
    file.create("alice", ["chat"])
    with pytest.raises(Unauthorized, match="revoked"):  # a later key of that name is another key
        admission.admit(bearer(key), *CHAT)


def test_a_key_that_began_an_episode_and_was_taken_out_of_the_settings_takes_the_episodes_key_along() -> None:
    before = Admission(["old", "new"])
    key = before.episode_key(before.admit(bearer("old"), *CHAT), ATTEMPT)
    assert Admission(["new", "old"]).admit(bearer(key), *CHAT).key == 1
    with pytest.raises(Unauthorized):
        Admission(["new"]).admit(bearer(key), *CHAT)


def test_the_key_of_an_episode_opens_the_model_routes_alone() -> None:
    admission = Admission(["secret"])
    agent = bearer(admission.episode_key(Caller(), ATTEMPT))
    for method, path in (
        CHAT,
        ("POST", "/v1/responses"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/v1/models"),
    ):
        assert admission.admit(agent, method, path).claim == CLAIM
    posts = ("session-start", "outcome", "feedback", "session-done", "forget", "pause")
    refused = [
        *(("POST", f"{prefix}/{path}") for path in posts for prefix in ("/rl", "/v1/rl")),
        ("GET", "/rl/status"),
        ("GET", "/rl/sessions/attempt"),
        ("GET", "/rl/turns/turn_1"),
        ("GET", "/v1/rl/turns/turn_1/answer"),
        ("DELETE", "/rl/sessions/attempt"),
        ("GET", "/metrics"),
        ("GET", "/"),
    ]
    for method, path in refused:
        with pytest.raises(Forbidden, match="model routes alone"):
            admission.admit(agent, method, path)


def test_our_adapter_alone_looks_up_an_answer_for_an_agent() -> None:
    admission = Admission(["secret"], is_routed=lambda headers: headers.get("mark") == "ours")
    agent = bearer(admission.episode_key(Caller(), ATTEMPT))
    ours = agent | {"mark": "ours"}
    assert admission.admit(ours, "GET", "/v1/rl/turns/turn_1/answer").claim == CLAIM
    for method, path in (("GET", "/rl/status"), ("POST", "/rl/outcome"), ("POST", "/rl/session-start")):
        with pytest.raises(Forbidden):
            admission.admit(ours, method, path)
    with pytest.raises(Forbidden):
        admission.admit(agent | {"mark": "made up"}, "GET", "/v1/rl/turns/turn_1/answer")


def test_without_keys_the_key_of_an_episode_only_says_which_session_an_agent_is_in() -> None:
    admission = Admission([])
    agent = bearer(admission.episode_key(Caller(), ATTEMPT))
    assert admission.admit(agent, *CHAT).claim == CLAIM
    with pytest.raises(Forbidden, match="model routes"):
        admission.admit(agent, "POST", "/rl/outcome")
