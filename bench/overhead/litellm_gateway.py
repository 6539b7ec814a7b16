"""LiteLLM in the same place: each request becomes one streamed `acompletion`, each of its chunks one event.

python -m bench.overhead.litellm_gateway PORT ENGINE_URL
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bench.overhead.server import serve

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network for prices

import litellm


class Gateway:
    """Answers chat requests by LiteLLM's SDK."""

    def __init__(self, engine: str) -> None:
        self._base = f"{engine}/v1"

    async def chat(self, request: Request) -> Response:
        """One request, streamed back as it comes."""
        body: dict[str, Any] = msgspec.json.decode(await request.body())
        body["model"] = f"openai/{body['model']}"
        chunks = await litellm.acompletion(**body, api_base=self._base, api_key="none")

        async def events() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                yield b"data: " + chunk.model_dump_json(exclude_none=True).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    serve(int(sys.argv[1]), Gateway(sys.argv[2]).chat)
