"""Where the provider `policy` runs in somebody's LiteLLM Proxy: where a deployment is, whose session a request belongs
to, and what its client is told beside the answer.

LiteLLM keeps nothing of a provider's response but the answer. What our proxy says beside it (the turn, the version,
`Retry-After`) comes by the callback instead, which notes it while the call runs. A stream's headers are sent before the
call: there the answer's id names the turn.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import httpx

from openclaw_rl.shared.errors import ConfigError

PROVIDER = "policy"
LIVE = "live"
"""`policy/live` is the policy that is served, whatever its name. (`policy/policy` works too, but not in Responses:
LiteLLM takes a model that is called like its provider for a provider without a model.)"""

TOLD_PREFIX = "x-openclaw-rl-"

_FORWARDED = ("x-session-id", "x-turn-type", "x-session-done", "x-rl-train", "x-stainless-retry-count", "traceparent")
_FORWARDED_PREFIX = "x-openclaw-"
_NAMES_A_SESSION = ("user", "session_id", "prompt_cache_key", "litellm_session_id")

_told: ContextVar[dict[str, str] | None] = ContextVar("policy_told", default=None)


def note(response: httpx.Response) -> None:
    """Keep what a response of our proxy says beside the answer, for the callback of the request that it belongs to."""
    told = _told.get()
    if told is not None:
        told.clear()  # a retry of LiteLLM's own: the last response counts
        told.update(
            {
                name: value
                for name, value in response.headers.items()
                if name.startswith(TOLD_PREFIX) or name == "retry-after"
            }
        )


def deployment(kwargs: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Base URL and headers for a call of LiteLLM's; session headers of its own client are passed on. Raises
    `ConfigError` where no URL is set.
    """
    url = kwargs.get("api_base") or os.environ.get("POLICY_API_BASE", "")
    if not url:
        raise ConfigError(
            "the provider 'policy' does not know where the policy is: set api_base in litellm_params, or "
            "POLICY_API_BASE, to the base URL of openclaw-rl (http://127.0.0.1:30000/v1)"
        )
    received = _received(kwargs).get("headers") or {}
    headers = {
        name.lower(): str(value)
        for name, value in {**received, **(kwargs.get("headers") or {})}.items()
        if name.lower() in _FORWARDED or name.lower().startswith(_FORWARDED_PREFIX)
    }
    key = kwargs.get("api_key") or os.environ.get("POLICY_API_KEY", "")
    if key:
        headers["authorization"] = f"Bearer {key}"
    return str(url), headers


def requested(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the body that a LiteLLM Proxy received and does not hand to providers, but that name a session."""
    body = _received(kwargs).get("body") or {}
    metadata = body.get("metadata")
    kept = {name: body[name] for name in _NAMES_A_SESSION if isinstance(body.get(name), str)}
    session = kept.pop("litellm_session_id", None)
    if session is not None:
        kept.setdefault("session_id", session)
    if isinstance(metadata, Mapping):
        kept["metadata"] = {name: value for name, value in metadata.items() if isinstance(value, str)}
    return kept


def _received(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    settings = kwargs.get("litellm_params") or {}
    received: Mapping[str, Any] = settings.get("proxy_server_request") or {}
    return received


@functools.cache
def callback() -> Any:
    """The `CustomLogger` instance for `litellm_settings.callbacks`; the attribute `policy_callback` of
    `shared.litellm.provider` is the same.
    """
    base = importlib.import_module("litellm.integrations.custom_logger").CustomLogger

    class PolicyCallback(base):  # type: ignore[misc, valid-type]
        """Passes on what our proxy says beside an answer or a refusal."""

        async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Any, call_type: Any) -> None:
            _told.set({})

        async def async_post_call_response_headers_hook(
            self, data: Any, user_api_key_dict: Any, response: Any, request_headers: Any = None
        ) -> dict[str, str] | None:
            return _told.get()

    return PolicyCallback()
