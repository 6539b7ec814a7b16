"""Only tools that the client offered reach it as tool calls.

A policy can name a tool that does not exist. A client would look it up and fail, so such a call is passed on as text
in the policy's grammar, like a call that cannot be read, and the turn says so. The sampled ids are the same either way:
the turn may be trained on, which is how a policy unlearns it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec

from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.rendering.families import Grammar


class OfferedCalls:
    """Stands between an answer's parser and the client. `invented` are the names of calls that became text, in order.

    Deltas of an answer without invented calls are unchanged. An invented call is passed on when it ends.
    """

    def __init__(self, offered: Iterable[str], grammar: Grammar) -> None:
        self.invented: list[str] = []
        self._offered = frozenset(offered)
        self._grammar = grammar
        self._open: int | None = None  # the parser's index of the invented call that is being sampled
        self._arguments = ""  # of that call
        self._content: list[str] = []
        self._indices: dict[int, int] = {}  # from the parser's to the client's
        self._after_markup = False

    def deltas(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """These deltas as the client gets them."""
        if self._open is None and not self._after_markup:
            if len(deltas) == 1 and deltas[0].kind == "content":  # nearly every event of a stream
                self._content.append(deltas[0].text)
                return deltas
            if all(delta.index < 0 for delta in deltas):
                self._content += [delta.text for delta in deltas if delta.kind == "content"]
                return deltas
        return [passed for delta in deltas for passed in self._pass_on(delta)]

    def finish(self, deltas: Sequence[Delta], answer: Answer) -> tuple[Sequence[Delta], Answer]:
        """The last deltas and the answer as the client gets them."""
        last = [*self.deltas(deltas)]
        if not self.invented:
            return last, answer
        last += self._close(complete=answer.finish_reason in ("stop", "tool_calls"))
        calls = tuple(call for call in answer.tool_calls if call.name in self._offered)
        reason = "stop" if answer.finish_reason == "tool_calls" and not calls else answer.finish_reason
        content = "".join(self._content)
        return last, msgspec.structs.replace(answer, content=content, tool_calls=calls, finish_reason=reason)

    def note(self) -> str:
        """A remark for the turn about the calls that became text; "" where there are none."""
        if not self.invented:
            return ""
        names = ", ".join(repr(name[:100]) for name in dict.fromkeys(self.invented))
        return f"it called {names}, not among the tools that were offered; that was passed on as text"

    def _pass_on(self, delta: Delta) -> list[Delta]:
        if delta.kind == "call_arguments" and delta.index == self._open:
            self._arguments += delta.text
            return []
        passed = self._close(complete=True)
        if delta.kind == "call_start" and delta.name not in self._offered:
            self.invented.append(delta.name)
            self._open, self._arguments = delta.index, ""
        elif delta.kind == "call_start":
            self._indices[delta.index] = len(self._indices)
            passed.append(msgspec.structs.replace(delta, index=self._indices[delta.index]))
        elif delta.kind == "call_arguments":
            passed.append(msgspec.structs.replace(delta, index=self._indices[delta.index]))
        elif delta.kind == "content":
            separator = "\n" if self._after_markup and not delta.text.startswith("\n") else ""
            self._after_markup = False
            passed += self._write(separator + delta.text)
        else:
            passed.append(delta)
        return passed

    def _close(self, *, complete: bool) -> list[Delta]:
        """The invented call that is being sampled, if there is one, as text."""
        if self._open is None:
            return []
        self._open = None
        self._after_markup = True
        text = _call_text(self._grammar, self.invented[-1], self._arguments, complete=complete)
        return self._write(("\n" if self._content else "") + text)

    def _write(self, text: str) -> list[Delta]:
        if not text:
            return []
        self._content.append(text)
        return [Delta("content", text)]


def _call_text(grammar: Grammar, name: str, arguments: str, *, complete: bool) -> str:
    """A call as the policy writes it; one that was cut off has no end, and in XML only complete arguments."""
    if grammar.calls == "xml":
        try:
            values: dict[str, object] = json.loads(arguments)
        except ValueError:
            values = json.loads((arguments or "{") + "}")
        written = "".join(f"<parameter={key}>\n{_value(value)}\n</parameter>\n" for key, value in values.items())
        opening, closing = f"{grammar.call_open}\n<function={name}>\n{written}", f"</function>\n{grammar.call_close}"
    else:
        line = "\n" if grammar.call_open else ""
        named = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{grammar.arguments}": {arguments}'
        opening, closing = f"{grammar.call_open}{line}{named}", f"}}{line}{grammar.call_close}"
    return opening + closing if complete else opening


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
