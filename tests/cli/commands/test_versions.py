"""`openclaw-rl versions` and `rollback` against a real proxy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.commands.versions import verdict
from openclaw_rl.shared.records import PolicyVersion
from tests.cli.test_commands import fails, run
from tests.processes import Proxy
from tests.shared.journal_records import judged, make_turn, sample_of, user_reply

ACCEPTED = {"answers": 16, "held_back": 2, "candidate": -0.1, "parent": -0.11, "drop": -0.01, "limit": 0.5}
GUARD: dict[str, Any] = {
    "passed": True,
    "reason": "",
    "accepted": ACCEPTED,
    "kl_base": 0.061,
    "answers": {"asked": 16, "candidate": {"flawed": 1, "length": 1}, "parent": {"flawed": 0}, "limit": 0.25},
}


@pytest.fixture
def learned(start_proxy: Callable[..., Proxy]) -> Proxy:
    """A proxy that serves the base, as version 1 of which is rejected: the engine is everybody's."""
    proxy = start_proxy()
    journal = proxy.journal()
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint="", time=1e9))
    gone = PolicyVersion(
        number=1, parent=0, state="retired", checkpoint="/nowhere/1", method="rehearse", guard=GUARD, time=1e9
    )
    journal.commit_version(gone)
    reason = {"passed": False, "reason": "8 of 8 rewards contradict what people accepted before"}
    journal.commit_version(
        PolicyVersion(number=2, parent=0, state="rejected", checkpoint="", method="rehearse", guard=reason)
    )
    return proxy


def test_versions_lists_parent_state_samples_verdict_and_date(learned: Proxy) -> None:
    shown = run(learned, "versions")
    head, base, gone = shown.splitlines()[:3]
    assert head.split() == ["version", "parent", "state", "method", "samples", "guard", "date"]
    assert "live" in base and "the base" in base and "2001-09-" in base
    assert "retired (files gone)" in gone
    passed = "passed; accepted answers +0.010 nats a token; 1 of 16 answers flawed; 0.06 nats from the base"
    assert verdict({"number": 1, "state": "retired", "guard": GUARD}) == passed
    assert "rejected: 8 of 8 rewards contradict" in shown
    rows = json.loads(run(learned, "versions", "--json"))["versions"]
    assert [(row["number"], row["parent"], row["state"], row["available"]) for row in rows] == [
        (0, None, "live", True),
        (1, 0, "retired", False),
        (2, 0, "rejected", False),
    ]


def test_a_version_that_was_not_probed_says_why() -> None:
    resumed = {"passed": True, "reason": "", "resumed": "/old/7"}
    assert verdict({"number": 1, "state": "live", "guard": resumed}) == "not probed: resumed from /old/7"
    single = {"passed": True, "reason": "", "not_probed": "the engine holds one version at a time"}
    assert "one version at a time" in verdict({"number": 1, "state": "live", "guard": single})


def test_no_version_yet(start_proxy: Callable[..., Proxy]) -> None:
    assert "No version yet" in run(start_proxy(), "versions")


def test_rollback_to_what_is_live_and_to_what_cannot_be(
    learned: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "version 0 is live already" in run(learned, "rollback", "0")
    where = ["--url", learned.url, "--key", learned.key]
    code, message = fails(monkeypatch, capsys, "rollback", *where)
    assert code == 1 and "The base itself is live" in message
    code, message = fails(monkeypatch, capsys, "rollback", "2", *where)
    assert code == 1 and "was rejected and never serves" in message and "Available: 0." in message
    code, message = fails(monkeypatch, capsys, "rollback", "1", *where)
    assert code == 1 and "are gone" in message


def test_rollback_goes_to_the_parent_by_itself(learned: Proxy, policy_folder: Path) -> None:
    journal = learned.journal()
    journal.set_version_state(1, "live")
    shown = run(learned, "rollback")
    assert "version 0 is live instead of version 1" in shown and "New requests use it" in shown
    assert json.loads(run(learned, "rollback", "0", "--json"))["engine"] == "serves it"


def test_rollback_says_what_only_the_line_that_is_left_has_learned_from_and_releases_it(learned: Proxy) -> None:
    journal = learned.journal()
    turn = make_turn()
    journal.open_episode("ses", "policy", "test")
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    sample = sample_of(turn)
    journal.add_sample(sample)
    journal.add_judgement(judged(turn))
    journal.commit_version(
        PolicyVersion(number=3, parent=0, state="live", checkpoint="/nowhere/3", sample_ids=[sample.sample_id])
    )
    assert "1 turns that only other versions have learned from" in run(learned, "rollback", "0")
    assert "1 samples wait for a step again." in run(learned, "rollback", "0", "--release")
    assert journal.accounting()["ready"] == 1


def test_promote_and_pin_and_what_is_refused_meanwhile(
    learned: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--url", learned.url, "--key", learned.key]
    learned.journal().set_version_state(1, "live")
    assert "version 0 is live instead of version 1" in run(learned, "promote", "0")
    assert "Version 0 stays live" in run(learned, "pin")
    assert "version 0 is pinned" in run(learned, "status")
    code, message = fails(monkeypatch, capsys, "resume", *where)
    assert code == 1 and "openclaw-rl pin --off" in message
    code, message = fails(monkeypatch, capsys, "pin", "1", "--off", *where)
    assert code == 2 and "takes no version" in message
    assert "version 0 is pinned no more; training: running" in run(learned, "pin", "--off")
    assert "no version is pinned" in run(learned, "pin", "--off")
