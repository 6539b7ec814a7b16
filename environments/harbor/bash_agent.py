"""Our tool loop with the tools `bash` and `edit` as a Harbor agent."""

from __future__ import annotations

from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from openclaw_rl.environments.agents.computer import Computer
from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.harbor.host_agent import HostAgent, executor
from openclaw_rl.environments.steps import ToolLoop


class BashAgent(HostAgent):
    """The tool loop with the tools `bash` and `edit`. Its settings go into every request (`temperature`)."""

    @staticmethod
    def name() -> str:
        """Its name in Harbor's records."""
        return "bash"

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Let the policy work until it answers without a call, or has no step left."""
        loop = ToolLoop(
            lambda: Computer(executor(environment)), max_steps=self.max_steps, sampling=self.settings or None
        )
        attempt = await loop.run(Task(id="task", prompt=instruction.strip()), self.endpoint)
        context.metadata = {"steps": attempt.steps, "unread": attempt.next_state, "end": attempt.detail.get("end")}
