"""The files of other projects are unchanged and listed, and no file of the page names another host."""

from __future__ import annotations

import hashlib
import re

from openclaw_rl.proxy.dashboard.pages import STATIC

VENDOR = STATIC / "vendor"
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "http://www.w3.org/1998/Math/MathML"}


def test_each_vendored_file_has_the_digest_and_the_licence_of_its_line() -> None:
    line = r"^\| `(\S+)` \| (\S+) \S+ \| (\S+) \| .* \| `([0-9a-f]{64})` \|$"
    rows = re.findall(line, (VENDOR / "README.md").read_text(), re.MULTILINE)
    listed = {name: digest for name, _, _, digest in rows}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    del found["README.md"]
    assert found == listed
    licences = {package: name for name, package, _, _ in rows if name.endswith(".LICENSE")}
    for _, package, licence, _ in rows:
        text = (VENDOR / licences[package]).read_text()
        assert {"MIT": "The MIT License", "Apache-2.0": "Apache License"}[licence] in text


def test_no_file_of_the_page_names_another_host() -> None:
    ours = [path for path in STATIC.rglob("*") if path.is_file() and path.parent != VENDOR]
    assert ours
    for path in ours:
        named = set(re.findall(r"(?:https?:)?//[\w-]+(?:\.[\w-]+)+[^\s\"'`)]*", path.read_text()))
        assert named <= NAMESPACES, path
