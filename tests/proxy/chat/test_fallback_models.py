"""Another model by itself: what it needs to start, what it is asked, and when it has failed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from openclaw_rl.proxy.chat.fallback_models import OtherModel, OtherModelFailed, check_installed, wire_request
from openclaw_rl.proxy.chat.parameters import read_parameters
from openclaw_rl.proxy.chat.request import ChatRequest
from openclaw_rl.proxy.dialects.process import AdapterProcess
from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.shared.errors import ConfigError, Overloaded
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.settings.settings import Settings


def test_without_litellm_it_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("openclaw_rl.proxy.dialects.process.NEEDED", ("a_missing_module",))
    check_installed(Settings(data=tmp_path))
    with pytest.raises(ConfigError, match=r"a_missing_module.*pip install -e '\.\[dialects\]'"):
        check_installed(Settings(data=tmp_path, fallback_model="openai/big"))


class StuckAdapter(AdapterProcess):
    """Never gets up; or says at once that it cannot."""

    refuses = False

    async def ready(self) -> Any:
        """Nothing."""
        if self.refuses:
            raise Overloaded("not up")
        await asyncio.Event().wait()


class Asked:
    """The least of a request."""

    chat = ChatInput(messages=[{"role": "user", "content": "x"}])
    parameters = read_parameters({}, names=ModelNames("policy"), max_output_tokens=4)


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_model_whose_adapter_is_stuck_has_failed(refuses: bool) -> None:
    adapter = StuckAdapter()
    adapter.refuses = refuses
    model = OtherModel("side_model", "m", "", "", 0.3, adapter)
    with pytest.raises(OtherModelFailed) as failed:
        async for _ in model.ask(cast("ChatRequest", Asked())):
            pass
    assert failed.value.reason == ("not up" if refuses else "no answer within 0.3 s")
    assert model.figures.failed == 1


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        ({"type": "json_object"}, {"type": "json_object"}),
        *(
            (
                {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}} | strict},
                {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "array"}} | sent},
            )
            for strict, sent in (({}, {"strict": False}), ({"strict": True}, {"strict": True}))
        ),
    ],
)
def test_a_schema_is_passed_on_no_stricter_than_it_was_asked_for(form: Any, sent: Any) -> None:
    asked = Asked()
    asked.parameters = read_parameters({"response_format": form}, names=ModelNames("policy"), max_output_tokens=4)
    assert wire_request(cast("ChatRequest", asked))["response_format"] == sent
