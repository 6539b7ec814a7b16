"""The command that is saved with a result names nothing of the machine, and no secret."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.provenance import typed


@pytest.mark.parametrize(
    ("arguments", "saved"),
    [
        (["--json", "--save", "bench/results/a.json", "--seeds", "2"], "--json --seeds 2"),
        (["--save=a.json", "--json"], "--json"),
        (["--clients", "aider", "--keep", "/tmp/kept", "--json"], "--clients aider --json"),
        (["--keep=/tmp/kept", "--data", "/tmp/data"], ""),
        (["--url", "http://127.0.0.1:30000", "--key", "secret"], "--url http://127.0.0.1:30000"),
        (
            ["--cache", ".cache/rm", "--model", "/home/me/models/small", "--x=/a/b"],
            "--cache .cache/rm --model small --x=b",
        ),
        (["--save"], ""),
    ],
)
def test_a_saved_command_has_no_folder_of_the_machine_and_no_key(
    arguments: list[str], saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.py", *arguments])
    assert typed("python -m bench.x") == f"python -m bench.x {saved}".rstrip()
