"""The `CustomLLM` that LiteLLM calls for the models `policy/NAME`."""

from __future__ import annotations

import functools
import importlib
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from .call import CHAT_MODEL
from .callback import LIVE, PROVIDER
from .library import litellm
from .request import Request

_KNOWN = {
    "litellm_provider": PROVIDER,
    "mode": "chat",
    "supports_mid_conversation_system": True,  # else system messages in the middle become the user's
}


def register() -> Any:
    """LiteLLM (to import it takes seconds of CPU) with our provider added. Raises `ModuleNotFoundError` where it, or
    `mcp`, is missing.
    """
    library = litellm()
    importlib.import_module("mcp")  # without it every call with tools fails
    if all(item["provider"] != PROVIDER for item in library.custom_provider_map):
        library.custom_provider_map.append({"provider": PROVIDER, "custom_handler": provider()})
    return library


@functools.cache
def provider() -> Any:
    """The only instance of our `CustomLLM`."""
    library = litellm()
    library.register_model({f"{PROVIDER}/{name}": _KNOWN for name in (CHAT_MODEL, LIVE, PROVIDER)})
    base = library.CustomLLM

    class PolicyLLM(base):  # type: ignore[misc, valid-type]
        """`litellm.CustomLLM` over a proxy's chat route."""

        def completion(self, *args: Any, **kwargs: Any) -> Any:
            request = Request.from_litellm(args, kwargs)
            with request.litellm_errors(), httpx.Client(verify=tls(), timeout=request.timeout) as client:
                return request.answer(client.post(**request.sent(stream=False)))

        def streaming(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            request = Request.from_litellm(args, kwargs)
            with (
                request.litellm_errors(),
                httpx.Client(verify=tls(), timeout=request.timeout) as client,
                client.stream("POST", **request.sent(stream=True)) as response,
            ):
                if response.status_code != 200:
                    response.read()
                request.check(response)
                for line in response.iter_lines():
                    yield from request.chunks(line)

        async def acompletion(self, *args: Any, **kwargs: Any) -> Any:
            request = Request.from_litellm(args, kwargs)
            with request.litellm_errors():
                async with httpx.AsyncClient(verify=tls(), timeout=request.timeout) as client:
                    return request.answer(await client.post(**request.sent(stream=False)))

        async def astreaming(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            request = Request.from_litellm(args, kwargs)
            with request.litellm_errors():
                async with (
                    httpx.AsyncClient(verify=tls(), timeout=request.timeout) as client,
                    client.stream("POST", **request.sent(stream=True)) as response,
                ):
                    if response.status_code != 200:
                        await response.aread()
                    request.check(response)
                    async for line in response.aiter_lines():
                        for chunk in request.chunks(line):
                            yield chunk

    return PolicyLLM()


@functools.cache
def tls() -> ssl.SSLContext:
    """One context for all requests: to make one takes longer than a request."""
    return httpx.create_ssl_context()
