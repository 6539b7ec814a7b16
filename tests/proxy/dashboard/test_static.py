"""The page's own files: small, complete, and with nothing from another host."""

from __future__ import annotations

import re
from pathlib import Path

from tests.processes import ROOT

STATIC = ROOT / "proxy" / "dashboard" / "static"
LONGEST = 300
IMPORT = re.compile(r'(?:^import .*? from |=> import\()"([^"]+)"', re.MULTILINE)
ADDRESS = re.compile(r"(?:https?:)?//[a-z0-9-]+(?:\.[a-z0-9-]+)+")
NAMESPACE = "http://www.w3.org"
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")


def _files(*suffixes: str) -> list[Path]:
    files = [path for path in STATIC.rglob("*") if path.suffix in suffixes and "vendor" not in path.parts]
    assert files
    return files


def test_each_file_is_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in _files(".js", ".css", ".html")}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_no_file_names_an_address_of_another_host() -> None:
    found = {path.name: ADDRESS.findall(path.read_text()) for path in _files(".js", ".css", ".html", ".svg")}
    assert {name: set(addresses) - {NAMESPACE} for name, addresses in found.items() if addresses} in (
        {},
        {"icon.svg": set()},
    )
    assert ADDRESS.search('import x from "https://cdn.example.com/x.js"')


def test_no_script_turns_a_text_into_markup() -> None:
    assert [path.name for path in _files(".js") if MARKUP.search(path.read_text())] == []


def test_every_import_is_a_file_or_in_the_import_map() -> None:
    page = (STATIC / "index.html").read_text()
    mapped = set(re.findall(r'"([a-z/]+)": "\./vendor/', page))
    assert mapped == {"preact", "preact/hooks", "htm", "uplot"}
    for path in _files(".js"):
        for name in IMPORT.findall(path.read_text()):
            assert name in mapped or (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_every_script_is_reached_from_the_page() -> None:
    page = (STATIC / "index.html").read_text()
    reached, waiting = set[Path](), [STATIC / name for name in re.findall(r'src="\./([a-z]+\.js)"', page)]
    while waiting:
        path = waiting.pop().resolve()
        if path in reached or "vendor" in path.parts:
            continue
        reached.add(path)
        waiting += [path.parent / name for name in IMPORT.findall(path.read_text()) if name.startswith(".")]
    assert {path.name for path in _files(".js")} - {path.name for path in reached} == set()
