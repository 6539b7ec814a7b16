"""Findings of audits, in `/metrics` and `/rl/status`."""

from __future__ import annotations

import re

from openclaw_rl.shared.records import Audit
from tests.processes import Proxy

HELLO = [{"role": "user", "content": "hello"}]


def test_audits_are_published(service: Proxy) -> None:
    ids = [service.chat(HELLO).headers["x-openclaw-rl-turn"] for _ in range(3)]
    before = service.journal().audit_figures()
    journal = service.journal()
    journal.add_audit(Audit(turn_id=ids[0], version=0, verdict="aligned", reason="fine", differences=[0.0, 0.125]))
    journal.add_audit(Audit(turn_id=ids[1], version=0, verdict="misaligned", reason="off", differences=[0.5, 7.5]))
    journal.add_audit(Audit(turn_id=ids[2], version=9, verdict="gone", reason="no version 9"))
    with service.client() as client:
        text = client.get("/metrics").text
        status = client.get("/rl/status").json()["audit"]
    for verdict in ("aligned", "misaligned", "gone"):
        count = before.verdicts.get(verdict, 0) + 1
        assert f'openclaw_rl_audited_turns{{verdict="{verdict}"}} {count}.0' in text
        assert status["verdicts"][verdict] == count
    assert 'openclaw_rl_audited_turns{verdict="unavailable"}' in text
    published = dict(re.findall(r'openclaw_rl_audit_logprob_difference\{statistic="(\w+)"\} (\S+)', text))
    assert published.keys() == {"mean", "p99", "max"} and float(published["max"]) == status["max"] == 7.5
    assert float(published["mean"]) == status["mean"] > 0
    assert (status["turns"], status["tokens"]) == (before.turns + 2, before.tokens + 4)
    assert (status["fraction"], status["tolerance"]) == (0.02, 0.1)
