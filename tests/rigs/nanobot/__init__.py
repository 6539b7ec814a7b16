"""Runs the real nanobot, a personal agent of one process, with a configuration of its own."""

from __future__ import annotations

from pathlib import Path

from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import output_of

SECONDS = 120.0


class Nanobot:
    """The program in a home of its own. `configuration` is its file, which its own set-up made."""

    def __init__(self, home: Path) -> None:
        """Skips the test where its environment is not there."""
        self._program = str(environment("nanobot") / "bin" / "nanobot")
        self._home = home
        self.configuration = home / ".nanobot" / "config.json"
        self.variables = clean_environment(home, NO_COLOR="1", TERM="dumb")
        self.run("onboard")

    def run(self, *arguments: str) -> str:
        """Run one of its commands and return the output."""
        return output_of([self._program, *arguments], self._home, self.variables, SECONDS)

    def ask(self, words: str, session: str = "cli:direct") -> str:
        """Return its answer to a person, in a session."""
        return self.run("agent", "--message", words, "--session", session, "--no-markdown")
