"""OpenAI's Agents SDK for Python: an agent with a tool, and another agent as a tool."""

from __future__ import annotations

from collections.abc import Iterator

from tests.real.clients.client import SUBAGENT, Library, Pip
from tests.real.clients.tap import Exchange


def program(url: str, key: str, words: Iterator[str]) -> Iterator[str]:
    """Hold a conversation over Responses."""
    from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(base_url=url, api_key=key))

    @function_tool
    def read_file(path: str) -> str:
        """Read a file."""
        with open(path) as file:
            return file.read()

    helper = Agent("Helper", instructions="You are a helper of another agent.", model="policy")
    tools = [read_file, helper.as_tool("ask_helper_agent", "Have a helper do something.")]
    agent = Agent("Gardener", instructions="You are a gardener.", tools=tools, model="policy")
    heard = []
    for said in words:
        done = Runner.run_sync(agent, [*heard, {"role": "user", "content": said}])
        heard = done.to_input_list()
        yield done.final_output


class OpenAIAgents(Library):
    """The agent over Responses."""

    name = "openai_agents"
    packages = Pip("openai-agents==0.24.0")
    features = frozenset({"helper"})
    program = staticmethod(program)

    def purpose(self, exchange: Exchange) -> str:
        """Tell the helper by its instructions."""
        return SUBAGENT if "You are a helper of another agent." in exchange.system else ""
