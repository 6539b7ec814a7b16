"""The files of an agent's diff that a verdict applies."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePosixPath

NEVER = {"conftest.py", "sitecustomize.py", "usercustomize.py"}
"""Names that are never applied: Python or pytest run them by themselves."""
NEVER_SUFFIXES = {".pth", ".pyc", ".pyo", ".so"}
CONFIGURATION = {"setup.py", "setup.cfg", "pyproject.toml", "pytest.ini", "tox.ini", "noxfile.py", "Makefile"}
TEST_FOLDERS = {"test", "tests", "testing"}
TEST_NAMES = re.compile(r"test_.*|.*_tests?\.py|tests?\.py")
ODD = re.compile(r"""[*?\[\]\\"\n]""")
"""Characters that git reads as a pattern."""


def is_applied(path: str, gold: Collection[str], tests: Collection[str]) -> bool:
    """False for tests, configuration, and what Python runs by itself. A file that the reference patch (`gold`) changes
    is no test, unless the hidden tests change it too.
    """
    parts = PurePosixPath(path).parts
    name = parts[-1]
    if ODD.search(path) or path in tests or name in NEVER or PurePosixPath(name).suffix in NEVER_SUFFIXES:
        return False
    if any(part in (".git", "__pycache__", "..", "/") for part in parts):
        return False
    if path in gold:
        return True
    hidden = any(part.startswith(".") for part in parts)
    test = TEST_NAMES.fullmatch(name) or any(part in TEST_FOLDERS for part in parts[:-1])
    return not (hidden or test or name in CONFIGURATION)
