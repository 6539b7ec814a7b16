from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.commands.eval import EvalOptions, evaluate_policy, experiment_of, without_keys, work_of
from openclaw_rl.cli.main import app
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.evaluation.pupil import Pupil
from tests.scripted import plain, serving

MODELS = {"data": [{"id": "policy"}, {"id": "policy@0"}, {"id": "policy@1"}]}
OWN = {"id": "double", "prompt": "Write double(n).", "tests": ["assert double(2) == 4"]}


class Versions(Pupil):
    """A stand-in that lists versions; version 1 has learned."""

    def __call__(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        if path == "/v1/models":
            return plain(MODELS)
        if path.startswith("/v1/models/"):
            if "/other" in path:
                return plain({"id": "other@1", "root": "policy"})
            known = path.rpartition("/")[2] in [model["id"] for model in MODELS["data"]]
            return plain({"id": "x"}) if known else plain({"error": {"message": "no such model"}}, 404)
        self.learns_after = 1
        self.reactions = int(body.get("model") == "policy@1")
        return super().__call__(path, body, headers)


def test_versions_stand_side_by_side_against_a_scripted_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "mine.jsonl"
    own.write_text(json.dumps(OWN))
    with serving(Versions()) as service:
        evaluate_policy(
            url=service.url,
            key="KEY",
            versions="0,1",
            suite="conversation",
            seeds=2,
            problems=3,
            tasks=[own],
            out=tmp_path / "out",
            as_json=True,
        )
        asked = {headers["authorization"] for _, _, headers in service.requests}
    assert asked == {"Bearer KEY"}
    result = json.loads(capsys.readouterr().out)
    before, after = result["targets"]
    assert (before["name"], before["conversation"]["student"]["score"]) == ("policy@0", [0.0, 0.0])
    assert (after["name"], after["conversation"]["student"]["score"]) == ("policy@1", [1.0, 0.0])
    assert after["mine"]["score"] == [0.0, 0.0]
    kept = json.loads((tmp_path / "out" / "eval.json").read_text())
    assert kept["targets"] == result["targets"]
    assert {"command", "machine", "commit"} <= kept.keys()
    assert (tmp_path / "out" / "eval.png").read_bytes().startswith(b"\x89PNG")


def test_without_json_it_is_a_table_against_a_scripted_service(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Versions()) as service:
        evaluate_policy(url=service.url, key="KEY", seeds=1, problems=2, persona="student,ta", sessions=2)
    output = capsys.readouterr()
    assert "student: style" in output.out
    assert "student: sessions until satisfied" in output.out
    assert "> 2" in output.out
    assert "ta, seed 1: score 0.50" in output.err  # it names a step, and little else


def test_a_version_that_is_not_there_ends_it_before_anything_is_asked() -> None:
    with serving(Versions()) as service:
        with pytest.raises(Exception, match="no such model"):
            evaluate_policy(url=service.url, key="KEY", versions="0,7")
        assert not any(path == "/v1/chat/completions" for path, _, _ in service.requests)


def test_a_version_of_another_name_is_refused_since_it_would_be_the_live_one() -> None:
    with serving(Versions()) as service:
        with pytest.raises(ConfigError, match="other@1 is no version, since other is not the policy's own name"):
            evaluate_policy(url=service.url, key="KEY", model_name="other", versions="1")
        assert not any(path == "/v1/chat/completions" for path, _, _ in service.requests)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("conversation,coding,tool-use", r"checkpoint-latest is no policy: .*openclaw-rl versions lists them"),
        ("conversation,maths", "--suite maths: no such thing; choose from conversation, coding, tool-use"),
    ],
)
def test_the_flags_of_another_evaluation_script_are_read(tmp_path: Path, tasks: str, message: str) -> None:
    arguments = ["eval", "--model-path", str(tmp_path / "checkpoint-latest"), "--eval-tasks", tasks]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ConfigError)
    assert re.search(message, str(result.exception))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suite": "maths"}, "conversation, coding, tool-use"),
        ({"persona": "parrot"}, "student, ta, teacher"),
        ({"seeds": 0}, "at least 1"),
        ({"sessions": -1}, "--sessions"),
        ({"tasks": [Path("coding.jsonl")]}, "taken"),
        ({"tasks": [Path("nothing-here.jsonl")]}, "cannot be read"),
        ({"dataset": Path("nothing-here.json")}, "cannot be read"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        work_of(EvalOptions(**options))


def test_a_data_set_goes_with_the_student_alone(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"question": "5 + 3?", "answer": "#### 8"}')
    assert work_of(EvalOptions(dataset=path)).dataset[0].answer == 8
    with pytest.raises(ConfigError, match="goes with student"):
        work_of(EvalOptions(dataset=path, persona="ta"))


def test_own_tasks_are_a_suite_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(OWN))
    assert list(work_of(EvalOptions(tasks=[path])).suites) == ["mine"]
    assert work_of(EvalOptions(tasks=[path])).personas == []
    both = work_of(EvalOptions(tasks=[path], suite="coding,conversation"))
    assert (list(both.suites), both.personas) == (["coding", "mine"], ["student"])


def test_arms_are_checked_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no arm sham"):
        experiment_of(EvalOptions(arms="control,sham"))
    with pytest.raises(ConfigError, match=r"--method ppo: .*no method; choose one of rehearse"):
        experiment_of(EvalOptions(arms="control", method="ppo"))
    with pytest.raises(ConfigError, match="at most once"):
        experiment_of(EvalOptions(arms="control", model=[EMBEDDED_POLICY, EMBEDDED_POLICY]))
    with pytest.raises(ConfigError, match="no policy"):
        evaluate_policy(model=[tmp_path])


def test_keys_are_not_kept() -> None:
    typed = ["eval", "--key", "SECRET", "--user-api-key=SECRET", "--url", "http://x"]
    assert without_keys(typed) == ["eval", "--key", "KEY", "--user-api-key=KEY", "--url", "http://x"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_shipped_policy_is_evaluated_in_every_suite() -> None:
    arguments = [
        "--model",
        str(EMBEDDED_POLICY),
        "--suite",
        "conversation,tool-use",
        "--persona",
        "teacher",
        "--seeds",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "openclaw_rl.cli.main", "eval", *arguments, "--problems", "8", "--json"],
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = done.stdout.splitlines()
    (target,) = json.loads(line)["targets"]
    assert target["conversation"]["teacher"]["accuracy"][0] >= 0.5
    assert target["conversation"]["teacher"]["score"][0] <= 0.5
    assert 0.0 < target["tool-use"]["score"][0] < 1.0
