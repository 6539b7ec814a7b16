"""The provider entry of OpenClaw for this service, and a first request to send by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openclaw_rl.cli.client import Service
from openclaw_rl.shared.settings.settings import Settings

PROVIDER = "clawrl"

OUTPUT_TOKENS = 8192
"""Room for an answer that writes a file by a tool call."""
_PROMPT_TOKENS = (6_200, 14_200)
"""What OpenClaw 2026.9 sends before anyone has spoken, in tokens of SmolLM2: with five tools, and with all twelve."""


def provider_entry(settings: Settings, service: Service) -> dict[str, Any]:
    """The entry for `openclaw.json` (docs.openclaw.ai, custom providers), with the limits of the served model. Raises
    `ServiceError` if the service does not answer.

    The policy may think only if `thinking` is on and its template can.
    """
    model = service.get(f"/v1/models/{settings.serve.model_name}")
    context = int(model.get("context_length") or settings.engine.context_length)
    entry = {
        "id": settings.serve.model_name,
        "name": "RL policy",
        "reasoning": settings.serve.thinking and _can_think(settings.engine.tokenizer_path),
        "input": model.get("input_modalities", ["text"]),
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "maxTokens": output_limit(settings.serve.max_output_tokens, context),
    }
    if context:
        entry["contextWindow"] = context
    provider = {"baseUrl": f"{service.url}/v1", "apiKey": service.key, "api": "openai-completions", "models": [entry]}
    return {
        "models": {"mode": "merge", "providers": {PROVIDER: provider}},
        "agents": {"defaults": {"model": {"primary": f"{PROVIDER}/{settings.serve.model_name}"}}},
    }


def output_limit(most: int, context: int) -> int:
    """The limit of an answer for a client: `most` tokens (`max_output_tokens`), at least 8,192 where that is no more
    than half of the context, and never more than half of it (0: unknown).
    """
    if not context:
        return max(most, OUTPUT_TOKENS)
    return min(max(most, OUTPUT_TOKENS) if context >= 2 * OUTPUT_TOKENS else most, context // 2)


def context_note(model: Mapping[str, Any]) -> str:
    """A warning about an entry whose context OpenClaw's own prompt fills, "" where there is room."""
    context, (least, most) = int(model.get("contextWindow", 0)), _PROMPT_TOKENS
    if not 0 < context < most + model["maxTokens"]:
        return ""
    return (
        f"the context has {context:,} tokens. OpenClaw's instructions and tools take about {least:,} (five tools) "
        f"to {most:,} (all of them): a prompt that does not fit gets the error context_length_exceeded. Serve a model "
        'with a longer context, or set tools.profile to "minimal" and agents.defaults.contextInjection to "never" '
        "(docs/openclaw.md)"
    )


def curl_line(settings: Settings, url: str, key: str) -> str:
    """A first request, to paste into a shell, which may replace what stands for the key."""
    body = {
        "model": settings.serve.model_name,
        "stream": True,
        "messages": [{"role": "user", "content": "Tom has 3 apples and buys 4 more. How many apples does he have?"}],
    }
    return (
        f'curl -N {url}/v1/chat/completions -H "Authorization: Bearer {key}" '
        f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )


def _can_think(tokenizer: str) -> bool:
    """True if the model's template has a place for thoughts; for a hub name the setting decides."""
    folder = Path(tokenizer)
    if not folder.is_dir():
        return True
    files = (folder / "chat_template.jinja", folder / "tokenizer_config.json")
    return any("<think>" in file.read_text("utf-8") for file in files if file.is_file())
