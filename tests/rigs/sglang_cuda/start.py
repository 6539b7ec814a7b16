#!/usr/bin/env python3
"""Unpack the archive of build.py next to itself, once, and print the command that starts SGLang from it.

    export OPENCLAW_RL_SGLANG_COMMAND=$(python3 tests/rigs/sglang_cuda/start.py)    [--device cpu]

Run it with the Python that has torch: SGLang runs in that one. `--device cpu` prints the command of a rehearsal without
a card. README.md has the rest.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[2] / ".cache" / "rigs" / "sglang_cuda"
ON_A_CARD = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch", "--lora-backend", "triton"),
    *("--grammar-backend", "none", "--disable-cuda-graph", "--disable-overlap-schedule", "--skip-server-warmup"),
    "--disable-custom-all-reduce",
)
"""Arguments that avoid what is not in the archive: flashinfer, sglang-kernel, CUDA graphs over plain torch."""
ON_A_CPU = (
    *("--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native", "--lora-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--grammar-backend", "none", "--disable-cuda-graph"),
    *("--disable-overlap-schedule", "--skip-server-warmup"),
    *("--max-total-tokens", "16384", "--max-running-requests", "8", "--mem-fraction-static", "0.3"),
)
DRIVER = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/cuda/compat")
"""Folders that may hold the driver's libcuda.so.1 where the loader does not know it."""


def main() -> int:
    """Unpack and print the command; report on the error output."""
    parser = argparse.ArgumentParser(description="Unpack SGLang and print the command that starts it.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    if importlib.util.find_spec("torch") is None:
        print(f"{sys.executable} has no torch", file=sys.stderr)
        return 1
    archive = FOLDER / "sglang.tar.xz"
    if not archive.exists():
        print(f"{archive} is not there: tests/rigs/sglang_cuda/build.py makes it", file=sys.stderr)
        return 1
    unpack(archive, FOLDER / "unpacked")
    print(command(FOLDER / "unpacked", device))
    return 0


def unpack(archive: Path, folder: Path) -> None:
    """Unpack and compile, unless `folder` holds this archive already."""
    stamp, digest = folder / ".archive", hashlib.sha256(archive.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    begun = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="tar")
    # Otherwise three processes compile the same files while SGLang starts. Of its models it imports one.
    compileall.compile_dir(folder / "site", quiet=2, workers=0, rx=re.compile("/srt/models/"))
    stamp.write_text(digest)
    print(f"unpacked and compiled in {time.monotonic() - begun:.0f} s", file=sys.stderr)


def command(folder: Path, device: str) -> str:
    """The command line, to which the caller adds SGLang's further arguments."""
    variables, arguments = find_variables(folder), ON_A_CARD
    if device == "cpu":  # that engine wants kernels for AMX, the plain path runs on any processor
        variables, arguments = variables | {"SGLANG_USE_CPU_ENGINE": "0"}, ON_A_CPU
    words = ["env", *(f"{name}={value}" for name, value in variables.items())]
    return shlex.join([*words, sys.executable, str(HERE / "serve.py"), *arguments])


def find_variables(folder: Path) -> dict[str, str]:
    """The environment of SGLang with the packages in `folder`, on this machine."""
    found = {
        "PYTHONPATH": f"{folder / 'site'}:{HERE / 'stubs'}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "NCCL_SOCKET_IFNAME": "lo",  # one machine, which may have no name of its own
        "GLOO_SOCKET_IFNAME": "lo",
    }
    runtime = [Path(place, "nvidia").glob("*/lib/libcudart.so.13") for place in sys.path if place]
    libraries = [str(path.parent) for paths in runtime for path in paths] or ["/usr/local/cuda/lib64"]
    inherited = os.environ.get("LD_LIBRARY_PATH", "")  # torch_memory_saver is loaded before torch brings its CUDA
    found["LD_LIBRARY_PATH"] = ":".join([libraries[0], *([inherited] if inherited else [])])
    if Path("/usr/local/cuda/bin").is_dir():
        found["CUDA_HOME"] = "/usr/local/cuda"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists() and (folder / "include").is_dir():
        found["CPATH"] = str(folder / "include")
    if driver := find_driver():
        found["TRITON_LIBCUDA_PATH"] = driver
    return found


def find_driver() -> str:
    """The folder of the driver's library, if Triton would not find it; else ""."""
    try:
        known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        known = ""
    folders = () if "libcuda.so.1" in known else DRIVER
    return next((folder for folder in folders if Path(folder, "libcuda.so.1").exists()), "")


if __name__ == "__main__":
    sys.exit(main())
