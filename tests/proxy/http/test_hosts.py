"""Requests to foreign names and changes by pages of other sites are refused."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.http.hosts import KnownHosts
from openclaw_rl.shared.errors import Forbidden

LOCAL = ("127.0.0.1:30000", "[::1]:30000", "localhost", "proxy:30000", "app.localhost", "192.168.1.5", "")
LOCAL += ("host.docker.internal:30000",)
FOREIGN = (
    "evil.example",
    "evil.example:30000",
    "127.0.0.1.evil.example",
    "localhost.evil.example.",
    "a b",
    "[",
    "[::1",
)


@pytest.mark.parametrize("private", [True, False])
def test_only_names_of_this_machine_reach_a_service_on_loopback(*, private: bool) -> None:
    hosts = KnownHosts("127.0.0.1")
    for host in LOCAL:
        hosts.check({"host": host}, "GET", private=private)
    for host in FOREIGN[:-2]:
        with pytest.raises(Forbidden, match="is no name of this service") as refused:
            hosts.check({"host": host}, "GET", private=private)
        assert refused.value.code == "foreign_host"


def test_public_hosts_are_known_names() -> None:
    hosts = KnownHosts("::1", "rl.example.org, Other.example")
    for host in ("rl.example.org", "RL.example.org:443", "other.example"):
        hosts.check({"host": host}, "POST", private=True)
    with pytest.raises(Forbidden, match=r"public_hosts = sub\.rl\.example\.org"):
        hosts.check({"host": "sub.rl.example.org"}, "POST", private=True)


def test_a_service_of_the_network_checks_the_name_of_the_dashboard_alone() -> None:
    hosts = KnownHosts("0.0.0.0", "rl.example.org")
    hosts.check({"host": "behind.example"}, "POST", private=False)
    hosts.check({"host": "rl.example.org"}, "POST", private=True)
    KnownHosts("box.lan").check({"host": "box.lan:30000"}, "GET", private=True)
    with pytest.raises(Forbidden):
        hosts.check({"host": "behind.example"}, "GET", private=True)


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://evil.example:30000", "null", "http://127.0.0.1:8080", "http://localhost"]
)
def test_a_page_of_a_foreign_origin_reads_nothing_that_changes_something(bound: str, origin: str) -> None:
    hosts, headers = KnownHosts(bound, "rl.example.org"), {"host": "127.0.0.1:30000", "origin": origin}
    for method in ("POST", "DELETE", "PUT", "PATCH"):
        with pytest.raises(Forbidden) as refused:
            hosts.check(headers, method, private=False)
        assert refused.value.code == "foreign_origin"
    hosts.check(headers, "GET", private=False)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:30000", "https://rl.example.org", "app://obsidian.md", None])
def test_our_own_page_and_programs_change_things(origin: str | None) -> None:
    headers = {"host": "127.0.0.1:30000"} | ({} if origin is None else {"origin": origin})
    KnownHosts("127.0.0.1", "rl.example.org").check(headers, "POST", private=True)
