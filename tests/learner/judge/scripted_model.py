"""An OpenAI-compatible server over real HTTP whose answers are scripted, for tests of judges."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ScriptedModel:
    """An HTTP server that answers chat completions from a script; `None` is refused with `refusal`."""

    def __init__(self) -> None:
        self.script: list[str | None] = []
        self.refusal = (500, "overloaded")
        self.requests: list[dict[str, Any]] = []
        self.together = self.most_together = 0
        self._lock = threading.Lock()
        self.released = threading.Event()
        self.released.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    outer.requests.append(body)
                    said = outer.script.pop(0) if outer.script else r"\boxed{0} [NO HINT]"
                    outer.together += 1
                    outer.most_together = max(outer.most_together, outer.together)
                outer.released.wait(10.0)
                with outer._lock:
                    outer.together -= 1
                status, refusal = outer.refusal
                message = {"role": "assistant", "content": said}
                answer = {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "scripted",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }
                payload = json.dumps(answer if said is not None else {"error": {"message": refusal}}).encode()
                try:
                    self.send_response(200 if said is not None else status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(payload)))
                    self.end_headers()
                    self.wfile.write(payload)
                except OSError:
                    return  # the client gave up

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
