"""mini-swe-agent: a task with its tool `bash`, over chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.real.clients.client import Client, Rig, Site
from tests.rigs.mini_swe_agent import run_mini

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class MiniSWEAgent(Client):
    """`mini` on a task."""

    name = "mini_swe_agent"
    packages = Rig("mini_swe_agent", "mini-swe-agent")
    talks = False

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Run a task."""

        def say(words: str) -> None:
            kind = {"model": "openai/policy", "settings": "mini.yaml", "model_class": "litellm"}
            trajectory = run_mini(site.service, site.home, words, **kind)
            assert trajectory["info"]["exit_status"] == "Submitted", trajectory["info"]

        yield say

    @staticmethod
    def wording(sentence: str, command: str) -> str:
        """The call that ends its work, as its prompt has it."""
        call = {"name": "bash", "arguments": {"command": command or SUBMIT}}
        return f"{sentence}\n<tool_call>\n{json.dumps(call)}\n</tool_call>"
