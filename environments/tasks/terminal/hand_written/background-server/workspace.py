"""A server that signs tickets."""

from __future__ import annotations

from pathlib import Path
from random import Random

SERVER = '''"""Signs tickets: /ticket gives one, /receipt?ticket=TICKET signs it."""

import hashlib
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

KEY = "{key}"
given = set()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlparse(self.path)
        if url.path == "/ticket":
            given.add(ticket := secrets.token_hex(8))
            return self.answer(200, ticket)
        ticket = parse_qs(url.query).get("ticket", [""])[0]
        if url.path == "/receipt" and ticket in given:
            return self.answer(200, hashlib.sha256((KEY + ticket).encode()).hexdigest())
        return self.answer(404, "unknown")

    def answer(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Path("port").write_text(str(server.server_port))
server.serve_forever()
'''


def fill(workspace: Path, random: Random) -> dict[str, str]:
    """Write `server.py`. The check has the key."""
    key = f"{random.getrandbits(64):016x}"
    (workspace / "server.py").write_text(SERVER.replace("{key}", key))
    return {"key": key}
