"""Tokens of the dashboard: nothing readable is stored, and they end with their time, their key, or by revocation."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw_rl.proxy.http.auth import Admission, Caller
from openclaw_rl.proxy.http.tokens import TokenFile
from openclaw_rl.shared.api_keys import KeyFile
from openclaw_rl.shared.errors import Forbidden, Unauthorized

READ = ("GET", "/rl/sessions")
CHANGE = ("POST", "/rl/pause")


class Clock:
    """A clock that tests move."""

    time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(tmp_path: Path, clock: Clock) -> Callable[..., Admission]:
    """A service's admission on one data folder, as after a start."""

    def start(*keys: str, admin_key: str = "boss") -> Admission:
        tokens = TokenFile(tmp_path, clock)
        return Admission(keys or ("client",), KeyFile(tmp_path), admin_key=admin_key, tokens=tokens)

    return start


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_a_token_has_the_rights_of_its_key_until_its_end(
    admission: Callable[..., Admission], tmp_path: Path, clock: Clock
) -> None:
    keys = KeyFile(tmp_path)
    reader, chatter = keys.create("ann", ["read"]), keys.create("bob", ["chat"])
    first = admission()
    boss, _ = first.issue_token(first.sign_in("boss"), 60)
    ann, end = first.issue_token(first.sign_in(reader), 60)
    assert end == clock.time + 60
    assert first.admit(bearer(boss), *CHANGE) == Caller(1, signed_in=True)
    assert first.admit({"x-api-key": ann}, *READ) == Caller(2, "ann", admin=False, signed_in=True)
    with pytest.raises(Forbidden, match="'ann' has no scope admin"):
        first.admit(bearer(ann), *CHANGE)
    for refused in ("client", chatter):
        with pytest.raises(Forbidden, match="The dashboard"):
            first.sign_in(refused)
    for derived in (boss, ann):
        with pytest.raises(Unauthorized, match="takes a key"):
            first.sign_in(derived)

    again = admission()  # after a restart
    assert again.admit(bearer(boss), *CHANGE).admin
    clock.time += 60
    for token in (boss, ann):
        with pytest.raises(Unauthorized) as over:
            again.admit(bearer(token), *READ)
        assert over.value.code == "signed_out"


def test_nothing_readable_is_stored(admission: Callable[..., Admission], tmp_path: Path) -> None:
    service = admission()
    token, _ = service.issue_token(service.sign_in("boss"), 60)
    file = tmp_path / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token.removeprefix("clawrl-token-") not in file.read_text() and "boss" not in file.read_text()


def test_a_token_dies_with_its_key(admission: Callable[..., Admission], tmp_path: Path) -> None:
    keys = KeyFile(tmp_path)
    reader = keys.create("ann", ["read"])
    service = admission()
    boss, _ = service.issue_token(service.sign_in("boss"), 60)
    caller = service.sign_in(reader)
    ann, _ = service.issue_token(caller, 60)
    keys.revoke("ann")
    with pytest.raises(Unauthorized):
        service.admit(bearer(ann), *READ)
    with pytest.raises(Unauthorized, match="revoked"):  # a ticket of the key that was not used yet
        service.issue_token(caller, 60)
    keys.create("ann", ["read"])
    changed = admission("one", "two", "three", admin_key="another")
    for token in (ann, boss):
        with pytest.raises(Unauthorized):
            changed.admit(bearer(token), *READ)
    assert admission("one", "two", "three").admit(bearer(boss), *READ) == Caller(3, signed_in=True)


def test_one_sign_in_ends_or_all_do(admission: Callable[..., Admission], tmp_path: Path) -> None:
    service = admission()
    first, second, third = (service.issue_token(service.sign_in("boss"), 60)[0] for _ in range(3))
    assert service.revoke_tokens(first) == 1 and service.revoke_tokens(first) == 0
    with pytest.raises(Unauthorized):
        service.admit(bearer(first), *READ)
    assert service.admit(bearer(second), *READ).signed_in
    assert service.revoke_tokens(None) == 2
    again, _ = service.issue_token(service.sign_in("boss"), 60)
    (tmp_path / "tokens.json").unlink()
    for token in (second, third, again):
        with pytest.raises(Unauthorized):
            service.admit(bearer(token), *READ)


def test_tokens_that_are_over_are_not_kept(admission: Callable[..., Admission], tmp_path: Path, clock: Clock) -> None:
    service = admission()
    for _ in range(3):
        service.issue_token(service.sign_in("boss"), 60)
    clock.time += 61
    service.issue_token(service.sign_in("boss"), 60)
    assert service.revoke_tokens(None) == 1


@pytest.mark.parametrize("token", ["clawrl-token-", "clawrl-token-guess", "clawrl-token-\udc80"])
def test_a_guess_is_no_token(admission: Callable[..., Admission], token: str) -> None:
    with pytest.raises(Unauthorized):
        admission().admit(bearer(token), *READ)
