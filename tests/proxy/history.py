"""A client's history as its authors know it, and its words, read without the proxy's own code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fixtures.openclaw import STAMP, call, floating
from tests.proxy.talk import Sent


@dataclass(frozen=True)
class Item:
    """A message of a history: who speaks (as the world knows), the bare words, the calls, and of an answer the turn it
    was taken from (`None` once a client changed it).
    """

    speaker: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    source: str | None = None

    @property
    def role(self) -> str:
        return self.speaker if self.speaker in ("assistant", "tool") else "user"

    def sent(self, number: int, opening: str) -> Sent:
        """The message as a client sends it: `number` varies what clients vary."""
        if self.role == "tool":
            return {"role": "tool", "content": self.text, "tool_call_id": f"call{number}"}
        if self.role == "assistant":
            message: Sent = {"role": "assistant", "content": self.text or (None, "")[number % 2]}
            if number % 3 == 0:
                message["reasoning_content"] = f"hm {number}"
            if self.calls:
                message["tool_calls"] = [
                    call(name, _dumped(arguments, number), f"call{number}{index}")
                    for index, (name, arguments) in enumerate(self.calls)
                ]
            return message
        if self.speaker == "context":
            return floating(*([self.text] if self.text else []))
        text = STAMP + self.text if opening else self.text
        return {"role": "user", "content": text if number % 2 else [{"type": "text", "text": text}]}


def form(items: Sequence[Item]) -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
    """The words of a history, without all that clients add, drop, split, merge and space out. OpenClaw keeps no
    announcements.
    """
    runs: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []
    for item in items:
        if item.speaker in ("context", "announcement") or (
            item.role == "assistant" and not item.calls and not item.text.strip()
        ):
            continue
        text = "".join(item.text.split())
        if item.role != "tool" and runs and runs[-1][0] == item.role:
            _, before, calls = runs.pop()
            runs.append((item.role, before + text, calls + item.calls))
        else:
            runs.append((item.role, item.text if item.role == "tool" else text, item.calls))
    return runs


def exchange(items: Sequence[Item]) -> list[Any]:
    """The last run of answers and what it was given to: the user's last message, or all tool results."""
    shown = [item for item in items if form([item])]
    answer = list(itertools.takewhile(lambda item: item.role == "assistant", reversed(shown)))
    before = shown[: len(shown) - len(answer)]
    if not answer or not before:
        return []
    heard = list(itertools.takewhile(lambda item: item.role == before[-1].role, reversed(before)))
    return [form(answer[::-1]), form(heard[:1] if before[-1].role == "user" else heard[::-1])]


def words_after(items: Sequence[Item], index: int) -> tuple[str | None, str]:
    """Role and text of what came after the answer at `index`."""
    following = list(itertools.takewhile(lambda item: not form([item]) or item.role != "assistant", items[index + 1 :]))
    persons = [item.text.strip() for item in following if item.speaker == "person" and item.text.strip()]
    results = [item.text for item in following if item.speaker == "tool"]
    if persons:
        return "user", "\n\n".join(persons)
    return ("tool" if results else None), "\n\n".join(results)


def merged(history: Sequence[Item]) -> list[Item]:
    """The history as clients keep it that join what one speaker says in a row."""
    joined: list[Item] = []
    for item in history:
        before = joined[-1] if joined else None
        alike = before is not None and before.role == item.role == "assistant"
        persons = before is not None and before.speaker == item.speaker == "person"
        if before is not None and (alike or persons):
            calls = before.calls + item.calls
            joined[-1] = Item(item.speaker, f"{before.text}\n\n{item.text}".strip(), calls, item.source)
        else:
            joined.append(item)
    return joined


def _dumped(arguments: str, number: int) -> str:
    """Arguments as another JSON writer would have them."""
    value = {key: int(item) if item == 1.0 else item for key, item in json.loads(arguments).items()}
    return json.dumps(value, separators=(",", ":")) if number % 2 else json.dumps(value, indent=2, sort_keys=True)
