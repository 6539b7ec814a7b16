"""Rows in the fields of SWE-bench and SWE-Gym as task folders.

A row has `instance_id`, `base_commit`, `problem_statement`, `FAIL_TO_PASS` and `PASS_TO_PASS` (lists, or JSON of
lists), `patch`, `test_patch`, and where the repository is: `image` (it is in `/testbed` there), or `repository`, a
local one, relative to the file of the rows. Other fields are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.environments.tasks.folder import WORKSPACE, TaskFolder
from openclaw_rl.environments.tasks.swe.folder import TESTBED, SweTask, patched_paths
from openclaw_rl.environments.tasks.swe.history import applies, copy_without_future
from openclaw_rl.environments.tasks.verifier.applied import is_applied
from openclaw_rl.shared.errors import ConfigError

IMAGES = ("image", "image_name", "docker_image")
"""Names of the field of the image."""
REQUEST = """{problem}

The repository is in {folder}. Change its code so that the issue is solved. Hidden tests are run afterwards; changes of
tests and of configuration do not count.
"""
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,150}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class SweRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row: its place for messages, and either `image` or `repository`."""

    place: str
    name: str
    base_commit: str
    task: SweTask
    image: str = ""
    repository: Path | None = None

    def folder(self) -> TaskFolder:
        """The row as a task folder. Writing it raises `ConfigError` for a repository or a patch that does not fit."""
        metadata = {"instance_id": self.name}
        if self.repository is None:
            return self.task.folder(None, image=self.image, base=self.base_commit, metadata=metadata)
        return self.task.folder(self._fill, metadata=metadata)

    def _fill(self, folder: Path) -> None:
        try:
            copy_without_future(str(self.repository), self.base_commit, folder)
        except ConfigError as error:
            raise ConfigError(f"{self.place}: base_commit: {error}") from None
        for field, patch in (("patch", self.task.patch), ("test_patch", self.task.test_patch)):
            if patch and not applies(folder, patch):
                raise ConfigError(f"{self.place}: {field}: does not apply to {self.base_commit}")


def read_rows(file: Path) -> Iterator[SweRow | ConfigError]:
    """The rows of a file (one JSON object a line), or an error for each that is none, which names row and field.
    Raises `ConfigError` if there is no such file.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = _row(line, f"{file}, row {number}", file.parent)
            if row.name in names:
                raise ConfigError(f"{row.place}: instance_id: there is another row of that name")
        except ConfigError as error:
            yield error
            continue
        names.add(row.name)
        yield row


def _row(line: str, place: str, folder: Path) -> SweRow:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{place}: no JSON object")
    reader = _Fields(fields, place)
    name = reader.text("instance_id", _NAME)
    reader.place = f"{place} ({name})"
    test_patch = reader.text("test_patch", empty=True)
    image = next((fields[field] for field in IMAGES if fields.get(field)), "")
    repository = fields.get("repository") or ""
    if not isinstance(image, str) or not isinstance(repository, str) or bool(image) == bool(repository):
        reader.fail("repository", "needs either this, the folder of a local repository, or image, the name of one")
    if repository and not (folder / repository).is_dir():
        reader.fail("repository", f"{folder / repository} is no folder")
    if image and not re.fullmatch(r"[\w.:/@-]+", image):
        reader.fail("image", f"{image!r} is no name of an image")
    return SweRow(
        place=reader.place,
        name=name,
        base_commit=reader.text("base_commit", _COMMIT),
        task=SweTask(
            problem=REQUEST.format(
                problem=reader.text("problem_statement").strip(), folder=TESTBED if image else WORKSPACE
            ),
            fail_to_pass=reader.ids("FAIL_TO_PASS", least=1),
            pass_to_pass=reader.ids("PASS_TO_PASS"),
            patch=reader.patch(test_patch),
            test_patch=test_patch,
            seconds=1800.0,
            test_seconds=1800.0,
        ),
        image=image,
        repository=folder / repository if repository else None,
    )


class _Fields:
    """Reads the fields of a row; every error names row and field."""

    def __init__(self, fields: dict[str, Any], place: str) -> None:
        self._fields = fields
        self.place = place

    def fail(self, field: str, message: str) -> None:
        raise ConfigError(f"{self.place}: {field}: {message}")

    def text(self, field: str, pattern: re.Pattern[str] | None = None, *, empty: bool = False) -> str:
        value = self._fields.get(field)
        if empty and value is None:
            return ""
        if not isinstance(value, str) or not (value.strip() or empty):
            self.fail(field, f"needs a text, has {_shown(value)}")
        if pattern is not None and not pattern.fullmatch(str(value)):
            self.fail(field, f"{_shown(value)} is not of the form {pattern.pattern}")
        return str(value)

    def ids(self, field: str, least: int = 0) -> list[str]:
        value = self._fields.get(field)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                self.fail(field, f"needs a list of test ids, or its JSON, has {_shown(value)}")
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            self.fail(field, f"needs a list of test ids, has {_shown(value)}")
        if len(value or ()) < least:
            self.fail(field, f"needs at least {least} test")
        return list(value or ())

    def patch(self, test_patch: str) -> str:
        patch = self.text("patch")
        paths, tests = patched_paths(patch), patched_paths(test_patch)
        if not paths:
            self.fail("patch", "is no patch of git")
        if test_patch.strip() and not tests:
            self.fail("test_patch", "is no patch of git")
        if never := [path for path in paths if not is_applied(path, paths, tests)]:
            self.fail("patch", f"changes {never[0]}, which no verdict applies")
        return patch


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}…"
