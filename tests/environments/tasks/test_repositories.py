from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from openclaw_rl.environments.tasks.swe.make_mutations import choose, failing, ids_of_tests
from openclaw_rl.environments.tasks.swe.mutations import Kind, mutations
from openclaw_rl.environments.tasks.swe.repositories import Repositories, faults, names, right_files
from openclaw_rl.shared.errors import ConfigError
from tests.environments.tasks.local_trial import LocalTrial, trial_reward

KIND = Repositories()


def test_every_repository_has_a_fault_and_a_split() -> None:
    assert list(faults()) == names()
    assert len(names()) >= 24
    kinds = Counter((fault.split, fault.mutation.kind) for fault in faults().values())
    assert {kind for split, kind in kinds if split == "train"} == set(get_args(Kind))
    assert {kind for split, kind in kinds if split == "held-out"} == set(get_args(Kind))


def test_the_splits_have_every_repository_once() -> None:
    train, held_out = ([task.id for task in KIND.tasks(split, 0)] for split in ("train", "held-out"))
    assert sorted([*train, *held_out]) == [f"repositories/{name}" for name in names()]
    assert [task.id for task in KIND.tasks("train", 1)] != train


@pytest.mark.parametrize("name", names())
def test_the_right_code_passes_and_the_fault_fails_its_tests_alone(name: str) -> None:
    fault, right = faults()[name], right_files(name)
    assert failing(right) == {}
    wrong = right | {fault.path: fault.mutation.apply(right[fault.path])}
    assert failing(wrong) == fault.messages
    assert sorted([*fault.messages, *fault.passing]) == sorted(ids_of_tests(right))


def test_the_fault_of_a_repository_depends_on_the_seed_alone() -> None:
    fault = faults()["intervals"]
    assert choose("intervals", "boundary", 0) == (fault.path, fault.mutation, fault.messages)


def test_a_repository_as_a_task(tmp_path: Path) -> None:
    KIND.folder("repositories/paging").write(tmp_path / "task")
    instruction = (tmp_path / "task/instruction.md").read_text()
    assert min(faults()["paging"].messages) in instruction
    passed, report = trial_reward(tmp_path / "task", tmp_path / "solved", LocalTrial.solve)
    assert passed == "1", report
    failed, report = trial_reward(
        tmp_path / "task", tmp_path / "hacked", "rm -r tests; echo 'raise SystemExit' > conftest.py"
    )
    assert failed == "0"
    assert all(f"failed: {test}: " in report for test in faults()["paging"].messages)


def test_an_unknown_repository_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no repository; there are backoff, "):
        KIND.folder("repositories/../x")


def test_mutations_change_code_and_no_docstring() -> None:
    source = 'def f(a, b):\n    """Return 3 if a < b."""\n    return 3 if a < b and a + 1 > 0 else b\n'
    found = sorted((one.kind, one.apply(source).splitlines()[2].strip()) for one in mutations(source))
    assert ("boundary", "return 3 if a <= b and a + 1 > 0 else b") in found
    assert ("constant", "return 4 if a < b and a + 1 > 0 else b") in found
    assert ("name", "return 3 if b < b and a + 1 > 0 else b") in found
    assert ("operator", "return 3 if a < b or a + 1 > 0 else b") in found
    assert all('"""Return 3 if a < b."""' in one.apply(source) for one in mutations(source))
