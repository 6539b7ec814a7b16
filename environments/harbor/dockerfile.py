"""The files and variables of a task's image, for sandboxes without a container: nothing of a Dockerfile is executed.

`FROM` a plain Linux image, `COPY` from the task's folder, `WORKDIR` and `ENV` say all there is to do. Any other
instruction needs the image itself, and so a container.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path, PurePosixPath

import msgspec

from openclaw_rl.shared.errors import ConfigError

PLAIN_IMAGES = re.compile(r"(?:scratch|debian|ubuntu|alpine|busybox|bash|python|buildpack-deps)\b")
"""Names of images, without registry and tag, that have nothing of their own that a task could need."""
HOST_FOLDERS = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr", "var")
"""Top folders that are the host's in a sandbox, or are not there: nothing can be copied there."""
DEFAULT_FOLDER = "/workspace"
_IGNORED = ("LABEL", "EXPOSE", "MAINTAINER")
_CONTINUED = re.compile(r"\\[ \t]*\n")


class NeedsContainer(ConfigError):
    """The task needs an image; the message names the reason."""


class ImageFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an image: `copies` are pairs of a file or folder of this machine and an absolute path inside, where
    a folder means its content; `folder` is the working folder, "" if none is named.
    """

    copies: tuple[tuple[Path, str], ...] = ()
    folder: str = ""
    variables: dict[str, str] = {}

    def tops(self) -> set[str]:
        """The top folders inside that have files or are worked in."""
        paths = [target for _, target in self.copies] + [self.folder or DEFAULT_FOLDER]
        return {PurePosixPath(path).parts[1] for path in paths if len(PurePosixPath(path).parts) > 1}

    def write(self, root: Path) -> None:
        """Write the files below `root`, a folder in which nothing has run yet."""
        for source, target in self.copies:
            place = root / target.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, place)
        (root / (self.folder or DEFAULT_FOLDER).lstrip("/")).mkdir(parents=True, exist_ok=True)


def read_image(folder: Path) -> ImageFiles:
    """The image of `folder`, a task's `environment` or `tests`; empty without a Dockerfile.

    Raises `NeedsContainer` if a container is needed, naming file and line.
    """
    if (folder / "docker-compose.yaml").exists():
        raise NeedsContainer(f"{folder / 'docker-compose.yaml'}: services need containers")
    file = folder / "Dockerfile"
    if not file.exists():
        return ImageFiles()
    reader = _Reader(folder)
    text = _CONTINUED.sub(" ", file.read_text("utf-8"))
    for line in (line.strip() for line in text.splitlines()):
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            try:
                reader.read(word.upper(), rest.strip())
            except NeedsContainer as error:
                raise NeedsContainer(f"{file}: `{line[:80]}`: {error}") from None
    return ImageFiles(copies=tuple(reader.copies), folder=reader.folder, variables=reader.variables)


class _Reader:
    def __init__(self, context: Path) -> None:
        self.copies: list[tuple[Path, str]] = []
        self.folder = ""
        self.variables: dict[str, str] = {}
        self._context = context.resolve()
        self._stages = 0

    def read(self, word: str, rest: str) -> None:
        if word == "FROM":
            self._from(rest)
        elif word == "COPY":
            self._copy(rest)
        elif word == "WORKDIR":
            self.folder = self._inside(_plain(rest))
        elif word == "ENV":
            self.variables |= _variables(_plain(rest))
        elif word not in _IGNORED:
            raise NeedsContainer(f"{word} is not done without a container")

    def _from(self, rest: str) -> None:
        self._stages += 1
        if self._stages > 1:
            raise NeedsContainer("it has more than one stage")
        words = [word for word in rest.split() if not word.startswith("--")]
        name = words[0].rpartition("/")[2] if words else ""
        if not PLAIN_IMAGES.match(name):
            raise NeedsContainer("the image has files of its own")

    def _copy(self, rest: str) -> None:
        while rest.startswith("--"):
            flag, _, rest = rest.partition(" ")
            if not flag.startswith(("--chown=", "--link")):
                raise NeedsContainer(f"{flag} is not done without a container")
            rest = rest.strip()
        words = json.loads(rest) if rest.startswith("[") else _words(_plain(rest))
        if len(words) < 2 or "<<" in rest:
            raise NeedsContainer("it has no source and target")
        *sources, target = words
        for source in sources:
            found = sorted(self._context.glob(source.lstrip("/"))) if source.strip("./") else [self._context]
            if not found:
                raise NeedsContainer(f"{source} is not in the task")
            for path in found:
                self._add(path, target, several=len(sources) > 1 or len(found) > 1)

    def _add(self, path: Path, target: str, *, several: bool) -> None:
        if not path.resolve().is_relative_to(self._context):
            raise NeedsContainer(f"{path} is not in the task's folder")
        place = self._inside(target)
        if path.is_file() and (several or target.endswith("/") or target == "." or place == self.folder):
            place = str(PurePosixPath(place) / path.name)
        self.copies.append((path, place))

    def _inside(self, target: str) -> str:
        """A path inside, absolute; relative ones are below the working folder. Raises `NeedsContainer`."""
        place = PurePosixPath(self.folder or "/") / target
        if ".." in place.parts or len(place.parts) < 2:
            raise NeedsContainer(f"{target} is no folder of its own")
        if place.parts[1] in HOST_FOLDERS:
            raise NeedsContainer(f"/{place.parts[1]} is the host's here")
        return str(place)


def _plain(text: str) -> str:
    if "$" in text:
        raise NeedsContainer("variables are not replaced without a container")
    return text


def _variables(text: str) -> dict[str, str]:
    words = _words(text)
    if words and "=" not in words[0]:  # the old form: ENV NAME some words
        name, _, value = text.partition(" ")
        return {name: value.strip()}
    pairs = [word.partition("=") for word in words]
    return {name: value for name, _, value in pairs}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise NeedsContainer(f"it cannot be read: {error}") from error


def working_folder(folder: Path) -> str:
    """The working folder that the Dockerfile of `folder` ends in, whatever else it does; "" if it names none."""
    file = folder / "Dockerfile"
    text = file.read_text("utf-8") if file.exists() else ""
    found = re.findall(r"^\s*WORKDIR\s+(/[^\s$]*)\s*$", text, re.MULTILINE | re.IGNORECASE)
    return found[-1] if found else ""
