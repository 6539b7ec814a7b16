"""Git repositories of tasks: without anything that came after the base commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.environments.tasks.folder import write_files
from openclaw_rl.shared.errors import ConfigError

BASE = "base"
"""The tag of the base commit in repositories that we make."""
FORGET = """\
#!/bin/sh
# Leave nothing in the repository $1 that came after the commit $2: no ref, no reflog, no object.
set -e
cd "$1"
git checkout -q --detach "$2"
git remote | while read -r name; do git remote remove "$name"; done
git for-each-ref --format='delete %(refname)' | git update-ref --stdin
git stash clear
rm -f .git/FETCH_HEAD .git/ORIG_HEAD .git/MERGE_HEAD .git/packed-refs
git reflog expire --expire=now --expire-unreachable=now --all
git checkout -q -b main
git tag base
rm -rf .git/logs
git gc -q --prune=now
"""
"""A script for images that hold the repository."""
_DATE = "2024-01-01T00:00:00Z"
_IDENTITY = {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in (
    ("NAME", "Task"), ("EMAIL", "task@example.com"), ("DATE", _DATE)
)}  # fmt: skip
_GIT = ("git", "-c", "safe.directory=*", "-c", "core.logAllRefUpdates=false", "-c", "gc.auto=0")


def make_repository(folder: Path, files: Mapping[str, str]) -> None:
    """Fill a folder with a repository of one commit, with the tag `base`; the same files give the same commit."""
    write_files(folder, files)
    run_git(folder, "init", "-q", "--template=", "-b", "main")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "-m", "Begin")
    _tag_base(folder)


def copy_without_future(source: str, commit: str, folder: Path) -> None:
    """Fill a folder with a checkout of `commit` and its history: later commits, refs and reflogs of `source`, a local
    repository, are not copied. Raises `ConfigError` for a repository or a commit that is none.
    """
    run_git(folder, "init", "-q", "--template=", "-b", "main")
    try:
        full = run_git(Path(source), "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}").strip()
    except (OSError, ConfigError):
        raise ConfigError(f"{source} has no commit {commit}") from None
    run_git(folder, "fetch", "-q", "--no-tags", "--no-write-fetch-head", str(Path(source).absolute()), full)
    run_git(folder, "reset", "-q", "--hard", full)
    _tag_base(folder)


def applies(folder: Path, patch: str) -> bool:
    """True if a patch applies to a checkout."""
    return (
        subprocess.run(
            [*_GIT, "apply", "--check", "-"], cwd=folder, input=patch, capture_output=True, text=True, timeout=600
        ).returncode
        == 0
    )


def _tag_base(folder: Path) -> None:
    tag = folder / ".git/refs/tags" / BASE
    tag.parent.mkdir(parents=True, exist_ok=True)
    tag.write_bytes((folder / ".git/refs/heads/main").read_bytes())


def run_git(folder: Path, *arguments: str) -> str:
    """The output of git, which reads no configuration but the repository's. Raises `ConfigError` if it fails."""
    own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.devnull, "LC_ALL": "C.UTF-8"}
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    ran = subprocess.run(
        [*_GIT, *arguments], cwd=folder, env=own | isolated | _IDENTITY, capture_output=True, text=True, timeout=600
    )
    if ran.returncode != 0:
        raise ConfigError(f"git {arguments[0]}: {ran.stderr.strip() or ran.returncode}")
    return ran.stdout
