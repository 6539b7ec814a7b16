"""A shell in memory: the few commands of the demonstrations, with the output that GNU's programs print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openclaw_rl.environments.agents.computer import EditRefused, edit_text, replaced
from openclaw_rl.environments.agents.results import Changes, command_text
from openclaw_rl.environments.tools.checks import MadeCall

SECONDS = 30.0


@dataclass
class Ran:
    """The result of a command."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0

    def fail(self, reason: str, code: int = 1) -> None:
        """Add a line to the errors."""
        self.stderr += f"{reason}\n"
        self.code = max(self.code, code)


@dataclass
class Shell:
    """A folder with files and folders, and the commands that change it."""

    files: dict[str, str]
    folders: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.files = dict(self.files)
        self.folders |= {path.partition("/")[0] for path in self.files if "/" in path}
        self._written: set[str] = set()

    def call(self, call: MadeCall) -> str:
        """The result of a call of `bash` or `edit`, as the agent reads it."""
        if call.name == "bash":
            before = self.files.copy()
            self._written = set()
            ran = self.run(call.arguments["command"])
            return command_text(ran.stdout + ran.stderr, ran.code, self._changes(before), SECONDS)
        path = call.arguments["path"]
        text = self.files.get(path)
        try:
            new = replaced(path, None if text is None else text.encode(), call.arguments["old"], call.arguments["new"])
        except EditRefused as error:
            return f"Error: {error}"
        self.files[path] = new.decode()
        return edit_text(path, is_new=text is None)

    def run(self, command: str) -> Ran:
        """Carry out one command, with `> FILE` at its end or without."""
        words, _, target = command.partition(" > ")
        name, *operands = [match for word in words.split() for match in self._matching(word)]
        if target in self.folders:
            return Ran("", f"bash: line 1: {target}: Is a directory\n", 1)
        if target:
            self._write(target, "")
        ran = Ran()
        getattr(self, f"_{name}")(ran, operands)
        if target:
            self._write(target, ran.stdout)
            ran.stdout = ""
        return ran

    def _matching(self, word: str) -> list[str]:
        names = {path.partition("/")[0] for path in self.files} | self.folders
        return sorted(names) if word == "*" else [word]

    def _write(self, path: str, text: str) -> None:
        self.files[path] = text
        self._written.add(path)

    def _changes(self, before: Mapping[str, str]) -> Changes:
        return Changes(
            new=tuple(sorted(self.files.keys() - before.keys())),
            changed=tuple(sorted(self._written & self.files.keys() & before.keys())),
            gone=tuple(sorted(before.keys() - self.files.keys())),
        )

    def _echo(self, ran: Ran, operands: list[str]) -> None:
        ran.stdout = f"{' '.join(operands)}\n"

    def _cat(self, ran: Ran, operands: list[str]) -> None:
        for path in operands:
            if path in self.files:
                ran.stdout += self.files[path]
            else:
                ran.fail(f"cat: {path}: {self._missing(path)}")

    def _ls(self, ran: Ran, operands: list[str]) -> None:
        ran.stdout = "".join(f"{name}\n" for name in self._matching("*"))

    def _sort(self, ran: Ran, operands: list[str]) -> None:
        [path] = operands
        if path in self.files:
            ran.stdout = "".join(f"{line}\n" for line in sorted(self.files[path].splitlines()))
        elif path in self.folders:
            ran.fail(f"sort: read failed: {path}: Is a directory", 2)
        else:
            ran.fail(f"sort: cannot read: {path}: No such file or directory", 2)

    def _grep(self, ran: Ran, operands: list[str]) -> None:
        option = operands.pop(0) if operands[0].startswith("-") else ""
        word, *paths = operands
        found = False
        for path in paths:
            if path not in self.files:
                ran.fail(f"grep: {path}: {self._missing(path)}", 2)
                continue
            lines = [line for line in self.files[path].splitlines() if word in line]
            found = found or bool(lines)
            before = f"{path}:" if len(paths) > 1 else ""
            if option == "-c":
                ran.stdout += f"{before}{len(lines)}\n"
            elif option == "-l":
                ran.stdout += f"{path}\n" if lines else ""
            else:
                ran.stdout += "".join(f"{before}{line}\n" for line in lines)
        if not found:
            ran.code = max(ran.code, 1)

    def _mv(self, ran: Ran, operands: list[str]) -> None:
        source, target = operands
        if source not in self.files and source not in self.folders:
            ran.fail(f"mv: cannot stat '{source}': No such file or directory")
        elif source in self.folders and target in self.files:
            ran.fail(f"mv: cannot overwrite non-directory '{target}' with directory '{source}'")
        elif source in self.folders:
            for path in [path for path in self.files if path.startswith(f"{source}/")]:
                self._write(target + path.removeprefix(source), self.files.pop(path))
            self.folders = self.folders - {source} | {target}
        else:
            self._write(self._into(source, target), self.files.pop(source))

    def _cp(self, ran: Ran, operands: list[str]) -> None:
        source, target = operands
        if source in self.folders:
            ran.fail(f"cp: -r not specified; omitting directory '{source}'")
        elif source not in self.files:
            ran.fail(f"cp: cannot stat '{source}': No such file or directory")
        else:
            self._write(self._into(source, target), self.files[source])

    def _rm(self, ran: Ran, operands: list[str]) -> None:
        for path in operands:
            if path in self.files:
                del self.files[path]
            else:
                ran.fail(f"rm: cannot remove '{path}': {self._missing(path)}")

    def _mkdir(self, ran: Ran, operands: list[str]) -> None:
        self.folders |= set(operands)

    def _touch(self, ran: Ran, operands: list[str]) -> None:
        for path in operands:
            if path not in self.folders:
                self._write(path, self.files.get(path, ""))

    def _into(self, source: str, target: str) -> str:
        return f"{target}/{source}" if target in self.folders else target

    def _missing(self, path: str) -> str:
        return "Is a directory" if path in self.folders else "No such file or directory"
