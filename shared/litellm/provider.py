"""The policy as a LiteLLM provider: models called `policy/NAME`, answered by a proxy's chat route.

Two uses. Inside the proxy's family, the process that speaks the other dialects has LiteLLM's adapters call this
provider with a `Call` in the context (`shared.litellm.call`): it names the proxy, carries the client's headers and
parameters on, and brings back what LiteLLM rewrites (errors, `Retry-After`, usage) or loses (headers, the matched stop
string). In anybody's LiteLLM Proxy, `policy_llm` is the `custom_handler` of a `custom_provider_map` entry and
`policy_callback` one of its callbacks (`shared.litellm.deployment`); `api_base` (or `POLICY_API_BASE`) is then our base
URL and `api_key` (or `POLICY_API_KEY`) our key. Either way the tokens are captured beneath, in the proxy, and never
pass through LiteLLM.

LiteLLM takes seconds to import and is imported on first use only.
"""

from __future__ import annotations

import functools
import importlib
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.litellm.call import CHAT_MODEL
from openclaw_rl.shared.litellm.deployment import LIVE, PROVIDER, callback
from openclaw_rl.shared.litellm.library import litellm
from openclaw_rl.shared.litellm.request import Request

_KNOWN = {
    "litellm_provider": PROVIDER,
    "mode": "chat",
    "supports_mid_conversation_system": True,  # else system messages in the middle become the user's
}


def load() -> Any:
    """Import LiteLLM (seconds of CPU) and add our provider to it. Raises `ConfigError` when it is not installed."""
    try:
        library = litellm()
        importlib.import_module("mcp")  # without it every call with tools fails
    except ModuleNotFoundError as error:
        raise ConfigError(f"the dialects need the module {error.name!r}: pip install 'openclaw-rl[judge]'") from error
    if all(item["provider"] != PROVIDER for item in library.custom_provider_map):
        library.custom_provider_map.append({"provider": PROVIDER, "custom_handler": provider()})
    return library


@functools.cache
def provider() -> Any:
    """The `CustomLLM` instance; the attribute `policy_llm` of this module is the same."""
    library = litellm()
    library.register_model({f"{PROVIDER}/{name}": _KNOWN for name in (CHAT_MODEL, LIVE, PROVIDER)})
    base = library.CustomLLM

    class PolicyLLM(base):  # type: ignore[misc, valid-type]
        """`litellm.CustomLLM` over a proxy's chat route."""

        def completion(self, *args: Any, **kwargs: Any) -> Any:
            request = Request.of(args, kwargs)
            with request.explained(), httpx.Client(verify=tls(), timeout=request.timeout) as client:
                response = client.post(request.url, content=request.body(stream=False), headers=request.headers)
                return request.answer(response)

        def streaming(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            request = Request.of(args, kwargs)
            with (
                request.explained(),
                httpx.Client(verify=tls(), timeout=request.timeout) as client,
                client.stream(
                    "POST", request.url, content=request.body(stream=True), headers=request.headers
                ) as response,
            ):
                if response.status_code != 200:
                    response.read()
                request.check(response)
                for line in response.iter_lines():
                    yield from request.chunks(line)

        async def acompletion(self, *args: Any, **kwargs: Any) -> Any:
            request = Request.of(args, kwargs)
            with request.explained():
                async with httpx.AsyncClient(verify=tls(), timeout=request.timeout) as client:
                    response = await client.post(
                        request.url, content=request.body(stream=False), headers=request.headers
                    )
                return request.answer(response)

        async def astreaming(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            request = Request.of(args, kwargs)
            with request.explained():
                async with (
                    httpx.AsyncClient(verify=tls(), timeout=request.timeout) as client,
                    client.stream(
                        "POST", request.url, content=request.body(stream=True), headers=request.headers
                    ) as response,
                ):
                    if response.status_code != 200:
                        await response.aread()
                    request.check(response)
                    async for line in response.aiter_lines():
                        for chunk in request.chunks(line):
                            yield chunk

    return PolicyLLM()


def __getattr__(name: str) -> Any:
    if name == "policy_llm":
        return provider()
    if name == "policy_callback":
        return callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def tls() -> ssl.SSLContext:
    """One for all: making it takes longer than a request."""
    return httpx.create_ssl_context()
