"""A program that takes docker's place where tests are about the end of a container, and that behaves as docker does
there: a container is no child of its client, and lives on when that one gets SIGKILL. Its processes are this machine's.

`run` reads `--gpus` as one line of CSV, refuses a name that is taken, gives the container its own environment, and
passes SIGTERM on to the container, which ignores it as process 1 does. `rm --force` ends it. Names and process ids
are in the folder `FAKE_DOCKER`; the image's program is `fake_sglang`, with its log there.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_DOCKER"])
FLAGS = ("--rm",)


def refuse(reason: str) -> None:
    """End as docker does."""
    print(f"docker: {reason}", file=sys.stderr)
    sys.exit(125)


def gpus(value: str) -> str:
    """The devices of `--gpus`; a bare number is a count, which cannot go with devices."""
    fields = next(csv.reader([value]))
    devices = [field.removeprefix("device=") for field in fields if field.startswith("device=")]
    if devices and any("=" not in field for field in fields):
        refuse("cannot set both Count and DeviceIDs on device request.")
    return ",".join(devices)


def run(words: list[str]) -> None:
    """Start a container, and be its client."""
    given: dict[str, list[str]] = {}
    while words[0].startswith("-"):
        option = words.pop(0)
        given.setdefault(option, []).append("" if option in FLAGS else words.pop(0))
    variables = dict(word.split("=", 1) for word in given.get("-e", []))
    card = FOLDER / given["--name"][0]
    if card.exists():
        refuse(f'Conflict. The container name "/{card.name}" is already in use')
    variables |= {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": gpus(given["--gpus"][0])}
    module = words.index("-m")
    program = [sys.executable, str(Path(__file__).with_name("fake_sglang.py")), str(FOLDER / "started")]
    container = subprocess.Popen(
        [*program, *words[module + 2 :]],
        env=variables,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN) and None,
    )
    card.write_text(str(container.pid))
    signal.signal(signal.SIGTERM, lambda *_: container.terminate())
    code = container.wait()
    card.unlink(missing_ok=True)
    sys.exit(code)


def remove(name: str) -> None:
    """End a container."""
    card = FOLDER / name
    if not card.exists():
        print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
        sys.exit(1)
    os.kill(int(card.read_text()), signal.SIGKILL)
    time.sleep(0.1)
    card.unlink(missing_ok=True)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2:])
    elif sys.argv[1:3] == ["rm", "--force"]:
        remove(sys.argv[3])
    else:
        refuse(f"unknown command: {sys.argv[1:]}")
