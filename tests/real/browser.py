"""Debian's Chromium, driven by playwright, with pages that write down every fault they see."""

from __future__ import annotations

import shutil
import site
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.rigs.environments import environment

WIDE, NARROW = (1200, 900), (390, 844)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser until the block ends; skips the test where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed; on Debian: apt-get install chromium")
    (packages,) = environment("chromium").glob("lib/python3.*/site-packages")
    site.addsitedir(str(packages))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched_page(browser: Any, *, size: tuple[int, int] = WIDE, dark: bool = False) -> Iterator[tuple[Any, list[str]]]:
    """A page of a fresh profile, and the faults that it finds: errors of scripts, and violations of the page's policy.
    No other host can be reached from it: an attempt is a fault too.
    """
    faults: list[str] = []
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.on("console", lambda said: faults.append(said.text) if "Policy" in said.text else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: (faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda asked: None if _is_own(asked.url) else faults.append(f"asked for {asked.url}"))
    yield page, faults
    context.close()


def _is_own(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "blob:", "data:"))
