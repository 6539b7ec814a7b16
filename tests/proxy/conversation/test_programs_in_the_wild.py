"""Programs of many makers: whose words a user message holds, what a request is for, and whether a call worked.

People who write similarly are among the cases: none of their words or requests may be taken for a program's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.strangers import Case, cases, compare_words, read_request, read_result, read_words

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "programs_in_the_wild"
TRUTHS = {"failed", "ok", "unknown"}


async def check(name: str, read: Callable[[Case], Awaitable[bool]]) -> None:
    """Read the cases of a file; those that the rules do not know yet have to fail."""
    found = [
        (f"{name}-{number}", await read(case), case) for number, case in enumerate(cases(FOLDER / f"{name}.jsonl"), 1)
    ]
    wrong = [
        f"{one} is {'known now' if right else 'misread'}: {case}"
        for one, right, case in found
        if right == bool(case.get("open"))
    ]
    assert found and not wrong, "\n".join(wrong)


async def test_exactly_the_words_of_a_person_are_theirs() -> None:
    async def right(case: Case) -> bool:
        return compare_words(case["person"], read_words(case["text"])) == "right"

    await check("speech", right)


async def test_a_request_is_main_or_side() -> None:
    async def right(case: Case) -> bool:
        return read_request(case["request"]) == case["truth"]

    await check("utility", right)


async def test_a_result_tells_or_does_not() -> None:
    async def right(case: Case) -> bool:
        return await read_result(case) == case["truth"]

    await check("tool_results", right)


def test_the_cases_are_of_every_class() -> None:
    speech = list(cases(FOLDER / "speech.jsonl"))
    assert {case["person"] == case["text"] for case in speech} == {True, False}
    assert any(not case["person"] for case in speech)
    assert {case["truth"] for case in cases(FOLDER / "utility.jsonl")} == {"main", "side"}
    assert {case["truth"] for case in cases(FOLDER / "tool_results.jsonl")} == TRUTHS


def test_no_person_is_left_open() -> None:
    speech = [case for case in cases(FOLDER / "speech.jsonl") if case["person"] == case["text"]]
    requests = [case for case in cases(FOLDER / "utility.jsonl") if case["truth"] == "main"]
    assert not any(case.get("open") for case in [*speech, *requests])
