"""A conversation as a chain of digests, so that a history is found again however a client rewrites it.

The digest after each message covers all messages up to it. Left out, because clients add, drop or change them between
two requests of one conversation: system messages, floating context, announcements, time stamps, the `Runtime:` line,
empty answers, and reasoning that is written into an answer.
Messages in a row by the assistant, or by the user, count as one text without its white space, since some clients merge
them.

A client that cuts its history short (compaction, a sliding window, old tool results cleared) changes every digest after
the cut. The rest is recognized by its exchanges: an answer together with the user's message, or all the tool results,
that it answers.

Long histories are read once: the chain of all but the last messages is kept, and found again by what the first user
says. It is extended where all those messages are the same, so a chain never depends on what was kept.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from cachetools import LRUCache

from openclaw_rl.proxy.conversation.compacted import replaces_history
from openclaw_rl.proxy.conversation.speaker import OpeningWords, Speech, command_score, is_pasted, opening_of, read_user
from openclaw_rl.shared.messages.equality import call_key, calls_json, message_key, squeezed, without_reasoning
from openclaw_rl.shared.messages.images import comparable
from openclaw_rl.shared.messages.normalize import text_of
from openclaw_rl.shared.records import Message, Role, ToolResult

ROOT = bytes(16)
_PASSING = ("context", "announcement")
"""Speakers whose messages OpenClaw does not keep in its history."""
BETWEEN = "\n\n"
"""Stands between the messages that are one next state."""
_OPENINGS = {role: hashlib.blake2b(role.encode(), digest_size=16) for role in ("assistant", "user")}
_NO_OTHERS = hashlib.blake2b(digest_size=16).digest()

LONG = 16
"""Messages from which on a history is worth keeping."""
GROWN = 8
"""Messages that have to be new for a longer beginning to be kept."""
LEFT = 8
"""Messages that are not kept at the end: a client may change them (a retry, an edit, a floating message)."""
MANY = 1000
"""New messages that are read in a thread: so many take some milliseconds."""
_BYTES = 4 << 20
_MESSAGE_BYTES = 1000  # weight of a message and its step, without the text


class ChainStep(msgspec.Struct, frozen=True):
    """One message of a history: the chain's digest after it (`key`), its own digest or that of the run that it ends
    (`part`), whether the chain skips it, its `speech` if it has the user's role, the ids of the calls that it makes or
    answers, and its `result` if it is a tool's.
    """

    key: bytes
    part: bytes
    role: str
    skipped: bool
    text: str
    speech: Speech | None = None
    call_ids: tuple[str, ...] = ()
    result: ToolResult | None = None


class Place(msgspec.Struct, frozen=True):
    """A place in a history where an answer of ours may end: after the step at `index`, at the digest `key`.

    `answered`: an assistant's message stands there. Otherwise a request may have ended there whose answer was empty, or
    was replaced by a text of the client.
    """

    index: int
    key: bytes
    answered: bool


class NextWords(msgspec.Struct, frozen=True):
    """The messages right after an answer: role and text of the next state (`None`: there is none), typed commands, and
    the tool results or the `persons`' messages in the text.
    """

    role: Role | None
    text: str
    commands: tuple[Speech, ...] = ()
    results: tuple[ToolResult, ...] = ()
    persons: tuple[str, ...] = ()


class Chain:
    """The steps of canonical messages. `before` is the chain of the messages before these; it is not changed."""

    def __init__(self, messages: Sequence[Message], before: Chain | None = None) -> None:
        self.request_key = ROOT  # the digest of the whole history: the same for a request and its retry
        self._base = ROOT  # the digest before the current run
        self._run: _Run | None = None
        self._opened = False  # by the first message of the user's role
        self._opening: OpeningWords | None = None
        self._native = False  # calls and their results are no text
        self._unasked = -1  # the last step that is not in the user's role
        self.steps: list[ChainStep] = []
        if before is not None:
            self.request_key, self._base, self.steps = before.request_key, before._base, before.steps.copy()
            self._opened, self._opening, self._native = before._opened, before._opening, before._native
            self._unasked = before._unasked
            self._run = before._run.copy() if before._run is not None else None
        for message in messages:
            self.steps.append(self._push(message))
            if message["role"] != "user":
                self._unasked = len(self.steps) - 1

    @property
    def speeches(self) -> list[Speech]:
        """The speeches of all user messages, in order."""
        return [step.speech for step in self.steps if step.speech is not None]

    @property
    def compacted_at(self) -> int | None:
        """The index of the last message that says that a summary stands in place of the history before it."""
        last = max((index for index, step in enumerate(self.steps) if step.speech is not None), default=-1)
        found = (
            index
            for index in range(len(self.steps) - 1, -1, -1)
            if self.steps[index].role in ("user", "system")
            and replaces_history(self.steps[index].text, last=index >= last)
        )
        return next(found, None)

    @property
    def answers_feedback(self) -> bool:
        """True if all that a person said since the last answer is feedback: the next answer is to that alone.

        Feedback in the middle of a tool loop interrupts work on something else.
        """
        steps = (step for step in reversed(self.steps) if not step.skipped)
        step = next(steps, None)
        if step is None or step.role == "assistant":  # an announcement asks, or nothing does
            return False
        while step is not None and step.role != "user":
            step = next(steps, None)
        if step is None:
            return False
        while step is not None and step.role == "user":
            if not _is_feedback(step):
                return False
            step = next(steps, None)
        return step is None or step.role == "assistant"

    @property
    def from_openclaw(self) -> bool:
        """True if OpenClaw wrote the history: it keeps every answer there, so a text that it adds replaces none."""
        return any(speech.speaker == "context" or speech.runtime for speech in self.speeches)

    def answer_key(self, answer: Message) -> bytes:
        """The digest of the history with `answer` after it, as the next request of the conversation will show it."""
        run = self._answered(answer)
        return self.request_key if run is None else _digest(self._base_of("assistant") + run.digest())

    def exchange_key(self, answer: Message) -> bytes:
        """The digest of the last exchange of the history with `answer` after it; empty if there is none."""
        run = self._answered(answer)
        return b"" if run is None else self._exchange(len(self.steps), run.digest())

    def exchange_at(self, index: int) -> bytes:
        """The digest of the exchange that ends with the assistant's step at `index`; empty if nothing was asked."""
        return self._exchange(index, self.steps[index].part)

    def exchange_size(self, index: int) -> int:
        """Number of characters of text in that exchange."""
        return sum(len(step.text) for step in (self.steps[index], *self._asked(index)))

    def size(self, index: int) -> int:
        """Number of characters up to the step at `index`, without skipped steps."""
        return sum(len(step.text) for step in self.steps[: index + 1] if not step.skipped)

    def answered_texts(self, index: int) -> dict[bytes, str]:
        """The digests that a request must have had for its answer to end at the assistant's step at `index`, each with
        the text from there to that step.
        """
        found: dict[bytes, str] = {}
        text = self.steps[index].text
        for step in reversed(self.steps[:index]):
            if step.skipped:
                continue
            found[step.key] = text
            if step.role != "assistant":
                break
            text = f"{step.text}\n{text}"
        return found

    def loop(self) -> list[ChainStep]:
        """The tool loop at the end of the history, with the step that it began after; empty without one."""
        steps = [step for step in self.steps if not step.skipped]
        if not steps or steps[-1].role != "tool":
            return []
        start = max((index for index, step in enumerate(steps) if step.role == "user"), default=0)
        return steps[start:]

    def asked_words(self, index: int | None) -> str:
        """The last words in the user's role before the step at `index`, or at the end of the history."""
        users = (step.text for step in reversed(self.steps[:index]) if step.role == "user" and not step.skipped)
        return next(users, "")

    def places(self) -> list[Place]:
        """Every place in the history that can be the end of an answer of ours, deepest first.

        A user's or tool's message counts where a user's comes next, or an announcement: the answer there may have been
        empty, and clients do not keep empty ones.
        """
        found: list[Place] = []
        following = ""
        for index in range(len(self.steps) - 1, -1, -1):
            step = self.steps[index]
            if step.skipped:
                if step.speech is not None and step.speech.speaker == "announcement":
                    following = step.role
                continue
            answered = step.role == "assistant"
            if answered or following == "user":
                found.append(Place(index, step.key, answered))
            following = step.role
        return found

    def after(self, index: int, through: int = -1, *, people: bool = True) -> NextWords:
        """The words after the step at `index`, up to the next answer: a person's if there are any, else all tool
        results, else an environment's in the user's role. Answers to feedback or notices alone are skipped. The answer
        itself may continue up to the step at `through`. Without `people` all in the user's role is an environment's.
        """
        persons: list[str] = []
        tools: list[str] = []
        results: list[ToolResult] = []
        observations: list[str] = []
        commands: list[Speech] = []
        aside = passing = False  # within what answers feedback or a notice; these are all that was said since
        alone = True
        for place, step in enumerate(self.steps[index + 1 :], index + 1):
            if step.skipped or (step.role == "assistant" and place <= through):
                continue
            if step.role == "assistant":
                if not (aside or (passing and alone)):
                    break
                aside = True
            elif step.role == "tool":
                if not aside:
                    if step.result is not None:
                        start = sum(map(len, tools)) + len(BETWEEN) * len(tools)
                        results.append(msgspec.structs.replace(step.result, start=start))
                    tools.append(step.text)
                    alone = False
            elif people and (_is_feedback(step) or (step.speech is not None and step.speech.speaker == "notice")):
                passing = True
            else:
                aside = alone = False
            if step.speech is None:
                continue
            if not people:
                observations.append(step.speech.sent or step.text)
            elif step.speech.speaker == "person" and step.text:
                persons.append(step.speech.words)
            elif step.speech.speaker == "environment":
                observations.append(step.text)
            elif step.speech.speaker == "command":
                commands.append(step.speech)
        role: Role | None = "user" if persons else "tool" if tools else "environment" if observations else None
        text = BETWEEN.join(persons or tools or observations)
        return NextWords(role, text, tuple(commands), tuple(results) if role == "tool" else (), tuple(persons))

    def _push(self, message: Message) -> ChainStep:
        role = message["role"]
        text = text_of(message)
        if role == "system":
            return ChainStep(self.request_key, b"", role, True, text)
        if role == "assistant":
            text = without_reasoning(text)
            calls = message.get("tool_calls") or ()
            if not calls and not text.strip():
                return ChainStep(self.request_key, b"", role, True, text)
            return self._extend_run(role, text, map(call_key, calls), None, tuple(call["id"] for call in calls))
        if role == "user":
            speech = self._read(message)
            parts = () if isinstance(message["content"], str) else message["content"]
            images = [msgspec.json.encode(comparable(part), order="sorted") for part in parts if part["type"] != "text"]
            if speech.speaker in _PASSING and not images:
                return ChainStep(self.request_key, b"", role, True, "", speech)
            if not self._opened:
                self._opened, self._opening = True, opening_of(speech)
            return self._extend_run(role, speech.text, map(_digest, images), speech)
        part = message_key(message)
        self._native = True
        self.request_key = _digest(self.request_key + part)
        self._run = None
        call_id = str(message.get("tool_call_id") or "")
        result = ToolResult(0, call_id, message.get("is_error"))
        return ChainStep(self.request_key, part, role, False, text, None, (call_id,), result)

    def _read(self, message: Message) -> Speech:
        """The speech in a user's message. What was said before tells whether it can be the result of a call."""
        speech = read_user(message, self._opening)
        if speech.speaker != "environment":
            return speech
        last = self._unasked
        if last < 0 or self.steps[last].role != "assistant" or self.steps[last].call_ids:
            return speech
        before = self.steps[last - 1].text if last else ""
        if is_pasted(speech, self.steps[last].text, native=self._native, before=before):
            return msgspec.structs.replace(speech, speaker="person")
        return speech

    def _extend_run(
        self, role: str, text: str, others: Iterable[bytes], speech: Speech | None, ids: tuple[str, ...] = ()
    ) -> ChainStep:
        self._base = self._base_of(role)
        if self._run is None or self._run.role != role:
            self._run = _Run(role)
        self._run.add(text, others)
        part = self._run.digest()
        self.request_key = _digest(self._base + part)
        return ChainStep(self.request_key, part, role, False, text, speech, ids)

    def _base_of(self, role: str) -> bytes:
        """The digest before the run that a message of this role joins or begins."""
        return self._base if self._run is not None and self._run.role == role else self.request_key

    def _answered(self, answer: Message) -> _Run | None:
        """The run that an answer ends, `None` for an empty answer."""
        calls = answer.get("tool_calls") or ()
        text = without_reasoning(text_of(answer))
        if not calls and not text.strip():
            return None
        run = self._run.copy() if self._run is not None and self._run.role == "assistant" else _Run("assistant")
        run.add(text, map(call_key, calls))
        return run

    def _exchange(self, index: int, answer: bytes) -> bytes:
        parts = [_digest(squeezed(step.text)) if step.role == "user" else step.part for step in self._asked(index)]
        return _digest(b"".join([answer, *parts])) if parts else b""

    def _asked(self, index: int) -> list[ChainStep]:
        """The steps that an answer around the step at `index` answers: the last user message, or all tool results."""
        found: list[ChainStep] = []
        for step in reversed(self.steps[:index]):
            if step.skipped or (step.role == "assistant" and not found):
                continue
            if found and (step.role == "user" or step.role != found[0].role):
                break
            found.append(step)
        return found


class _KeptChain(msgspec.Struct, frozen=True):
    """The `chain` of `messages`. `calls` are the tool calls in them as JSON: to Python `True` is `1`."""

    messages: list[Message]
    calls: bytes
    chain: Chain
    size: int

    def begins(self, messages: Sequence[Message]) -> bool:
        """True if a history begins with these messages."""
        same = messages[: len(self.messages)]
        return self.messages == same and self.calls == calls_json(same)


class Chains:
    """Makes the chains of requests; keeps at most `capacity` bytes of their beginnings. Belongs to one event loop."""

    def __init__(self, capacity: int = _BYTES) -> None:
        self._kept: LRUCache[str, _KeptChain] = LRUCache(capacity, getsizeof=lambda kept: kept.size)

    @property
    def size(self) -> int:
        """Bytes that are kept now."""
        return int(self._kept.currsize)

    async def chain_of(self, messages: Sequence[Message]) -> Chain:
        """The chain of a request's canonical messages."""
        if len(messages) < LONG:
            return Chain(messages)
        name = next((text_of(message) for message in messages if message["role"] == "user"), "")
        kept = self._kept.get(name)
        if kept is not None and not kept.begins(messages):
            kept = None
        before, start = (kept.chain, len(kept.messages)) if kept else (None, 0)
        end = len(messages) - LEFT
        if end - start >= GROWN:
            more = messages[start:end]
            before = await asyncio.to_thread(Chain, more, before) if len(more) > MANY else Chain(more, before)
            self._keep(name, [*kept.messages, *more] if kept else [*more], before)
            start = end
        return Chain(messages[start:], before)

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()

    def _keep(self, name: str, messages: list[Message], chain: Chain) -> None:
        """Keep the chain of a beginning in place of any other of this name."""
        calls = calls_json(messages)
        size = 2 * len(name) + 4 * len(calls)
        size += sum(_MESSAGE_BYTES + 2 * len(step.text) for step in chain.steps)
        self._kept.pop(name, None)
        if size <= self._kept.maxsize:
            self._kept[name] = _KeptChain(messages, calls, chain, size)


class _Run:
    """Messages in a row by one speaker: the digest of their texts without white space, and that of their calls or
    images. It grows incrementally, as a history may be one long run.
    """

    __slots__ = ("_others", "_texts", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self._texts = _OPENINGS[role].copy()
        self._others: hashlib.blake2b | None = None  # until there are any

    def add(self, text: str, others: Iterable[bytes]) -> None:
        self._texts.update(squeezed(text))
        for other in others:
            if self._others is None:
                self._others = hashlib.blake2b(digest_size=16)
            self._others.update(other)

    def copy(self) -> _Run:
        other = _Run(self.role)
        other._texts, other._others = self._texts.copy(), self._others.copy() if self._others else None
        return other

    def digest(self) -> bytes:
        return _digest(self._texts.digest() + (self._others.digest() if self._others else _NO_OTHERS))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _is_feedback(step: ChainStep) -> bool:
    return step.speech is not None and command_score(step.speech) is not None
