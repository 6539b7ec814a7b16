"""Sampled token ids to what a client sees, one id at a time: text, reasoning and tool calls.

`AnswerParser` reads a family's grammar (`shared.rendering.families.Grammar`): an optional `<think>…</think>` block
first, then text and `<tool_call>…</tool_call>` blocks. Only control *tokens* mark; the same characters spelled out by
the policy are text, except in a grammar whose calls are `spelled`. A grammar without call markers has calls that are
the whole answer, or none; one without reasoning has none. A `harmony` answer consists of messages whose headers say
what they are. What was passed on as a delta is never taken back, so
wherever the meaning of a token depends on what follows, it waits:

- white space around text and reasoning is dropped, so trailing white space waits for more;
- text that could be the beginning of a stop string, or of a spelled marker, waits;
- a call inside reasoning waits: it is reasoning if `</think>` comes, a call if it never does;
- a call waits until its name is known and its arguments begin; one that cannot be read is given back as text;
- an answer without markers that begins like a call waits until it is one or cannot be one;
- a section of calls without a streaming reader (`shared.rendering.section_calls`) waits until it ends.

The ids themselves are the caller's: nothing here changes, drops or repeats them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from typing import Literal

from openclaw_rl.shared.messages.answer import Answer, Call, Delta
from openclaw_rl.shared.rendering.families import HERMES, Grammar
from openclaw_rl.shared.rendering.json_calls import ArgumentsReader, CallReader
from openclaw_rl.shared.rendering.section_calls import SectionReader
from openclaw_rl.shared.rendering.vocabulary import Vocab
from openclaw_rl.shared.rendering.xml_calls import Schemas, XmlCallReader

_START, _REASONING, _CONTENT, _CALL, _HELD, _SECTION, _HEADER = range(7)
_THINK_OPEN, _THINK_CLOSE, _CALL_OPEN, _CALL_CLOSE, _STOP, _HEADER_OPEN, _HEADER_CLOSE, _MESSAGE_CLOSE = range(1, 9)

_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class AnswerParser:
    """Feeds on ids in the order they were sampled; give it the stop token too if the engine reports it.

    `calls=False` makes call markup ordinary text. `parallel_calls=False` ends the answer after one call. `stop` strings
    end it where they occur in content (not in reasoning or arguments). `reasoning_open`: the prompt ends inside
    reasoning. `forced_text`: the prompt ends inside a call that begins with this text; `forced_ids`: the same, and the
    markers before it, in tokens. `section` reads calls that no streaming reader knows. `stop_ids`: the ids that end the
    answer, the grammar's own by default. `schemas` are the parameters of the tools that were offered, by tool. Once
    `done`, the engine can be aborted: later ids are ignored.
    """

    __slots__ = (
        "_bare", "_buffer", "_call_id", "_calls", "_content", "_decoder", "_grammar", "_irregular", "_kinds", "_label",
        "_marker_tail", "_out", "_parallel", "_partial", "_reader", "_reasoning", "_schemas", "_section", "_space",
        "_spelled", "_spoken", "_state", "_stop", "_stop_tail", "_vocab", "_waiting", "_with_calls", "done",
        "stop_matched",
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
        forced_ids: Sequence[int] = (),
        section: SectionReader | None = None,
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
        self._spelled = self._with_calls and grammar.spelled
        self._section = section
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
        self._marker_tail = ""  # text that may be the beginning of a spelled marker
        self._waiting: list[int] = []  # a call inside reasoning, or a section
        self._buffer = ""  # a header, or a section with spelled markers
        self._label = ""  # text at the beginning of reasoning that is none
        self._reader = self._new_reader()
        self._call_id = ""  # of the call that is being passed on
        self._state = _REASONING if reasoning_open else _HEADER if grammar.calls == "harmony" else _START
        if forced_text is not None:
            self._begin_forced(forced_text, forced_ids)

    def feed(self, token: int) -> list[Delta]:
        """The deltas that became certain with this id, often none. Ids out of range raise `IndexError`."""
        watched = self._space or self._stop or self._spelled or self._partial or self.done
        if self._state == _CONTENT and self._spoken and not watched:
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
        self._flush_marker_tail()
        if self._state == _CALL:
            self._close_call("", closed=self.done and (self._bare or not self._grammar.call_close))
        elif self._state == _SECTION:
            self._close_section("", closed=self.done and not self._grammar.call_close)
        elif self._state == _HEADER and self._buffer.strip():
            self._irregular = True
            if not _CHANNEL.search(self._buffer):  # text without any header
                self._state = _CONTENT
                self._pass_text(self._buffer)
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
        if self._state == _SECTION and not self._spelled and kind not in (_STOP, _CALL_CLOSE):
            self._waiting.append(token)
            return
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
        self._flush_marker_tail()
        state = self._state
        if kind == _STOP:
            if state == _HELD:
                self._release_call()
            self.done = True
        elif state == _HELD and kind != _THINK_CLOSE:
            self._irregular = self._irregular or kind == _THINK_OPEN  # a mark of its own to some, text to others
            self._waiting.append(token)
        elif kind == _THINK_OPEN and state in (_START, _REASONING):  # renderers ignores a second one, too
            self._label = self._grammar.think_label if state == _START else ""
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
            self._open_call()
        elif kind == _CALL_CLOSE and state == _CALL:
            self._close_call(self._vocab.text_of[token] or "", closed=True)
        elif kind == _CALL_CLOSE and state == _SECTION:
            self._close_section(self._vocab.text_of[token] or "", closed=True)
        elif kind == _HEADER_CLOSE and state == _HEADER:
            self._open_message()
        elif kind in (_HEADER_OPEN, _MESSAGE_CLOSE):
            self._close_message()
        else:
            self._irregular = self._irregular or kind == _CALL_OPEN or state == _CALL
            self._take_text(self._vocab.text_of[token] or "")

    def _take_text(self, text: str) -> None:
        if not self._spelled or self._state not in (_START, _CONTENT, _CALL, _SECTION):
            self._pass_text(text)
            return
        text, self._marker_tail = self._marker_tail + text, ""
        while text and not self.done:
            inside = self._state in (_CALL, _SECTION)
            marker = self._grammar.call_close if inside else self._grammar.call_open
            before, found, text = text.partition(marker)
            if not found:
                end = len(before) - _overlap(before, marker)
                before, self._marker_tail = before[:end], before[end:]
            if before:
                self._pass_text(before)
            if self.stop_matched is not None:
                self._marker_tail = ""
                return
            if not found:
                return
            if not inside:
                self._open_call()
            elif self._state == _SECTION:
                self._close_section(marker, closed=True)
            elif isinstance(self._reader, CallReader) and self._reader.in_string():
                self._pass_text(marker)
            else:
                self._close_call(marker, closed=True)

    def _pass_text(self, text: str) -> None:
        """Takes text without markers."""
        if self._state == _START and self._bare and self._with_calls and text.lstrip().startswith("{"):
            self._state = _CALL
        if self._state == _CALL:
            arguments = self._reader.push(text)
            if self._bare and self._call_id == "" and not self._may_be_call():
                self._state = _CONTENT  # the text that began like a call is none
                self._pass_text(self._reader.source())
                return
            if self._call_id == "" and self._reader.name is not None:
                self._start_call(self._reader.name)
            self._pass_arguments(arguments)
        elif self._state == _REASONING:
            self._pass_reasoning(text)
        elif self._state in (_HEADER, _SECTION):
            self._buffer += text
        elif self._state == _CONTENT or not text.isspace():
            self._state = _CONTENT
            if self._stop:
                self._watch_for_stop(text)
            else:
                self._say(text, "content")

    def _pass_reasoning(self, text: str) -> None:
        if self._label:
            text, self._marker_tail = self._marker_tail + text, ""
            if text != self._label and self._label.startswith(text):
                self._marker_tail = text
                return
            text, self._label = text.removeprefix(self._label), ""
        if text:
            self._say(text, "reasoning")

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
        if not (self._spoken or self._stop_tail or self._calls):
            text = text.lstrip()
        pending = self._stop_tail + text
        leading = 0 if self._spoken else len(pending) - len(pending.lstrip())  # white space that is dropped
        places = {stop: pending.find(stop, 0 if stop.strip() else leading) for stop in self._stop}
        found = [(place, stop) for stop, place in places.items() if place >= 0]
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

    def _begin_forced(self, text: str, ids: Sequence[int]) -> None:
        """The prompt ends inside a call."""
        if self._section is None and self._state != _HEADER:
            self._state = _CALL
            self._reader.push(text)
            return
        opening = next((place for place, token in enumerate(ids) if self._kinds.get(token) == _CALL_OPEN), 0)
        for token in ids[opening:]:
            self._take(token)

    def _open_call(self) -> None:
        self._flush_stop_tail()
        if self._section is not None:
            self._state = _SECTION
            self._waiting, self._buffer = [], ""
            return
        self._state = _CALL
        self._reader = self._new_reader()

    def _close_section(self, marker: str, *, closed: bool) -> None:
        """The section is over: `marker` closed it, or the end of the answer did."""
        assert self._section is not None
        self._state = _CONTENT
        ids, text, schemas = self._waiting, self._buffer, self._schemas or {}
        self._waiting, self._buffer = [], ""
        if self._spelled:
            found = self._section.read_text(text, schemas)
        else:
            found = self._section.read(ids, schemas, ended=closed or self.done)
        if not found.calls:
            self._irregular = True
            self._pass_text(self._grammar.call_open + (text if self._spelled else self._vocab.decode(ids)) + marker)
            return
        for call in found.calls[: None if self._parallel else 1]:
            self._start_call(call.name)
            self._pass_arguments(call.arguments)
            self._calls.append(Call(self._call_id, call.name, call.arguments))
            self._irregular = self._irregular or not call.regular
        self._call_id = ""
        self._irregular = self._irregular or not closed or not self._parallel or found.rest != ""
        self.done = self.done or not self._parallel
        if found.rest and self._parallel:
            self._pass_text(found.rest)

    def _open_message(self) -> None:
        """A message of a harmony answer begins: its header says what it is."""
        header, self._buffer = self._buffer, ""
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        if recipient and self._with_calls:
            self._state = _CALL
            self._reader = ArgumentsReader(recipient[1].removeprefix("functions."))
            self._start_call(recipient[1].removeprefix("functions."))
            return
        thought = channel is not None and channel[1] == "analysis"
        self._state = _REASONING if thought else _CONTENT
        said = self._reasoning if thought else self._content
        self._spoken, self._space = bool(said), "\n\n" if said else ""
        if recipient:  # a call where no tools were offered
            self._pass_text(f"{header}<|message|>")

    def _close_message(self) -> None:
        if self._state == _CALL:
            self._close_call("", closed=True)
        self._flush_stop_tail()
        self._state = _HEADER
        self._buffer = ""

    def _start_call(self, name: str) -> None:
        self._call_id = f"call_{secrets.token_hex(12)}"
        self._space = ""
        self._spoken = False
        self._out.append(Delta("call_start", "", len(self._calls), self._call_id, name))

    def _pass_arguments(self, arguments: str) -> None:
        if arguments:
            self._out.append(Delta("call_arguments", arguments, len(self._calls)))

    def _new_reader(self) -> CallReader | XmlCallReader | ArgumentsReader:
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
            self._pass_text(self._grammar.call_open + reader.source() + marker)
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

    def _flush_marker_tail(self) -> None:
        self._label = ""
        if self._marker_tail:
            tail, self._marker_tail = self._marker_tail, ""
            self._pass_text(tail)

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
    if grammar.calls == "harmony":
        names |= {"<|start|>": _HEADER_OPEN, "<|message|>": _HEADER_CLOSE, "<|end|>": _MESSAGE_CLOSE}
    kinds = {vocab.added[name]: kind for name, kind in names.items() if name in vocab.added}
    if stop_ids is None:
        stop_ids = [vocab.added[stop] for stop in grammar.stops if stop in vocab.added]
    return kinds | dict.fromkeys(stop_ids, _STOP)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
