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

    Deltas are passed on at once; those of an answer without invented calls are unchanged.
    """

    def __init__(self, offered: Iterable[str], grammar: Grammar) -> None:
        self.invented: list[str] = []
        self._offered = frozenset(offered)
        self._call_text: type[_JsonCallText] = _XmlCallText if grammar.calls == "xml" else _JsonCallText
        self._grammar = grammar
        self._open: _JsonCallText | None = None  # the call that is being written as text
        self._open_index = -1  # the parser's index of it
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
        if self._open is not None and delta.kind == "call_arguments" and delta.index == self._open_index:
            return self._write(self._open.arguments(delta.text))
        passed = self._close(complete=True)
        if delta.kind == "call_start":
            return [*passed, *self._start(delta)]
        if delta.kind == "call_arguments":
            passed.append(msgspec.structs.replace(delta, index=self._indices[delta.index]))
        elif delta.kind == "content":
            separator = "\n" if self._after_markup and not delta.text.startswith("\n") else ""
            self._after_markup = False
            passed += self._write(separator + delta.text)
        else:
            passed.append(delta)
        return passed

    def _start(self, delta: Delta) -> list[Delta]:
        if delta.name in self._offered:
            self._indices[delta.index] = len(self._indices)
            return [msgspec.structs.replace(delta, index=self._indices[delta.index])]
        self.invented.append(delta.name)
        self._open, self._open_index = self._call_text(self._grammar), delta.index
        return self._write(("\n" if self._content else "") + self._open.begin(delta.name))

    def _close(self, *, complete: bool) -> list[Delta]:
        """End the call that is being written as text, if there is one."""
        if self._open is None:
            return []
        call, self._open = self._open, None
        self._after_markup = True
        return self._write(call.end(complete=complete))

    def _write(self, text: str) -> list[Delta]:
        if not text:
            return []
        self._content.append(text)
        return [Delta("content", text)]


class _JsonCallText:
    """A call as a JSON object, written while its arguments come."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._break = "\n" if grammar.call_open else ""

    def begin(self, name: str) -> str:
        written = json.dumps(name, ensure_ascii=False)
        return f'{self._grammar.call_open}{self._break}{{"name": {written}, "{self._grammar.arguments}": '

    def arguments(self, text: str) -> str:
        return text

    def end(self, *, complete: bool) -> str:
        return f"}}{self._break}{self._grammar.call_close}" if complete else ""


class _XmlCallText(_JsonCallText):
    """A call in Qwen's XML. Its arguments come as JSON, so they are written at the end; of a call that was cut off only
    the complete ones.
    """

    def __init__(self, grammar: Grammar) -> None:
        super().__init__(grammar)
        self._arguments = ""

    def begin(self, name: str) -> str:
        return f"{self._grammar.call_open}\n<function={name}>\n"

    def arguments(self, text: str) -> str:
        self._arguments += text
        return ""

    def end(self, *, complete: bool) -> str:
        values = _parameters(self._arguments)
        written = "".join(f"<parameter={key}>\n{_value(value)}\n</parameter>\n" for key, value in values.items())
        return f"{written}</function>\n{self._grammar.call_close}" if complete else written


def _parameters(arguments: str) -> dict[str, object]:
    """The values of arguments that end with a complete parameter, closed or not."""
    try:
        values: dict[str, object] = json.loads(arguments)
    except ValueError:
        values = json.loads((arguments or "{") + "}")
    return values


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
