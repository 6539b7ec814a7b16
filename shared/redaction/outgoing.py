"""Texts for a cloud backend or another provider's model, with what the setting `cloud_redact` says taken out.

The same text always becomes the same, so that a conversation's prompts keep beginning with each other. What the policy
itself said is left as it was sampled: the provider sampled it, and the next prompt continues its tokens. That is
remembered, not looked up: after a restart it is written again, and redacted, like everything else.

Images go as they are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from openclaw_rl.shared.cache import SharedCache
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.process import is_loopback
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.redaction.redactor import EXTRA, Redactor, each_text
from openclaw_rl.shared.settings.settings import Settings

_BYTES = 16 << 20
_ENTRY = 200  # bytes that a text weighs which stays as it is
_SAID = 20_000
_SHORT = 6  # characters; nothing that is shorter is found
_TOOLS = 256


_KEPT = frozenset(["id", "name", "type", "role"])
"""Fields that are not written by hand."""


class _Tools(msgspec.Struct, frozen=True):
    """A list of tools after redaction (`None`: unchanged), and what was found in it."""

    content: list[dict[str, Any]] | None
    json: bytes
    found: Counter[str]


class Outgoing:
    """Texts and chats as they may leave. Remembers texts by their digests, at most `capacity` bytes of what became of
    them. Safe to use from several threads.
    """

    def __init__(self, redactor: Redactor, *, capacity: int = _BYTES) -> None:
        self._redactor = redactor
        self._known = SharedCache[bytes, tuple[str | None, Counter[str]]](capacity, _weight)
        self._said = SharedCache[bytes, bool](_SAID)
        self._tools = SharedCache[bytes, _Tools](_TOOLS)

    @classmethod
    def from_settings(cls, settings: Settings) -> Outgoing | None:
        """As `cloud_redact` says; `None` where nothing is taken out. Raises `ConfigError` where it needs what is not
        installed.
        """
        if settings.cloud.redact == "off":
            return None
        try:
            return cls(Redactor(personal=settings.cloud.redact == "all"))
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"cloud_redact = {settings.cloud.redact} takes secrets out of what goes to other providers, and needs "
                f"{error.name}, which is not installed: {install_command(EXTRA)}. To send everything as it "
                "is, set cloud_redact = off"
            ) from error

    @classmethod
    def to_backend(cls, settings: Settings) -> Outgoing | None:
        """For what the engine and the trainer get; `None` where that stays here. Raises `ConfigError`."""
        return cls.from_settings(settings) if settings.engine.is_cloud else None

    @classmethod
    def to_model(cls, settings: Settings, model: str, base: str) -> Outgoing | None:
        """For a LiteLLM model at a base URL ("": its provider's own); `None` where that is on this machine. Raises
        `ConfigError`.
        """
        return None if is_here(model, base) else cls.from_settings(settings)

    def text(self, text: str) -> str:
        """A text as it may leave; the same object where nothing is taken out."""
        if len(text) < _SHORT:
            return text
        left = self._looked(text)[0]
        return text if left is None else left

    def chat(self, chat: ChatInput) -> ChatInput:
        """A request's messages and tools as they may leave; the same object where nothing is taken out."""
        messages = [self.message(message) for message in chat.messages]
        tools = self._looked_at(chat)
        if all(new is old for new, old in zip(messages, chat.messages, strict=True)):
            if tools.content is None:
                return chat
            messages = chat.messages
        if tools.content is None:
            return msgspec.structs.replace(chat, messages=messages)
        return msgspec.structs.replace(chat, messages=messages, tools=tools.content, tools_json=tools.json)

    def message(self, message: Message) -> Message:
        """A canonical message as it may leave; the same object where nothing is taken out."""
        change = self._unless_said if message["role"] == "assistant" else self.text
        changed = {}
        for name, value in _parts(message):
            new = each_text(value, change, _KEPT)
            if new is not value:
                changed[name] = new
        return {**message, **changed} if changed else message

    def said(self, answer: Message) -> None:
        """Leave this answer of the policy as it is from now on."""
        for text, _ in _written([answer]):
            self._said.put(_digest(text), True)

    def fresh(self, chat: ChatInput) -> int:
        """The number of characters of a request that were never looked through."""
        tools = 0 if not chat.tools or _digest(chat.tools_json) in self._tools else len(chat.tools_json)
        return tools + sum(len(text) for text, _ in _written(chat.messages) if _digest(text) not in self._known)

    def taken(self, chat: ChatInput) -> Mapping[str, int]:
        """The number of things taken out of a request, by kind."""
        found = Counter(self._looked_at(chat).found)
        for text, own in _written(chat.messages):
            if not (own and self._is_said(text)):
                found.update(self._looked(text)[1])
        return dict(found)

    def _looked_at(self, chat: ChatInput) -> _Tools:
        """A request's tools after redaction; they are long, and the same every time."""
        if not chat.tools:
            return _NO_TOOLS
        digest = _digest(chat.tools_json or msgspec.json.encode(chat.tools))
        if known := self._tools.get(digest):
            return known
        found: Counter[str] = Counter()

        def change(text: str) -> str:
            left, more = self._redactor.counted(text) if len(text) >= _SHORT else (text, Counter[str]())
            found.update(more)
            return left

        content = each_text(chat.tools, change, _KEPT)
        changed = content is not chat.tools
        entry = _Tools(content if changed else None, msgspec.json.encode(content) if changed else b"", found)
        self._tools.put(digest, entry)
        return entry

    def _unless_said(self, text: str) -> str:
        left = self.text(text)
        return text if left is text or self._is_said(text) else left

    def _is_said(self, text: str) -> bool:
        return _digest(text) in self._said

    def _looked(self, text: str) -> tuple[str | None, Counter[str]]:
        """A text after redaction (`None`: unchanged), and what was found in it."""
        digest = _digest(text)
        if known := self._known.get(digest):
            return known
        left, found = self._redactor.counted(text)
        entry = (None if left is text else left, found)
        self._known.put(digest, entry)
        return entry


_NO_TOOLS = _Tools(None, b"", Counter())


def is_here(model: str, base: str) -> bool:
    """True if a LiteLLM model answers on this machine: its base URL is loopback, or it has none and is one of those
    that run where they are asked.
    """
    if base:
        return is_loopback(urlsplit(base).hostname or "")
    return model.partition("/")[0] in ("ollama", "ollama_chat", "lm_studio")


def describe_taken(taken: Mapping[str, int]) -> str:
    """The things taken out of a prompt, as text for a turn's record; "" for nothing."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(taken.items()))
    return f"taken out of its prompt before it left (cloud_redact): {kinds}" if kinds else ""


def _parts(message: Message) -> Iterator[tuple[str, Any]]:
    """The fields of a canonical message that hold written text."""
    for name in ("content", "reasoning", "tool_calls"):
        if message.get(name):
            yield name, message[name]


def _written(messages: Sequence[Message]) -> list[tuple[str, bool]]:
    """Every text of messages that is long enough to be looked through, and whether an assistant wrote it."""
    found: list[tuple[str, bool]] = []
    for message in messages:
        own = message["role"] == "assistant"

        def keep(text: str, own: bool = own) -> str:
            if len(text) >= _SHORT:
                found.append((text, own))
            return text

        for _, value in _parts(message):
            each_text(value, keep, _KEPT)
    return found


def _digest(text: str | bytes) -> bytes:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=16).digest()


def _weight(entry: tuple[str | None, Counter[str]]) -> int:
    return _ENTRY + 2 * len(entry[0] or "")
