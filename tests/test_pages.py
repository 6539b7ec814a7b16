"""The pages for readers: links lead somewhere, named commands and settings exist, and both READMEs say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from openclaw_rl.cli.main import app
from openclaw_rl.shared.settings.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "SKILL.md", *(ROOT / "docs").glob("*.md")])
STARTS = sorted([ROOT / "SKILL.md", ROOT / "docs" / "troubleshooting.md", *(ROOT / "docs").glob("start-*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
LANGUAGES = {"README.md", "README.zh-CN.md"}
"""Each README links to the other."""


def fenced(text: str) -> list[str]:
    """The blocks of code, fenced or indented by seven spaces, without the space around them."""
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    return [*blocks, *re.findall(r"^ {7}\S.*$", text, re.MULTILINE)]


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them from ASCII headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page.read_text("utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", STARTS, ids=lambda page: page.name)
def test_commands_and_flags_exist(page: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    common = {"--help", "--config"} | {f"--{name.replace('_', '-')}" for name in SETTINGS}
    text = page.read_text("utf-8")
    spans = [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose(text))]
    calls = re.findall(
        r"^(?:\S*/)?openclaw-rl +([a-z][a-z-]*)([^#\n|]*)",
        "\n".join([*fenced(text), *spans]).replace("\\\n", " "),
        re.MULTILINE,
    )
    assert calls
    for command, rest in calls:
        assert command in commands, command
        loaded = commands[command].make_context(command, [], resilient_parsing=True).command
        own = {flag for option in loaded.params for flag in (*option.opts, *option.secondary_opts)}
        for flag in re.findall(r"(?<!\S)--[a-z-]+", rest):
            assert flag in own | common, flag


def test_the_translation_has_the_same_parts() -> None:
    """Change README.zh-CN.md with README.md: the same headings, code, links and rows."""
    english, chinese = ((ROOT / name).read_text("utf-8") for name in sorted(LANGUAGES))
    levels = [re.findall(r"^#+(?= )", prose(text), re.MULTILINE) for text in (english, chinese)]
    assert levels[0] == levels[1]
    assert fenced(english) == fenced(chinese)
    links = [[link for link in LINK.findall(prose(text)) if link not in LANGUAGES] for text in (english, chinese)]
    assert links[0] == links[1]
    rows = [len(re.findall(r"^\|", text, re.MULTILINE)) for text in (english, chinese)]
    assert rows[0] == rows[1]
    assert "(README.zh-CN.md)" in english and "(README.md)" in chinese


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_the_skill_can_be_found() -> None:
    """The front matter keeps the limits of agentskills.io/specification."""
    _, front, body = (ROOT / "SKILL.md").read_text("utf-8").split("---\n", 2)
    fields = yaml.safe_load(front)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"]) and len(fields["name"]) <= 64
    assert 0 < len(fields["description"]) <= 1024 and len(fields["compatibility"]) <= 500
    assert body.strip()
    for page in re.findall(r"`(docs/[\w-]+\.md)`", body):
        assert (ROOT / page).exists(), page
