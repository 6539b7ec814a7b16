"""Results of tools that say that the tool failed."""

from __future__ import annotations

import pytest

from openclaw_rl.learner.judge.rules.rules import tool_failed


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
