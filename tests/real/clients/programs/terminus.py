"""Harbor's Terminus-2: commands for a terminal as JSON in its answers, over chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.real.clients.client import Client, Rig, Site
from tests.rigs.terminus import run_terminus


class Terminus(Client):
    """The agent on a task."""

    name = "terminus"
    packages = Rig("harbor", "harbor")
    talks = False

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Run a task."""
        yield lambda words: run_terminus(site.service, site.home, words)

    @staticmethod
    def wording(sentence: str, command: str) -> str:
        """An answer as its prompt asks for it."""
        commands = [{"keystrokes": command + "\n", "duration": 0.5}] if command else []
        answer = {"analysis": sentence, "plan": "Continue.", "commands": commands, "task_complete": not command}
        return json.dumps(answer)
