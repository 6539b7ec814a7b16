"""Sampled token ids to what a client sees, one id at a time: text, reasoning and tool calls.

`AnswerParser` reads a family's grammar (`shared.rendering.families.Grammar`): an optional `<think>…</think>` block
first, then
text and `<tool_call>…</tool_call>` blocks. Only control *tokens* mark; the same characters spelled out by the policy
are text. A grammar without call markers has calls that are the whole answer, or none; one without reasoning has none.
What was passed on as a delta is never taken back, so wherever the meaning of a token depends on what follows, it waits:

- white space around text and reasoning is dropped, so trailing white space waits for more;
- text that could be the beginning of a stop string waits;
- a call inside reasoning waits: it is reasoning if `</think>` comes, a call if it never does;
- a call waits until its name is known and its arguments begin; one that cannot be read is given back as text;
- an answer without markers that begins like a call waits until it is one or cannot be one.

The ids themselves are the caller's: nothing here changes, drops or repeats them.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Literal

from openclaw_rl.shared.messages.answer import Answer, Call, Delta
from openclaw_rl.shared.rendering.families import HERMES, Grammar
from openclaw_rl.shared.rendering.json_calls import CallReader
from openclaw_rl.shared.rendering.vocabulary import Vocab
from openclaw_rl.shared.rendering.xml_calls import Schemas, XmlCallReader

_START, _REASONING, _CONTENT, _CALL, _HELD = range(5)
_THINK_OPEN, _THINK_CLOSE, _CALL_OPEN, _CALL_CLOSE, _STOP = range(1, 6)


class AnswerParser:
    """Feeds on ids in the order they were sampled; give it the stop token too if the engine reports it.

    `calls=False` makes call markup ordinary text. `parallel_calls=False` ends the answer after one call. `stop` strings
    end it where they occur in content (not in reasoning or arguments). `reasoning_open`: the prompt ends inside
    reasoning. `forced_text`: the prompt ends inside a call that begins with this text. `stop_ids`: the ids that end the
    answer, the grammar's own by default. `schemas` are the parameters of the tools that were offered, by tool. Once
    `done`, the engine can be aborted: later ids are ignored.
    """

    __slots__ = (
        "_bare", "_call_id", "_calls", "_content", "_decoder", "_grammar", "_irregular", "_kinds", "_out", "_parallel",
        "_partial", "_reader", "_reasoning", "_schemas", "_space", "_spoken", "_state", "_stop", "_stop_tail",
        "_vocab", "_waiting", "_with_calls", "done", "stop_matched",
    )  # fmt: skip

    def __init__(
        self,
        vocab: Vocab,
        grammar: Grammar = HERMES,
        *,
        calls: bool = True,
        parallel_calls: bool = True,
        stop: Sequence[str] = (),
        reasoning_open: bool = False,
        forced_text: str | None = None,
        stop_ids: Collection[int] | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        self.done = False
        self.stop_matched: str | None = None
        self._vocab = vocab
        self._kinds = _kinds(vocab, grammar, stop_ids)
        self._grammar = grammar
        self._schemas = schemas
        self._bare = grammar.calls == "bare"  # calls are not marked
        self._with_calls = calls and grammar.calls != ""
        self._parallel = parallel_calls
        self._stop = tuple(filter(None, stop))
        self._decoder = vocab.decoder()
        self._partial = False  # whether the decoder holds bytes of an unfinished character
        self._out: list[Delta] = []
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[Call] = []
        self._irregular = False
        self._spoken = False  # whether the current stretch of text or reasoning has begun
        self._space = ""  # white space that is dropped unless more text follows
        self._stop_tail = ""  # text that may be the beginning of a stop string
        self._waiting: list[int] = []  # a call inside reasoning
        self._reader = self._new_reader()
        self._call_id = ""  # of the call that is being passed on
        self._state = _REASONING if reasoning_open else _START
        if forced_text is not None:
            self._state = _CALL
            self._reader.push(forced_text)

    def feed(self, token: int) -> list[Delta]:
        """The deltas that became certain with this id, often none. Ids out of range raise `IndexError`."""
        if self._state == _CONTENT and self._spoken and not (self._space or self._stop or self._partial or self.done):
            text = None if token in self._kinds else self._vocab.text_of[token]
            if text and not text[-1].isspace():  # a word in the middle of a text, which is nearly every token
                self._content.append(text)
                return [Delta("content", text)]
        if self.done:
            return []
        self._take(token)
        out, self._out = self._out, []
        return out

    def feed_many(self, tokens: Sequence[int]) -> list[Delta]:
        """The deltas of `feed` for each of `tokens`, plain text in a row in one piece; what follows the id that ended
        the answer is ignored."""
        if len(tokens) == 1:
            return self.feed(tokens[0])
        out: list[Delta] = []
        position = 0
        while position < len(tokens) and not self.done:
            plain = self._plain(tokens, position)
            if len(plain) > 1:
                if text := "".join(plain):
                    self._take_text(text)
                position += len(plain)
            else:
                self._take(tokens[position])
                position += 1
            out += self._out
            self._out = []
        return out

    def finish(self, reason: str = "stop") -> tuple[list[Delta], Answer]:
        """The last deltas and the whole answer. `reason` is the engine's: `stop`, `length` or `abort`.

        An answer that this parser ended itself has ended properly, even if the engine then says that it was aborted. A
        call cut off by the token limit does not make the reason `tool_calls`, nor does a finished one before it.
        """
        if self._state == _HELD:
            self._release_call()
        self._flush_character()
        if self._state == _CALL:
            self._close_call("", closed=self._bare and self.done)
        self._flush_stop_tail()
        if self.done:
            reason = "stop"
        self.done = True
        out, self._out = self._out, []
        return out, Answer(
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._calls),
            finish_reason="tool_calls" if reason == "stop" and self._calls else reason,
            irregular=self._irregular,
        )

    def _plain(self, tokens: Sequence[int], start: int) -> list[str]:
        """The texts of the tokens from `start` on up to the first that is more than a piece of text."""
        found: list[str] = []
        if self._state not in (_CONTENT, _REASONING) or self._partial:
            return found
        kinds, texts = self._kinds, self._vocab.text_of
        for position in range(start, len(tokens)):
            token = tokens[position]
            text = None if token in kinds else texts[token]
            if text is None:
                break
            found.append(text)
        return found

    def _take(self, token: int) -> None:
        kind = self._kinds.get(token)
        if kind is not None or self._state == _HELD:
            self._take_marker(token, kind)
            return
        text = None if self._partial else self._vocab.text_of[token]
        if text is None:
            text = self._decoder.decode(self._vocab.bytes_of[token])
            self._partial = bool(self._decoder.getstate()[0])
        if text:
            self._take_text(text)

    def _take_marker(self, token: int, kind: int | None) -> None:
        self._flush_character()
        state = self._state
        if kind == _STOP:
            if state == _HELD:
                self._release_call()
            self.done = True
        elif state == _HELD and kind != _THINK_CLOSE:
            self._irregular = self._irregular or kind == _THINK_OPEN  # a mark of its own to some, text to others
            self._waiting.append(token)
        elif kind == _THINK_OPEN and state in (_START, _REASONING):  # renderers ignores a second one, too
            self._state = _REASONING
        elif kind == _THINK_CLOSE and state in (_REASONING, _HELD):
            if state == _HELD:
                waiting, self._waiting = self._waiting, []
                self._say(self._vocab.decode(waiting), "reasoning")
            self._leave_reasoning()
        elif kind == _CALL_OPEN and state == _REASONING:
            self._state = _HELD
            self._waiting = [token]
        elif kind == _CALL_OPEN and state in (_START, _CONTENT) and self._with_calls:
            self._flush_stop_tail()
            self._state = _CALL
            self._reader = self._new_reader()
        elif kind == _CALL_CLOSE and state == _CALL:
            self._close_call(self._vocab.text_of[token] or "", closed=True)
        else:
            self._irregular = self._irregular or kind == _CALL_OPEN or state == _CALL
            self._take_text(self._vocab.text_of[token] or "")

    def _take_text(self, text: str) -> None:
        if self._state == _START and self._bare and self._with_calls and text.lstrip().startswith("{"):
            self._state = _CALL
        if self._state == _CALL:
            arguments = self._reader.push(text)
            if self._bare and self._call_id == "" and not self._may_be_call():
                self._state = _CONTENT  # the text that began like a call is none
                self._take_text(self._reader.source())
                return
            if self._call_id == "" and self._reader.name is not None:
                self._start_call(self._reader.name)
            self._pass_arguments(arguments)
        elif self._state == _REASONING:
            self._say(text, "reasoning")
        elif self._state == _CONTENT or not text.isspace():
            self._state = _CONTENT
            if self._stop:
                self._watch_for_stop(text)
            else:
                self._say(text, "content")

    def _say(self, text: str, kind: Literal["content", "reasoning"]) -> None:
        """Passes text on, without white space before its first and after its last visible character."""
        if self._space:
            text = self._space + text
            self._space = ""
        if not self._spoken:
            text = text.lstrip()
            if not text:
                return
            self._spoken = True
            if kind == "content" and self._calls:
                self._irregular = True
                if self._content:
                    text = "\n" + text
        if text[-1].isspace():
            visible = text.rstrip()
            self._space = text[len(visible) :]
            if not visible:
                return
            text = visible
        (self._content if kind == "content" else self._reasoning).append(text)
        self._out.append(Delta(kind, text))

    def _watch_for_stop(self, text: str) -> None:
        if not self._spoken and not self._stop_tail:
            text = text.lstrip()
        pending = self._stop_tail + text
        found = [(pending.index(stop), stop) for stop in self._stop if stop in pending]
        if found:
            position, self.stop_matched = min(found)
            self._stop_tail = ""
            self._irregular = True
            self.done = True
        else:
            position = len(pending) - max(_overlap(pending, stop) for stop in self._stop)
            self._stop_tail = pending[position:]
        if position:
            self._say(pending[:position], "content")

    def _start_call(self, name: str) -> None:
        self._call_id = f"call_{secrets.token_hex(12)}"
        self._space = ""
        self._spoken = False
        self._out.append(Delta("call_start", "", len(self._calls), self._call_id, name))

    def _pass_arguments(self, arguments: str) -> None:
        if arguments:
            self._out.append(Delta("call_arguments", arguments, len(self._calls)))

    def _new_reader(self) -> CallReader | XmlCallReader:
        return XmlCallReader(self._schemas) if self._grammar.calls == "xml" else CallReader(self._grammar.arguments)

    def _may_be_call(self) -> bool:
        """True if an answer that began with a brace is a call of a tool that was offered, or may become one."""
        reader = self._reader
        assert isinstance(reader, CallReader)
        if reader.name is None:
            return reader.may_begin()
        self._irregular = self._irregular or not self._offered(reader.name)
        return self._offered(reader.name)

    def _offered(self, name: str) -> bool:
        return self._schemas is None or name in self._schemas

    def _close_call(self, marker: str, *, closed: bool) -> None:
        """The call is over: `marker` closed it, or the end of the answer did; else the answer broke off in it."""
        self._state = _CONTENT
        reader = self._reader
        arguments = reader.close()
        if reader.name is None or (self._bare and not self._offered(reader.name)):
            self._irregular = self._irregular or not self._bare or reader.name is not None
            self._take_text(self._grammar.call_open + reader.source() + marker)
            return
        if self._bare and isinstance(reader, CallReader) and reader.rest.strip() not in ("", "}"):
            self._irregular = True
        if self._call_id == "":
            self._start_call(reader.name)
        self._pass_arguments(arguments)
        self._calls.append(Call(self._call_id, reader.name, reader.arguments()))
        self._call_id = ""
        self._irregular = self._irregular or not closed or not self._parallel or reader.broken()
        self.done = self.done or not self._parallel

    def _leave_reasoning(self) -> None:
        self._state = _CONTENT
        self._spoken = False
        self._space = ""

    def _release_call(self) -> None:
        """Reasoning was never closed: the call inside it ended it."""
        waiting, self._waiting = self._waiting, []
        self._leave_reasoning()
        for token in waiting:
            self._take(token)

    def _flush_character(self) -> None:
        if self._partial:
            self._partial = False
            self._take_text(self._decoder.decode(b"", True))

    def _flush_stop_tail(self) -> None:
        if self._stop_tail:
            tail, self._stop_tail = self._stop_tail, ""
            self._say(tail, "content")


def _kinds(vocab: Vocab, grammar: Grammar, stop_ids: Collection[int] | None) -> dict[int, int]:
    names = {
        grammar.think_open: _THINK_OPEN,
        grammar.think_close: _THINK_CLOSE,
        grammar.call_open: _CALL_OPEN,
        grammar.call_close: _CALL_CLOSE,
    }
    kinds = {vocab.added[name]: kind for name, kind in names.items() if name in vocab.added}
    if stop_ids is None:
        stop_ids = [vocab.added[stop] for stop in grammar.stops if stop in vocab.added]
    return kinds | dict.fromkeys(stop_ids, _STOP)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
