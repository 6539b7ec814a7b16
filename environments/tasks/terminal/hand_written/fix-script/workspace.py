"""A script with faults, and a folder to try it."""

from __future__ import annotations

from pathlib import Path
from random import Random

SCRIPT = """#!/bin/bash
# Sizes of the files in a folder.
total=0
for name in $(ls $1); do
  size=$(wc -c < $1/$name)
  echo $size $name
  total=$((total + size))
done
echo $total total
"""


def fill(workspace: Path, random: Random) -> None:
    """Write `sizes.sh` and `example`."""
    (workspace / "sizes.sh").write_text(SCRIPT)
    (workspace / "example").mkdir()
    for name in ("a.txt", "two words.txt", ".hidden"):
        (workspace / "example" / name).write_text("x" * random.randint(1, 99))
