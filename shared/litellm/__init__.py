"""The policy as a LiteLLM provider: models called `policy/NAME`, answered by the chat route of our proxy.

The package is used in two places, and imports nothing of ours, so that it can be in both:

- Our proxy's dialect process has LiteLLM's adapters call the provider with a `LiteLLMCall` in the context (`call`).
  The call names the proxy, passes the client's headers and parameters on, and brings back what LiteLLM rewrites
  (errors, `Retry-After`, usage) or loses (headers, the matched stop string).
- `integrations/litellm` is a distribution of its own that holds the same files as `openclaw_rl_litellm`. A LiteLLM
  Proxy loads `policy_llm` as the `custom_handler` of a `custom_provider_map` entry and `policy_callback` as one of its
  callbacks (`callback`); `api_base` (or `POLICY_API_BASE`) is our base URL and `api_key` (or `POLICY_API_KEY`) our key.

Either way our proxy captures the tokens; they never pass through LiteLLM. LiteLLM takes seconds to import and is
imported on first use only.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "policy_llm":
        from .provider import provider

        return provider()
    if name == "policy_callback":
        from .callback import callback

        return callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
