"""The tools `bash` and `edit`, over a shell in a folder of the test."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from openclaw_rl.environments.agents.computer import LARGEST, PROMPT, Computer
from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.sandbox.sandbox import CommandResult
from openclaw_rl.environments.steps import checked_tools
from openclaw_rl.learner.judge.tool_results import tool_verdict


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
async def computer(workspace: Path) -> Computer:
    own = workspace.parent / "tmp"
    own.mkdir()

    async def execute(command: str, seconds: float) -> CommandResult:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=workspace,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(own)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(seconds):
                stdout, stderr = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return CommandResult(stdout="", stderr="", code=None)
        return CommandResult(stdout=stdout.decode(), stderr=stderr.decode(), code=process.returncode)

    made = Computer(execute, seconds=20.0)
    seen = await made.reset(Task(id="1", prompt="Do it."), 0)
    assert seen.text == f"Do it.\n\n{PROMPT}"
    return made


async def bash(computer: Computer, command: str) -> str:
    seen = await computer.call("bash", {"command": command})
    assert not seen.error
    return seen.text


async def edit(computer: Computer, path: str, old: str, new: str) -> str:
    seen = await computer.call("edit", {"path": path, "old": old, "new": new})
    return f"Error: {seen.text}" if seen.error else seen.text


async def test_a_result_has_output_exit_code_and_changed_files(computer: Computer) -> None:
    assert await bash(computer, "cat a.txt") == "one\ntwo\n[exit 0]"
    assert await bash(computer, "mkdir b; cp a.txt b/c.txt; echo three >> a.txt") == (
        "[exit 0; new: b/c.txt; changed: a.txt]"
    )
    assert await bash(computer, "rm a.txt; echo gone >&2; false") == "gone\n[exit 1; gone: a.txt]"
    assert await bash(computer, "true") == "[exit 0]"


async def test_a_command_that_takes_too_long_is_stopped(computer: Computer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computer, "_seconds", 0.05)
    assert (await bash(computer, "sleep 9")).startswith("[stopped after 0.05 s")


async def test_the_judge_reads_failures_from_the_exit_code(computer: Computer) -> None:
    for command, verdict in (("cat nothing.txt", "failed"), ("cat a.txt", "worked"), ("grep three a.txt", "open")):
        call = {"name": "bash", "arguments": {"command": command}}
        assert (command, tool_verdict(await bash(computer, command), call)) == (command, verdict)


async def test_an_edit_replaces_the_one_place(computer: Computer, workspace: Path) -> None:
    (workspace / "a.txt").chmod(0o755)
    assert await edit(computer, "a.txt", "two", "it's $HOME 'ä'") == "[changed: a.txt]"
    assert (workspace / "a.txt").read_text() == "one\nit's $HOME 'ä'\n"
    assert (workspace / "a.txt").stat().st_mode & 0o777 == 0o755
    assert await bash(computer, "true") == "[exit 0]", "the edit was reported already"


async def test_an_edit_with_an_empty_old_text_makes_a_file(computer: Computer, workspace: Path) -> None:
    assert await edit(computer, "b c.txt", "", "new") == "[new: b c.txt]"
    assert (workspace / "b c.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "old", "reason"),
    [
        ("b.txt", "one", "there is no file b.txt"),
        ("a.txt", "three", "the old text is 0 times in a.txt, not once"),
        ("a.txt", "o", "the old text is 2 times in a.txt, not once"),
        ("a.txt", "", "a.txt is there already: give the old text to replace"),
        ("b/c.txt", "", "b/c.txt was not changed: bash: line 1: b/c.txt: No such file or directory"),
    ],
)
async def test_an_edit_that_cannot_be_made_says_why(
    computer: Computer, workspace: Path, path: str, old: str, reason: str
) -> None:
    assert await edit(computer, path, old, "new") == f"Error: {reason}"
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"


async def test_a_large_file_is_edited_in_pieces_and_one_too_large_is_left(computer: Computer, workspace: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(9_000))
    (workspace / "large.txt").write_text(text)
    assert await edit(computer, "large.txt", "line 8000\n", "other\n") == "[changed: large.txt]"
    assert (workspace / "large.txt").read_text() == text.replace("line 8000\n", "other\n")
    (workspace / "larger.txt").write_bytes(b"x" * (LARGEST + 1))
    assert "edit changes files of at most" in await edit(computer, "larger.txt", "x", "y")


async def test_calls_without_their_arguments_are_answered(computer: Computer) -> None:
    for name, arguments in (("bash", {}), ("bash", {"command": 1}), ("edit", {"path": "a.txt", "old": "one"})):
        assert (await computer.call(name, arguments)).error


async def test_the_verdict_is_left_to_the_verifier(computer: Computer) -> None:
    assert (await computer.evaluate("Done.")).reward is None
    names = [tool["function"]["name"] for tool in checked_tools(await computer.tools(), computer)]
    assert names == ["bash", "edit"]
    await computer.close()
