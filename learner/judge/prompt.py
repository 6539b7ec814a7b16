"""Judge prompts: versioned templates, and the texts that fill them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.messages.images import images_in
from openclaw_rl.shared.messages.normalize import is_internal_context, text_of
from openclaw_rl.shared.records import Message, NextState, Turn
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.text_reading import reads_text

JUDGE = "judge-v2"
HINT = "hint-v2"
_FOLDER = Path(__file__).parent / "prompts"
_PLACE = re.compile(r"\{(request|answer|role|next_state)\}")
_NEEDED = frozenset({"answer", "next_state"})
_REQUEST_CHARACTERS = 12_000
_PART_CHARACTERS = 8_000
_HASH_DIGITS = 8


class JudgePrompt(msgspec.Struct, frozen=True):
    """A template and the name under which judgements record it."""

    version: str
    template: str

    @classmethod
    def builtin(cls, version: str) -> JudgePrompt:
        """A built-in template."""
        return cls(version, (_FOLDER / f"{version}.md").read_text(encoding="utf-8"))

    @classmethod
    def from_settings(cls, settings: Settings) -> JudgePrompt:
        """The user's file, with its name and a hash of its content as version; else the newest built-in one. Raises
        `ConfigError`.
        """
        if not settings.judge.prompt:
            return cls.builtin(JUDGE)
        path = Path(settings.judge.prompt).expanduser()
        try:
            template = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"judge_prompt = {settings.judge.prompt!r} cannot be read: {error}") from error
        missing = _NEEDED - set(_PLACE.findall(template))
        if missing:
            places = " and ".join(f"{{{name}}}" for name in sorted(missing))
            raise ConfigError(f"judge_prompt = {settings.judge.prompt!r} has no place for {places}")
        return cls(fingerprint(path.name, template.encode()), template)

    @property
    def asks_for_hint(self) -> bool:
        """True if its votes may hold a hint, as those of a file of the user's may."""
        return "[HINT]" in self.template

    def fill(self, turn: Turn, next_state: NextState) -> str:
        """The request, the answer and the next state with its role, each cut to a bounded length."""
        parts = {
            "request": cut(transcript(turn.messages), _REQUEST_CHARACTERS, keep_end=True),
            "answer": cut(spoken(turn.answer), _PART_CHARACTERS),
            "role": next_state.role,
            "next_state": cut(next_state.text, _PART_CHARACTERS),
        }
        return _PLACE.sub(lambda match: parts[match.group(1)], self.template)


def fingerprint(name: str, content: bytes) -> str:
    """A file's name and the first digits of its SHA-256: the version of its text."""
    return f"{name}#{hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]}"


def transcript(messages: Sequence[Message]) -> str:
    """A conversation as text, each message under its role, without context that a program added."""
    written = [message for message in messages if not is_internal_context(message)]
    return "\n\n".join(f"[{message['role']}]\n{spoken(message)}" for message in written)


def spoken(message: Message) -> str:
    """A message as text: images are named, tool calls written out."""
    calls = [f"(calls {call['name']} with {call['arguments']})" for call in message.get("tool_calls") or ()]
    images = ["(an image)"] * len(images_in([message]))
    return "\n".join(part for part in (*images, text_of(message), *calls) if part)


@reads_text(lambda read, text: (read(text, 100), read(text, 100, keep_end=True)))
def cut(text: str, limit: int, *, keep_end: bool = False) -> str:
    """At most about `limit` characters of a text: most of its beginning, or of its end, and a mark at the gap."""
    if len(text) <= limit:
        return text
    head = limit // 4 if keep_end else limit * 3 // 4
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[len(text) - (limit - head) :]}"
