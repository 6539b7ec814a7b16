"""The trajectory file: conversations in the community's form, and our own lossless one.

A session is `{"session_id", "turns": [{"type", "prompt", "response", "next_state", "trainable"}]}`. A JSON file is a
list of sessions or one of them, a JSONL file has one on each line. The lossless form adds the data that
the five fields cannot hold (docs/formats.md has every field); its `messages` and `answer` take precedence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.errors import DamagedRecord, OpenClawRLError
from openclaw_rl.shared.journal.encoding import decode
from openclaw_rl.shared.messages.equality import arguments_text
from openclaw_rl.shared.messages.normalize import clean_text, text_of
from openclaw_rl.shared.records import Feedback, Judgement, Kind, Message, NextState, Role, Turn

_NAME_AT_MOST = 64
_JUDGEMENT = ("score", "hint", "judge", "signal", "reason")


class TrajectoryError(OpenClawRLError):
    """A file or a session in it that cannot be imported; the message says where and what is wrong."""


class FileFeedback(msgspec.Struct, frozen=True):
    """Explicit feedback: a score in [−1, +1], a comment, or both."""

    score: float | None = None
    text: str = ""


class FileTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as the file has it. `prompt` is the user's text, or a list of messages as a chat request has them;
    `response` a text or an assistant's message. `reason` says why it is not trainable, `next_role` is the role of
    `next_state`. `messages`, `tools`, `answer` and `feedback` are of the lossless form.
    """

    type: Kind = "main"
    prompt: str | list[Any] = ""
    response: str | dict[str, Any] | None = None
    next_state: str | None = None
    trainable: bool = True
    reason: str = ""
    next_role: Role = "user"
    messages: list[Any] | None = None
    tools: list[Any] = []
    answer: dict[str, Any] | None = None
    feedback: list[FileFeedback] = []


class FileSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session as the file has it. `where` names its place, for messages; `digest` is over all of its content."""

    session_id: str | int
    turns: list[FileTurn]
    where: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """The id in the journal: the session's own, after a digest of its content, which makes it unique."""
        shown = "".join(letter for letter in clean_text(str(self.session_id)) if letter.isprintable())
        return f"import-{self.digest}-{shown[:_NAME_AT_MOST].strip()}".rstrip("-")


def sessions_in(path: Path) -> Iterator[FileSession]:
    """The sessions of a file, one at a time (a JSON file is read as a whole, a JSONL file line by line). Raises
    `TrajectoryError` with the line or the index.
    """
    try:
        if path.suffix.lower() in (".jsonl", ".ndjson"):
            yield from _lines(path)
            return
        content = path.read_bytes()
    except OSError as error:
        raise TrajectoryError(f"{path} cannot be read: {error.strerror}") from error
    try:
        value = decode(content)
    except DamagedRecord as error:
        raise TrajectoryError(
            f"{path} is no JSON: {error.__cause__}. A file with one session on each line has to be called .jsonl"
        ) from error
    if isinstance(value, Mapping):
        yield _session(value, str(path))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield _session(one, f"{path} [{index}]")
    else:
        raise TrajectoryError(f"{path} holds neither a session nor a list of them")


def _lines(path: Path) -> Iterator[FileSession]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                value = decode(line)
            except DamagedRecord as error:
                raise TrajectoryError(f"{where} is no JSON: {error.__cause__}") from error
            yield _session(value, where)


def _session(value: Any, where: str) -> FileSession:
    try:
        found = msgspec.convert(value, FileSession)
    except msgspec.ValidationError as error:
        raise TrajectoryError(
            f"{where}: {error}. A session is an object with session_id and turns (docs/formats.md)"
        ) from error
    content = json.dumps({"session_id": value["session_id"], "turns": value["turns"]}, sort_keys=True)
    digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return msgspec.structs.replace(found, where=where, digest=digest)


def untrainable(turn: Turn) -> str:
    """The reason why a recorded turn must not be trained on, "" if it may be."""
    if turn.kind != "main":
        return "a side turn"
    if turn.status != "complete":
        return f"the answer is {turn.status}"
    return turn.untrainable or ("" if len(turn.response_ids) else "the answer holds no tokens of the policy")


def plain(turn: Turn, next_state: NextState | None) -> dict[str, Any]:
    """A recorded turn in the community's five fields. A prompt of one user message is its text, a longer one a
    transcript; reasoning and calls stand in the response as models of the Hermes kind write them.
    """
    return {
        "type": turn.kind,
        "prompt": prompt_text(turn.messages),
        "response": answer_text(turn.answer),
        "next_state": None if next_state is None else next_state.text,
        "trainable": not untrainable(turn),
    }


def lossless(
    turn: Turn,
    next_state: NextState | None,
    feedback: Sequence[Feedback],
    judgement: Judgement | None,
    *,
    tokens: bool = False,
) -> dict[str, Any]:
    """`plain` with everything that restores the turn: messages, tools and answer as a chat request has them, and
    feedback; for reading, the latest judgement, versions and sampling. With `tokens` the ids and logprobs too (lengths
    as in `Turn`).
    """
    found = plain(turn, next_state)
    if reason := untrainable(turn):
        found["reason"] = reason
    if next_state is not None:
        found["next_role"] = next_state.role
    found |= {
        "messages": [wire_message(message) for message in turn.messages],
        "tools": list(turn.tools),
        "answer": wire_message(turn.answer),
        "feedback": [{"score": one.score, "text": one.text} for one in feedback],
        "judgement": judgement and {name: getattr(judgement, name) for name in _JUDGEMENT},
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "episode": turn.episode,
        "status": turn.status,
        "finish_reason": turn.finish_reason,
        "sampling": msgspec.to_builtins(turn.sampling),
        "versions": [[span.version, span.start, span.end] for span in turn.versions],
        "time": turn.timings.arrived,
    }
    if tokens:
        found |= {name: list(getattr(turn, name)) for name in ("prompt_ids", "response_ids", "logprobs")}
    return found


def prompt_text(messages: Sequence[Message]) -> str:
    """The prompt, for reading."""
    if len(messages) == 1 and messages[0]["role"] == "user":
        return _words(messages[0])
    return "\n\n".join(
        f"{message['role']}: {answer_text(message) if message['role'] == 'assistant' else _words(message)}"
        for message in messages
    )


def answer_text(answer: Message) -> str:
    """The answer as text, reasoning and calls included."""
    reasoning = f"<think>\n{answer['reasoning']}\n</think>" if answer.get("reasoning") else ""
    calls = [
        "<tool_call>\n"
        + json.dumps({"name": call["name"], "arguments": call["arguments"]}, ensure_ascii=False)
        + "\n</tool_call>"
        for call in answer.get("tool_calls") or ()
    ]
    text = _words(answer)
    if not reasoning and not calls:
        return text
    return "\n\n".join(filter(None, [reasoning, "\n".join(filter(None, [text, *calls]))]))


def wire_message(message: Message) -> dict[str, Any]:
    """A canonical message as a chat request has it, so that `shared.messages.normalize` gives the same canonical one
    back."""
    sent: dict[str, Any] = {"role": message["role"], "content": message["content"]}
    if message.get("reasoning"):
        sent["reasoning_content"] = message["reasoning"]
    if calls := message.get("tool_calls"):
        functions = [{"name": call["name"], "arguments": arguments_text(call)} for call in calls]
        sent["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": function}
            for call, function in zip(calls, functions, strict=True)
        ]
    return sent | {field: message[field] for field in ("tool_call_id", "name") if field in message}


def _words(message: Message) -> str:
    content: str | list[dict[str, Any]] = message["content"]
    if isinstance(content, str):
        return content
    return text_of(message) + " [image]" * len([part for part in content if part["type"] != "text"])
