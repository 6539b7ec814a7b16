"""What a broken policy's answers look like: empty, going round in circles, without end, calls nobody can make, noise.

Pure functions of one answer. None of it is about content or style: an answer of a sound policy shows none of these, or
shows them as often as its parent's answers do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from openclaw_rl.shared.messages.answer import Answer

Flaw = Literal["empty", "repetition", "length", "call", "noise"]

LONGEST_CYCLE = 48
"""Tokens of the longest loop that is looked for."""
LEAST_LOOP = 24
"""Tokens that go round before it counts as a loop; three rounds at least."""
WINDOW = 4
LEAST_TOKENS = 32
DISTINCT = 0.4
"""An answer of `LEAST_TOKENS` or more whose runs of `WINDOW` tokens are distinct to a smaller share repeats itself."""
NOISE = 1.5
"""Nats a token by which an answer is less likely under the base than the parent's answers are, from which it counts as
noise.
"""


def loops(ids: Sequence[int]) -> bool:
    """Whether the answer ends in a loop of up to `LONGEST_CYCLE` tokens, or says most of what it says again and
    again.
    """
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
    """Whether an answer to a request with these tools holds a call that cannot be made: broken markup, an unknown tool
    or arguments that are no JSON object.
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
    """What is wrong with an answer. `under_base` is its mean logprob a token under the base, `usual` the mean of the
    parent's answers.
    """
    found: set[Flaw] = set()
    if not answer.content.strip() and not answer.tool_calls:
        found.add("empty")
    if loops(ids):
        found.add("repetition")
    if answer.finish_reason == "length":
        found.add("length")
    if invalid_call(answer, tools):
        found.add("call")
    if under_base < usual - NOISE:
        found.add("noise")
    return found
