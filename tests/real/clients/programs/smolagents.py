"""smolagents: its CodeAgent, which writes calls as Python code into its answers."""

from __future__ import annotations

from collections.abc import Iterator

from tests.real.clients.client import Library, Pip


def program(url: str, key: str, words: Iterator[str]) -> Iterator[str]:
    """Hold a conversation."""
    from smolagents import CodeAgent, OpenAIModel, tool

    @tool
    def read(path: str) -> str:
        """Read a file.

        Args:
            path: The path of the file.
        """
        with open(path) as file:
            return file.read()

    agent = CodeAgent([read], OpenAIModel("policy", api_base=url, api_key=key), max_steps=4, verbosity_level=0)
    for number, said in enumerate(words):
        yield agent.run(said, reset=number == 0)


class CodeAgent(Library):
    """The agent over chat."""

    name = "smolagents"
    packages = Pip("smolagents[openai]==1.26.0")
    program = staticmethod(program)

    @staticmethod
    def wording(sentence: str, command: str) -> str:
        """An answer as its prompt asks for it."""
        call = f"print(read({command.removeprefix('cat ')!r}))" if command else f"final_answer({sentence!r})"
        return f"Thought: I know what to do.\n<code>\n{call}\n</code>"
