"""A tree with random permissions."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

FILES = (
    "index.html", "run.sh", "assets/style.css", "assets/build it.sh", "assets/img/logo.svg", "private/key.pem",
    "private/rotate.sh", "private/old/key.pem", "docs/install.sh.txt", "docs/.hidden",
)  # fmt: skip
MODES = (0o777, 0o666, 0o640, 0o755, 0o600)


def fill(workspace: Path, random: Random) -> dict[str, str]:
    """Make `site`. The check's `modes.json` has the permissions that are right."""
    wanted: dict[str, int] = {}
    for name in FILES:
        path = workspace / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"This is {name}.\n")
        private = name.startswith("private/")
        wanted[f"site/{name}"] = 0o600 if private else 0o755 if name.endswith(".sh") else 0o644
        path.chmod(random.choice([mode for mode in MODES if mode != wanted[f"site/{name}"]]))
    for folder in sorted(path for path in (workspace / "site").rglob("*") if path.is_dir()):
        name = str(folder.relative_to(workspace))
        wanted[name] = 0o700 if name.startswith("site/private") else 0o755
        folder.chmod(0o777)
    return {"modes.json": json.dumps(wanted)}
