"""A conversation as a chain of digests, so that a history is found again however a client rewrites it.

The digest after each message covers all messages up to it. Left out, because clients add, drop or change them between
two requests of one conversation: system messages, floating context, time stamps, the `Runtime:` line, empty answers. A
run of assistant messages counts as one text without its white space, since some clients merge them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from proxy.openclaw import Speech, read_user
from shared.canonical import message_key
from shared.normalize import text_of
from shared.records import Message, Role

ROOT = bytes(16)


class Step(msgspec.Struct, frozen=True):
    """One message of a history: the chain's digest after it; who speaks, if it has the user's role; whether the chain
    skips it.
    """

    key: bytes
    role: str
    skipped: bool
    text: str
    speech: Speech | None = None


class NextWords(msgspec.Struct, frozen=True):
    """What a history says right after an answer: role and text of the next state (`None` where nobody reacted), and
    typed commands.
    """

    role: Role | None
    text: str
    commands: tuple[Speech, ...] = ()


class Chain:
    """The steps of a request's canonical messages, and the questions that placing it asks."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._key = ROOT
        self._base = ROOT  # the digest before the current run of assistant messages
        self._texts: list[str] = []  # of that run
        self._calls: list[dict[str, Any]] = []
        self.steps = [self._push(message) for message in messages]

    @property
    def speeches(self) -> list[Speech]:
        """What each user message says, in order."""
        return [step.speech for step in self.steps if step.speech is not None]

    @property
    def request_key(self) -> bytes:
        """The digest of the whole history: the same for a request and its retry."""
        return self._key

    def answer_key(self, answer: Message) -> bytes:
        """The digest of the history with `answer` after it, as the next request of the conversation will show it."""
        calls = [*self._calls, *(answer.get("tool_calls") or ())]
        return self._run_key([*self._texts, text_of(answer)], calls) if calls or text_of(answer).strip() else self._key

    def answers(self) -> list[tuple[int, bytes]]:
        """Index and digest of every place in the history that can be the end of an answer of ours, deepest first.

        Something has to follow it, or the request is no continuation. A user's or tool's message counts where no
        assistant message comes next: the answer there may have been empty, and clients do not keep empty ones.
        """
        found: list[tuple[int, bytes]] = []
        following = ""
        for index in range(len(self.steps) - 1, -1, -1):
            step = self.steps[index]
            if step.skipped:
                continue
            if following and (step.role == "assistant" or following != "assistant"):
                found.append((index, step.key))
            following = step.role
        return found

    def after(self, index: int) -> NextWords:
        """What follows the step at `index`, up to the next answer: a person's words if there are any, else all tool
        results together.
        """
        persons: list[str] = []
        tools: list[str] = []
        commands: list[Speech] = []
        for step in self.steps[index + 1 :]:
            if step.role == "assistant" and not step.skipped:
                break
            if step.role == "tool":
                tools.append(step.text)
            elif step.speech is not None and step.speech.speaker == "person" and step.text:
                persons.append(step.text)
            elif step.speech is not None and step.speech.speaker == "command":
                commands.append(step.speech)
        if persons:
            return NextWords("user", "\n\n".join(persons), tuple(commands))
        return NextWords("tool" if tools else None, "\n\n".join(tools), tuple(commands))

    def _push(self, message: Message) -> Step:
        role = message["role"]
        text = text_of(message)
        if role == "system":
            return Step(self._key, role, True, text)
        if role == "assistant":
            calls = message.get("tool_calls") or []
            if not calls and not text.strip():
                return Step(self._key, role, True, text)
            self._texts.append(text)
            self._calls += calls
            self._key = self._run_key(self._texts, self._calls)
            return Step(self._key, role, False, text)
        speech = read_user(message) if role == "user" else None
        if speech is not None:
            if speech.speaker == "context":
                return Step(self._key, role, True, "", speech)
            text = speech.text
        content = message["content"]
        if not isinstance(content, str):
            content = [{"type": "text", "text": text}, *(part for part in content if part["type"] != "text")]
        else:
            content = text
        self._key = self._base = _extend(self._key, {"role": role, "content": content})
        self._texts, self._calls = [], []
        return Step(self._key, role, False, text, speech)

    def _run_key(self, texts: Sequence[str], calls: Sequence[dict[str, Any]]) -> bytes:
        squeezed = "".join("".join(texts).split())
        return _extend(self._base, {"role": "assistant", "content": squeezed, "tool_calls": calls})


def _extend(key: bytes, message: Message) -> bytes:
    return hashlib.blake2b(key + message_key(message), digest_size=16).digest()
