"""The static files of the page, with headers that let nothing run in it but our own scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

UI = "/ui"
STATIC = Path(__file__).resolve().parent / "static"

PRIVATE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of everything that the dashboard answers: no other page can read, embed or reach it."""

_IMPORT_MAP = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)


def routes() -> list[BaseRoute]:
    """The routes of the page: `/` and `/ui` lead to it. None needs a key; its data do."""
    return [
        Route("/", _to_page),
        Route(UI, _to_page),
        Mount(UI, Pages(STATIC)),
    ]


def is_page(scope: Scope) -> bool:
    """True for a request for the page or one of its files, and for a browser's visit to `/`."""
    if scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    if path == "/":
        return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    return path == UI or path.startswith(f"{UI}/")


def content_security_policy(page: str) -> str:
    """The policy of an HTML page: scripts, styles and connections from this service alone, and its import map by its
    digest. Images may also be bytes that a script of ours has fetched with its key (`blob:`, `data:`).
    """
    maps = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in _IMPORT_MAP.findall(page)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in maps)])
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self'",
            "img-src 'self' blob: data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


class Pages(StaticFiles):
    """The files of a folder, revalidated at each use: after an update a page would otherwise mix old and new scripts.
    Its `index.html` is the page.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True)
        policy = content_security_policy((folder / "index.html").read_text())
        self._headers = PRIVATE_HEADERS | {"content-security-policy": policy, "cache-control": "no-cache"}

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(self._headers)
        return response


async def _to_page(request: Request) -> Response:
    return RedirectResponse(f"{UI}/", headers=PRIVATE_HEADERS)
