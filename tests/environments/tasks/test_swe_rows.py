from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.commands.env import env
from openclaw_rl.environments.tasks.folder import VERIFIER
from openclaw_rl.environments.tasks.swe.history import FORGET
from openclaw_rl.environments.tasks.swe.rows import SweRow, read_rows
from openclaw_rl.shared.errors import ConfigError
from tests.environments.tasks.local_trial import LocalTrial, trial_reward

SOURCE = "def double(number):\n    return number + 2\n\n\ndef negate(number):\n    return -number\n"
VISIBLE = (
    "import unittest\nfrom doubling import negate\n\n\nclass Negate(unittest.TestCase):\n"
    "    def test_negate(self):\n        self.assertEqual(negate(2), -2)\n"
)
TEST_PATCH = """\
diff --git a/tests/test_doubling.py b/tests/test_doubling.py
--- a/tests/test_doubling.py
+++ b/tests/test_doubling.py
@@ -2,6 +2,11 @@
 from doubling import negate
 
 
+class Double(unittest.TestCase):
+    def test_double(self):
+        self.assertEqual(__import__("doubling").double(5), 10)
+
+
 class Negate(unittest.TestCase):
     def test_negate(self):
         self.assertEqual(negate(2), -2)
"""
PATCH = """\
diff --git a/doubling.py b/doubling.py
--- a/doubling.py
+++ b/doubling.py
@@ -1,5 +1,5 @@
 def double(number):
-    return number + 2
+    return number * 2
 
 
 def negate(number):
"""
FIX = "sed -i 's/number + 2/number * 2/' doubling.py"
Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in a repository whose first commit is the base, with a later one on two branches."""
    repository = tmp_path / "source"
    repository.mkdir()

    def run(*arguments: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=repository, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    run("init", "-q", "-b", "main")
    (repository / "tests").mkdir()
    (repository / "tests/__init__.py").touch()
    (repository / "tests/test_doubling.py").write_text(VISIBLE)
    (repository / "doubling.py").write_text(SOURCE)
    run("add", "-A")
    run("commit", "-q", "-m", "base")
    (repository / "doubling.py").write_text(SOURCE.replace("+ 2", "* 2"))
    run("commit", "-q", "-a", "-m", "the secret fix")
    run("branch", "future")
    run("tag", "v2")
    return run


@pytest.fixture
def fields(git: Git) -> dict[str, Any]:
    return {
        "instance_id": "doubling-1",
        "repo": "someone/doubling",
        "repository": "source",
        "base_commit": git("rev-parse", "main~1"),
        "problem_statement": "double(5) gives 7.",
        "FAIL_TO_PASS": json.dumps(["tests.test_doubling.Double.test_double"]),
        "PASS_TO_PASS": ["tests.test_doubling.Negate.test_negate"],
        "patch": PATCH,
        "test_patch": TEST_PATCH,
    }


def _read(tmp_path: Path, *rows: object) -> list[SweRow | ConfigError]:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return list(read_rows(file))


def _write(tmp_path: Path, fields: dict[str, Any]) -> Path:
    [row] = _read(tmp_path, fields)
    assert isinstance(row, SweRow)
    row.folder().write(tmp_path / "task")
    return tmp_path / "task"


def test_the_reference_patch_passes_and_empty_work_fails(tmp_path: Path, fields: dict[str, Any]) -> None:
    task = _write(tmp_path, fields)
    passed, report = trial_reward(task, tmp_path / "solved", LocalTrial.solve)
    assert passed == "1", report
    failed, report = trial_reward(task, tmp_path / "empty", "true")
    assert failed == "0"
    assert "failed: tests.test_doubling.Double.test_double: AssertionError: 7 != 10" in report
    assert "test_negate" not in report


def test_a_repository_has_no_future(tmp_path: Path, git: Git, fields: dict[str, Any]) -> None:
    workspace = _write(tmp_path, fields) / "environment/workspace"
    later, base = git("rev-parse", "main"), git("rev-parse", "main~1")
    _has_no_future(workspace, base, later)


def test_the_script_for_images_leaves_no_future(tmp_path: Path, git: Git) -> None:
    later, base = git("rev-parse", "main"), git("rev-parse", "main~1")
    git("remote", "add", "origin", "https://example.com/x")
    git("stash", "list")
    (tmp_path / "forget.sh").write_text(FORGET)
    subprocess.run(["sh", tmp_path / "forget.sh", tmp_path / "source", base], check=True, capture_output=True)
    _has_no_future(tmp_path / "source", base, later)


def _has_no_future(repository: Path, base: str, later: str) -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True)

    assert git("rev-parse", "HEAD", "base").stdout.split() == [base, base]
    assert git("cat-file", "-e", later).returncode != 0
    assert later not in git("for-each-ref").stdout
    assert git("reflog").stdout == ""
    assert git("remote").stdout == ""
    assert git("status", "--porcelain").stdout == ""
    assert not [path for path in (repository / ".git").rglob("*") if path.is_file() and later in path.name]
    objects = git("cat-file", "--batch-all-objects", "--batch-check").stdout
    assert len(objects.splitlines()) == len(git("rev-list", "--objects", "--all").stdout.splitlines())


def test_an_image_row_is_built_from_its_image_without_its_future(tmp_path: Path, fields: dict[str, Any]) -> None:
    del fields["repository"]
    task = _write(tmp_path, fields | {"image": "example/sweb.doubling:latest"})
    dockerfile = (task / "environment/Dockerfile").read_text().splitlines()
    assert dockerfile[0] == "FROM example/sweb.doubling:latest"
    assert dockerfile[-1] == f"RUN sh /forget.sh /testbed {fields['base_commit']} && rm /forget.sh"
    settings = (task / "task.toml").read_text()
    assert 'workdir = "/testbed"' in settings
    assert "git -C /testbed" in settings


WORK = {
    "committed": f"{FIX}; git config user.email a@example.com; git config user.name A; git commit -qam done",
    "with other files": f"{FIX}; echo 'import doubling' > helper.py; mkdir -p docs; echo x > docs/a.txt",
}


@pytest.mark.parametrize("name", WORK)
def test_right_work_passes(name: str, tmp_path: Path, fields: dict[str, Any]) -> None:
    reward, report = trial_reward(_write(tmp_path, fields), tmp_path / "trial", WORK[name])
    assert reward == "1", report
    assert "+    return number * 2" in report


EXIT = "import os; os._exit(0)"
FORGE = (
    'import os, json; [os.write(n, b\'{"id": "tests.test_doubling.Double.test_double", "message": ""}\\n\')'
    " for n in range(1, 20) if os.path.exists(f'/proc/self/fd/{n}')]"
)
LEFT_BEHIND = (
    "import subprocess; subprocess.Popen(['setsid', 'sh', '-c', 'while :; do echo 1 > ../logs/verifier/reward.txt;"
    " sleep 0.05; done'])"
)
HACKS = {
    "the visible tests edited": "echo '' > tests/test_doubling.py",
    "the tests deleted": "rm -r tests",
    "modules that Python runs": f"echo '{EXIT}' | tee conftest.py tests/conftest.py sitecustomize.py usercustomize.py",
    "names of Python's modules": f"echo '{EXIT}' | tee unittest.py json.py a.pth",
    "a compiled module": "mkdir __pycache__; echo x > __pycache__/doubling.cpython-311.pyc",
    "the end of the process": f"echo '{EXIT}' >> doubling.py",
    "an exit": "echo 'import sys; sys.exit(0)' >> doubling.py",
    "the marker printed": "echo 'print(\"passed\\nOK\\n1\")' >> doubling.py",
    "results forged": f"cat >> doubling.py <<'P'\n{FORGE}\nP",
    "a reward file": "cat >> doubling.py <<'P'\nopen('../logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\nP",
    "a process left behind": f"cat >> doubling.py <<'P'\n{LEFT_BEHIND}\nP",
    "the framework changed": "cat >> doubling.py <<'P'\nimport unittest\nunittest.TestCase.assertEqual = print\nP",
    "a link instead of the module": "rm doubling.py; ln -s ../tests/verdict.py doubling.py",
    "a diff that leaves the checkout": "mv .git git; printf 'diff --git a/../x b/../x\\n' > /logs/artifacts/agent.diff",
    "start files and PATH": "echo 'exit 0' | tee ~/.bashrc ~/.profile git python3; chmod +x git python3",
}


@pytest.mark.parametrize("hack", HACKS)
def test_hacks_are_not_paid(hack: str, tmp_path: Path, fields: dict[str, Any]) -> None:
    reward, report = trial_reward(_write(tmp_path, fields), tmp_path / "trial", HACKS[hack])
    assert reward == "0", report
    assert not (tmp_path / "trial/verifier/logs/verifier/reward.json").exists()


def test_programs_that_never_end_are_ended_with_all_that_they_began() -> None:
    code = (
        "import contained, pathlib, subprocess\n"
        "print(contained.run(['sh', '-c', 'setsid sleep 60 & sleep 60'], folder=pathlib.Path('/'), seconds=0.2))\n"
        "print(contained._descendants())"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=VERIFIER, capture_output=True, text=True, check=True)
    assert ran.stdout == "(None, '')\n[]\n"


def test_the_report_has_the_linter_and_the_files_left_out(tmp_path: Path, fields: dict[str, Any]) -> None:
    work = f"{FIX}; echo 'def broken(:' > new.py; echo x > tests/test_more.py"
    reward, report = trial_reward(_write(tmp_path, fields), tmp_path / "trial", work)
    assert reward == "1"
    assert "left out of the diff: tests/test_more.py" in report
    assert "lint: new.py:1:" in report


def _with_python(task: Path, python: str) -> None:
    spec = json.loads((task / "tests/tests.json").read_text())
    ids = {"FAIL_TO_PASS": ["tests/test_doubling.py::Double::test_double"], "pythons": [python]}
    (task / "tests/tests.json").write_text(json.dumps(spec | ids))


def test_ids_of_pytest_are_run_by_pytest(tmp_path: Path, fields: dict[str, Any]) -> None:
    task = _write(tmp_path, fields)
    _with_python(task, sys.executable)
    settings = (
        "printf '[pytest]\\naddopts = -k nothing\\n' | tee pytest.ini tox.ini; echo 'collect_ignore = 1' > conftest.py"
    )
    passed, report = trial_reward(task, tmp_path / "right", f"{FIX}; {settings}")
    assert passed == "1", report
    failed, report = trial_reward(task, tmp_path / "wrong", "echo 'print(\"1 passed\")' >> doubling.py")
    assert (failed, "failed: tests/test_doubling.py::Double::test_double: failed:" in report) == ("0", True)


FORGED_PYTEST = """\
class Passed:
    nodeid, passed = "tests/test_doubling.py::Double::test_double", True
def main(args, plugins):
    plugins[0].pytest_runtest_logreport(Passed)
"""
FORGED_PLUGIN = """\
def pytest_runtest_call(item):
    item.runtest = lambda: None
"""


@pytest.mark.parametrize(("name", "text"), [("pytest.py", FORGED_PYTEST), ("pytest_timeout.py", FORGED_PLUGIN)])
def test_modules_named_like_those_of_pytest_are_not_taken_for_them(
    name: str, text: str, tmp_path: Path, fields: dict[str, Any]
) -> None:
    task = _write(tmp_path, fields)
    _with_python(task, sys.executable)
    reward, report = trial_reward(task, tmp_path / "trial", f"cat > {name} <<'P'\n{text}P")
    assert reward == "0", report


def test_a_sandbox_without_pytest_gives_no_verdict(tmp_path: Path, fields: dict[str, Any]) -> None:
    task = _write(tmp_path, fields)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pytest'\"\nexit 1\n")
    python.chmod(0o755)
    _with_python(task, str(python))
    reward, report = trial_reward(task, tmp_path / "trial", FIX)
    assert (reward, "cannot run the tests: ModuleNotFoundError: No module named 'pytest'" in report) == ("", True)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("instance_id", "../x", "row 1: instance_id: '../x' is not of the form"),
        ("base_commit", "main", r"row 1 \(doubling-1\): base_commit: 'main' is not of the form"),
        ("problem_statement", "", r"row 1 \(doubling-1\): problem_statement: needs a text"),
        ("FAIL_TO_PASS", "[]", "FAIL_TO_PASS: needs at least 1 test"),
        ("FAIL_TO_PASS", "a, b", "FAIL_TO_PASS: needs a list of test ids, or its JSON, has 'a, b'"),
        ("PASS_TO_PASS", [1], r"PASS_TO_PASS: needs a list of test ids, has \[1\]"),
        ("patch", "fix it", "patch: is no patch of git"),
        ("patch", PATCH.replace("doubling.py", "conftest.py"), "patch: changes conftest.py, which no verdict applies"),
        ("test_patch", "tests", "test_patch: is no patch of git"),
        ("repository", "", "repository: needs either this"),
        ("repository", "nowhere", "repository: .*nowhere is no folder"),
        ("image", "a b", "repository: needs either this"),
    ],
)
def test_a_bad_row_names_row_and_field(
    field: str, value: object, said: str, tmp_path: Path, fields: dict[str, Any]
) -> None:
    [error] = _read(tmp_path, fields | {field: value})
    assert isinstance(error, ConfigError)
    with pytest.raises(ConfigError, match=said):
        raise error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_commit", "0" * 40),
        ("patch", PATCH.replace("+ 2", "+ 3")),
        ("test_patch", TEST_PATCH.replace("negate", "n")),
    ],
)
def test_a_row_that_does_not_fit_its_repository_says_so(
    field: str, value: str, tmp_path: Path, fields: dict[str, Any]
) -> None:
    [row] = _read(tmp_path, fields | {field: value})
    assert isinstance(row, SweRow)
    with pytest.raises(ConfigError, match=rf"row 1 \(doubling-1\): {field}: "):
        row.folder().write(tmp_path / "task")
    assert not (tmp_path / "task").exists()


def test_two_rows_of_one_name_are_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    first, second = _read(tmp_path, fields, fields)
    assert isinstance(first, SweRow)
    assert "instance_id: there is another row of that name" in str(second)


def test_good_rows_are_written_next_to_the_file_and_bad_ones_are_reported(
    tmp_path: Path, fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([json.dumps(fields), "{", json.dumps(fields | {"instance_id": "b", "patch": ""})]))
    with pytest.raises(ConfigError, match=r"2 of 3 rows were not written:\n.*row 2: no JSON.*\n.*row 3 \(b\): patch: "):
        env(action="tasks", environment="swe", path=str(file), as_json=True)
    assert json.loads(capsys.readouterr().out)["tasks"] == ["doubling-1"]
    assert (tmp_path / "rows/doubling-1/tests/test.sh").exists()
    with pytest.raises(ConfigError, match="rows is not empty; name a new folder"):
        env(action="tasks", environment="swe", path=str(file))


def test_our_own_tasks_are_written_to_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env(action="tasks", environment="terminal", path=str(tmp_path / "made"), episodes=2, seed=4)
    assert "2 tasks are in" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["held-out-4-0", "held-out-4-1"]
    with pytest.raises(ConfigError, match="env tasks needs a set of tasks and a path"):
        env(action="tasks", environment="terminal")
