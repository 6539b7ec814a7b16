"""Runs the real Claude Code against a running service: headless, or in a terminal at which the test types.

It is configured as docs/clients.md says. Nothing of it reaches the network beyond this machine: its proxy is a closed
port.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import Proxy
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import output_of
from tests.rigs.terminal import Terminal, run_terminal

SECONDS = 120.0
NO_EXTRA_CALLS = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
"""Switches off its requests beyond the conversation: titles, suggestions, telemetry, updates."""


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
        with run_terminal([self.program], self.work, self.variables) as terminal:
            terminal.until(lambda: "for agents" in terminal.text() or "for shortcuts" in terminal.text(), "a prompt")
            yield terminal
