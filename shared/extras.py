"""Optional extras of this project (`pyproject.toml`), and the commands that install them."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
from pathlib import Path

DISTRIBUTION = "openclaw-rl"
_ROOT = Path(__file__).resolve().parent.parent
"""The folder of the rooms: the checkout (links are followed), or the package in an environment."""
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")


def in_checkout() -> bool:
    """True if the package runs from a checkout, False if it was installed from a wheel."""
    return (_ROOT / "pyproject.toml").is_file()


def install_command(extra: str = "") -> str:
    """The command that installs an extra (or only what is always needed).

    In a checkout it is run there. Elsewhere it names the requirements themselves, as the installed metadata lists them:
    the project's name is registered at no index, so pip would not find `openclaw-rl[EXTRA]`.
    """
    requirements = [] if in_checkout() else _requirements(extra)
    if requirements:
        return shlex.join([sys.executable, "-m", "pip", "install", *requirements])
    return f".venv/bin/pip install -e '.[{extra}]'" if extra else ".venv/bin/pip install -e ."


def _requirements(extra: str) -> list[str]:
    """The requirements of an extra, such as `mcp<3,>=2.2`; none where the package has no metadata."""
    try:
        listed = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for entry in listed:
        requirement, _, marker = entry.partition(";")
        wanted = _EXTRA.search(marker)
        if (wanted[1] if wanted else "") == extra:
            found.append(requirement.strip())
    return found
