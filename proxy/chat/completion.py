"""OpenAI's `chat.completion` object, for answers that are sent in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openclaw_rl.proxy.chat.turn import ChatTurn
from openclaw_rl.shared.messages.answer import Answer


def completion(turns: Sequence[ChatTurn], answers: Sequence[Answer]) -> dict[str, Any]:
    """All answers to a request, under the id of the first turn."""
    turn = turns[0]
    return {
        "id": completion_id(turn.turn_id),
        "object": "chat.completion",
        "created": int(turn.request.arrived),
        "model": turn.request.parameters.model,
        "system_fingerprint": fingerprint(turn.policy.version),
        "choices": [
            _choice(one, answer, index) for index, (one, answer) in enumerate(zip(turns, answers, strict=True))
        ],
        "usage": total_usage(turns),
    }


def completion_id(turn_id: str) -> str:
    """The id that clients see: `chatcmpl-` and the digits of the turn's."""
    return "chatcmpl-" + turn_id.removeprefix("turn_")


def fingerprint(version: int) -> str:
    """OpenAI's `system_fingerprint`: the version of the policy that answered."""
    return f"version-{version}" if version >= 0 else ""


def total_usage(turns: Sequence[ChatTurn]) -> dict[str, Any]:
    """OpenAI's usage of all answers to a request: the prompt counts once."""
    usage = turns[0].usage()
    if len(turns) > 1:
        usage["completion_tokens"] = sum(turn.usage()["completion_tokens"] for turn in turns)
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    return usage


def _choice(turn: ChatTurn, answer: Answer, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["content"] = answer.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    logprobs = turn.policy.openai_logprobs(0)
    choice = {
        "index": index,
        "message": message,
        "logprobs": None if logprobs is None else {"content": logprobs, "refusal": None},
        "finish_reason": answer.finish_reason,
    }
    if turn.policy.stop_matched is not None:
        choice["stop_reason"] = turn.policy.stop_matched
    return choice
