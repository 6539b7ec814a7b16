"""Results of tools that say that the tool failed."""

from __future__ import annotations

import msgspec
import pytest

from openclaw_rl.learner.judge.tool_results import next_state_verdict, tool_failed, tool_verdict
from openclaw_rl.shared.records import NextState, ToolResult
from tests.learner.things import turn


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such table: users",
        'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: bad',
        "bash: foo: command not found",
        "cat: notes.txt: No such file or directory",
        "Command exited with code 1",
        '{"status": "error", "message": "unreachable"}',
        '{"is_error": true}',
        "HTTP 404",
        "3 failed, 10 passed in 1.2s",
        "the request timed out",
        "Permission denied",
    ],
)
def test_a_tool_that_failed_is_negative(text: str) -> None:
    assert tool_failed(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "12 degrees and sunny",
        '{"status": "ok", "error": null}',
        '{"errors": []}',
        "exit code 0",
        "10 passed, 0 failed in 1.2s",
        "Handles errors by retrying; see the error handling chapter.",
        "total 4\n-rw-r--r-- 1 kim kim 20 notes.txt",
    ],
)
def test_a_tool_that_worked_is_not(text: str) -> None:
    assert not tool_failed(text)


@pytest.mark.parametrize(
    "text",
    [
        "Output: a\nError: (none)\nExit Code: 0",
        "Command: ls\nDirectory: (root)\nOutput: a.py\nError: (none)\nExit Code: 0\nSignal: (none)\nPIDs: (none)",
        "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nerror: nothing\nTraceback (most recent call last):",
        "<returncode>0</returncode>\n<output>\ntest_failure_is_logged ... ok\n</output>",
        "<exit_code>0</exit_code>\n<stdout>Error: of the page</stdout>",
        '{"output": "error: in the text", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}',
        '{"stdout": "fatal: a word", "stderr": "", "exitCode": 0}',
        "{'success': True, 'error': None, 'content': 'Error: in a page'}",
        '{"content": [{"type": "text", "text": "{\\"status\\": \\"failed\\"}"}], "isError": false}',
        '{"status": 200, "text": "## Fatal: cannot open display\\n\\nThis error occurs when"}',
        "def check(value):\n    if not value:\n        raise TypeError: no value\n    return value",
        "     1\timport os\n     2\traise ValueError('Error: bad')\n     3\t# exit code 1",
        "src/a.py:3:    raise KeyError('Error: no such file or directory')\nsrc/b.py:9:ERROR: not found",
        "2025-02-11 02:00:14 ERROR remote: connection refused\n2025-02-11 02:19:02 FATAL given up\n"
        "2025-02-11 02:19:02 INFO 2 of 3 remotes in sync, exit code 1 of one",
        "# Troubleshooting\n\nError: cannot connect\n\nThis means that the server is down.\n\n## More\n\nSee above.",
        "Process exited with code 0",
        '[{"title": "Error: what it means", "text": "Error: no such file"}]',
        '{"path": "a.log", "content": "Error: no such file\\nTraceback (most recent call last):"}',
        "<system>Command executed successfully.</system>\nfatal is a word",
        "No matches found",
        "[Command finished: exit 0]\nAll checks passed",
    ],
)
def test_a_text_that_was_only_read_is_no_failure(text: str) -> None:
    assert not tool_failed(text)


@pytest.mark.parametrize(
    "text",
    [
        "1 validation error for shell\ncommand\n  Field required [type=missing, input_value={}, input_type=dict]",
        "Output: (empty)\nError: (none)\nExit Code: 2\nSignal: (none)",
        "Exit code: 127\nWall time: 0 seconds\nOutput:\nok",
        "Chunk ID: a1\nWall time: 1 s\nProcess exited with code 1\nOutput:\nall is well",
        "<returncode>2</returncode>\n<output>\n</output>",
        "output\n[exit code: 3]",
        "all is well\n(exit 1)",
        "returncode=1",
        "Command failed with exit status 2: make",
        '{"output": "", "metadata": {"exit_code": 1}}',
        "{'success': False, 'message': 'quota'}",
        '{"isError": true, "content": [{"type": "text", "text": "no"}]}',
        '[{"type": "text", "text": "Error: no such city"}]',
        '{"error": {"code": 404, "message": "x"}}',
        "<tool_use_error>File has not been read yet.</tool_use_error>",
        "Error executing tool read_file: the path is outside of the workspace",
        "MCP error -32602: Invalid arguments for tool create_event",
        "The user doesn't want to proceed with this tool use.",
        "Tool 'shel' not found.",
        "<system>ERROR: Command failed with exit code: 1.</system>",
        "❌ Failed to read the page",
        "Output: (empty)\nError: (none)\nExit Code: (none)\nSignal: 9",
        "old_string not found in a.py",
        "Request failed with status code 404",
        "Failed to edit, could not find the string to replace.",
        "build of a\nnpm ERR! code ELIFECYCLE\nnpm ERR! errno 1",
        "a.c: compiled\nmake: *** [all] Error 1",
        "Your previous response was invalid: it is no JSON.",
    ],
)
def test_structure_and_the_harness_tell_a_failure(text: str) -> None:
    assert tool_failed(text)


def called(name: str, **arguments: object) -> dict[str, object]:
    return {"id": "call_1", "name": name, "arguments": arguments}


LOG = "starting\nError: cannot connect to database\nretrying\nValueError: bad value\nfatal: gave up"


@pytest.mark.parametrize(
    "call",
    [
        called("read_file", path="server.log"),
        called("ReadFile", path="server.log"),
        called("Grep", pattern="rror"),
        called("web_fetch", url="http://a.example"),
        called("str_replace_based_edit_tool", command="view", path="a"),
        called("bash", command="cd logs && tail -n 5 server.log | grep -i e"),
        called("shell", command=["bash", "-lc", "sed -n '1,9p' server.log"]),
        called("run_shell_command", command="cat server.log"),
    ],
)
def test_a_call_that_reads_shows_other_peoples_errors(call: dict[str, object]) -> None:
    assert not tool_failed(LOG, call)
    assert tool_failed(LOG, called("bash", command="python serve.py"))


def test_a_call_that_reads_can_fail_itself() -> None:
    assert tool_failed("File not found: notes.txt", called("read_file", path="notes.txt"))
    assert tool_failed("cat: notes.txt: No such file or directory", called("bash", command="cat notes.txt"))
    assert tool_failed('{"status": "error", "error": "403"}', called("web_fetch", url="u"))


LONG_PATH = (
    "/home/ann/projects/orchard/.cache/pytest-of-ann/pytest-12/test_the_orchard_is_counted_0/work/fruit/missing.v2.txt"
)


@pytest.mark.parametrize(
    "path", ["/a/b.txt", LONG_PATH, "C:\\Users\\ann\\fruit.v2.txt", "'my fruit.txt'", "missing.txt"]
)
@pytest.mark.parametrize(
    "report",
    [
        "Path {} does not exist. Please provide a valid path.",
        "The file {} was not found",
        "{} is a directory, not a file.",
        "There is no file at {}.",
        "I was unable to find {}.",
        "Access to {} is not allowed.",
        "Could not open {}: it is locked",
        "{} is outside of the workspace",
        "The path {} is invalid.",
        "Sorry, I can't open {}.",
        "{} already exists",
    ],
)
def test_a_report_in_plain_words_is_a_failure_whatever_it_names(report: str, path: str) -> None:
    text = report.format(path)
    assert tool_failed(text)
    for call in (called("view", path=path.strip("'")), called("create", path=path.strip("'"), file_text="6 apples")):
        assert tool_failed(text, call)


@pytest.mark.parametrize(
    "text",
    [
        "Agent 'counter' not found",
        "There is no such tool: count",
        "The execution of this tool, or a previous tool was interrupted.",
        "Operation cancelled.",
        "Rejected by the user",
        "Rate limit exceeded",
        "Unauthorized",
        "Sub-agent failed",
        "The file is too large to read at once (200 KB).",
        "Invalid session ID: 7. Please supply a valid session ID to read output from.",
    ],
)
def test_a_refusal_in_plain_words_is_a_failure(text: str) -> None:
    assert tool_failed(text)
    assert tool_failed(text, called("counter", fruit="apples"))


@pytest.mark.parametrize(
    "text",
    [
        "This option is not supported yet.",
        "The door does not exist. There is no spoon.",
        "Sorry, I can't come on Sunday.\nAnn",
        "Access to the garden is not allowed after nine.",
        "Operation cancelled: the story of a bridge",
        "The user of this house is outside.",
        "Rate limits are a common cause.\nUnauthorized people stay out.",
    ],
)
def test_a_short_text_that_was_read_is_no_failure(text: str) -> None:
    assert not tool_failed(text, called("read_file", path="notes.txt"))


@pytest.mark.parametrize("text", ["No match found", "Multiple matches found", "No replacement was performed."])
def test_an_edit_that_found_no_single_place_failed(text: str) -> None:
    assert tool_failed(text, called("edit", path="a.py", old_str="x", new_str="y"))
    assert not tool_failed(text, called("grep", pattern="x"))


@pytest.mark.parametrize(
    "text",
    [
        "File a.py created. The old one did not exist.",
        "Done: 3 files changed",
        "Created file /a/does not exist.txt with 6 characters",
        "The folder already exists, so it was used as it is.",
        "2 tests were skipped, as the tool is not available.",
        "I found no errors. The page is not too long.",
    ],
)
def test_a_report_of_success_in_plain_words_is_none(text: str) -> None:
    assert not tool_failed(text, called("create", path="a.py"))


def test_a_search_without_a_hit_did_not_fail() -> None:
    assert not tool_failed("(no output)\n\nCommand exited with code 1", called("bash", command="grep -rn old src"))
    assert tool_failed("(no output)\n\nCommand exited with code 2", called("bash", command="grep -rn old src"))


def test_results_of_parallel_calls_are_read_one_by_one() -> None:
    calls = [
        {"id": "call_a", "name": "read", "arguments": {"path": "log"}},
        {"id": "call_b", "name": "bash", "arguments": {"command": "make"}},
    ]
    made = msgspec.structs.replace(turn(1), answer={"role": "assistant", "content": "", "tool_calls": calls})

    def failed(*results: tuple[str, str, bool | None]) -> bool:
        starts = [sum(len(text) + 2 for _, text, _ in results[:place]) for place in range(len(results))]
        state = NextState(
            turn_id=made.turn_id,
            role="tool",
            text="\n\n".join(text for _, text, _ in results),
            results=[ToolResult(start, call, mark) for start, (call, _, mark) in zip(starts, results, strict=True)],
        )
        return next_state_verdict(made, state) == "failed"

    assert not failed(("call_b", "done", None), ("call_a", LOG, None))
    assert failed(("call_b", "make: *** [all] Error 2", None), ("call_a", LOG, None))
    assert failed(("call_a", LOG, None), ("call_b", LOG, None))
    assert failed(("call_a", "fine", None), ("call_b", "fine", True)), "the client's own mark"
    assert not failed(("call_a", "fine", None), ("call_b", LOG, False))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cancel_task", "Task cancelled"),
        ("cancel_order", '{"status": "cancelled", "order": 7}'),
        ("kill_process", "Process 7 terminated."),
    ],
)
def test_an_ended_task_is_a_success_of_the_tool_that_ends_it(name: str, text: str) -> None:
    assert tool_verdict(text, called(name)) == "worked"


@pytest.mark.parametrize(
    ("command", "verdict"), [("mkdir a && mv b a", "worked"), ("echo 1 > a", "worked"), ("./install.sh", "open")]
)
def test_silence_is_the_success_of_commands_that_print_nothing(command: str, verdict: str) -> None:
    for text in ("", "(no output)"):
        assert tool_verdict(text, called("bash", command=command)) == verdict


def test_a_command_that_was_written_as_text_is_read_with_its_result() -> None:
    answer = {"role": "assistant", "content": "I look.\n\n```bash\ngrep -rn old src\n```"}
    made = msgspec.structs.replace(turn(1), answer=answer)
    state = NextState(turn_id=made.turn_id, role="environment", text="<returncode>1</returncode>\n<output>\n</output>")
    assert next_state_verdict(made, state) == "open"


def test_one_success_of_parallel_calls_is_enough() -> None:
    calls = [{"id": "a", "name": "find", "arguments": {}}, {"id": "b", "name": "save", "arguments": {}}]
    made = msgspec.structs.replace(turn(1), answer={"role": "assistant", "content": "", "tool_calls": calls})
    results = [ToolResult(0, "a", None), ToolResult(len("No hits.\n\n"), "b", None)]
    state = NextState(turn_id=made.turn_id, role="tool", text="No hits.\n\nSaved.", results=results)
    assert next_state_verdict(made, state) == "worked"
    none = NextState(turn_id=made.turn_id, role="tool", text="No hits.\n\n[]", results=results)
    assert next_state_verdict(made, none) == "open"


def shell(command: str) -> dict[str, object]:
    return {"name": "bash", "arguments": {"command": command}}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("python fit.py", "Mean squared error: 0.12"),
        ("python train.py", "epoch 1 error: 0.5\nepoch 2 error: 3e-4"),
        ("./check", "failed: 0"),
        ("./check", "FAILED: 0  PASSED: 3"),
        ("./check", "Failed tests: 0"),
        ("./lint", "no errors found"),
        ("npx mocha", "  refuses what failed\n    ok when it throws an error\n\n  2 passing (5ms)"),
        ("cargo test", "test fails_on_error ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored"),
        ("ansible-playbook a.yml", "PLAY RECAP\nhost : ok=3 changed=0 unreachable=0 failed=0"),
        ("grep -c error app.log", "12 app.log"),
    ],
)
def test_measures_and_counts_of_nothing_are_no_failure(command: str, text: str) -> None:
    assert tool_verdict(text, shell(command)) == "worked"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("npx mocha", "  2 passing (5ms)\n  1 failing"),
        ("cargo test", "test result: FAILED. 1 passed; 1 failed; 0 ignored"),
        ("ansible-playbook a.yml", "PLAY RECAP\nhost : ok=3 changed=0 unreachable=0 failed=1"),
        ("mvn package", "[INFO] BUILD FAILURE"),
        ("./deploy", "Error: None of the hosts answered"),
        ("./deploy", "Server error: 500"),
        ("./deploy", "Tool execution failed: None"),
        ("./deploy", "Error: undefined"),
        ("./deploy", "Upload failed: 0 of 3 files"),
        ("psql -c x", "psql: error: connection to server failed"),
        ("gcc a.c", "gcc: fatal error: no input files"),
        ("docker stop x", "Error response from daemon: No such container: x"),
        ("kubectl apply -f a", 'Error from server (NotFound): pods "x" not found'),
        ("git log", "fatal: not a git repository (or any of the parent directories): .git"),
    ],
)
def test_programs_say_in_their_own_ways_that_they_failed(command: str, text: str) -> None:
    assert tool_verdict(text, shell(command)) == "failed"


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("read_file", {"path": "app.log"}, "error: disk full\nerror: no space"),
        ("web_search", {"query": "poor countries"}, "Failed states of the world: an essay"),
        ("lookup", {"q": "Foo"}, "error: the album by them was released 1999"),
    ],
)
def test_words_of_a_failure_in_what_was_read_tell_nothing(name: str, arguments: dict[str, str], text: str) -> None:
    assert tool_verdict(text, {"name": name, "arguments": arguments}) == "open"


def test_an_agent_that_found_nothing_wrong_did_not_fail() -> None:
    call = {"name": "task", "arguments": {"prompt": "review"}}
    assert tool_verdict("I could not find anything wrong with the code.", call) == "worked"
    assert tool_verdict("I could not find any file of that name.", call) == "failed"
