"""Programs in a terminal at which a test types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SECONDS = 120.0
_STYLE = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[=>()][0-9A-B]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_ENTER = b"\r"
_PASTE = b"\x1b[200~%b\x1b[201~"
_STILL_SECONDS = 0.5


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

    def paste(self, words: str) -> None:
        """Paste words and enter them, for programs that draw only what changes on their screen."""
        self.until(self._still, "a screen that does not change")
        before = len(self.shown)
        os.write(self._descriptor, _PASTE % words.encode())
        self.until(lambda: len(self.shown) > before, f"{words!r} as pasted")
        self.until(self._still, "a screen that does not change")
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

    def _still(self) -> bool:
        before = len(self.shown)
        time.sleep(_STILL_SECONDS)
        return len(self.shown) == before

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # its other end is closed
            while data := os.read(self._descriptor, 65536):
                self.shown += data


def _squeezed(text: str) -> str:
    """Text without the blanks, which terminals get as movements."""
    return "".join(text.split())


@contextmanager
def run_terminal(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Iterator[Terminal]:
    """A program in a terminal of its own, until the block ends."""
    child, descriptor = pty.fork()
    if child == 0:
        os.chdir(folder)
        try:
            os.execvpe(command[0], list(command), dict(variables))
        except OSError as error:  # the child must not continue as its parent
            print(f"{command[0]} cannot be started: {error}", flush=True)
            os._exit(127)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    terminal = Terminal(descriptor)
    try:
        yield terminal
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        terminal.close()
