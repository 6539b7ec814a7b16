"""The provider in a LiteLLM Proxy: the deployment it calls, the session a request belongs to, and the headers that its
client gets.

LiteLLM keeps nothing of a provider's response but the answer. The headers of our proxy (the turn, the version,
`Retry-After`) reach the client by the callback, which remembers them during the call. LiteLLM sends a stream's headers
before the call: there the id of the answer names the turn.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import httpx

PROVIDER = "policy"
LIVE = "live"
"""`policy/live` is the policy that is served, under any name. (`policy/policy` works too, but not in Responses: LiteLLM
takes a model that is named like its provider for a provider without a model.)"""

HEADER_PREFIX = "x-openclaw-rl-"

_FORWARDED = ("x-session-id", "x-turn-type", "x-session-done", "x-rl-train", "x-stainless-retry-count", "traceparent")
_FORWARDED_PREFIX = "x-openclaw-"
_SESSION_FIELDS = ("user", "session_id", "prompt_cache_key", "litellm_session_id")

_response_headers: ContextVar[dict[str, str] | None] = ContextVar("policy_response_headers", default=None)


def remember_headers(response: httpx.Response) -> None:
    """Keep the headers of our proxy's response for the callback of the same request."""
    remembered = _response_headers.get()
    if remembered is not None:
        remembered.clear()  # LiteLLM may have retried: the last response counts
        remembered.update(
            {
                name: value
                for name, value in response.headers.items()
                if name.startswith(HEADER_PREFIX) or name == "retry-after"
            }
        )


def deployment(kwargs: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Base URL and headers for a call of LiteLLM's; session headers of its client are passed on. Raises `ValueError`
    where no URL is set.
    """
    url = kwargs.get("api_base") or os.environ.get("POLICY_API_BASE", "")
    if not url:
        raise ValueError(
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


def session_fields(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that name a session, out of the body that a LiteLLM Proxy received; it does not hand them to
    providers.
    """
    body = _received(kwargs).get("body") or {}
    metadata = body.get("metadata")
    kept = {name: body[name] for name in _SESSION_FIELDS if isinstance(body.get(name), str)}
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
    """The `CustomLogger` for `litellm_settings.callbacks`."""
    base = importlib.import_module("litellm.integrations.custom_logger").CustomLogger

    class PolicyCallback(base):  # type: ignore[misc, valid-type]
        """Adds the headers of our proxy to LiteLLM's response."""

        async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Any, call_type: Any) -> None:
            _response_headers.set({})

        async def async_post_call_response_headers_hook(
            self, data: Any, user_api_key_dict: Any, response: Any, request_headers: Any = None
        ) -> dict[str, str] | None:
            return _response_headers.get()

    return PolicyCallback()
