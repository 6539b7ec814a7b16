"""The log lines of all processes: plain, or one JSON object each with the ids of what a line is about, so that the
lines of one turn can be joined over proxy, engine and learner.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

import msgspec

LogFormat = Literal["plain", "json"]

VARIABLE = "OPENCLAW_RL_LOG_FORMAT"
"""The setting `log_format` in the environment, which processes without settings read."""

PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"
ENGINE_PLAIN = "%(asctime)s %(name)s %(levelname)s %(message)s"

_NONE: Mapping[str, str] = MappingProxyType({})
_IDS: ContextVar[Mapping[str, str]] = ContextVar("ids of the log", default=_NONE)
_TURN = re.compile(r"\bturn_[0-9a-f]{32}\b")
_SESSION = re.compile(r"\b(?:session|side)_[0-9a-f]{32}\b")
_VERSION = re.compile(r"\bversion (\d+)\b")


def set_log_ids(**ids: str) -> None:
    """Name what the further lines of this task, and of those that it starts, are about: `turn`, `session`."""
    _IDS.set({**_IDS.get(), **ids})


def get_log_ids() -> Mapping[str, str]:
    """Ids of what this task's lines are about."""
    return _IDS.get()


def configure_logs(process: str, level: str, *, form: str = "", plain: str = PLAIN) -> None:
    """Write the lines of this process, a `proxy`, `engine`, `learner`…, to stderr; `form` is by default that in the
    environment. The processes that it starts inherit it.
    """
    form = form or os.environ.get(VARIABLE, "plain")
    os.environ[VARIABLE] = form
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process) if form == "json" else PlainLines(plain))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class PlainLines(logging.Formatter):
    """A line with the turn that it is about at its end, unless it names one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a traceback."""
        line, turn = super().formatMessage(record), _IDS.get().get("turn")
        return line if turn is None or _TURN.search(record.message) else f"{line} [{turn}]"


class JsonLines(logging.Formatter):
    """A JSON object a line: `time` (UTC), `level`, `process`, `logger`, `message`; `turn`, `session` and `version`
    where the line is about one; `exception`, a traceback.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        message = record.getMessage()
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": _encodable(message),
            **_IDS.get(),
            **_named_in(message),
        }
        if record.exc_info:
            fields["exception"] = _encodable(self.formatException(record.exc_info))
        return msgspec.json.encode(fields).decode()


def readable(line: str) -> str:
    """A line of any process for a person: JSON as a plain one would be, without its time."""
    if not line.startswith('{"time":'):
        return line
    try:
        fields = msgspec.json.decode(line)
        return f"{fields['level']} {fields['logger']}: {fields['message']}"
    except (msgspec.DecodeError, KeyError, TypeError):
        return line


def _named_in(message: str) -> dict[str, Any]:
    """The ids that a message names first."""
    found: dict[str, Any] = {}
    if turn := _TURN.search(message):
        found["turn"] = turn[0]
    if session := _SESSION.search(message):
        found["session"] = session[0]
    if version := _VERSION.search(message):
        found["version"] = int(version[1])
    return found


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
