"""Fake SGLang servers and a fake router before them, for what one real server on a CPU cannot show: several at once,
quantized weights, weights that cannot be read. They keep books of versions as SGLang 0.5.23 does, and compute nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
from aiohttp import web

PASSED_ON = {"input_ids", "rid", "sampling_params", "stream", "return_logprob", "top_logprobs_num", "lora_path"}


class FakeServer:
    """One server; `did` are the routes that changed something, `asked` the bodies of `/generate`. It answers 500 to the
    changes that `refuses` counts down to 0, and while it is `gone` nothing but what a router passes on. It goes, as
    SGLang does, when it is asked to take memory that it has, and takes `slow` seconds for it. `meanwhile` is called
    with each change before it is made; `running` requests are in flight. It goes, too, when it is asked for memory
    while `grammars` requests wait for their grammar.
    """

    def __init__(self, **info: Any) -> None:
        self.info = {"model_path": "base", "enable_lora": True, "tp_size": 1, "device": "cuda", **info}
        self.info |= {"max_total_num_tokens": 100, "sampling_mask_max_tokens": 50}
        self.label = "default"
        self.adapters: list[str] = []
        self.unreadable: set[str] = set()
        self.paused = self.gone = self.updating = False
        self.refuses: dict[str, int] = {}
        self.lent: set[str] = set()
        self.running = self.grammars = 0
        self.slow = 0.0
        self.meanwhile: Callable[[str], None] = lambda path: None
        self.did: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def get(self, request: web.Request) -> web.Response:
        """Answer the server's description of itself."""
        self._end(request)
        models: list[dict[str, Any]] = [{"id": "policy", "parent": None, "max_model_len": 100}]
        models += [{"id": name, "parent": "policy"} for name in self.adapters]
        facts = {**self.info, "weight_version": self.label, "data": models}
        return web.json_response(facts | {"loads": [{"num_running_reqs": self.running}]})

    async def post(self, request: web.Request) -> web.Response:
        """A change."""
        self._end(request)
        body = msgspec.json.decode(await request.read() or b"{}")
        path = request.path.strip("/")
        self.did.append(path)
        self.meanwhile(path)
        if path in self.refuses:
            self.refuses[path] -= 1
            if self.refuses[path] == 0:
                del self.refuses[path]
                return web.json_response({"message": "no memory left"}, status=500)
        if path.endswith("e_generation"):
            self.paused = path == "pause_generation"
        if path == "flush_cache" and (self.grammars or (self.running and not self.paused)):
            return web.json_response({"message": "requests are running"}, status=400)
        if path == "load_lora_adapter":
            self.adapters.append(body["lora_name"])
        elif path == "unload_lora_adapter":
            self.adapters.remove(body["lora_name"])
        elif path in ("begin_weight_update", "end_weight_update"):
            if self.updating is (path == "begin_weight_update"):
                return web.json_response({"success": False, "message": "no such session"}, status=400)
            self.updating = not self.updating
        elif path == "release_memory_occupation":
            self.gone = bool(self.grammars)
            self._end(request)
            self.lent |= set(body["tags"])
        elif path == "resume_memory_occupation":
            await asyncio.sleep(self.slow)
            self.gone = not self.lent >= set(body["tags"])
            self._end(request)
            self.lent -= set(body["tags"])
        elif path == "update_weight_version":
            self.label = body["new_version"]
        elif path == "update_weights_from_disk":
            if body["model_path"] in self.unreadable:
                return web.json_response({"success": False, "message": "cannot be read"}, status=400)
            self.label = body.get("weight_version") or self.label
        return web.json_response({"success": True, "message": ""})

    def _end(self, request: web.Request) -> None:
        if self.gone and request.transport is not None:
            request.transport.abort()

    async def generate(self, request: web.Request) -> web.Response:
        """One token, by the adapter asked for."""
        body = msgspec.json.decode(await request.read())
        self.asked.append(body)
        adapter = body.get("lora_path")
        if adapter is not None and adapter not in self.adapters:
            error = {"message": f"Got LoRA adapter that has never been loaded: {adapter}", "code": 400}
            return events({"error": error})
        meta = {"completion_tokens": 1, "finish_reason": {"type": "length"}, "weight_version": self.label}
        meta |= {"output_token_logprobs": [[-0.5, 7, None]]}
        if body.get("return_sampling_mask"):
            meta["output_token_sampling_logprobs"] = [-0.25]
        return events({"meta_info": meta})


def events(event: dict[str, Any]) -> web.Response:
    """A stream of one event."""
    return web.Response(body=b"data: " + msgspec.json.encode(event) + b"\n\n", content_type="text/event-stream")


@asynccontextmanager
async def running(*servers: FakeServer) -> AsyncIterator[str]:
    """The servers until the block ends, and the URL to reach them by: that of the only one, or of a router that passes
    on to the first what a real one would.
    """
    runners = []
    for server in servers:
        app = web.Application()
        app.add_routes([web.post("/generate", server.generate), web.post("/{path:.*}", server.post)])
        app.add_routes([web.get("/{path:.*}", server.get)])
        runners.append(await started(app))
        server.url = f"http://127.0.0.1:{runners[-1].addresses[0][1]}"
    url = servers[0].url
    if len(servers) > 1:

        async def generate(request: web.Request) -> web.Response:
            body = msgspec.json.decode(await request.read())
            kept = {name: value for name, value in body.items() if name in PASSED_ON}
            async with httpx.AsyncClient() as client:
                reply = await client.post(f"{servers[0].url}/generate", json=kept)
            return web.Response(body=reply.content, status=reply.status_code, content_type="text/event-stream")

        async def workers(_: web.Request) -> web.Response:
            return web.json_response({"workers": [{"url": server.url} for server in servers]})

        app = web.Application()
        app.add_routes([web.post("/generate", generate), web.get("/workers", workers)])
        runners.append(await started(app))
        url = f"http://127.0.0.1:{runners[-1].addresses[0][1]}"
    try:
        yield url
    finally:
        for runner in runners:
            await runner.cleanup()


async def started(app: web.Application) -> web.AppRunner:
    """An application on a free port."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner
