"""No key and no password of a URL is shown: in the settings' values, in errors about them, and in status."""

from __future__ import annotations

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.aliases import SECRETS, without_passwords
from openclaw_rl.shared.settings.settings import SETTINGS, Settings, shown
from openclaw_rl.shared.settings.sources import load

SECRET = "hunter2"
AT = f"http://user:{SECRET}@127.0.0.1:9/v1"
VALUES = {
    "admin_key": SECRET,
    "api_key": SECRET,
    "tinker_api_key": SECRET,
    "fireworks_api_key": SECRET,
    "model_keys": f"judge={SECRET}",
    "engine_url": f"http://bearer:{SECRET}@127.0.0.1:9",
    "judge": f"openai/gpt@{AT}",
    "hint_model": f"openai/gpt@{AT}",
    "side_model": f"openai/gpt@{AT}",
    "fallback_model": f"openai/gpt@{AT}",
    "teacher": f"engine:/models/a@{AT}",
}


def test_values_are_shown_without_keys_and_passwords() -> None:
    settings = Settings(**VALUES)
    assert set(VALUES) >= SECRETS
    for name in SETTINGS:
        assert SECRET not in shown(settings, name)
    assert shown(settings, "judge") == "openai/gpt@http://(hidden)@127.0.0.1:9/v1"


@pytest.mark.parametrize("name", VALUES)
def test_errors_about_a_value_do_not_quote_its_secret(name: str) -> None:
    broken = {name.replace("_", "-"): VALUES[name], "batch-size": "none"}
    with pytest.raises(ConfigError) as refused:
        load(broken, environ={})
    assert SECRET not in str(refused.value)
    for wrong in (f"engine:@{AT}", f"x y@{AT}", f"{AT}?"):
        try:
            load({name.replace("_", "-"): wrong}, environ={})
        except ConfigError as error:
            assert SECRET not in str(error)


def test_text_without_a_password_stays_as_it_is() -> None:
    for text in ("ask me@home", "http://127.0.0.1:9/a@b", "openai/gpt@http://host", "a://b c@d"):
        assert without_passwords(text) == text
