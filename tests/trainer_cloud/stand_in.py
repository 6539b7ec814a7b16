"""An HTTP server in the place of a provider, which cannot be asked from a test."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn:
    """An HTTP server in the place of a provider: `answers` by path (without the query), `seen` what came."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any, dict[str, str]]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                status, content, headers = stand_in.answers.get(self.path.split("?")[0], (404, {"detail": "none"}, {}))
                body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def has(self, *models: Any, status: int = 200, **headers: str) -> None:
        rows = [model if isinstance(model, dict) else {"model_name": model} for model in models]
        self.answers["/api/v1/get_server_capabilities"] = (status, {"supported_models": rows}, headers)

    def fails(self, status: int, content: Any = "", **headers: str) -> None:
        self.answers["/api/v1/get_server_capabilities"] = (status, content, headers)

    def secure(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
