"""Choose the fault of each repository, and write `repositories/mutations.json`.

    python -m openclaw_rl.environments.tasks.swe.make_mutations [--seed 0]

A fault makes some tests fail, and at most half of them. Kinds of faults take turns.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from random import Random
from typing import get_args

import msgspec

from openclaw_rl.environments.tasks.folder import VERIFIER, write_files
from openclaw_rl.environments.tasks.swe.mutations import Kind, Mutation, mutations, sources
from openclaw_rl.environments.tasks.swe.repositories import MUTATIONS, RepositoryFault, names, right_files

SECONDS = 10.0
HELD_OUT = 2
"""Repositories of each kind."""


def ids_of_tests(files: Mapping[str, str]) -> list[str]:
    """The ids of the tests of unittest."""
    found = []
    for path, source in files.items():
        if path.startswith("tests/test_"):
            module = path.removesuffix(".py").replace("/", ".")
            classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
            found += [
                f"{module}.{one.name}.{test.name}"
                for one in classes
                for test in one.body
                if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
            ]
    return found


def failing(files: Mapping[str, str]) -> dict[str, str]:
    """Messages of the tests that fail, by id; those that do not come to an end fail too."""
    ids = ids_of_tests(files)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as results:
        write_files(Path(folder), files)
        given = json.dumps({"ids": ids, "descriptor": results.fileno(), "token": "made"})
        command = [sys.executable, "-I", "-S", "-B", str(VERIFIER / "run_tests.py")]
        with subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(results.fileno(),)
        ) as process:
            try:
                process.communicate(given.encode(), timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        os.lseek(results.fileno(), 0, os.SEEK_SET)
        found = {line["id"]: line["message"] for line in map(json.loads, results.read().decode().splitlines())}
    messages = {test: found.get(test, "did not run") for test in ids}
    return {test: message.splitlines()[0] for test, message in messages.items() if message}


def choose(name: str, kind: Kind, seed: int) -> tuple[str, Mutation, dict[str, str]]:
    """Path, mutation and failing tests: the first mutation of the kind, in random order, that a few tests notice; of
    another kind if there is none. Raises `ValueError` for a repository whose tests fail, or notice nothing.
    """
    files = right_files(name)
    if wrong := failing(files):
        raise ValueError(f"{name}: {wrong}")
    found = [(path, one) for path in sources(list(files)) for one in mutations(files[path])]
    Random(f"{seed} {name}").shuffle(found)
    for path, one in sorted(found, key=lambda pair: pair[1].kind != kind):
        messages = failing(files | {path: one.apply(files[path])})
        if 0 < len(messages) * 2 <= len(ids_of_tests(files)) and "did not run" not in messages.values():
            return path, one, messages
    raise ValueError(f"{name}: no mutation that a few tests notice")


def main() -> None:
    """Write the faults, and print each in a line."""
    parser = argparse.ArgumentParser(description="Choose the faults of the repositories")
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    everything = names()
    kinds = get_args(Kind)
    held_out = {
        name for place in range(len(kinds)) for name in Random(seed).sample(everything[place :: len(kinds)], HELD_OUT)
    }
    found: dict[str, RepositoryFault] = {}
    for name, kind in zip(everything, cycle(kinds), strict=False):
        path, mutation, messages = choose(name, kind, seed)
        found[name] = RepositoryFault(
            path=path,
            mutation=mutation,
            split="held-out" if name in held_out else "train",
            messages=messages,
            passing=[test for test in ids_of_tests(right_files(name)) if test not in messages],
        )
        print(f"{name}: {mutation.kind} in {path}, {len(messages)} tests fail, {found[name].split}", file=sys.stderr)
    MUTATIONS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
