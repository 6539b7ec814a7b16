"""Pictures with notes; names have blanks and signs."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

NAMES = (
    "IMG 0012",
    "IMG 0013",
    "beach (1)",
    "beach (2)",
    "Anna's party",
    "cake & tea",
    "-fog",
    "50% off",
    "snow",
    "IMG 0099",
)
UNDATED = 2


def fill(workspace: Path, random: Random) -> dict[str, str]:
    """Make `photos`. The check's `files.json` has the texts by new name."""
    photos = workspace / "photos"
    photos.mkdir()
    wanted: dict[str, str] = {}
    for place, name in enumerate(NAMES):
        picture = f"picture {random.getrandbits(64):016x}\n"
        (photos / f"{name}.JPG").write_text(picture)
        if place >= len(NAMES) - UNDATED:
            wanted[f"photos/undated/{name}.JPG"] = picture
            continue
        year = random.choice((2021, 2022, 2023))
        date = f"{year}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
        note = f"camera: {random.choice(('x100', 'z5'))}\ndate: {date}\n"
        (photos / f"{name}.txt").write_text(note)
        wanted[f"photos/{year}/{date} {name}.jpg"] = picture
        wanted[f"photos/{year}/{date} {name}.txt"] = note
    return {"files.json": json.dumps(wanted)}
