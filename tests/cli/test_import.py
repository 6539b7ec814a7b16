"""`openclaw-rl import` with a running engine, and from one service into another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.client import ServiceError
from openclaw_rl.cli.main import app
from openclaw_rl.cli.trajectories.trajectory import TrajectoryError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.settings.settings import Settings
from tests.cli.commands.test_serve import serving, until
from tests.processes import Engine, Proxy


def session(name: str, *turns: dict[str, Any]) -> dict[str, Any]:
    return {"session_id": name, "turns": list(turns) or [{"prompt": "Hi", "response": f"Hello {name}."}]}


def written(path: Path, *sessions: Any) -> str:
    path.write_text(
        "".join(json.dumps(one) + "\n" for one in sessions) if path.suffix == ".jsonl" else json.dumps(sessions)
    )
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def import_(engine_server: Engine, tmp_path: Path) -> Callable[..., str]:
    """The command on a data folder of its own, with a running engine."""

    def call(*arguments: str) -> str:
        return run("import", "--data", str(tmp_path / "data"), "--engine-url", engine_server.url, *arguments)

    return call


def stored(tmp_path: Path) -> list[str]:
    journal = Journal(Settings(data=tmp_path / "data").serve.journal_path)
    try:
        return [session_id.rpartition("-")[2] for session_id in journal.session_ids()]
    finally:
        journal.close()


def test_files_are_imported_once_and_reported(tmp_path: Path, import_: Callable[..., str]) -> None:
    side = {"type": "side", "prompt": "A title?", "response": "Greetings"}
    never = {"prompt": "Hi", "response": "Hello.", "trainable": False}
    one = written(tmp_path / "one.jsonl", session("a"), session("b", side, never))
    two = written(tmp_path / "two.json", session("c"), session("a"))
    lines = import_(one, two).splitlines()
    assert lines == [
        f"{one}: 2 sessions with 3 turns, 1 of which may be trained on",
        "  1 not: its file says that it is not to be trained on",
        f"{two}: 1 sessions with 1 turns, 1 of which may be trained on; 1 were there already",
    ]
    assert stored(tmp_path) == ["a", "b", "c"]
    again = json.loads(import_("--json", one))
    assert again["files"] == [
        {"file": one, "sessions": 0, "turns": 0, "trainable": 0, "already_there": 2, "empty": 0, "left_out": {}}
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (session("b", {"prompt": "Hi"}), "two.jsonl:2, turn 0: response is missing"),
        ({"turns": []}, "two.jsonl:2: Object missing required field `session_id`"),
    ],
)
def test_a_fault_anywhere_stores_nothing(tmp_path: Path, import_: Callable[..., str], fault: Any, message: str) -> None:
    good = written(tmp_path / "one.jsonl", session("a"))
    with pytest.raises(TrajectoryError) as caught:
        import_(good, written(tmp_path / "two.jsonl", session("b"), fault))
    assert message in str(caught.value)
    assert stored(tmp_path) == []


def test_it_needs_an_engine_and_says_how_to_get_one(tmp_path: Path) -> None:
    file = written(tmp_path / "one.jsonl", session("a"))
    with pytest.raises(ServiceError, match=r"no engine runs on the data folder .* openclaw-rl serve"):
        run("import", file, "--data", str(tmp_path / "data"))
    with pytest.raises(ServiceError, match=r"the engine at http://127.0.0.1:9 does not answer"):
        run("import", file, "--data", str(tmp_path / "data"), "--engine-url", "http://127.0.0.1:9")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_complaints_of_one_service_teach_another(service: Proxy, tmp_path: Path, policy_folder: Path) -> None:
    names = [f"offline-{number}" for number in range(4)]
    for number, name in enumerate(names):
        asked = [{"role": "user", "content": f"A box holds {number + 3} pens. How many pens are in 4 boxes?"}]
        answer = service.chat(asked, {"X-Session-Id": name}, max_tokens=60).json()["choices"][0]["message"]
        complaint = {"role": "user", "content": f"Please do not use any bold text, box {number}."}
        service.chat([*asked, answer, complaint], {"X-Session-Id": name})
    file = tmp_path / "offline.jsonl"
    chosen = [word for name in names for word in ("--session", name)]
    run("export", str(file), "--data", str(service.data), "--messages", "--no-redact", *chosen)
    data = tmp_path / "other"
    flags = ["--served-model-name", "pupil", "--device", "cpu"]
    with serving(data, "--model", str(policy_folder), "--batch-size", "4", *flags):
        report = json.loads(run("import", str(file), "--data", str(data), "--json"))["files"][0]
        assert (report["sessions"], report["turns"], report["trainable"]) == (4, 8, 8)
        journal = Journal(data / "journal.db")

        def live() -> Any:
            found = journal.version(1)
            return found if found is not None and found.state == "live" else None

        version = until(live, 300.0, what="a version made from imported complaints")
        assert (version.method, len(version.sample_ids)) == ("rehearse", 4)
        assert version.metrics["loss/distill"] > 0
        taught = [turn for one in journal.session_ids() for turn in journal.turn_ids(one)]
        explained = [one for one in map(journal.explain, taught) if one is not None and one["samples"]]
        journal.close()
    assert len(explained) == 4
    assert {one["turn"]["policy"] for one in explained} == {"pupil"}
    assert all(one["no_ratio"].startswith("imported") for one in explained)
    assert all("do not use any bold" in one["judgements"][0]["hint"] for one in explained)
