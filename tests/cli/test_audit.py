"""`status` and `why` on audits, and on turns whose score cannot teach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.commands.status import audit_line
from openclaw_rl.cli.main import app
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Audit
from tests.processes import Proxy
from tests.shared.journal_records import sample_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def run(service: Proxy, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--url", service.url, "--key", service.key], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def answered(service: Proxy, **options: Any) -> str:
    """The id of a new turn."""
    response = service.chat([{"role": "user", "content": "What is 2 + 2?"}], **options)
    return str(response.headers["x-openclaw-rl-turn"])


def test_why_tells_what_the_audit_of_a_turn_found(service: Proxy) -> None:
    fine, wrong, skipped = (answered(service) for _ in range(3))
    journal: Journal = service.journal()
    journal.add_audit(Audit(turn_id=fine, version=0, verdict="aligned", reason="off by 0.01", differences=[0.01]))
    journal.add_audit(Audit(turn_id=wrong, version=0, verdict="misaligned", reason="off by 2", differences=[2.0]))
    journal.add_audit(Audit(turn_id=skipped, version=7, verdict="gone", reason="the engine has version 7 no more"))
    assert "Audited with version 0" in run(service, "why", fine)
    assert "its logprobs hold: off by 0.01." in run(service, "why", fine)
    story = run(service, "why", wrong)
    assert "ITS LOGPROBS ARE WRONG: off by 2." in story
    assert "It is set aside: misaligned: its logprobs are not those that version 0 gives its tokens." in story
    assert "An audit of it was skipped: the engine has version 7 no more." in run(service, "why", skipped)
    assert json.loads(run(service, "why", wrong, "--json"))["audit"]["verdict"] == "misaligned"
    assert "MISALIGNED" in run(service, "status")


def test_why_tells_that_a_score_on_a_filtered_answer_does_not_teach(service: Proxy) -> None:
    turn_id = answered(service, top_p=0.9)
    journal: Journal = service.journal()
    turn = journal.turn(turn_id)
    assert turn is not None
    journal.add_sample(sample_of(turn))
    story = run(service, "why", turn_id)
    assert "It was sampled with top_p 0.9" in story and "a hint on it teaches, its score does not." in story
    assert "a hint on it" not in run(service, "why", answered(service))


NOTHING = dict.fromkeys(("aligned", "misaligned", "incomparable", "gone", "unavailable"), 0)


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        ({}, "nothing compared yet"),
        ({"unavailable": 2}, "nothing compared yet; left out 2 while the engine was away"),
        (
            {"aligned": 5, "gone": 1},
            "5 turns scored again, none misaligned; last 5: logprobs off by 0.001 on average, p99 0.002, at most 0.5; "
            "left out 1 of a version that is gone",
        ),
        (
            {"aligned": 3, "misaligned": 2},
            "5 turns scored again, 2 MISALIGNED; last 5: logprobs off by 0.001 on average, p99 0.002, at most 0.5",
        ),
    ],
)
def test_the_line_of_status(verdicts: dict[str, int], line: str) -> None:
    figures = {"turns": 5, "mean": 0.001, "p99": 0.002, "max": 0.5}
    assert audit_line({"fraction": 0.02, "verdicts": NOTHING | verdicts, **figures}) == line
    assert audit_line({"fraction": 0.0, "verdicts": NOTHING | verdicts, **figures}) == "off"
