"""What an environment says in the user's role: agents that write commands into their text (mini-swe-agent, Terminus-2,
SWE-agent) get the output back as a user message. It is a next state, but no person's reaction.
"""

from __future__ import annotations

_OPENINGS = (
    # mini-swe-agent
    "<returncode>",
    "<exception>",
    "Format error:\n\n<error>",
    "Tool call error:\n\n<error>",
    "Please always provide EXACTLY ONE action",
    "Your previous response reached the output token limit",
    # Terminus-2
    "New Terminal Output:",
    "Current Terminal Screen:",
    "Current terminal state:",
    "Previous response had warnings:",
    "Previous response had parsing errors:",
    "ERROR!! NONE of the actions",
    # SWE-agent, OpenHands
    "OBSERVATION:\n",
)


def is_observation(text: str) -> bool:
    """Whether a user message was written by the program that runs an agent's commands."""
    return text.startswith(_OPENINGS)
