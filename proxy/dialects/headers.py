"""Headers and ids that the proxy, its adapter process and the clients of the dialects share."""

from __future__ import annotations

import re

TURN_HEADER = "x-openclaw-rl-turn"
PROMPT_HEADER = "x-openclaw-rl-prompt-tokens"
KEPT_HEADER = "x-openclaw-rl-kept"
"""Says that a turn is recorded: its answer can be named by its id."""
LEFT_OUT_HEADER = "x-openclaw-rl-tools-left-out"
"""The types of the tools that were not offered to the policy, as they would run on a server."""
CHAT_HEADER = "x-openclaw-rl-chat"
"""The address of the chat route, from the proxy to the adapter process."""
MARK_HEADER = "x-openclaw-rl-dialect"
"""`SECRET DIALECT`, from the proxy to the adapter process and back; ignored without the proxy's secret."""
ROUTED_HEADER = "x-openclaw-rl-routed"
"""Marks requests to other models: a service of ours that receives it asks no further model, so none goes in circles."""
OTHER_PATH = "/other"
"""The path at which the adapter process asks other models."""

READY = b"ready\n"
"""The adapter process writes this to stdout once it takes requests."""

ANSWER_PREFIX = re.compile(r"\A(?:turn_|chatcmpl-|resp_|msg_)")


def turn_digits(identity: str) -> str:
    """The part that the ids of a turn, and of its answer in every dialect, have in common."""
    return ANSWER_PREFIX.sub("", identity)
