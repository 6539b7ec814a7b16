from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.evaluation.targets import folder_of, own_target
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY


def _adapter(folder: Path, base: str) -> None:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))


def test_a_folder_is_itself_and_a_checkpoint_its_served_folder(tmp_path: Path) -> None:
    assert folder_of(EMBEDDED_POLICY) == (EMBEDDED_POLICY.resolve(), "")
    whole = tmp_path / "3" / "served"
    whole.mkdir(parents=True)
    (whole / "config.json").write_text("{}")
    assert folder_of(tmp_path / "3") == (whole, "")


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    _adapter(tmp_path / "4" / "served", "some/base")
    assert folder_of(tmp_path / "4") == (tmp_path / "4" / "served", "some/base")
    (tmp_path / "4" / "meta.json").write_text(json.dumps({"model": "/where/it/is"}))
    assert folder_of(tmp_path / "4" / "served") == (tmp_path / "4" / "served", "/where/it/is")
    _adapter(tmp_path / "5", "")
    with pytest.raises(ConfigError, match="which base"):
        folder_of(tmp_path / "5")


def test_anything_else_is_no_policy(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ConfigError, match="no policy"):
            folder_of(path)


@pytest.mark.slow
async def test_a_folder_is_served_for_as_long_as_it_is_asked() -> None:
    async with own_target(EMBEDDED_POLICY) as target, ChatClient(target.url, target.key, model=target.model) as client:
        assert target.model in [model["id"] for model in (await client.get("/v1/models"))["data"]]
        reply = await client.chat([{"role": "user", "content": "What is 5 + 3?"}], max_tokens=40)
        assert reply.text


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_trainers_checkpoint_is_served_on_its_base(tmp_path: Path) -> None:
    """An adapter whose weights are not zero answers otherwise than its base does."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_POLICY, dtype=torch.float32)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.fill_(0.5)
    adapted.save_pretrained(tmp_path / "7" / "served")
    (tmp_path / "7" / "meta.json").write_text(json.dumps({"model": str(EMBEDDED_POLICY)}))
    question = [{"role": "user", "content": "What is 5 + 3?"}]
    async with own_target(tmp_path / "7") as target, ChatClient(target.url, target.key, model=target.model) as client:
        broken = await client.chat(question, max_tokens=30, temperature=0.0)
        base = await client.chat(question, max_tokens=30, temperature=0.0, model=f"{target.model}@0")
    assert "8" in base.text
    assert broken.text != base.text
