"""Archives of several days; the last two were cut off."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from random import Random

DAYS = 5
DAMAGED = 2


def fill(workspace: Path, random: Random) -> dict[str, str]:
    """Write `backups/DAY.tar.gz`. The check's `files.json` has the files to restore."""
    (workspace / "backups").mkdir()
    wanted: dict[str, str] = {}
    for day in range(1, DAYS + 1):
        files = {
            "etc/app.conf": f"port = {random.randint(1024, 9999)}\nthreads = {random.randint(1, 16)}\n",
            "etc/users/admin.conf": f"quota = {random.randint(1, 99)}\n",
            "etc/users/guest.conf": f"quota = {random.randint(1, 99)}\n",
            "var/cache.bin": "".join(random.choices("0123456789abcdef", k=4000)),
        }
        stored = io.BytesIO()
        with tarfile.open(fileobj=stored, mode="w:gz") as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        damaged = day > DAYS - DAMAGED
        data = stored.getvalue()
        (workspace / f"backups/2024-05-{day:02}.tar.gz").write_bytes(data[: len(data) * 2 // 3] if damaged else data)
        if not damaged:
            wanted = {name: text for name, text in files.items() if name.startswith("etc/")}
    return {"files.json": json.dumps(wanted)}
