"""The bare relay: what the simplest honest proxy costs. Bytes in, the same bytes out, by Starlette and aiohttp.

python -m bench.overhead.relay PORT ENGINE_URL
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import aiohttp
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bench.overhead.server import serve


class Relay:
    """Passes chat requests on to the engine."""

    def __init__(self, engine: str) -> None:
        self._url = f"{engine}/v1/chat/completions"
        self._session: aiohttp.ClientSession | None = None

    async def chat(self, request: Request) -> Response:
        """One request, streamed back as it comes."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"content-type": "application/json"},
            )
        upstream = await self._session.post(self._url, data=await request.body())

        async def pieces() -> AsyncIterator[bytes]:
            async with upstream:
                async for piece in upstream.content.iter_any():
                    yield piece

        return StreamingResponse(pieces(), status_code=upstream.status, media_type="text/event-stream")


if __name__ == "__main__":
    serve(int(sys.argv[1]), Relay(sys.argv[2]).chat)
