"""Optional extras of this project (`pyproject.toml`)."""

from __future__ import annotations


def install_command(extra: str = "") -> str:
    """The command, run in the checkout, that installs an extra (or only what is always needed)."""
    return f".venv/bin/pip install -e '.[{extra}]'" if extra else ".venv/bin/pip install -e ."
