"""The dashboard's screens in a real Chromium: hostile texts, light, dark and narrow, accessibility, and a sign-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.processes import Engine, Proxy, run_proxy
from tests.real.browser import NARROW, WIDE, chromium, watched_page
from tests.real.dashboard_answers import answers
from tests.rigs.environments import environment

ADMIN = "an-admin-key"
SCREENS = (
    "now", "conversations", "conversations/s1", "review", "versions", "versions/1", "versions/2", "compare", "curves",
    "try", "system", "privacy",
)  # fmt: skip
LOOKS = (("light", WIDE), ("dark", WIDE), ("light", NARROW))

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def proxy(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with run_proxy(engine_server, tmp_path_factory.mktemp("dashboard"), admin_key=ADMIN) as running:
        yield running


def _link(proxy: Proxy) -> str:
    """A link that signs in, as `openclaw-rl dashboard` prints it."""
    ticket = httpx.post(f"{proxy.url}/rl/dashboard/ticket", headers={"Authorization": f"Bearer {ADMIN}"})
    return f"{proxy.url}/ui/#ticket={ticket.raise_for_status().json()['ticket']}"


def _answer_from_fixtures(page: Any) -> None:
    known = answers()

    def respond(route: Any) -> None:
        path = urlsplit(route.request.url).path
        if path == "/rl/dashboard/token":
            route.continue_()
        elif path in known and route.request.method == "GET":
            route.fulfill(status=200, content_type="application/json", body=json.dumps(known[path]))
        else:
            route.fulfill(status=404, content_type="application/json", body='{"error": {"message": "no such thing"}}')

    page.route("**/rl/**", respond)


@pytest.mark.parametrize(("scheme", "size"), LOOKS)
def test_hostile_texts_break_no_screen_and_axe_finds_nothing(
    proxy: Proxy, browser: Any, scheme: str, size: tuple[int, int]
) -> None:
    axe = (environment("axe") / "node_modules" / "axe-core" / "axe.min.js").read_text()
    wrong: dict[str, list[str]] = {}
    with watched_page(browser, size=size, dark=scheme == "dark") as (page, faults):
        _answer_from_fixtures(page)
        page.goto(_link(proxy))
        for screen in SCREENS:
            page.evaluate("place => { location.hash = `#/${place}`; }", screen)
            page.wait_for_selector("body:has(h1):not(:has([aria-busy=true]))")
            too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            found = _axe(page, axe)
            wrong[screen] = [*found, *(["too wide"] if too_wide else [])]
    assert faults == []
    assert {screen: found for screen, found in wrong.items() if found} == {}


def _axe(page: Any, source: str) -> list[str]:
    """The faults that axe finds, in a world of its own that the page's policy does not bind."""
    session = page.context.new_cdp_session(page)
    frame = session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    world = session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "axe"})["executionContextId"]
    session.send("Runtime.evaluate", {"expression": source, "contextId": world})
    run = (
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then((found) => "
        "found.violations.map((one) => one.id + ': ' + one.nodes[0].html.slice(0, 200)))"
    )
    asked = {"expression": run, "contextId": world, "awaitPromise": True, "returnByValue": True}
    answer = session.send("Runtime.evaluate", asked)
    session.detach()
    assert "value" in answer["result"], answer
    return list(answer["result"]["value"])


def test_a_person_signs_in_by_the_link_and_chats(proxy: Proxy, browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as (page, faults):
        link = _link(proxy)
        page.goto(link)
        page.get_by_role("heading", level=1, name="answers").wait_for()
        assert "ticket" not in page.url
        page.get_by_role("link", name="Try").click()
        page.get_by_role("checkbox", name="Keep this conversation").check()
        page.get_by_role("textbox", name="Message").fill("Hello there")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Good answer").click()
        page.get_by_text("Noted as good").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        page.goto("about:blank")
        page.goto(link)
        page.get_by_text("The ticket was used").wait_for()
    assert faults == []
