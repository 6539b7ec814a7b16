from __future__ import annotations

from openclaw_rl.cli.docs import settings_page
from openclaw_rl.shared.settings.settings import SETTINGS


def test_the_settings_page_is_what_the_code_says() -> None:
    assert settings_page.PAGE.read_text("utf-8") == settings_page.page(), "run: make docs"


def test_every_setting_is_on_the_page_in_a_section() -> None:
    page = settings_page.page()
    for name in SETTINGS:
        assert f"\n| `{name}` |" in page
    assert page.index("## Serving") < page.index("| `host` |") < page.index("## Learning") < page.index("| `lora` |")
