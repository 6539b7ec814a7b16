"""A repository in which one of many commits breaks the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

COMMITS = 16
PROGRAM = """# Adds the numbers on its lines. Revision {revision}.
total=0
while read -r number; do
  total=$((total + number))
done
echo "{before}$total"
"""
CHECK = "test \"$(printf '2\\n3\\n' | sh add.sh)\" = 5\n"


def fill(workspace: Path, random: Random, git: Callable[..., str]) -> dict[str, str]:
    """Make `adder`. The check's `guilty.txt` has the hash."""
    adder = workspace / "adder"
    adder.mkdir()
    git(adder, "init", "-q", "--template=", "-b", "main")
    guilty, found = random.randint(4, COMMITS - 3), ""
    (adder / "check.sh").write_text(CHECK)
    for revision in range(COMMITS):
        before = "0" if revision >= guilty else ""
        (adder / "add.sh").write_text(PROGRAM.format(revision=revision, before=before))
        git(adder, "add", "-A")
        git(adder, "commit", "-q", "-m", f"Revision {revision}")
        if revision == 0:
            git(adder, "tag", "good")
        if revision == guilty:
            found = git(adder, "rev-parse", "HEAD")
    return {"guilty.txt": found}
