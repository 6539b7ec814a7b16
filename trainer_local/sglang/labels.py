"""What the `weight_version` of a plain SGLang says: which version of the policy it serves, in words of ours.

`7.DIGEST` are whole weights, `policy-v7-DIGEST` an adapter of that name, `0` the base, and `default` what a server
began with. The digest tells what is served from something else that had the same number (a checkpoint written anew,
another run). While whole weights are being changed it says from what, to what and by whom, and while the server's
memory is lent to the trainer on the same GPU (`sglang_memory`) it says that, and whether somebody wants it back.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.shared.process import alive
from openclaw_rl.shared.records import new_id

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BASE = "0"
UNTOUCHED = "default"
"""What a server says of itself that was told nothing."""
BROKEN = "broken"
"""The weights are a mixture."""

_WHOLE = re.compile(r"(\d+)(?:\.[0-9a-f]+)?")
_ADAPTER = re.compile(r"policy-v(\d+)-[0-9a-f]+")
_LENT = re.compile(r"(lent|wanted)(?:-(\w+(?:\+\w+)*))?-by-(.+?)-of-(.+)")
_BY = re.compile(r"(.+):(\d+):")
_UPDATING = re.compile(r"updating-(\d+)-from-(\d+)-by-")


@functools.lru_cache(64)
def number(label: str | int | None) -> int:
    """The version that answers: while weights are being changed the one before, −1 where nobody knows, and 0 for what a
    server began with.
    """
    text = plain(str(label))
    if text == BROKEN:
        return -1
    if changing := _UPDATING.match(text):
        return int(changing.group(2))
    whole = _WHOLE.fullmatch(text)
    return int(whole.group(1)) if whole else version_of(text) or 0


def version_of(name: str) -> int | None:
    """The version that an adapter of this name is, `None` if it is none of ours."""
    found = _ADAPTER.fullmatch(name)
    return int(found.group(1)) if found else None


def adapter_name(version: int, path: str) -> str:
    """What version `version` is called whose adapter is in the folder `path`. Reads the folder."""
    digest = hashlib.blake2b(digest_size=6)
    folder = Path(path)
    if folder.is_dir():
        for file in (folder / CONFIG, folder / WEIGHTS):
            with file.open("rb") as content:
                while chunk := content.read(1 << 20):
                    digest.update(chunk)
    else:  # the servers' machine has it, this one has not
        digest.update(path.encode())
    return f"policy-v{version}-{digest.hexdigest()}"


def whole_label(version: int, path: str) -> str:
    """What version `version` is called whose weights are in the folder `path`: after names, sizes and times of its
    files, since there may be many gigabytes.
    """
    if version == 0:
        return BASE
    digest = hashlib.blake2b(path.encode(), digest_size=6)
    folder = Path(path)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        facts = file.stat()
        digest.update(f"{file.name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return f"{version}.{digest.hexdigest()}"


def me() -> str:
    """Who this process is, for this time."""
    return f"{socket.gethostname()}:{os.getpid()}:{new_id('change')}"


def mine(by: str) -> bool:
    """Whether that is this process."""
    return by.startswith(f"{socket.gethostname()}:{os.getpid()}:")


def gone(by: str) -> bool:
    """Whether this was a process of this machine, and is no more."""
    found = _BY.match(by)
    return found is not None and found.group(1) == socket.gethostname() and not alive(int(found.group(2)))


def lent(label: str, by: str, tags: Sequence[str] = ()) -> str:
    """What SGLang calls `tags` (nothing: all of it) is lent to `by`."""
    return f"lent{'-' if tags else ''}{'+'.join(tags)}-by-{by}-of-{label}"


def wanted(label: str) -> str:
    """The same, and somebody asks for it."""
    return f"wanted{label.removeprefix('lent')}" if lent_to(label) and not is_wanted(label) else label


def lent_to(label: str) -> str:
    """Whom the memory is lent to, "" if it is not."""
    found = _LENT.fullmatch(label)
    return found.group(3) if found else ""


def lent_tags(label: str) -> list[str]:
    """What of it is lent, as SGLang calls it; nothing where all of it is."""
    found = _LENT.fullmatch(label)
    return found.group(2).split("+") if found and found.group(2) else []


def is_wanted(label: str) -> bool:
    """Whether the memory is lent and somebody asks for it."""
    found = _LENT.fullmatch(label)
    return found is not None and found.group(1) == "wanted"


def plain(label: str) -> str:
    """What is served, whoever has the memory."""
    found = _LENT.fullmatch(label)
    return found.group(4) if found else label


def updating(version: int, before: int, by: str) -> str:
    """Weights are on their way; `by` says whose they are."""
    return f"updating-{version}-from-{before}-by-{by}"


def updated_by(label: str) -> str:
    """Who is changing the weights, if somebody is; else ""."""
    changing = _UPDATING.match(label)
    return label[changing.end() :] if changing else ""
