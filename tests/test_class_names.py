"""Every class of the product has a name of its own, so that a name in a message or a search means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_two_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    rooms = [link.resolve() for link in (ROOT / "openclaw_rl").iterdir() if link.is_symlink()]
    paths = [path for room in (*rooms, ROOT / "bench") for path in sorted(room.rglob("*.py"))]
    for path in (path for path in paths if "shipped_policy" not in path.parts):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
