"""A scripted OpenAI-compatible server: what stands in for another model, on a port of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

KEY = "sk-other-9137"
TEXT = ("The other ", "model ", "answers.")


class OtherServer:
    """A scripted provider: its `requests`, with their headers, and its behaviour: `mode` is `text`, `call`, `refuse`,
    `silent`, `break`, `nothing` (an empty answer) or `page` (something else altogether).
    """

    def __init__(self) -> None:
        self.url = ""
        self.mode = "text"
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.released = Event()


@contextmanager
def run_other_server() -> Iterator[OtherServer]:
    """Serve until the block ends."""
    other = OtherServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            other.requests.append(body)
            other.headers.append({name.lower(): value for name, value in self.headers.items()})
            if other.mode == "silent":
                other.released.wait(30.0)
            if other.mode == "refuse":
                self.reply(
                    401, {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": "invalid_api_key"}}
                )
            elif other.mode == "page":
                self.reply(200, b"<html>Sign in</html>", "text/html")
            elif body.get("stream"):
                self.stream()
            else:
                self.reply(200, whole(other.mode))

        def reply(self, status: int, content: dict[str, Any] | bytes, kind: str = "application/json") -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            for chunk in [*map(json.dumps, chunks(other.mode)), "[DONE]"]:
                data = f"data: {chunk}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                if other.mode == "break":
                    return
            self.wfile.write(b"0\r\n\r\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    other.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield other
    finally:
        other.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


USAGE = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}


def call() -> dict[str, Any]:
    """The tool call it makes."""
    return {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}


def whole(mode: str) -> dict[str, Any]:
    """An answer in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(TEXT)}
    if mode == "call":
        message = {"role": "assistant", "content": None, "tool_calls": [call()]}
    if mode == "nothing":
        message["content"] = None
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if mode == "call" else "stop"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}


def chunks(mode: str) -> list[dict[str, Any]]:
    """An answer as a stream."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in TEXT)]
    if mode == "call":
        function = call()["function"]
        head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": function["name"], "arguments": ""}}
        deltas = [{"role": "assistant", "tool_calls": [head]}]
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in ('{"path": ', '"a.txt"}')
        ]
    if mode == "break":
        deltas = deltas[1:]
    if mode == "nothing":
        deltas = deltas[:1]
    made = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    made.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if mode == "call" else "stop"}]})
    made.append({"choices": [], "usage": USAGE})
    return [{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", **chunk} for chunk in made]
