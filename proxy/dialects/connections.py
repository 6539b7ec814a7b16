"""Connections to the adapter process: requests to its socket, and answers as they come.

Loading aiohttp takes 0.13 s and 8 MB, so only `proxy.dialects.process` imports this module, once it starts the process:
where every client speaks chat, nobody needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

import aiohttp


class Connections:
    """As many as are needed at a time, to the socket at `path`. Made and used in one event loop."""

    def __init__(self, path: str) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )

    @contextlib.asynccontextmanager
    async def post(
        self, path: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request; its body can be read until the context ends. Raises `ConnectionError` when the
        process cannot be reached or breaks off, also while the body is read.
        """
        try:
            async with self._session.post("http://adapter" + path, data=data, headers=headers) as response:
                yield response
        except aiohttp.ClientError as error:
            raise ConnectionError(repr(error)) from error

    async def close(self) -> None:
        """Close them; answers in progress break off."""
        await self._session.close()
