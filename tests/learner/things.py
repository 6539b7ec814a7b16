"""Turns for tests of the learner."""

from __future__ import annotations

import asyncio
from typing import Any

from openclaw_rl.learner.judge.askers.engine import LazyPrompter
from openclaw_rl.shared.records import Sampling, Timings, Turn, VersionSpan
from openclaw_rl.shared.rendering.prompter import Prompter


def turn(number: int, *, question: str = "How much is 7 and 5?", answer: Any = "It is 12.", **changes: Any) -> Turn:
    """A complete main turn; `number` makes ids and times, `answer` is a text or a whole message."""
    fields: dict[str, Any] = {
        "turn_id": f"turn_{number:032x}",
        "session_id": "session-1",
        "episode": 0,
        "parent_turn_id": None,
        "kind": "main",
        "kind_reason": "default",
        "messages": [{"role": "user", "content": question}],
        "answer": answer if isinstance(answer, dict) else {"role": "assistant", "content": answer},
        "prompt_ids": [5, 6, 7, 8 + number % 30],
        "response_ids": [9, 10, 11],
        "logprobs": [-0.5, -0.25, -1.0],
        "sampling": Sampling(),
        "versions": [VersionSpan(0, 0, 3)],
        "finish_reason": "stop",
        "status": "complete",
        "timings": Timings(1000.0 + number, 1000.5 + number, 1001.0 + number),
    }
    return Turn(**(fields | changes))


def ready(prompter: Prompter) -> LazyPrompter:
    """A prompter that exists already."""
    return LazyPrompter(lambda: asyncio.sleep(0, prompter))
