from __future__ import annotations

import pytest

from openclaw_rl.cli.tables import console, table, visible

WRITTEN = "[HINT] plain [/HINT] [bold]not bold[/red] :smile: [/INST]"


def test_text_of_people_and_models_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    shown = table("", f"#{WRITTEN}", title=WRITTEN)
    shown.add_row(WRITTEN, "1")
    console().print(shown)
    console().print(WRITTEN)
    console(soft_wrap=True).print(WRITTEN)
    assert capsys.readouterr().out.count(WRITTEN) == 5


COMMANDS = "\x1b]0;owned\x07\x1b]52;c;aGk=\x1b\\\x1b[2J\x9b31m\r\u202eevil"


def test_no_command_to_the_terminal_passes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = table(f"#{COMMANDS}", title=COMMANDS)
    shown.add_row(COMMANDS)
    console().print(shown)
    console(soft_wrap=True).print(COMMANDS, style="bold")
    out = capsys.readouterr().out
    assert "evil" in out and "owned" in out
    assert not set(out.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[1;", "")) & set(
        "\x1b\x07\x9b\r\u202e"
    )
    assert visible("two\nlines\tand ünïcode ✓") == "two\nlines\tand ünïcode ✓"
