#!/usr/bin/env python3
"""Pack SGLang and its libraries into one archive for a machine that reaches no package index (README.md).

    python3 tests/rigs/sglang_cuda/build.py

Needs pip, an index that pip reaches, and 400 MB of disk for a while. The archive is for Python 3.12 on Linux x86-64 and
goes to .cache/rigs/sglang_cuda/sglang.tar.xz. It holds `site` (the packages of requirements.txt) and `include` (the
headers of Python, which Triton compiles against and some machines lack), if a Python 3.12 with headers is found here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = HERE.parents[2] / ".cache" / "rigs" / "sglang_cuda" / "sglang.tar.xz"
PYTHON = "3.12"
PLATFORMS = [f"manylinux_2_{number}_x86_64" for number in (34, 31, 28, 27, 26, 24, 17)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux1_x86_64"]
UNUSED = (
    "bin",
    *(f"sglang/{name}" for name in ("benchmark", "multimodal_gen", "test")),
    "sglang/**/*.so",  # Rust servers and caches, which are off unless asked for
    *(f"torch_memory_saver_hook_mode_{mode}{cuda}.abi3.so" for mode in ("preload", "torch") for cuda in ("", "_cu12")),
    "**/__pycache__",
)
"""What a server of a language model with CUDA 13 leaves aside, as patterns in `site`."""


def main() -> int:
    """Build the archive and print its size."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder, "site")
        install(site)
        remove_unused(site)
        headers = find_headers()
        if headers is None:
            print(f"no Python {PYTHON} with headers here: the archive has none", file=sys.stderr)
        pack({"site": site} | ({"include": headers} if headers else {}))
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size / 1e6:.1f} MB")
    return 0


def install(site: Path) -> None:
    """Install the wheels of requirements.txt into `site`, for PYTHON whatever Python runs this."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    command += ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp", *platforms]
    subprocess.run([*command, "--target", str(site), "-r", str(HERE / "requirements.txt")], check=True)


def remove_unused(site: Path) -> None:
    """Delete the files of UNUSED."""
    for path in [path for pattern in UNUSED for path in site.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def find_headers() -> Path | None:
    """Return the folder with Python.h of this Python, or else of python3.12, if it is PYTHON and has it."""
    ask = "import sys, sysconfig; print(*sys.version_info[:2], sep='.'); print(sysconfig.get_paths()['include'])"
    for python in (sys.executable, f"python{PYTHON}"):
        try:
            done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        version, folder = done.stdout.splitlines()
        if version == PYTHON and Path(folder, "Python.h").is_file():
            return Path(folder)
    return None


def pack(folders: dict[str, Path]) -> None:
    """Write the archive, without this machine's users and times."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    partial = ARCHIVE.with_suffix(".partial")
    with tarfile.open(partial, "w:xz", preset=9) as archive:
        for name, folder in folders.items():
            archive.add(folder, name, filter=anonymous)
    partial.replace(ARCHIVE)


if __name__ == "__main__":
    sys.exit(main())
