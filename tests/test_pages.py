"""The pages for readers: links lead somewhere, named commands and settings exist, and both READMEs say the same."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.main import get_command

from openclaw_rl.cli.main import TAKES_SETTINGS, app
from openclaw_rl.shared.settings.settings import SETTINGS, flag_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "SKILL.md", *(ROOT / "docs").glob("*.md")])
OTHERS = [
    ROOT / "CONTRIBUTING.md",
    *(ROOT / folder / "README.md" for folder in ("integrations/litellm", "openclaw-extension")),
]
STARTS = [page for page in PAGES if page.name.startswith(("SKILL", "troubleshooting", "start-"))]
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


def code(page: Path) -> str:
    """Blocks of code and spans of a page, a command a line."""
    text = page.read_text("utf-8")
    spans = [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose(text))]
    return "\n".join([*fenced(text), *spans]).replace("\\\n", " ")


def calls(page: Path) -> list[tuple[str, str]]:
    """The commands of ours on a page, with what follows; `make run ARGS=…` is `serve`."""
    text = code(page)
    served = re.findall(r"^ *make (?:run|(demo)) ARGS=\"([^\"]*)\"", text, re.MULTILINE)
    found = re.findall(r"^ *(?:\S*/)?openclaw-rl +([a-z][a-z-]*)([^#\n|]*)", text, re.MULTILINE)
    return [*found, *((name or "serve", rest) for name, rest in served)]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_commands_and_flags_exist(page: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    types = {flag_of(name): one.field.annotation for name, one in SETTINGS.items()}
    switches = {flag for flag, kind in types.items() if kind is bool or bool in get_args(kind)}
    settings = {"--config", *(f"--{flag}" for flag in types), *(f"--no-{flag}" for flag in switches)}
    assert calls(page) or page not in STARTS
    for command, rest in calls(page):
        assert command in commands, command
        loaded = commands[command].make_context(command, [], resilient_parsing=True).command
        own = {flag for option in loaded.params for flag in (*option.opts, *option.secondary_opts)}
        known = own | {"--help"} | (settings if command in TAKES_SETTINGS else set())
        for flag in re.findall(r"(?<!\S)--[a-z-]+", rest):
            assert flag in known, f"{command} {flag}"


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_programs_exist(page: Path) -> None:
    for module in re.findall(r"python -m ((?:bench|openclaw_rl)(?:\.[a-z_]+)+)", page.read_text("utf-8")):
        assert find_spec(module) is not None, module


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
