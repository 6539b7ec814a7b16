"""`openclaw-rl dashboard`, and which key a command sends and hands to agents."""

from __future__ import annotations

import json
import os
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.commands.dashboard import dashboard
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.settings.settings import Settings
from tests.scripted import plain, serving


def respond(path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
    """The service's answers to the admin key "boss"."""
    assert headers["authorization"] == "Bearer boss"
    return plain({"/rl/dashboard/ticket": {"ticket": "T", "expires": 9.0}, "/rl/dashboard/token": {"revoked": 2}}[path])


def test_it_opens_a_link_with_a_ticket_and_ends_all_sign_ins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    with serving(respond) as service:
        link = f"{service.url}/ui/#ticket=T"
        dashboard(url=service.url, key="boss")
        assert opened == [link] and capsys.readouterr().out == f"{link}\n"
        dashboard(open_browser=False, url=service.url, key="boss")
        assert opened == [link] and "open this link in a browser" in capsys.readouterr().err
        dashboard(url=service.url, key="boss", as_json=True)
        assert json.loads(capsys.readouterr().out) == {"url": link, "expires": 9.0}
        dashboard(sign_out=True, url=service.url, key="boss")
        assert capsys.readouterr().out == "2 sign-ins ended\n" and opened == [link]


def test_commands_send_the_admin_key_and_agents_get_that_of_clients(tmp_path: Path) -> None:
    def keys(url: str = "", **settings: Any) -> tuple[str, str]:
        settings = {"data": tmp_path, **settings}
        return tuple(Service.find(Settings(**settings), url=url, as_client=one).key for one in (False, True))

    elsewhere = "http://127.0.0.1:9"
    assert keys() == ("", "")
    (tmp_path / "api_key").write_text("client\n")
    assert keys() == ("client", "client")  # of a service that made no admin key yet
    (tmp_path / "admin_key").write_text("admin\n")
    assert keys() == ("admin", "client")
    assert keys(elsewhere, api_key="one,two") == ("one", "one")
    assert keys(elsewhere, api_key="one", admin_key="boss") == ("boss", "one")
    card = {"pid": os.getpid(), "url": "http://127.0.0.1:8", "key": "of the card", "client_key": "the client's"}
    write_json(tmp_path / "run" / "proxy.json", card)
    assert keys() == ("of the card", "the client's")
    assert keys(api_key="one") == ("of the card", "one") and keys(elsewhere, api_key="one") == ("one", "one")
