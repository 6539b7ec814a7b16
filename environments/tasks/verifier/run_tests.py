"""Run tests by id, and write a line of JSON for each to a descriptor; `check.py` of a repository starts this.

Standard input has `ids`, `descriptor`, `token`. Ids are `module.Class.test`, `test (module.Class)`, or
`path/test_file.py::test` for pytest. The token is in each line: text that code under test prints is no result. Code
under test runs in this process; if it changes what unittest or builtins contain, its tests count as failed.
"""

from __future__ import annotations

import builtins
import json
import os
import re
import sys
import unittest
from collections.abc import Sequence
from typing import Any

LONGEST = 300
READY = "ready"
"""The line before code under test runs: from then on a missing result is a failure."""
_BY_CLASS = re.compile(r"(\w+) \(([\w.]+)\)")


class Results:
    """Writes the results, each at once: a test may end the process."""

    def __init__(self, descriptor: int, token: str) -> None:
        self._file = os.fdopen(os.dup(descriptor), "w")
        os.close(descriptor)
        self._token = token
        self._framework = _framework()

    def add(self, test: str, message: str) -> None:
        """Write the result of a test; an empty message is a success."""
        if not message and _framework() != self._framework:
            message = "the code under test has changed the test framework"
        print(json.dumps({"token": self._token, "id": test, "message": message[:LONGEST]}), file=self._file, flush=True)


def _framework() -> list[tuple[str, int]]:
    """The identity of everything in the modules that decide on tests."""
    here = (sys.modules[__name__], _Outcome, Results)
    places = (unittest.TestCase, unittest.case, unittest.TestResult, unittest.suite, builtins, *here)
    return [(name, id(value)) for place in places for name, value in vars(place).items() if name != "_"]


class _Outcome(unittest.TestResult):
    """Collects the errors of one id; `ran` counts tests that came to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0
        self.message = ""

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.ran += 1

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.message = self.message or f"{err[0].__name__}: {err[1]}"

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addFailure(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.message = f"skipped: {reason}"


def run_unittest(ids: Sequence[str], results: Results) -> None:
    """Run tests of unittest."""
    for test in ids:
        outcome = _Outcome()
        named = _BY_CLASS.fullmatch(test)
        try:
            unittest.defaultTestLoader.loadTestsFromName(f"{named[2]}.{named[1]}" if named else test).run(outcome)
        except BaseException as error:  # sys.exit of the code under test too
            outcome.message = f"{type(error).__name__}: {error}"
        results.add(test, outcome.message or ("" if outcome.ran else "there is no such test"))


class _Plugin:
    """Keeps the results of pytest, by id."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}

    def pytest_load_initial_conftests(self) -> None:
        sys.path.insert(0, os.getcwd())  # installed plugins are loaded by now

    def pytest_runtest_logreport(self, report: Any) -> None:
        message = "" if report.passed else f"{report.outcome}: {str(report.longrepr)[-LONGEST:]}"
        self.messages[report.nodeid] = self.messages.get(report.nodeid, "") or message

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            print(report.longrepr)


def run_pytest(ids: Sequence[str], results: Results) -> None:
    """Run the files of pytest's ids. Raises `ImportError` without pytest."""
    import pytest  # before the checkout is on the path: it may have a module of that name

    results.add(READY, "")
    plugin = _Plugin()
    files = sorted({test.partition("::")[0] for test in ids})
    try:
        pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[plugin])
    except BaseException as error:  # sys.exit of the code under test too
        print(f"{type(error).__name__}: {error}")
    for test in ids:
        results.add(test, plugin.messages.get(test, "did not run"))


def main() -> None:
    """Run the tests that standard input names."""
    given = json.load(sys.stdin)
    results = Results(given["descriptor"], given["token"])
    ids: list[str] = given["ids"]
    by_pytest = [test for test in ids if "::" in test]
    if by_pytest:
        run_pytest(by_pytest, results)
    results.add(READY, "")
    sys.path.insert(0, os.getcwd())
    run_unittest([test for test in ids if "::" not in test], results)


if __name__ == "__main__":
    main()
