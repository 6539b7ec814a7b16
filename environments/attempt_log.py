"""The attempts of a run as a JSONL file, from which a run that was killed continues.

A line is written when an attempt begins, when it has ended, and when the service has acknowledged its outcome. An
outcome is in the file before it is posted, and posting it again changes nothing, so none is lost and none counts twice.
"""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.environments.attempt import Attempt, Status
from openclaw_rl.shared.errors import ConfigError


class Member(msgspec.Struct, frozen=True):
    """One place in a run: attempt `number` (from 0) at the task `task`, in the group `group` (an attempt that is alone
    has a group of its own here).
    """

    group: str
    number: int
    task: str


class RunLine(msgspec.Struct, frozen=True, tag_field="event", tag="run"):
    """The first line: the name of the run, and what a run that continues it must have in common with it."""

    run: str
    options: dict[str, Any]


class BegunLine(msgspec.Struct, frozen=True, tag_field="event", tag="begun"):
    """An attempt begins in the session `session`."""

    session: str
    member: Member


class EndedLine(msgspec.Struct, frozen=True, tag_field="event", tag="ended"):
    """An attempt ended. `last`: it is the result of its member; else the member is tried again in another session."""

    session: str
    member: Member
    last: bool
    reward: float | None
    status: Status
    detail: dict[str, Any]
    next_state: str
    steps: int
    seconds: float

    @classmethod
    def from_attempt(cls, session: str, member: Member, attempt: Attempt, *, last: bool) -> EndedLine:
        """The line of an attempt."""
        return cls(session, member, last, **msgspec.structs.asdict(attempt))


class PostedLine(msgspec.Struct, frozen=True, tag_field="event", tag="posted"):
    """The service has acknowledged the outcome of `session`."""

    session: str


Line = RunLine | BegunLine | EndedLine | PostedLine
_DECODER = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


class AttemptLog:
    """The file of one run, held by one process at a time. Use as a context manager.

    `results` are the last attempts of the members, by member; `finished` counts them by group.
    """

    def __init__(self, path: Path, run: str, options: dict[str, Any], *, resume: bool = False) -> None:
        """Begin a run called `run`, or continue the one in `path`, whose name then counts.

        Raises `ConfigError` for a file that is in use or holds something else, for a run with other options, and for a
        run that is there without `resume`.
        """
        self.path = path
        self.run = run
        self.results: dict[Member, EndedLine] = {}
        self.finished: Counter[str] = Counter()
        self._sessions: dict[Member, list[str]] = {}
        self._unposted: dict[str, EndedLine | None] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            self._hold()
            self._read(options, resume)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> AttemptLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _hold(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"{self.path} is in use by another run; end that one, or name another file") from error

    def _read(self, options: dict[str, Any], resume: bool) -> None:
        lines = list(self._lines())
        if not lines:
            self._write(RunLine(self.run, options))
            return
        if not resume:
            raise ConfigError(f"{self.path} holds a run; add --resume to continue it, or name another file")
        first = lines[0]
        if not isinstance(first, RunLine):
            raise ConfigError(f"{self.path} does not begin with the line of a run; name another file")
        for name in sorted(first.options.keys() | options.keys()):
            old, new = first.options.get(name), options.get(name)
            if old != new:
                raise ConfigError(
                    f"{self.path} was begun with {name} = {old}, and this run has {new}: it cannot continue that one"
                )
        self.run = first.run
        for line in lines[1:]:
            self._apply(line)

    def _lines(self) -> Iterator[Line]:
        """The lines of the file; a last one that was not written completely is cut off."""
        self._file.seek(0)
        good = 0
        for number, text in enumerate(self._file, start=1):
            try:
                line = _DECODER.decode(text)
            except msgspec.DecodeError as error:
                if text.endswith(b"\n"):
                    raise ConfigError(f"{self.path}:{number} is no line of a run: {error}") from error
                break
            if not text.endswith(b"\n"):
                break
            good += len(text)
            yield line
        self._file.truncate(good)

    def _apply(self, line: Line) -> None:
        if isinstance(line, BegunLine):
            self._sessions.setdefault(line.member, []).append(line.session)
            self._unposted[line.session] = None
        elif isinstance(line, EndedLine):
            self._unposted[line.session] = line
            if line.last:
                self.results[line.member] = line
                self.finished[line.member.group] += 1
        elif isinstance(line, PostedLine):
            self._unposted.pop(line.session, None)

    def add(self, line: Line) -> None:
        """Append a line; it survives the end of this process."""
        self._write(line)
        self._apply(line)

    def _write(self, line: Line) -> None:
        self._file.write(_ENCODER.encode(line) + b"\n")
        self._file.flush()

    def session_id(self, member: Member) -> str:
        """The id of the member's next session: each try has its own."""
        tries = len(self._sessions.get(member, ()))
        return f"{self.run}.{member.group}.{member.number}" + (f".retry-{tries}" if tries else "")

    def is_posted(self, session: str) -> bool:
        """True if the outcome of a session that began is acknowledged."""
        return session not in self._unposted

    def unposted(self, member: Member) -> list[tuple[str, EndedLine | None]]:
        """The member's sessions without an acknowledged outcome, the last one first; `None` for one that did not end,
        for its runner was killed.
        """
        sessions = reversed(self._sessions.get(member, []))
        return [(session, self._unposted[session]) for session in sessions if session in self._unposted]
