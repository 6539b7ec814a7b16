from __future__ import annotations

import pytest

from openclaw_rl.evaluation.service import ServiceFailed, _environment, default_policy, on_gpus, own_service


async def test_a_service_that_cannot_start_says_why() -> None:
    with pytest.raises(ServiceFailed, match="method"):
        async with own_service({"method": "no-such-method"}):
            pytest.fail("it must not get here")


def test_a_service_of_ones_own_has_the_providers_keys_and_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("TINKER_API_KEY", "TINKER_BASE_URL", "FIREWORKS_API_KEY", "OPENCLAW_RL_TOKENIZER", "OPENCLAW_RL_CLOUD_LOSS")
    dropped = ("OPENCLAW_RL_BACKEND_FALLBACK", "OPENCLAW_RL_DATA", "OPENCLAW_RL_RESUME")
    for name in (*kept, *dropped):
        monkeypatch.setenv(name, "x")
    environment = _environment()
    assert all(environment.get(name) == "x" for name in kept)
    assert not any(name in environment for name in dropped)


def test_a_started_service_has_the_tiny_policy_unless_a_model_is_named() -> None:
    assert default_policy({"OPENCLAW_RL_PORT": "1"}) == {"model": "tiny"}
    for name in ("OPENCLAW_RL_MODEL", "MODEL_PATH", "OPENCLAW_RL_CONFIG"):
        assert default_policy({name: "mine"}) == {}
        assert default_policy({name: ""}) == {"model": "tiny"}


def test_services_on_this_machines_gpus_are_distinguished_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openclaw_rl.shared.gpus.found", lambda: False)
    monkeypatch.delenv("OPENCLAW_RL_BACKEND", raising=False)
    assert on_gpus({"backend": "megatron"}) and not on_gpus({}) and not on_gpus({"backend": "local"})
    monkeypatch.setattr("openclaw_rl.shared.gpus.found", lambda: True)
    assert on_gpus({"backend": "local"}) and not on_gpus({"backend": "tinker"})
    monkeypatch.setenv("OPENCLAW_RL_BACKEND", "megatron")
    assert on_gpus({}) and not on_gpus({"backend": "embedded"})
