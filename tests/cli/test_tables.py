from __future__ import annotations

import pytest

from openclaw_rl.cli.tables import console, table

WRITTEN = "[HINT] plain [/HINT] [bold]not bold[/red] :smile: [/INST]"


def test_text_of_people_and_models_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    shown = table("", f"#{WRITTEN}", title=WRITTEN)
    shown.add_row(WRITTEN, "1")
    console().print(shown)
    console().print(WRITTEN)
    console(soft_wrap=True).print(WRITTEN)
    assert capsys.readouterr().out.count(WRITTEN) == 5
