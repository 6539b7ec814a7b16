"""Signing in to a running service: by a ticket or the admin key, from its own page, by its own name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.proxy.scripted_engine import scripted_service

ADMIN = {"authorization": "Bearer the-admin-key"}
CLIENT = {"authorization": "Bearer key"}


@pytest.fixture
async def browser(policy_folder: Path, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key of the application with an admin key."""
    async with scripted_service(policy_folder, tmp_path, "Yes.", admin_key="the-admin-key") as (client, _, _):
        del client.headers["authorization"]
        yield client


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_only_the_admin_signs_in_and_only_from_our_own_page(browser: httpx.AsyncClient) -> None:
    async def sign_in(**body: object) -> httpx.Response:
        return await browser.post("/rl/dashboard/token", json=body)

    page = await browser.get("/", headers={"accept": "text/html"}, follow_redirects=True)
    assert page.url.path == "/ui/" and page.headers["content-type"].startswith("text/html")

    issued = await browser.post("/rl/dashboard/ticket", headers=ADMIN)
    ticket = issued.json()["ticket"]
    assert issued.json()["url"] == f"{browser.base_url}/ui/#ticket={ticket}"
    signed = await sign_in(ticket=ticket)
    assert signed.headers["cache-control"] == "no-store" and "set-cookie" not in signed.headers
    assert (signed.json()["owner"], signed.json()["admin"]) == ("service", True)
    token = {"authorization": f"Bearer {signed.json()['token']}"}
    assert (await browser.get("/rl/versions", headers=token)).status_code == 200

    assert code(await sign_in(ticket=ticket)) == (401, "invalid_ticket")  # used
    assert code(await sign_in(ticket="guess")) == (401, "invalid_ticket")
    assert code(await sign_in(key="key")) == (403, "insufficient_scope")
    assert (
        code(await sign_in(key="guess")) == code(await sign_in(key=signed.json()["token"])) == (401, "invalid_api_key")
    )
    assert (await sign_in()).status_code == (await sign_in(ticket="a", key="b")).status_code == 400
    assert code(await browser.post("/rl/dashboard/ticket", headers=token)) == (403, "insufficient_scope")
    assert code(await browser.post("/rl/dashboard/ticket", headers=CLIENT)) == (403, "insufficient_scope")
    assert code(await browser.get("/rl/sessions", headers=CLIENT)) == (403, "insufficient_scope")
    assert (await browser.get("/rl/status", headers=CLIENT)).status_code == 200

    week, day = (await sign_in(key="the-admin-key", stay=True)).json(), (await sign_in(key="the-admin-key")).json()
    assert week["expires"] - day["expires"] == pytest.approx((7 * 24 - 12) * 3600, abs=60)

    kept = await browser.post("/rl/dashboard/token", headers=token, json={"stay": True})
    assert (kept.json()["token"], kept.json()["expires"]) == (
        signed.json()["token"],
        pytest.approx(signed.json()["expires"] + (7 * 24 - 12) * 3600),
    )
    lost = {"authorization": "Bearer clawrl-token-guess"}
    assert code(await browser.post("/rl/dashboard/token", headers=lost, json={"stay": True})) == (401, "signed_out")

    for foreign in ({"host": "evil.example"}, {"host": "evil.example:30000"}):
        for path in ("/ui/", "/", "/rl/versions", "/healthz"):
            refused = await browser.get(path, headers={**token, **foreign, "accept": "text/html"})
            assert code(refused) == (403, "foreign_host"), path
    for origin in ("https://evil.example", "null"):
        for path in ("/rl/pause", "/rl/dashboard/token", "/v1/chat/completions"):
            refused = await browser.post(path, headers={**token, "origin": origin}, json={"key": "the-admin-key"})
            assert code(refused) == (403, "foreign_origin"), path
    assert (await browser.get("/rl/status", headers=token)).json()["training"] != "paused"
    assert (await browser.post("/rl/pause", headers={**token, "origin": str(browser.base_url)})).status_code == 200

    assert (await browser.delete("/rl/dashboard/token", headers=token)).json() == {"revoked": 1}
    assert code(await browser.get("/rl/versions", headers=token)) == (401, "signed_out")
    assert (await browser.delete("/rl/dashboard/token", headers=ADMIN)).json() == {"revoked": 2}
