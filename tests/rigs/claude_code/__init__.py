"""Runs the real Claude Code against a running service: headless, or in a terminal at which the test types.

It is configured as docs/clients.md says. Nothing of it reaches the network beyond this machine: its proxy is a closed
port.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import Proxy
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import output_of

SECONDS = 120.0
NO_EXTRA_CALLS = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
"""Switches off its requests beyond the conversation: titles, suggestions, telemetry, updates."""
_STYLE = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[=>()][0-9A-B]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_ENTER = b"\r"


class ClaudeCode:
    """The program with a home of its own; `work` is the folder that it works in."""

    def __init__(self, service: Proxy, folder: Path) -> None:
        """Skips the test where its environment is not there."""
        programs = environment("claude_code") / "node_modules" / "@anthropic-ai"
        found = [path for path in sorted(programs.glob("claude-code-*/claude")) if "musl" not in str(path)]
        assert found, f"no program for this machine in {programs}"
        self.program = str(found[0])
        self.work = (folder / "work").resolve()
        self.work.mkdir(parents=True)
        self.variables = clean_environment(
            folder,
            ANTHROPIC_BASE_URL=service.url,
            ANTHROPIC_AUTH_TOKEN=service.key,
            DISABLE_TELEMETRY="1",
            DISABLE_ERROR_REPORTING="1",
            DISABLE_AUTOUPDATER="1",
            HTTPS_PROXY="http://127.0.0.1:9",
            NO_PROXY="127.0.0.1",
            TERM="xterm-256color",
        )
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"):
            self.variables.pop(name, None)
        known = {"hasCompletedOnboarding": True, "projects": {str(self.work): {"hasTrustDialogAccepted": True}}}
        (folder / ".claude.json").write_text(json.dumps(known))

    def ask(self, words: str, *options: str) -> Any:
        """Run one task without questions, and return the report."""
        command = [self.program, "-p", words, "--output-format", "json", *options, "--allowedTools", "Read Bash Agent"]
        report = json.loads(output_of(command, self.work, self.variables | NO_EXTRA_CALLS, SECONDS))
        assert not report["is_error"], report
        return report

    @contextmanager
    def terminal(self) -> Iterator[Terminal]:
        """It, waiting for words in a terminal, until the block ends."""
        child, descriptor = pty.fork()
        if child == 0:
            os.chdir(self.work)
            os.execve(self.program, ["claude"], self.variables)
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        terminal = Terminal(descriptor)
        try:
            terminal.until(lambda: "for agents" in terminal.text() or "for shortcuts" in terminal.text(), "a prompt")
            yield terminal
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            terminal.close()


class Terminal:
    """A program's screen in a terminal, and its keyboard."""

    def __init__(self, descriptor: int) -> None:
        self.shown = b""
        self._descriptor = descriptor
        self._reader = threading.Thread(target=self._read, name="terminal")
        self._reader.start()

    def say(self, words: str) -> None:
        """Type words and enter them, once they are shown (faster is taken for pasted text)."""
        before = self.letters().count(_squeezed(words))
        os.write(self._descriptor, words.encode())
        self.until(lambda: self.letters().count(_squeezed(words)) > before, f"{words!r} as typed")
        os.write(self._descriptor, _ENTER)

    def text(self) -> str:
        """All that was shown so far, without its styles."""
        return _STYLE.sub(b" ", self.shown).decode("utf-8", "replace")

    def letters(self) -> str:
        """All that was shown so far, without styles and blanks."""
        return _squeezed(self.text())

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Poll until something is so."""
        deadline = time.monotonic() + SECONDS
        while not true():
            assert time.monotonic() < deadline, f"not within {SECONDS:.0f} s: {what}\n{self.text()[-3000:]}"
            time.sleep(0.05)

    def close(self) -> None:
        """To be called when the program has ended."""
        self._reader.join()
        os.close(self._descriptor)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # its other end is closed
            while data := os.read(self._descriptor, 65536):
                self.shown += data


def _squeezed(text: str) -> str:
    """Text without the blanks, which terminals get as movements."""
    return "".join(text.split())
