"""LangChain and LangGraph: an agent with a tool and the middleware that summarizes its conversation."""

from __future__ import annotations

from collections.abc import Iterator

from tests.real.clients.client import UTILITY, Library, Pip
from tests.real.clients.tap import Exchange


def program(url: str, key: str, words: Iterator[str]) -> Iterator[str]:
    """Hold a conversation; it is summarized once it has more than a few messages."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import SummarizationMiddleware
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver

    def read(path: str) -> str:
        """Read a file."""
        with open(path) as file:
            return file.read()

    model = ChatOpenAI(model="policy", base_url=url, api_key=key)
    middleware = [SummarizationMiddleware(model=model, trigger=("messages", 7), keep=("messages", 3))]
    agent = create_agent(model, [read], middleware=middleware, checkpointer=InMemorySaver())
    for said in words:
        answer = agent.invoke({"messages": [("user", said)]}, {"configurable": {"thread_id": "1"}})
        yield answer["messages"][-1].content


class LangGraph(Library):
    """The agent over chat."""

    name = "langgraph"
    packages = Pip("langgraph==1.2.24", "langchain==1.5.2", "langchain-openai==1.7.4")
    program = staticmethod(program)

    def purpose(self, exchange: Exchange) -> str:
        """Tell its summaries by their prompt."""
        return UTILITY if "Context Extraction Assistant" in exchange.newest + exchange.system else ""
