"""The files of the page: served to everyone, with a policy that runs our own scripts alone."""

from __future__ import annotations

import base64
import hashlib

import httpx
import pytest
from starlette.applications import Starlette

from openclaw_rl.proxy.dashboard import pages


@pytest.fixture
def browser() -> httpx.AsyncClient:
    """A client of the page's routes alone."""
    app = Starlette(routes=pages.routes())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:30000")


async def test_every_file_has_the_headers_that_let_nothing_else_run(browser: httpx.AsyncClient) -> None:
    for path in ("/ui/", "/ui/vendor/preact.mjs", "/ui/vendor/uPlot.min.css"):
        answer = await browser.get(path)
        assert answer.status_code == 200, path
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["style-src"] == policy["connect-src"] == "'self'" and policy["trusted-types"] == "'none'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert {name: answer.headers[name] for name in pages.PRIVATE_HEADERS} == pages.PRIVATE_HEADERS
        assert "set-cookie" not in answer.headers
    assert "javascript" in (await browser.get("/ui/vendor/preact.mjs")).headers["content-type"]


async def test_the_policy_names_the_import_map_by_its_digest(browser: httpx.AsyncClient) -> None:
    answer = await browser.get("/ui/")
    begin, end = '<script type="importmap">', "</script>"
    text = answer.text[answer.text.index(begin) + len(begin) :].partition(end)[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}'; " in answer.headers["content-security-policy"]
    assert answer.text.count("<script") == 1 + answer.text.count('<script type="module" src=')


async def test_an_unchanged_file_is_not_sent_again_and_no_other_file_is_sent(browser: httpx.AsyncClient) -> None:
    first = await browser.get("/ui/vendor/htm.mjs")
    again = await browser.get("/ui/vendor/htm.mjs", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"
    for path in ("/ui/../pages.py", "/ui/%2e%2e/pages.py", "/ui/..%2fpages.py", "/ui/none.js"):
        assert (await browser.get(path)).status_code == 404, path


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_the_root_leads_to_the_page(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")


@pytest.mark.parametrize(
    ("method", "path", "accept", "is_page"),
    [
        ("GET", "/", b"text/html,*/*;q=0.8", True),
        ("GET", "/", b"*/*", False),
        ("POST", "/", b"text/html", False),
        ("HEAD", "/ui/", b"*/*", True),
        ("GET", "/ui/vendor/htm.mjs", b"*/*", True),
        ("POST", "/ui/", b"*/*", False),
        ("GET", "/uid", b"*/*", False),
        ("GET", "/rl/status", b"text/html", False),
    ],
)
def test_a_page_needs_no_key(method: str, path: str, accept: bytes, is_page: bool) -> None:
    scope = {"type": "http", "method": method, "path": path, "headers": [(b"accept", accept)]}
    assert pages.is_page(scope) == is_page
