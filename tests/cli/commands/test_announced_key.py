"""The key of a service is printed when it is made, and not again."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from openclaw_rl.cli.commands.serve import announce
from openclaw_rl.cli.service.data_folder import stored_key
from openclaw_rl.cli.service.supervisor import Supervisor
from openclaw_rl.shared.settings.settings import Settings


@pytest.mark.parametrize("own", [True, False])
def test_a_later_start_prints_no_key(tmp_path: Path, *, own: bool) -> None:
    data = tmp_path / "the data"
    data.mkdir()
    key = stored_key(data) if own else "from-the-settings"
    settings = Settings(data=data, api_key=key)
    written = io.StringIO()
    started = SimpleNamespace(settings=settings, roles=("proxy",), url="http://127.0.0.1:9", made_key=False)
    started.made_admin_key = True  # by an update of a service that has a key already
    announce(Console(file=written, width=10_000), cast(Supervisor, started))
    text = written.getvalue()
    assert f"Everything else takes the admin key in {data / 'admin_key'}" in text
    assert f"Dashboard: openclaw-rl dashboard --data {data}" in text
    assert key not in text and "URL  http://127.0.0.1:9/v1" in text
    assert (f"key  in {data / 'api_key'}" in text, "key  that of the setting api_key" in text) == (own, not own)
    header = re.search(r'-H "(Authorization[^"]*)"', text)
    assert header is not None
    shell = subprocess.run(["sh", "-c", f'printf %s "{header[1]}"'], capture_output=True, text=True, check=True)
    assert shell.stdout == f"Authorization: Bearer {key if own else 'KEY'}"
