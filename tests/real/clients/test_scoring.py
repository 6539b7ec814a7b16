"""The bench itself, with a client that is a few lines of this process: what it counts, and what it notes as wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import ROOT
from tests.real.clients.catalog import clients
from tests.real.clients.client import UTILITY, Client, Pip, Site
from tests.real.clients.scripted_engine import fit
from tests.real.clients.session import measure
from tests.real.clients.tap import Exchange

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}]
TITLE = "Generate a short title for this conversation."


class PlainClient(Client):
    """It sends its history, runs one tool, asks for a title after the first answer, and forgets what `forgets` says."""

    name = "plain"
    packages = Pip("plain==1.0")
    forgets = ""

    def install(self) -> Path:
        """Nothing is needed."""
        return Path("/")

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Answer tool calls with the file."""
        history: list[dict[str, Any]] = []

        def ask(messages: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
            body = {"model": "policy", "messages": messages, **changes}
            headers = {"authorization": f"Bearer {site.key}"}
            response = httpx.post(f"{site.url}/chat/completions", json=body, headers=headers, timeout=60.0)
            answer: dict[str, Any] = response.json()["choices"][0]["message"]
            return answer

        def say(words: str) -> None:
            if self.forgets and self.forgets in words:
                history.clear()
            history.append({"role": "user", "content": words})
            history.append(ask(history, tools=TOOLS))
            for call in history[-1].get("tool_calls") or ():
                assert str(site.work) in call["function"]["arguments"]
                history.append({"role": "tool", "tool_call_id": call["id"], "content": "6 apples"})
                history.append(ask(history, tools=TOOLS))
            if len(history) < 5:
                ask([{"role": "user", "content": TITLE + "\n\n" + words}])

        yield say

    def purpose(self, exchange: Exchange) -> str:
        """Tell titles by their prompt."""
        return UTILITY if exchange.newest.startswith(TITLE) else ""


class ForgetfulClient(PlainClient):
    """It loses its history before it sends the thanks."""

    forgets = "Thanks"


@pytest.mark.real
def test_all_is_right_of_a_client_that_keeps_its_history(tmp_path: Path) -> None:
    score = measure(PlainClient(), tmp_path)
    assert score.result() == {
        "version": "1.0",
        "works": True,
        "turns": 12,
        "utility": [3, 3],
        "parents": [9, 9],
        "reactions": [4, 4],
        "trained_wrongly": 0,
    }
    assert score.notes == []


@pytest.mark.real
def test_a_lost_history_is_noted(tmp_path: Path) -> None:
    score = measure(ForgetfulClient(), tmp_path)
    assert score.works
    assert score.parents == [8, 9]
    assert score.reactions == [3, 4]
    assert any("Thanks, that is perfect." in note and "next state is nothing" in note for note in score.notes)


def test_arguments_fit_their_schema() -> None:
    request = "Look into the file /a/b.txt and say what is there."
    schema = {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}},
            "file_path": {"type": "string"},
            "mode": {"enum": ["fast", "slow"]},
            "limit": {"type": "integer", "minimum": 3},
            "deep": {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]},
            "left_out": {"type": "string"},
        },
        "required": ["command", "file_path", "mode", "limit", "deep"],
    }
    assert fit(schema, "A sentence.", request) == {
        "command": ["cat", "/a/b.txt"],
        "file_path": "/a/b.txt",
        "mode": "fast",
        "limit": 3,
        "deep": {"yes": False},
    }


def test_names_of_clients_are_their_files_environments() -> None:
    known = clients()
    assert len(known) >= 10
    for name, client in known.items():
        assert client.name == name and client.version


DESCRIBED = ("aider", "ai_sdk", "claude_code", "cline", "codex", "continue", "copilot", "nanobot", "open_webui")


@pytest.mark.parametrize("name", [*DESCRIBED, "opencode", "qwen_code"])
def test_the_page_names_the_version_that_is_tested(name: str) -> None:
    page = (ROOT / "docs" / "clients.md").read_text("utf-8")
    sections = {re.sub(r"\W|cli$", "", part.partition("\n")[0].lower()): part for part in page.split("\n## ")}
    section = sections[name.replace("_", "")]
    assert "Tested with" in section and clients()[name].version in section
    assert "```" in section or f"connect {name}" in section
