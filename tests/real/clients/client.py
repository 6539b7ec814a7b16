"""A client as the bench drives it: one file in `programs` is one client, a subclass of these classes.

A client says how it is installed, its configuration, how a person talks to it, and by its own words which of its
requests are for itself (`UTILITY`) or a sub-agent's (`SUBAGENT`); the rest are its conversation's own.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

from openclaw_rl.cli.connect.clients import CLIENTS
from tests.processes import ROOT
from tests.real.clients.packages import Npm, Packages, Pip, Rig, node_in
from tests.real.clients.tap import Exchange, Tap
from tests.rigs.environments import clean_environment
from tests.rigs.programs import output_of
from tests.rigs.terminal import Terminal, run_terminal

UTILITY = "utility"
SUBAGENT = "subagent"
SECONDS = 120.0
"""For the answer to one message of a person."""


@dataclass
class Site:
    """The place of a client: its `home`, the folder that it works in, its environment, the address and key of the
    service, and a tap that sees its requests.
    """

    home: Path
    installed: Path
    tap: Tap
    key: str
    variables: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    """Further flags for the next messages."""
    session: str = ""

    @property
    def work(self) -> Path:
        """The folder that it works in."""
        return self.home / "work"

    @property
    def url(self) -> str:
        """The base URL of the OpenAI dialects."""
        return self.tap.url + "/v1"

    @property
    def service(self) -> SimpleNamespace:
        """The service behind the tap, as rigs take it."""
        return SimpleNamespace(url=self.tap.url, key=self.key)

    def environment(self, **changes: str) -> dict[str, str]:
        """Variables for a program of it: nothing beyond this machine can be reached."""
        path = f"{self.installed}/bin:{self.installed}/node_modules/.bin:{Path(node_in(self.installed)).parent}"
        away = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost", "TERM": "xterm-256color"}
        known = clean_environment(self.home, PATH=f"{path}:{os.environ.get('PATH', '')}", **away)
        return known | self.variables | changes


def connect(site: Site, name: str) -> str:
    """Have `openclaw-rl connect` write a client's configuration in its home; returns what it printed."""
    options = ["--url", site.tap.url, "--key", site.key, *(["--yes"] if name in CLIENTS else [])]
    command = [sys.executable, "-m", "openclaw_rl.cli.main", "connect", name, *options]
    return output_of(command, ROOT, site.environment(), SECONDS)


def recipe(site: Site, name: str) -> str:
    """The lines of a file that `openclaw-rl connect` prints for a client whose configuration it does not write."""
    lines = [line for line in connect(site, name).splitlines() if line.startswith("  ") or not line]
    return textwrap.dedent("\n".join(lines))


class Client:
    """A client. `features` are those of `compact` and `helper` that it has. `environment` names its environment, if
    that is another client's.
    """

    name: ClassVar[str]
    packages: ClassVar[Packages]
    environment: ClassVar[str] = ""
    talks: ClassVar[bool] = True
    """False for a program that works on a task, and hears nothing after it."""
    features: ClassVar[frozenset[str]] = frozenset()
    wording: ClassVar[Callable[[str, str], str] | None] = None
    """The form of its answers, where it reads them from the text (see `scripted_engine`)."""

    @property
    def version(self) -> str:
        """Its version."""
        return self.packages.version

    def install(self) -> Path:
        """The folder of its environment. Raises `Unavailable`."""
        return self.packages.install(self.environment or self.name)

    def configure(self, site: Site) -> None:
        """Write its configuration for the service."""

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Yield once, for a conversation, what sends a person's words and returns after the answer."""
        raise NotImplementedError

    def compact(self, site: Site, say: Callable[[str], object]) -> None:
        """Have the conversation compacted."""
        say("/compact")

    def purpose(self, exchange: Exchange) -> str:
        """`UTILITY`, `SUBAGENT` or "" for a request, by what this client's own prompt says."""
        return ""


class Library(Client):
    """A library: the subclass's file has a generator function `program(url, key, words)`, which is run in the
    environment, hears a person's messages and yields the answers.
    """

    program: ClassVar[Callable[[str, str, Iterator[str]], Iterator[str]]]

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Run the program with messages on its standard input."""
        script = site.home / "program.py"
        source = inspect.getsource(inspect.unwrap(type(self).program))
        script.write_text(_RUNNER.format(source=source, name=type(self).program.__name__))
        command = [str(site.installed / "bin" / "python"), str(script), site.url, site.key]
        yield from _lines(command, site)


_RUNNER = """from __future__ import annotations
import json, sys
{source}
def _heard():
    for line in sys.stdin:
        yield json.loads(line)
for _answer in {name}(sys.argv[1], sys.argv[2], _heard()):
    print("ANSWER " + json.dumps(str(_answer)), flush=True)
"""


class NodeLibrary(Client):
    """The same in JavaScript: `program` is the source of a module that exports `async function* program(url, key,
    words)`.
    """

    program: ClassVar[str]

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Run the module with messages on its standard input."""
        script = site.installed / f"program-{type(self).__name__}.mjs"
        script.write_text(self.program + _NODE_RUNNER)
        yield from _lines([node_in(site.installed), str(script), site.url, site.key], site)


_NODE_RUNNER = """
import { createInterface } from "node:readline";
async function* heard() {
  for await (const line of createInterface({ input: process.stdin })) yield JSON.parse(line);
}
for await (const answer of program(process.argv[2], process.argv[3], heard()))
  console.log("ANSWER " + JSON.stringify(answer));
"""


def _lines(command: list[str], site: Site) -> Iterator[Callable[[str], str]]:
    log = site.home / "program.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            cwd=site.work,
            env=site.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:

        def say(words: str) -> str:
            process.stdin.write(json.dumps(words) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("ANSWER "):
                    return json.loads(line.removeprefix("ANSWER "))
            raise RuntimeError(f"the program ended:\n{log.read_text()[-3000:]}")

        yield say
        process.stdin.close()
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Command(Client):
    """A command that is run once for each message: `command(site, words, again)` is its line, `again` true for a
    conversation that continues.
    """

    def command(self, site: Site, words: str, again: bool) -> list[str]:
        """Its command line."""
        raise NotImplementedError

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Run it for each message."""
        again = False

        def say(words: str) -> str:
            nonlocal again
            command = self.command(site, words, again)
            output = output_of(command, site.work, site.environment(), SECONDS)
            if not again:
                site.session = self.session(output)
            again = True
            return output

        yield say

    def session(self, output: str) -> str:
        """Find the session's name in the output of its first message, for clients that need it."""
        return ""


class Screen(Client):
    """A program in a terminal: `command(site)` starts it, and `ready` is on its screen once it takes words. `pastes`:
    words are pasted, because it does not draw all of them as they are typed.
    """

    ready: ClassVar[str]
    pastes: ClassVar[bool] = False

    def command(self, site: Site) -> list[str]:
        """Its command line."""
        raise NotImplementedError

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Type each message, and wait until it has had answers and is quiet."""
        with self._running(site) as terminal:

            def say(words: str) -> None:
                before = len(site.tap.exchanges)
                (terminal.paste if self.pastes else terminal.say)(words)
                site.tap.settle(before, SECONDS)

            yield say

    @contextmanager
    def _running(self, site: Site) -> Iterator[Terminal]:
        with run_terminal(self.command(site), site.work, site.environment()) as terminal:
            try:
                terminal.until(lambda: self.ready in terminal.letters(), f"{self.ready!r} on the screen")
                yield terminal
            finally:
                (site.home / "screen.log").write_text(terminal.text())


__all__ = [
    "SUBAGENT",
    "UTILITY",
    "Client",
    "Command",
    "Library",
    "NodeLibrary",
    "Npm",
    "Pip",
    "Rig",
    "Screen",
    "Site",
    "connect",
    "recipe",
]
