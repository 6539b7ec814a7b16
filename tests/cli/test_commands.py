"""The commands against a real proxy, as a person types them."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import main as command_line
from openclaw_rl.cli.main import app
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Judgement, NextState, Quarantine, Vote
from tests.processes import Proxy
from tests.shared.journal_records import sample_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def run(service: Proxy | None, *arguments: str) -> str:
    """Run a command and return its output; it must succeed."""
    where = ["--url", service.url, "--key", service.key] if service else []
    result = CliRunner().invoke(app, [*arguments, *where], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and message of a command that cannot do its work."""
    monkeypatch.setattr("sys.argv", ["openclaw-rl", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err


class Talk:
    """A session of its own on the shared proxy."""

    def __init__(self, service: Proxy) -> None:
        self.service = service
        self.session = f"cli-{uuid4().hex[:8]}"
        self.messages: list[dict[str, Any]] = []

    def say(self, text: str) -> str:
        """Send a message in this conversation; the id of the turn that answered."""
        self.messages.append({"role": "user", "content": text})
        answer = self.service.chat(self.messages, {"X-Session-Id": self.session})
        assert answer.status_code == 200, answer.text
        self.messages.append(answer.json()["choices"][0]["message"])
        return answer.headers["x-openclaw-rl-turn"]


@pytest.fixture
def talk(service: Proxy) -> Talk:
    return Talk(service)


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    shown = run(None, command, "--help")
    assert command_line.COMMANDS[command][1] in " ".join(shown.split()) and "--help" in shown


def test_status_tells_version_turns_and_processes(service: Proxy, talk: Talk) -> None:
    talk.say("What is 2 + 2?")
    shown = run(service, "status")
    assert re.search(r"^serving +the base", shown, re.MULTILINE)
    assert re.search(r"^training +running", shown, re.MULTILINE)
    assert "proxy" in shown and str(service.process.pid) in shown
    answer = json.loads(run(service, "status", "--json"))
    assert answer["turns"]["main"] >= 1


def test_status_tells_what_the_learner_is_doing(service: Proxy) -> None:
    progress = {"state": "waiting for samples", "detail": "3 of 8", "last_error": ""}
    service.journal().heartbeat("learner", service.process.pid, progress)
    assert re.search(r"^learner +waiting for samples: 3 of 8", run(service, "status"), re.MULTILINE)
    service.journal().heartbeat("learner", service.process.pid, progress | {"last_error": "training: no room"})
    assert "(last error: training: no room)" in run(service, "status")
    service.journal().heartbeat("learner", 2**22 + 1, progress)
    assert re.search(r"^learner +gone; it was waiting for samples", run(service, "status"), re.MULTILINE)


def test_sessions_lists_and_shows_one(service: Proxy, talk: Talk) -> None:
    first = talk.say("What is 2 + 2?")
    talk.say("No bold, please.")
    assert talk.session in run(service, "sessions")
    shown = run(service, "sessions", talk.session)
    assert "2 main and 0 side turns, 1 settled" in shown
    assert first in shown
    assert "1: no turn before it: the conversation begins here" in shown
    rows = json.loads(run(service, "sessions", "--json", "--limit", "1"))["items"]
    assert [row["session_id"] for row in rows] == [talk.session]


@pytest.mark.parametrize("name", ["home/kitchen", "[red]x[/y]", "50% off?", "Küche 三", "..a"])
def test_sessions_shows_one_by_whatever_id_it_has(service: Proxy, name: str) -> None:
    hello = [{"role": "user", "content": "What is 2 + 2?"}]
    turn = service.chat(hello, {"X-Session-Id": name.encode()}).headers["x-openclaw-rl-turn"]  # type: ignore[dict-item]
    shown = run(service, "sessions", name)
    assert name in shown and turn in shown
    assert name in run(service, "sessions")


def test_sessions_says_that_there_is_none(
    service: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("not/here", "..", "."):
        code, message = fails(monkeypatch, capsys, "sessions", name, "--url", service.url, "--key", service.key)
        assert code == 1 and f"no session {name!r}" in message, message


def test_why_tells_the_story_in_words(service: Proxy, talk: Talk) -> None:
    first = talk.say("What is 2 + 2?")
    second = talk.say("No bold, please.")
    story = run(service, "why", first)
    assert f"in session {talk.session}" in story
    assert "Asked: “What is 2 + 2?”" in story
    assert "It continues no earlier turn" in story
    assert "Next came, from the user: “No bold, please.”" in story
    assert "It waits for a judge." in story
    assert f"It continues {first}." in run(service, "why", second)
    assert json.loads(run(service, "why", second, "--json"))["turn"]["turn_id"] == second
    assert (
        json.loads(run(service, "why", f"chatcmpl-{second.removeprefix('turn_')}", "--json"))["turn"]["turn_id"]
        == second
    )


def test_why_tells_of_weaker_evidence_that_was_replaced(service: Proxy, talk: Talk) -> None:
    first = talk.say("What is 3 + 2?")
    journal: Journal = service.journal()
    for text, weak in (("Look at the notes.", True), ("Thanks.", False)):
        came = NextState(turn_id=first, role="user", text=text, next_turn_id=f"turn_{weak}", weak=weak)
        assert journal.settle(came) == ("weak" if weak else "firm")
        story = run(service, "why", first)
        assert f"Next came, from the user: “{text}”" in story
        assert ("will replace it" in story) == weak
    assert "It replaces what came first, with turn_True" in story


def test_why_tells_judgement_and_what_became_of_it(service: Proxy, talk: Talk) -> None:
    ids = [talk.say("What is 2 + 2?"), talk.say("No bold, please."), talk.say("Thanks.")]
    journal: Journal = service.journal()
    votes = [Vote(text="bad", score=-1.0), Vote(failure="timed out")]
    journal.add_judgement(
        Judgement(turn_id=ids[0], score=-1.0, hint="write no bold", votes=votes, judge="rules", reason="a complaint")
    )
    first = journal.turn(ids[0])
    assert first is not None
    journal.add_sample(sample_of(first))
    story = run(service, "why", ids[0])
    assert "Judged -1 by rules from judge: a complaint." in story
    assert "Vote 1: -1; it said “bad”" in story and "Vote 2: failed: timed out" in story
    assert "The hint that came of it: “write no bold”" in story
    assert "It is ready and waits for the next step." in story
    journal.add_quarantine(Quarantine(turn_id=ids[1], reason="longer than max_sample_tokens"))
    assert "It is set aside: longer than max_sample_tokens." in run(service, "why", ids[1])


def test_feedback_on_a_turn_and_on_a_session(service: Proxy, talk: Talk) -> None:
    first, second = talk.say("What is 2 + 2?"), talk.say("And 3 + 3?")
    assert f"👍 noted for {first}" in run(service, "feedback", first, "--good")
    said = json.loads(run(service, "feedback", "--session", talk.session, "--bad", "too long", "--json"))
    assert (said["turn_id"], said["score"]) == (second, -1)
    story = run(service, "why", second)
    assert "Explicit feedback -1" in story and "“too long”" in story


def test_pause_and_resume(service: Proxy) -> None:
    try:
        assert "training: paused" in run(service, "pause")
        assert json.loads(run(service, "status", "--json"))["training"] == "paused"
    finally:
        assert json.loads(run(service, "resume", "--json")) == {"training": "running"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["feedback", "--good"], "name either a TURN or a --session"),
        (["feedback", "turn_x"], "nothing to say"),
        (["feedback", "turn_x", "--good", "--bad"], "choose one"),
        (["serve", "--only", "dashboard"], "dashboard: no such part"),
        (["serve", "--prot", "1"], "did you mean port"),
        (["doctor", "--max-turns", "8"], "--max-turns has no counterpart here"),
    ],
)
def test_senseless_arguments_are_refused_with_exit_code_2(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = fails(monkeypatch, capsys, *arguments)
    assert code == 2
    assert expected in message
    assert len(message.splitlines()) == 1
    assert not logging.getLogger("stamina").isEnabledFor(logging.WARNING), "no line for every request tried again"


def test_a_service_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, message = fails(monkeypatch, capsys, "status", "--url", "http://127.0.0.1:9")
    assert code == 1
    assert "no service answers at http://127.0.0.1:9" in message and "openclaw-rl serve" in message


def test_a_wrong_key_and_an_unknown_turn(
    service: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = fails(monkeypatch, capsys, "status", "--url", service.url, "--key", "wrong")
    assert (code, "refuses this key" in message) == (1, True)
    code, message = fails(monkeypatch, capsys, "why", "turn_none", "--url", service.url, "--key", service.key)
    assert (code, "turn_none" in message) == (1, True)


def test_the_data_folder_tells_where_the_service_is(service: Proxy, tmp_path: Path) -> None:
    card = {"pid": service.process.pid, "url": service.url, "key": service.key}
    write_json(tmp_path / "data" / "run" / "proxy.json", card)
    assert "serving" in run(None, "status")
    assert "serving" in run(None, "status", "--data", str(tmp_path / "data"))


def test_doctor_explains_every_setting(monkeypatch: pytest.MonkeyPatch, policy_folder: Path) -> None:
    monkeypatch.setenv("LEARNING_RATE", "1e-4")
    monkeypatch.setenv("OPENCLAW_RL_API_KEY", "s3cret")
    monkeypatch.setenv("WANDB_API_KEY", "k")
    flags = ["--port", "0", "--model", str(policy_folder), "--tokenizer", str(policy_folder)]
    shown = run(None, "doctor", *flags)
    assert "LEARNING_RATE (alias)" in shown
    assert "s3cret" not in shown
    assert "WANDB_API_KEY has no counterpart here" in shown
    assert "What leaves this machine: nothing." in shown
    answer = json.loads(run(None, "doctor", "--json", *flags))
    assert answer["settings"]["learning_rate"] == {
        "value": "0.0001",
        "source": "LEARNING_RATE (alias)",
        "meaning": "AdamW learning rate",
    }
    assert answer["leaves_the_machine"] == []
    assert all(check["ok"] is not False for check in answer["checks"])


def test_doctor_says_what_leaves_the_machine_and_what_is_wrong(tmp_path: Path) -> None:
    flags = [
        "--judge",
        "openai/some-model",
        "--engine-url",
        "http://10.0.0.9:1",
        "--model",
        "some/model",
        "--port",
        "0",
    ]
    result = CliRunner().invoke(app, ["doctor", "--json", *flags])
    leaving = " ".join(json.loads(result.stdout)["leaves_the_machine"])
    assert "judge openai/some-model" in leaving and "10.0.0.9" in leaving and "some/model" in leaving
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", "--model", str(tmp_path / "empty")])
    assert result.exit_code == 1
    (policy,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "policy"]
    assert policy["ok"] is False and "config.json" in policy["message"]


def test_a_judge_on_this_machine_keeps_everything_here() -> None:
    flags = ["--judge", "openai/local@http://127.0.0.1:9/v1", "--port", "0"]
    result = CliRunner().invoke(app, ["doctor", "--json", *flags])
    assert json.loads(result.stdout)["leaves_the_machine"] == []
