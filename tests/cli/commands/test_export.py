"""`openclaw-rl export`: what is in the file, what is left out of it, and what is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.main import app
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.encoding import token_ids
from openclaw_rl.shared.records import Outcome
from openclaw_rl.shared.redaction.redactor import Redactor
from openclaw_rl.shared.settings.settings import Settings
from tests.shared.journal_records import judged, make_turn, thumb, user_reply


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with two sessions, the second of them later and with a side turn."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    journal = Journal(Settings(data=folder).serve.journal_path)
    early = make_turn("early", text="Write to jane@example.org", answer={"role": "assistant", "content": "Done."})
    journal.record_turn(early)
    journal.settle(user_reply(early, "Call +44 20 7946 0958 instead"))
    journal.add_feedback(thumb(early, -1.0, "no mail"))
    journal.add_judgement(judged(early, hint="call +44 20 7946 0958"))
    journal.add_outcome(Outcome(session_id="early", reward=0.5, detail="half"))
    for kind in ("main", "side"):
        late = make_turn("late", kind=kind)
        when = msgspec.structs.replace(late.timings, arrived=2e9, finished=2e9)
        journal.record_turn(msgspec.structs.replace(late, timings=when))
    journal.close()
    return folder


def run(data: Path, *arguments: str) -> tuple[str, str]:
    """Stdout and stderr of an export that must succeed."""
    result = CliRunner().invoke(app, ["export", "--data", str(data), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def exported(data: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(data, "--no-redact", *arguments)[0])
    return found


def test_everything_in_the_communitys_form(data: Path) -> None:
    first, second = exported(data)
    assert [first["session_id"], second["session_id"]] == ["early", "late"]
    assert first["turns"] == [
        {
            "type": "main",
            "prompt": "system: Be kind.\n\nuser: Write to jane@example.org",
            "response": "Done.",
            "next_state": "Call +44 20 7946 0958 instead",
            "trainable": True,
        }
    ]
    assert [(turn["type"], turn["trainable"]) for turn in second["turns"]] == [("main", True), ("side", False)]


def test_sessions_kinds_and_times_are_chosen(data: Path) -> None:
    assert [one["session_id"] for one in exported(data, "--session", "late")] == ["late"]
    assert [one["session_id"] for one in exported(data, "--since", "2030-01-01")] == ["late"]
    (side,) = exported(data, "--kind", "side")
    assert [turn["type"] for turn in side["turns"]] == ["side"]
    assert [len(one["turns"]) for one in exported(data, "--kind", "main")] == [1, 1]
    assert exported(data, "--since", "2040-01-01") == []


def test_lines_by_the_name_of_the_file_or_by_word(data: Path, tmp_path: Path) -> None:
    notes = run(data, "--no-redact", str(tmp_path / "out.jsonl"))[1]
    assert "exported 2 sessions with 3 turns" in notes
    text = (tmp_path / "out.jsonl").read_text()
    assert text.endswith("\n")
    assert [json.loads(line)["session_id"] for line in text.splitlines()] == ["early", "late"]
    assert run(data, "--no-redact", "--format", "jsonl")[0] == text
    assert stat.S_IMODE((tmp_path / "out.jsonl").stat().st_mode) == 0o600
    assert run(data, "--no-redact", "--format", "jsonl", "--since", "2040-01-01")[0] == ""


def test_the_lossless_form_and_tokens(data: Path) -> None:
    plain = exported(data)[0]["turns"][0]
    first = exported(data, "--messages")[0]
    assert first["outcome"] == {"reward": 0.5, "detail": "half"}
    (turn,) = first["turns"]
    assert plain.items() <= turn.items()
    assert [message["role"] for message in turn["messages"]] == ["system", "user"]
    assert turn["feedback"] == [{"score": -1.0, "text": "no mail"}]
    assert "prompt_ids" not in turn
    (turn,) = exported(data, "--tokens")[0]["turns"]
    journal = Journal(Settings(data=data).serve.journal_path)
    recorded = journal.turn(turn["turn_id"])
    journal.close()
    assert recorded is not None
    assert token_ids(turn["prompt_ids"]) == recorded.prompt_ids
    assert turn["logprobs"] == list(recorded.logprobs)


def test_it_is_redacted_by_itself_and_ids_stay(data: Path) -> None:
    pytest.importorskip("datafog")
    out, notes = run(data, "--messages")
    assert "redacted: " in notes and "EMAIL" in notes
    assert "jane@example.org" not in out and "7946" not in out
    (turn,) = json.loads(out)[0]["turns"]
    assert turn["messages"][1]["content"] == "Write to [EMAIL]"
    assert turn["prompt"].endswith("user: Write to [EMAIL]")
    assert turn["judgement"]["hint"] == "call [PHONE]"
    before = exported(data, "--messages")[0]["turns"][0]
    for name in ("turn_id", "time", "sampling", "versions", "answer"):
        assert turn[name] == before[name]


def test_without_the_libraries_it_says_so(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redactor, "if_installed", classmethod(lambda cls: None))
    out, notes = run(data)
    assert "NOT redacted" in notes and "-e '.[redact]'" in notes
    assert "jane@example.org" in out
    with pytest.raises(ConfigError, match="needs its libraries"):
        run(data, "--redact")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--session", "unknown"], "no session unknown"),
        (["--since", "yesterday"], "'yesterday' is no date"),
        (["--tokens"], "add --no-redact"),
        (["there.json"], "exists; choose another name"),
    ],
)
def test_unusable_options_and_existing_files_are_refused(data: Path, arguments: list[str], message: str) -> None:
    Path("there.json").write_text("mine")
    with pytest.raises(ConfigError, match=message):
        run(data, *arguments)
    assert Path("there.json").read_text() == "mine"
    run(data, "--no-redact", "there.json", "--force")
    assert len(json.loads(Path("there.json").read_text())) == 2
    assert not list(Path().glob(".there*"))


def test_a_data_folder_without_a_journal(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no journal at"):
        run(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
