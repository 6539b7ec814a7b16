"""Checks of SGLang for `doctor`: it can be started, it can compile its kernels, and its NCCL is the trainer's."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from openclaw_rl.cli.checks.check import Check
from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.backend import serves_full_weights
from openclaw_rl.trainer_local.placement.place import current_placement
from openclaw_rl.trainer_local.sglang import container, launch

SECONDS = 30.0
"""Longest wait for SGLang's Python."""
TOOLKIT = "/usr/local/cuda"
NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
_ASK = """
import importlib.metadata, json, os, sys, sysconfig
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
header = os.path.join(sysconfig.get_paths(scheme="posix_prefix")["include"], "Python.h")
print(json.dumps({"versions": versions, "header": header, "has_header": os.path.exists(header)}))
"""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """SGLang's Python by its own words: versions of packages, and the header that compiling for it needs."""

    versions: dict[str, str] = {}
    header: str = ""
    has_header: bool = True


def sglang_checks(settings: Settings, placement: Placement | None, *, here: bool) -> Iterator[Check]:
    """The checks of the SGLang that serves the policy, in the `placement` of this machine's GPUs; without `here`, of
    others that are planned for.
    """
    if settings.engine.url:
        yield Check("sglang", None, f"the one at {without_secret(settings.engine.url)}, which you start")
        return
    try:
        program = launch.program(settings)
        launch.arguments(settings, current_placement(settings).servers)
    except ConfigError as error:
        yield Check("sglang", False, str(error))
        return
    placed = placement or Placement()
    if settings.gpu.sglang_command:
        yield Check("sglang", None, f"started by {settings.gpu.sglang_command!r}; its version is not looked at")
        most = max((len(server.gpus) for server in (*placed.servers, *placed.judges)), default=0)
        for fatal, message in container.faults(shlex.split(settings.gpu.sglang_command), most):
            yield Check("container", False if fatal else None, f"sglang_command: {message}")
        return
    yield from _environment(settings, program[0], placed if here else Placement())


def _environment(settings: Settings, python: str, placed: Placement) -> Iterator[Check]:
    wanted = launch.VERSION
    try:
        asked = subprocess.run(
            [python, "-c", _ASK, "sglang", *NCCL], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        found = msgspec.json.decode(asked.stdout or "{}", type=Environment)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        yield Check("sglang", False, f"{python} (sglang_python) cannot be run: {error}")
        return
    version = found.versions.get("sglang")
    if version is None:
        yield Check("sglang", False, f"{python} has no SGLang: {python} -m pip install sglang=={wanted}")
        return
    other = "" if version == wanted else f"; only {wanted} was tried, so another may refuse arguments or differ"
    yield Check("sglang", None if other else True, f"{version} in {python}{other}")
    if placed.servers or placed.judges:
        path = launch.variables(settings).get("PATH", "")
        missing = list(lacking_tools(os.environ | {"PATH": path}))
        if not found.has_header:
            missing.append(f"{found.header} (on Debian: apt-get install python3-dev, or that of its version)")
        if missing:
            yield Check("sglang", False, f"it compiles kernels when it is started, and lacks {'; '.join(missing)}")
    if _broadcasts(settings, placed) and (check := compare_nccl(found.versions, python)):
        yield check


def lacking_tools(environ: Mapping[str, str]) -> Iterator[str]:
    """The tools that SGLang (0.5.23, `kernels/jit`) does not find in `environ` to compile its kernels with, and how to
    get them. It compiles at the first start, and again after an update.
    """
    path = environ.get("PATH")
    on_path = shutil.which("nvcc", path=path)
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH") or (on_path and str(Path(on_path).parent.parent))
    nvcc = Path(home or TOOLKIT) / "bin" / "nvcc"
    if not os.access(nvcc, os.X_OK):
        yield f"{nvcc} (install NVIDIA's CUDA toolkit, and set CUDA_HOME to its folder if it is another)"
    if shutil.which("ninja", path=path) is None:
        yield "ninja (install it with pip in SGLang's environment)"
    compiler = environ.get("CXX") or "c++"
    if shutil.which(compiler, path=path) is None:
        yield f"a C++ compiler, {compiler} (on Debian: apt-get install g++)"


def _broadcasts(settings: Settings, placed: Placement) -> bool:
    """True if full weights go from the trainer to SGLang by NCCL."""
    if not settings.learning.train or not serves_full_weights(settings):
        return False
    way = settings.gpu.weight_transfer
    return (placed.weight_transfer if way == "auto" else way) == "nccl"


def compare_nccl(theirs: Mapping[str, str], python: str) -> Check | None:
    """Compare the NCCL of SGLang's environment with that of this one. NCCL refuses peers of another version
    ("Mismatched NCCL version detected", its `init.cc`). None where one of them has no package of NCCL.
    """
    ours = {name: version for name in NCCL if (version := _version(name))}
    own, other = next(iter(ours.items()), None), next(((n, theirs[n]) for n in NCCL if n in theirs), None)
    if own is None or other is None:
        return None
    if own[1] == other[1]:
        return Check("nccl", True, f"{own[1]} in both environments")
    newest = max(own[1], other[1], key=_number)
    name, at = (own[0], sys.executable) if own[1] != newest else (other[0], python)
    return Check(
        "nccl",
        None,
        f"{own[1]} here and {other[1]} in {python}: NCCL refuses peers of another version, so new weights would reach "
        f"SGLang from disk, after two failures. Give both the same: {at} -m pip install --no-deps {name}=={newest}",
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
