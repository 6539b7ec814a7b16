"""The way of an agent to the policy: the address and the key of one attempt are all that it gets."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from openclaw_rl.environments.attempt import Endpoint

INSIDE = "http://127.0.0.1:30000"
"""The policy's address inside a bubblewrap sandbox."""


def connect(
    agent: str, ours: bool, endpoint: Endpoint, base: str, max_steps: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """The options and the variables by which an agent finds the policy: the key of the attempt and the address `base`.
    Variables are also those of the agent's commands, so agents that take options get no more.
    """
    if ours:
        return {"endpoint": to_builtins(endpoint), "max_steps": max_steps}, {}
    if agent in ("oracle", "nop"):
        return {}, {}
    if agent == "terminus-2":
        return {
            "api_base": base,
            "llm_kwargs": {"api_key": endpoint.api_key},
            "model_info": {"max_input_tokens": 32_768, "max_output_tokens": 4_096},
            "record_terminal_session": False,
            "max_turns": max_steps,
        }, {}
    root = base.removesuffix("/v1")
    key = endpoint.api_key
    return {}, {
        "OPENAI_API_KEY": key,
        "OPENAI_BASE_URL": base,
        "OPENAI_API_BASE": base,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_BASE_URL": root,
    }
