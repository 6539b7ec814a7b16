"""A program that takes the place of SGLang, or of its router, where tests are about the process that keeps it running:
records its arguments, and ends or falls silent on request. `python fake_sglang.py LOG ARGUMENTS`; it takes
`FAKE_SGLANG_SECONDS` to load.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Asks no name server who it is."""

    daemon_threads = True

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)


class Handler(BaseHTTPRequestHandler):
    """`GET /label/X` sets the weight version, `GET /end` ends the process."""

    label = "default"

    def do_GET(self) -> None:
        if self.path == "/end":
            os._exit(3)
        if self.path.startswith("/label/"):
            Handler.label = self.path.removeprefix("/label/")
        body = json.dumps({"weight_version": Handler.label}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def main(log: str, *arguments: str) -> None:
    """Serve."""
    flags = {name: arguments[place + 1] for place, name in enumerate(arguments[:-1]) if name.startswith("--")}
    Handler.label = flags.get("--weight-version", "default")
    began = time.time()
    time.sleep(float(os.environ.get("FAKE_SGLANG_SECONDS", "0")))  # it loads a model
    server = Server((flags["--host"], int(flags["--port"])), Handler)
    known = {"pid": os.getpid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "line": arguments}
    known |= {"began": began, "answers": time.time()}
    known |= {"health": os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION")}
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps({**known, **flags}) + "\n")
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
