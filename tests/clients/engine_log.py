"""An engine with a log of its own: requests go to the real engine, and what it was asked and answered is kept.

Where a real policy would give an answer too rarely to wait for (two calls at once, reasoning, an answer without end),
the test says what comes next; the rest of the wire is the same.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.records import Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from tests.processes import Engine

ENDLESS = "endless"
BROKEN = "broken"
DEADLINE = 20.0


@dataclass
class Logged:
    """One answer as the engine gave it."""

    prompt_ids: list[int]
    sampling: dict[str, Any]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    hung_up: bool = False


class LoggedEngine:
    """The engine's HTTP face. `log` holds answers by request id, which is the turn's without its prefix. `constrains`:
    it says that it can hold answers to a schema; a scripted answer has to keep to one then. `owns_up`: it says of a
    scripted answer that this was forced, so that it is not trained on.
    """

    def __init__(self, real: str, policy: Path) -> None:
        self.log: dict[str, Logged] = {}
        self.constrains = False
        self.owns_up = False
        self._real = real
        self._script: list[tuple[str, str | int]] = []
        self._prompter = Prompter(policy)
        self._hung_up = threading.Semaphore(0)

    def say(self, *answers: str | int, to: str = "") -> None:
        """Set the answers to the next requests: a text, `ENDLESS`, `BROKEN` (off after three tokens), or the HTTP
        status of a refusal. With `to`, the next requests whose prompt has these words in it.
        """
        self._script += [(to, answer) for answer in answers]

    def wait_for_hang_up(self) -> None:
        """Return once the proxy has hung up on an answer."""
        assert self._hung_up.acquire(timeout=DEADLINE), "no client hung up"

    def agrees(self, turn: Turn) -> bool:
        """Return whether a turn holds exactly the tokens and logprobs of this log; where stop strings were asked for,
        their beginning, as the proxy hangs up at one while the engine is already further.
        """
        logged = self.log[turn.turn_id.removeprefix("turn_")]
        end = len(turn.response_ids) if turn.sampling.stop else None
        assert list(turn.prompt_ids) == logged.prompt_ids
        assert list(turn.response_ids) == logged.ids[:end]
        assert [round(value, 4) for value in turn.logprobs] == [round(value, 4) for value in logged.logprobs[:end]]
        return True

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """`POST /generate`."""
        body = await request.json()
        logged = self.log[body["rid"]] = Logged(body["input_ids"], body["sampling_params"])
        said = self.answer(logged)
        if isinstance(said, int):
            return web.json_response({"error": {"message": "scripted refusal", "code": said}}, status=said)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        try:
            if said is None:
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(self._real + "/generate", json=body) as real,
                ):
                    response.set_status(real.status)
                    await response.prepare(request)
                    async for line in real.content:
                        self._note(line, logged)
                        await response.write(line)
            else:
                await response.prepare(request)
                await self._speak(said, logged, response)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            logged.hung_up = True
            self._hung_up.release()
            raise
        return response

    def answer(self, logged: Logged) -> str | int | None:
        """Return what is said next, `None` for what the real engine says."""
        prompt = self.prompt(logged) if any(words for words, _ in self._script) else ""
        for number, (words, answer) in enumerate(self._script):
            if words in prompt:
                del self._script[number]
                return answer
        return None

    def prompt(self, logged: Logged) -> str:
        """Return the text of a prompt, with its marks."""
        return self._prompter.tokenizer.decode(logged.prompt_ids)

    async def forward(self, request: web.Request) -> web.Response:
        """Every other route, as the real engine answers it."""
        data = await request.read()
        headers = {"content-type": request.content_type} if data else {}
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, self._real + request.path, data=data, headers=headers) as real,
        ):
            content = await real.read()
            if self.constrains and request.path == "/model_info":
                content = json.dumps({**json.loads(content), "constrains": True}).encode()
            return web.Response(body=content, status=real.status, content_type=real.content_type)

    async def _speak(self, said: str, logged: Logged, response: web.StreamResponse) -> None:
        if said == ENDLESS:
            word = self._prompter.tokenizer.encode(" on")
            while True:
                await self._event(response, logged, word, None)
                await asyncio.sleep(0.01)
        if said == BROKEN:
            await self._event(response, logged, self._prompter.tokenizer.encode("Well, it")[:3], None)
            return
        ids = self._prompter.tokenizer.encode(said)
        for token in ids:
            await self._event(response, logged, [token], None)
        await self._event(response, logged, [self._prompter.stop_ids[0]], {"type": "stop", "matched": 0})

    async def _event(self, response: web.StreamResponse, logged: Logged, ids: list[int], finish: Any) -> None:
        new = [-0.125 - 0.25 * (token % 3) for token in ids]
        logged.ids += ids
        logged.logprobs += new
        meta = {
            "prompt_tokens": len(logged.prompt_ids),
            "completion_tokens": len(logged.ids),
            "cached_tokens": 1,
            "weight_version": "0",
            "output_token_logprobs": [[value, token, None] for value, token in zip(new, ids, strict=True)],
            "finish_reason": finish,
        }
        if self.owns_up:
            meta["forced"] = True
        await response.write(b"data: " + json.dumps({"meta_info": meta}).encode() + b"\n\n")

    def _note(self, line: bytes, logged: Logged) -> None:
        if not line.startswith(b"data: {"):
            return
        meta = json.loads(line[5:]).get("meta_info", {})
        new = meta.get("completion_tokens", 0) - len(logged.ids)
        for value, token, _ in meta.get("output_token_logprobs", [])[-new:] if new else []:
            logged.ids.append(token)
            logged.logprobs.append(value)


@contextmanager
def run_logged_engine(real: Engine) -> Iterator[tuple[Engine, LoggedEngine]]:
    """The real one as it is reached with a log, and the log, until the block ends."""
    engine = LoggedEngine(real.url, real.policy)
    with serve(engine) as port:
        yield replace(real, url=f"http://127.0.0.1:{port}"), engine


@contextmanager
def serve(engine: LoggedEngine) -> Iterator[int]:
    """The port of an engine that is served by a thread until the block ends."""
    port = claim_port("127.0.0.1", 0, setting="engine_port")
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> web.AppRunner:
        application = web.Application(client_max_size=64 << 20)
        application.router.add_post("/generate", engine.generate)
        application.router.add_route("*", "/{rest:.*}", engine.forward)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    def work() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())

    thread = threading.Thread(target=work, name="logged engine")
    thread.start()
    assert started.wait(DEADLINE)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
