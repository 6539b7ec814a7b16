"""Only tools that the client offered reach it as tool calls.

A policy can name a tool that does not exist. A client would look it up and fail, so such a call is passed on as the
text that the policy wrote, like a call that cannot be read, and the turn says so. The sampled ids are the same either
way: it may be trained on, which is how a policy learns to leave it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec

from shared.answer import Answer, Delta
from shared.families import Grammar


class OfferedCalls:
    """Stands between an answer's parser and the client. `invented` are the names of calls that became text, in order.

    Deltas are passed on at once; those of an answer without inventions as they are.
    """

    def __init__(self, offered: Iterable[str], grammar: Grammar) -> None:
        self.invented: list[str] = []
        self._offered = frozenset(offered)
        self._opening, self._closing = grammar.call_open + "\n", "\n" + grammar.call_close
        self._content: list[str] = []
        self._as_text: int | None = None  # the parser's index of the call that is being told as text
        self._indices: dict[int, int] = {}  # from the parser's to the client's
        self._after_markup = False

    def deltas(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """What the client gets of these deltas."""
        if self._as_text is None and not self._after_markup and all(delta.index < 0 for delta in deltas):
            self._content += [delta.text for delta in deltas if delta.kind == "content"]
            return deltas
        told: list[Delta] = []
        for delta in deltas:
            told += self._told(delta)
        return told

    def finish(self, deltas: Sequence[Delta], answer: Answer) -> tuple[Sequence[Delta], Answer]:
        """The last deltas and the answer as the client gets it."""
        told = [*self.deltas(deltas)]
        if not self.invented:
            return told, answer
        if self._as_text is not None and answer.finish_reason in ("stop", "tool_calls"):
            told += self._close()
        calls = tuple(call for call in answer.tool_calls if call.name in self._offered)
        reason = "stop" if answer.finish_reason == "tool_calls" and not calls else answer.finish_reason
        return told, msgspec.structs.replace(
            answer, content="".join(self._content), tool_calls=calls, finish_reason=reason
        )

    def note(self) -> str:
        """What the turn says about the calls that became text ("" where there are none)."""
        if not self.invented:
            return ""
        names = ", ".join(repr(name[:100]) for name in dict.fromkeys(self.invented))
        return f"it called {names}, not among the tools that were offered; that was passed on as text"

    def _told(self, delta: Delta) -> list[Delta]:
        if delta.kind == "call_arguments" and delta.index == self._as_text:
            return self._say(delta.text)
        told = self._close() if self._as_text is not None else []
        if delta.kind == "call_start":
            return [*told, *self._start(delta)]
        if delta.kind == "call_arguments":
            told.append(msgspec.structs.replace(delta, index=self._indices[delta.index]))
        elif delta.kind == "content":
            apart = "\n" if self._after_markup and not delta.text.startswith("\n") else ""
            self._after_markup = False
            told += self._say(apart + delta.text)
        else:
            told.append(delta)
        return told

    def _start(self, delta: Delta) -> list[Delta]:
        if delta.name in self._offered:
            self._indices[delta.index] = len(self._indices)
            return [msgspec.structs.replace(delta, index=self._indices[delta.index])]
        self.invented.append(delta.name)
        self._as_text = delta.index
        apart = "\n" if self._content else ""
        name = json.dumps(delta.name, ensure_ascii=False)
        return self._say(f'{apart}{self._opening}{{"name": {name}, "arguments": ')

    def _close(self) -> list[Delta]:
        self._as_text = None
        self._after_markup = True
        return self._say("}" + self._closing)

    def _say(self, text: str) -> list[Delta]:
        self._content.append(text)
        return [Delta("content", text)]
