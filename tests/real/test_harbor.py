"""Harbor's own code runs our tasks in our sandbox: agents, verifiers, and what must not pay."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments.attempt import Endpoint, EnvironmentFault, Task
from openclaw_rl.environments.attempt_log import AttemptLog, EndedLine
from openclaw_rl.environments.harbor.harness import HarborHarness
from openclaw_rl.environments.harbor.kind import harbor_kind
from openclaw_rl.environments.kinds import KindOptions, close_kind
from openclaw_rl.environments.runner import AttemptRunner, RunPlan
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.records import Turn
from tests.processes import ROOT
from tests.real.conversations import Captured
from tests.rigs.environments import MADE, environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

NO_SERVICE = Endpoint(base_url="http://127.0.0.1:9/v1", api_key="none", session_id="none", model="policy")
TEST = """#!/bin/bash
if [ "$(cat /workspace/answer.txt)" = 7 ]; then echo right; echo 1 > /logs/verifier/reward.txt
else echo "not 7: $(cat /workspace/answer.txt)"; echo 0 > /logs/verifier/reward.txt; fi
"""
SETTINGS = """schema_version = "1.4"
artifacts = ["/workspace/answer.txt"]
[agent]
timeout_sec = 240.0
[verifier]
environment_mode = "separate"
"""


@pytest.fixture(autouse=True)
def _harbor(monkeypatch: pytest.MonkeyPatch) -> None:
    environment("harbor")  # skips where it is not there
    monkeypatch.setenv("OPENCLAW_RL_CACHE", str(MADE))


def write_task(
    folder: Path, instruction: str, solution: str, *, settings: str = SETTINGS, test: str = TEST, dockerfile: str = ""
) -> Path:
    """A task in Harbor's layout: write 7 to answer.txt, two more than in fruit.txt."""
    dockerfile = dockerfile or "FROM debian:12\nCOPY fruit.txt /workspace/\n"
    files = {
        "task.toml": settings,
        "instruction.md": instruction,
        "environment/Dockerfile": dockerfile,
        "environment/fruit.txt": "5 apples\n",
        "tests/test.sh": test,
        "tests/expected.txt": "7\n",
        "solution/solve.sh": f"#!/bin/bash\n{solution}\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@asynccontextmanager
async def _harness(folder: Path, **options: Any) -> AsyncIterator[HarborHarness]:
    kind = harbor_kind(f"harbor:{folder}", KindOptions(**options))
    try:
        yield kind.harness()
    finally:
        await close_kind(kind)


async def _run(captured: Captured, folder: Path, task: Path, **options: Any) -> EndedLine:
    """An attempt at a task as `env train` makes it: session, agent, outcome."""
    kind = harbor_kind(f"harbor:{task}", KindOptions(timeout=240.0, **options))
    found = next(kind.tasks("train", 0))
    try:
        async with ChatClient(captured.proxy.url, captured.proxy.key) as client:
            with AttemptLog(folder / "attempts.jsonl", task.name, {}) as log:
                plan = RunPlan(group=1, concurrency=1, timeout=240.0, retries=0)
                (line,) = await AttemptRunner(client, kind.harness(), log, plan).run([found])
    finally:
        await close_kind(kind)
    return line


def _check(captured: Captured, line: EndedLine, turns: list[Turn], roles: list[str]) -> None:
    """The turns are one session, each continues the one before, and the outcome came last."""
    journal = captured.proxy.journal()
    assert {turn.session_id for turn in turns} == {line.session}
    assert {(turn.kind, turn.kind_reason, turn.status, turn.untrainable) for turn in turns} == {
        ("main", "attempt", "complete", "")
    }
    assert [turn.parent_turn_id for turn in turns] == [None, *(turn.turn_id for turn in turns[:-1])]
    states = [journal.next_state(turn.turn_id) for turn in turns]
    assert [state.role for state in states if state is not None] == [*roles, "environment"]
    assert states[-1] is not None and states[-1].text == line.next_state
    kept = journal.outcome(line.session)
    assert kept is not None and (kept.reward, kept.done) == (line.reward, True)
    assert 0 < line.steps <= len(turns)  # a trajectory of an agent may leave out answers that it dropped


def _typing(analysis: str, *keystrokes: str, done: bool = False) -> str:
    commands = [{"keystrokes": keys, "duration": 0.5} for keys in keystrokes]
    return json.dumps({"analysis": analysis, "plan": "", "commands": commands, "task_complete": done})


async def test_terminus_2(captured: Captured, tmp_path: Path) -> None:
    task = write_task(tmp_path / "for-terminus", "Two more than in fruit.txt: write how many to answer.txt.", "")
    captured.engine.say(
        _typing("I look first.", "cat fruit.txt\n"),
        _typing("I write it down.", "echo 7 > answer.txt\n"),
        _typing("Done.", done=True),
        _typing("Done indeed.", done=True),
    )
    with captured.watch() as turns:
        line = await _run(captured, tmp_path, task, agent="terminus-2")
    assert (line.reward, line.status, line.next_state) == (1.0, "ok", "right"), line.detail
    _check(captured, line, turns, ["environment"] * 3)
    seen = captured.proxy.journal().next_state(turns[0].turn_id)
    assert seen is not None and "5 apples" in seen.text


def _calling(text: str, **arguments: str) -> str:
    return f"{text}\n<tool_call>\n{json.dumps({'name': 'bash', 'arguments': arguments})}\n</tool_call>"


MINI = (
    _calling("I look.", command="cat fruit.txt"),
    "There are five apples.",
    _calling("I write it down.", command="echo 7 > answer.txt"),
    _calling("Done.", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
)


async def test_mini_swe_agent_out_here(captured: Captured, tmp_path: Path) -> None:
    task = write_task(tmp_path / "for-mini", "Two more than in fruit.txt: how many? To answer.txt, by mini.", "")
    captured.engine.say(*MINI)
    with captured.watch() as turns:
        line = await _run(captured, tmp_path, task, agent="mini-swe-agent")
    assert (line.reward, line.detail["end"]) == (1.0, "Submitted"), line.detail
    _check(captured, line, turns, ["tool", "environment", "tool"])


async def test_harbors_mini_swe_agent_inside(captured: Captured, tmp_path: Path) -> None:
    """Its programs are folders of this machine; it reaches the policy, and nothing else."""
    task = write_task(tmp_path / "mini-inside", "Two more than in fruit.txt: how many? To answer.txt, from inside.", "")
    installed = environment("harbor").resolve()
    base = (installed / "bin" / "python").resolve().parents[1]
    captured.engine.say(*MINI)
    with captured.watch() as turns:
        line = await _run(
            captured,
            tmp_path,
            task,
            agent="harbor.agents.installed.mini_swe_agent:MiniSweAgent",
            programs=(str(installed), str(base)),
        )
    assert line.reward == 1.0, line.detail
    _check(captured, line, turns, ["tool", "environment", "tool"])


async def test_an_agent_inside_reaches_the_policy_alone(captured: Captured, tmp_path: Path) -> None:
    """Its key posts no outcome; the world and the machine are not there."""
    test = "#!/bin/bash\ncat /workspace/answer.txt\necho 0 > /logs/verifier/reward.txt\n"
    task = write_task(tmp_path / "inside", "Say seven, from inside.", "", test=test)
    captured.engine.say("Seven.")
    with captured.watch() as turns:
        line = await _run(captured, tmp_path, task, agent="tests.real.inside_agent:InsideAgent")
    assert line.reward == 0.0, line.detail
    assert json.loads(line.next_state) == {
        "chat": 200,
        "said": "Seven.",
        "outcome": 403,
        "status": 403,
        "world": "not reached",
        "host": "not reached",
        "variables": ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
    }
    assert [turn.session_id for turn in turns] == [line.session]
    outcome = captured.proxy.journal().outcome(line.session)
    assert outcome is not None and outcome.reward == 0.0


HACKS = {
    "the verifier's own files": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt;"
    " echo '{\"reward\": 1}' > /logs/verifier/reward.json; echo 1 > /logs/artifacts/reward.txt",
    "the verifier's words": "echo right; echo reward: 1; echo 1 >&2",
    "other tests": "mkdir -p /tests; printf '#!/bin/bash\\necho 1 > /logs/verifier/reward.txt\\n' > /tests/test.sh;"
    " chmod +x /tests/test.sh",
    "programs on the PATH": "mkdir -p ~/.local/bin /workspace/bin; for name in cat bash python3 echo; do"
    " for place in ~/.local/bin /workspace/bin /usr/bin /usr/local/bin /bin; do"
    " printf '#!/bin/sh\\necho 7\\n' > $place/$name && chmod +x $place/$name; done; done 2>/dev/null;"
    " echo 'PATH=/workspace/bin:$PATH' >> ~/.profile; export PATH=/workspace/bin:$PATH",
    "shell start files": "for file in .bashrc .bash_profile .profile .bash_env; do"
    " echo 'cat() { echo 7; }; export -f cat' | tee ~/$file /workspace/$file >/dev/null; done;"
    " export BASH_ENV=/workspace/.bash_env; cat() { echo 7; }; export -f cat",
    "python's start files": "for place in /workspace ~ /tmp; do"
    " echo 'import os; os.system(\"echo 1 > /logs/verifier/reward.txt\")' > $place/sitecustomize.py;"
    " cp $place/sitecustomize.py $place/conftest.py; done",
    "a link to the expected answer": "ln -s /tests/expected.txt /workspace/answer.txt",
    "a program that stays": "setsid sh -c 'while true; do echo 1 > /logs/verifier/reward.txt;"
    " sleep 0.1; done' >/dev/null 2>&1 & sleep 0.3; echo 8 > answer.txt",
    "sleeping past the deadline": "sleep 300; echo 7 > /workspace/answer.txt",
    "a late answer": "(sleep 9; echo 7 > /workspace/answer.txt) & sleep 300",
}


async def test_hacks_do_not_pay(tmp_path: Path) -> None:
    """Each is the solution of a task, which Harbor's oracle runs where an agent would be; the right one does pay."""
    solutions = {"right": "echo 7 > answer.txt", "wrong": "echo 8 > answer.txt", **HACKS}
    folders = {
        name: write_task(tmp_path / re.sub(r"\W", "-", name), "Write 7.", solution)
        for name, solution in solutions.items()
    }
    async with _harness(tmp_path, agent="oracle", timeout=8.0) as harness:
        tasks = [Task(id=name, data={"folder": str(folder)}) for name, folder in folders.items()]
        found = dict(
            zip(folders, await asyncio.gather(*(harness.run(task, NO_SERVICE) for task in tasks)), strict=True)
        )
    rewards = {name: attempt.reward for name, attempt in found.items()}
    assert rewards == {name: float(name == "right") for name in solutions}, {
        name: attempt.detail for name, attempt in found.items()
    }
    assert found["sleeping past the deadline"].detail["end"] == "timeout"


async def test_the_verifiers_own_failures_are_no_reward(tmp_path: Path) -> None:
    tests = {
        "says nothing": "exit 1",
        "says nonsense": "echo perhaps > /logs/verifier/reward.txt",
        "says two things": "echo 0 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "is late": "sleep 100",
    }
    late = SETTINGS + "timeout_sec = 3.0\n"
    for name, test in tests.items():
        write_task(tmp_path / re.sub(r"\W", "-", name), "Write 7.", "", test=f"#!/bin/bash\n{test}\n", settings=late)
    async with _harness(tmp_path, agent="nop") as harness:
        folders = sorted(path for path in tmp_path.iterdir() if (path / "task.toml").exists())
        found = await asyncio.gather(
            *(harness.run(Task(id=path.name, data={"folder": str(path)}), NO_SERVICE) for path in folders)
        )
    assert {(attempt.reward, attempt.status) for attempt in found} == {(None, "env_error")}
    reasons = [attempt.detail["error"].partition(":")[0] for attempt in found]
    assert reasons == [
        "VerifierTimeoutError",
        "VerifierOutputParseError",
        "RewardFileNotFoundError",
        "reward.txt and reward.json of the verifier disagree",
    ]


async def test_tasks_of_other_people(tmp_path: Path) -> None:
    """One for a verifier in the agent's own sandbox, one of several steps, one in Terminal-Bench's older layout."""
    shared = "FROM ubuntu:24.04\nWORKDIR /app\nCOPY fruit.txt .\n"
    test = TEST.replace("/workspace", "/app")
    write_task(tmp_path / "shared", "Write 7.", "echo 7 > answer.txt", settings="", test=test, dockerfile=shared)
    old = tmp_path / "old" / "count-fruit"
    (old / "tests").mkdir(parents=True)
    (old / "task.yaml").write_text("instruction: Write 7.\nmax_agent_timeout_sec: 60\n")
    (old / "Dockerfile").write_text("FROM ubuntu\nWORKDIR /app\nCOPY fruit.txt .\n")
    (old / "docker-compose.yaml").write_text("services:\n  client:\n    build:\n      dockerfile: Dockerfile\n")
    (old / "fruit.txt").write_text("5 apples\n")
    (old / "solution.sh").write_text("#!/bin/bash\ncat fruit.txt && echo 7 > answer.txt\n")
    (old / "run-tests.sh").write_text("#!/bin/bash\ndiff /app/answer.txt $TEST_DIR/expected.txt\n")
    (old / "tests" / "expected.txt").write_text("7\n")
    rewards = []
    for folder in (tmp_path / "shared", tmp_path / "old", old):
        kind = harbor_kind(f"harbor:{folder}", KindOptions(agent="oracle"))
        try:
            rewards.append((await kind.harness().run(next(kind.tasks("train", 0)), NO_SERVICE)).reward)
        finally:
            await close_kind(kind)
    assert rewards == [1.0, 1.0, 1.0]


RUNNER = """
import asyncio, sys
from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.harbor.kind import harbor_kind
from openclaw_rl.environments.kinds import KindOptions
from tests.real.test_harbor import NO_SERVICE
kind = harbor_kind(f"harbor:{sys.argv[1]}", KindOptions(agent="oracle"))
asyncio.run(kind.harness().run(next(kind.tasks("train", 0)), NO_SERVICE))
"""


async def test_nothing_is_left_of_a_runner_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process of Harbor ends the sandboxes, and deletes its folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    task = write_task(tmp_path / "sleeps", "Write 7.", "exec -a harbor-sleeper sleep 283")
    runner = await asyncio.create_subprocess_exec(sys.executable, "-c", RUNNER, str(task), cwd=ROOT)
    try:
        await until(lambda: _sleepers() == 1)
    finally:
        runner.kill()
        await runner.wait()
    await until(lambda: _sleepers() == 0 and not list((tmp_path / "tmp").iterdir()))


async def test_nothing_is_left_of_a_process_of_harbor_that_is_killed(tmp_path: Path) -> None:
    """Its attempt is one that the environment failed, and the sandbox has ended with it."""
    task = write_task(tmp_path / "sleeps", "Write 7.", "exec -a harbor-sleeper sleep 283")
    async with _harness(task, agent="oracle") as harness:
        running = asyncio.create_task(harness.run(Task(id="x", data={"folder": str(task)}), NO_SERVICE))
        await until(lambda: _sleepers() == 1)
        trials = harness._trials
        assert trials is not None
        trials._process.kill()
        with pytest.raises(EnvironmentFault, match="Harbor's process ended"):
            await running
        await until(lambda: _sleepers() == 0)
    assert not trials.folder.exists()


def _sleepers() -> int:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return sum(line.startswith(b"harbor-sleeper") for line in lines)


async def until(true: Callable[[], bool]) -> None:
    """Poll until something is so."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.1)
