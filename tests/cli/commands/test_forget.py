"""`openclaw-rl forget` on a journal without a service, and by a service's routes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.main import app
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Timings
from tests.cli.test_commands import Talk, fails, run
from tests.processes import Proxy
from tests.shared.journal.test_journal_forgetting import hits
from tests.shared.journal_records import make_turn


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with an old session and a new one."""
    folder = tmp_path / "data"
    with closing(Journal(folder / "journal.db")) as journal:
        journal.record_turn(make_turn("old", text="about xylophones", timings=Timings(1e6, 1e6, 1e6)))
        journal.end_episode("old", "idle")
        journal.record_turn(make_turn("new", text="about marimbas", timings=Timings(2e9, 2e9, 2e9)))
    return folder


def forget(data: Path, *arguments: str, answer: str = "") -> str:
    result = CliRunner().invoke(app, ["forget", *arguments, "--data", str(data)], input=answer)
    return result.stdout


def test_nothing_is_deleted_before_a_yes(data: Path) -> None:
    assert "1 turns in 1 episodes, last active 1970-01-12" in forget(data, "--before", "2001-01-01", answer="n\n")
    assert hits(data, "xylophones")
    assert "deleted" in forget(data, "--before", "2001-01-01", answer="y\n")
    assert not hits(data, "xylophones") and hits(data, "marimbas")
    assert "nothing to forget" in forget(data, "--before", "2001-01-01")
    assert json.loads(forget(data, "new", "--yes", "--json"))["turns"] == 1
    assert not hits(data, "marimbas")
    assert "nothing to forget" in forget(data, "new", "--yes")


def test_one_of_session_and_date_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (([], "either"), (["x", "--before", "2001-01-01"], "either"), (["--before", "no"], "date")):
        code, message = fails(monkeypatch, capsys, "forget", *arguments, "--data", str(data))
        assert code == 2 and words in message


def test_a_running_service_forgets_on_request(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    talk = Talk(proxy)
    talk.say("about marimbas")
    assert "1 turns in 1 episodes" in run(proxy, "forget", talk.session, "--yes")
    assert not hits(proxy.data, "marimbas")
    journal = proxy.journal()
    journal.record_turn(make_turn("old", text="about xylophones", timings=Timings(1e6, 1e6, 1e6)))
    journal.end_episode("old", "idle")
    assert json.loads(run(proxy, "forget", "--before", "2001-01-01", "--yes", "--json"))["turns"] == 1
    assert not hits(proxy.data, "xylophones")
