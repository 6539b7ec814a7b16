"""Detect the answers of a broken policy: empty, looping, with invalid calls, or noise.

Pure functions of one answer, apart from content and style. A sound policy's answers show none of these flaws, or show
them as often as its parent's. The limit at which an answer is cut here is the guard's own, so an answer is not flawed
for being cut, nor for what the cut took away.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from openclaw_rl.shared.messages.answer import Answer

Flaw = Literal["empty", "repetition", "call", "noise"]

LONGEST_CYCLE = 48
"""Tokens of the longest loop to look for."""
LEAST_LOOP = 24
"""Minimum number of looping tokens, and at least three rounds."""
WINDOW = 4
LEAST_TOKENS = 32
DISTINCT = 0.4
"""Minimum share of distinct `WINDOW`-grams of an answer with at least `LEAST_TOKENS` tokens."""
NOISE = 1.5
"""Nats per token by which noise is less likely under the base than the parent's answers are."""


def loops(ids: Sequence[int]) -> bool:
    """True if the answer ends in a loop of up to `LONGEST_CYCLE` tokens, or repeats most of its text."""
    count = len(ids)
    for cycle in range(1, min(LONGEST_CYCLE, count // 3) + 1):
        same = 0
        while same < count - cycle and ids[count - 1 - same] == ids[count - 1 - same - cycle]:
            same += 1
        if same + cycle >= max(LEAST_LOOP, 3 * cycle):
            return True
    if count < LEAST_TOKENS:
        return False
    runs = [tuple(ids[start : start + WINDOW]) for start in range(count - WINDOW + 1)]
    return len(set(runs)) < DISTINCT * len(runs)


def invalid_call(answer: Answer, tools: Collection[str]) -> bool:
    """True if an answer to a request with these tools holds an invalid call: broken markup, an unknown tool, or
    arguments that are no JSON object.
    """
    if not tools:
        return False
    calls = answer.message().get("tool_calls") or ()
    return answer.irregular or any(
        call["name"] not in tools or not isinstance(call["arguments"], dict) for call in calls
    )


def flaws(
    answer: Answer, ids: Sequence[int], *, tools: Collection[str] = (), under_base: float = 0.0, usual: float = 0.0
) -> set[Flaw]:
    """The flaws of an answer. `under_base` is its mean logprob per token under the base, `usual` that of the parent's
    answers.
    """
    whole = answer.finish_reason != "length"
    found: dict[Flaw, bool] = {
        "empty": whole and not answer.content.strip() and not answer.tool_calls,
        "repetition": loops(ids),
        "call": whole and invalid_call(answer, tools),
        "noise": under_base < usual - NOISE,
    }
    return {flaw for flaw, there in found.items() if there}
