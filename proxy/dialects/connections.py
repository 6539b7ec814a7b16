"""Connections to the adapter process: requests to its socket, and answers as they come.

Only `proxy.dialects.process` imports this module, once it starts the process: loading httpx takes as long as a third of
the proxy's own start, and a proxy whose clients all speak chat does not need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

import httpx


class Connections:
    """As many as are needed at a time, to the socket at `path`. Made and used in one event loop."""

    def __init__(self, path: str) -> None:
        # Connecting to a local socket costs nothing, and one that is kept may be closed as the next request leaves.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(uds=path, limits=limits)

    @contextlib.asynccontextmanager
    async def post(
        self, path: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx.Response]:
        """The answer to a request; its body can be read until the context ends. Raises `ConnectionError` when the
        process cannot be reached or breaks off, also while the body is read.
        """
        sent = [(name.encode("latin-1"), value.encode()) for name, value in (headers or {}).items()]
        request = httpx.Request("POST", f"http://adapter{path}", headers=sent, content=data)
        try:
            response = await self._transport.handle_async_request(request)
            async with contextlib.aclosing(response):
                yield response
        except httpx.HTTPError as error:
            raise ConnectionError(repr(error)) from error

    async def close(self) -> None:
        """Close them; answers in progress break off."""
        await self._transport.aclose()
