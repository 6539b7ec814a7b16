"""Exported versions answer in plain transformers and peft as they do in the engine."""

from __future__ import annotations

import asyncio
import itertools
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from openclaw_rl.cli.commands.export_model import export_model
from openclaw_rl.shared.backends import create_engine, create_trainer
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion, Sampling
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import launch
from tests.processes import Engine, run_engine, write_random_policy
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import sample

ASKED = [{"role": "user", "content": "How much is 12 and 30?"}]
TOKENS = 12
NUMBERS = itertools.count(1)  # the engine of this file knows each checkpoint by one of its own


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def engine(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with run_engine(policy, tmp_path_factory.mktemp("engine")) as running:
        yield running


async def trained(data: Path, policy: Path, **changes: Any) -> Settings:
    """A data folder whose live version 1 took one large step from the base; settings that name it and nothing else."""
    fields = {
        "model": str(policy),
        "data": data,
        "device": "cpu",
        "learning_rate": 0.02,
        "lora_rank": 3,
        "lora_alpha": 12.0,
    }
    settings = Settings(**(fields | changes))
    journal = Journal(settings.serve.journal_path)
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    trainer = create_trainer(settings)
    await trainer.step([sample(seed) for seed in range(3)], settings.learning)
    saved = await trainer.save(str(settings.checkpoints_path / "1"))
    await trainer.close()
    journal.commit_version(PolicyVersion(number=1, parent=0, state="live", checkpoint=saved.path))
    journal.close()
    return Settings(data=data)


async def answer_of_engine(
    url: str, settings: Settings, version: int, prompt: list[int]
) -> tuple[list[int], list[float]]:
    """The greedy answer of a version, and its logprobs."""
    engine = create_engine(settings.replace(engine_url=url))
    try:
        if version:
            served = settings.checkpoints_path / str(version) / "served"
            version = next(NUMBERS)
            await engine.load(version, str(served), live=False)
        sampling = Sampling(temperature=0, max_tokens=TOKENS, ignore_eos=True)
        ids: list[int] = []
        async for tokens in engine.generate(prompt, sampling, version=version):
            ids += tokens.ids
        scores = await engine.score(prompt, ids, version=version)
        return ids, list(scores.logprobs)
    finally:
        await engine.close()


def answer_of_model(model: Any, prompt: list[int]) -> tuple[list[int], list[float]]:
    """The greedy answer of a model that transformers loaded, and its logprobs."""
    with torch.no_grad():
        whole = model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS, eos_token_id=None
        )[0]
        logits = model(whole[None]).logits[0, len(prompt) - 1 : -1]
    ids = whole[len(prompt) :]
    return ids.tolist(), logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0].tolist()


def rendered(folder: Path) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = tokenizer.apply_chat_template(ASKED, add_generation_prompt=True, return_dict=True)
    return list(found["input_ids"])


@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
def test_a_folder_answers_as_the_engine_does(tmp_path: Path, policy: Path, engine: Engine, lora: bool) -> None:
    settings = asyncio.run(trained(tmp_path / ("lora" if lora else "all-weights"), policy, lora=lora))
    export_model(tmp_path / "out", data=str(settings.serve.data))
    prompt = rendered(tmp_path / "out")
    expected, logprobs = asyncio.run(answer_of_engine(engine.url, settings, 1, prompt))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert not hasattr(model, "peft_config")
    ids, found = answer_of_model(model, prompt)
    assert ids == expected
    assert found == pytest.approx(logprobs, abs=1e-4)
    base, before = asyncio.run(answer_of_engine(engine.url, settings, 0, prompt))
    assert (base, before) != (expected, logprobs)
    assert max(abs(one - other) for one, other in zip(before, logprobs, strict=True)) > 1e-2
    assert (
        model.generation_config.eos_token_id
        == AutoModelForCausalLM.from_pretrained(policy).generation_config.eos_token_id
    )
    assert model.config.use_cache
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "out").iterdir()}
    assert modes == {0o644}


def test_an_adapter_answers_as_the_engine_does(tmp_path: Path, policy: Path, engine: Engine) -> None:
    settings = asyncio.run(trained(tmp_path / "adapter-data", policy))
    export_model(tmp_path / "out", version=1, adapter=True, data=str(settings.serve.data))
    prompt = rendered(tmp_path / "out")
    expected, logprobs = asyncio.run(answer_of_engine(engine.url, settings, 1, prompt))
    ids, found = answer_of_model(AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out"), prompt)
    assert ids == expected
    assert found == pytest.approx(logprobs, abs=1e-4)
    assert not list((tmp_path / "out").glob("model*.safetensors"))


def test_version_0_is_the_base_of_what_was_trained(
    tmp_path: Path, policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = asyncio.run(trained(tmp_path / "data", policy))
    export_model(tmp_path / "out", version=0, data=str(settings.serve.data), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"version": 0, "folder": str(tmp_path / "out"), "form": "model"}
    base, out = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (policy, tmp_path / "out"))
    assert base.keys() == out.keys()
    assert all(torch.equal(base[name], out[name]) for name in base)


def test_a_version_that_cannot_be_exported_says_why(tmp_path: Path, policy: Path) -> None:
    settings = asyncio.run(trained(tmp_path / "data", policy, lora=False))
    data = str(settings.serve.data)
    journal = Journal(settings.serve.journal_path)
    journal.commit_version(PolicyVersion(number=2, parent=1, state="live", checkpoint=str(tmp_path / "pruned")))
    journal.close()
    taken, model = tmp_path / "taken", tmp_path / "model"
    for folder, file in ((taken, "thesis.txt"), (model, "config.json")):
        folder.mkdir()
        (folder / file).write_text("{}")
    for words, arguments in {
        "no version 7": {"version": 7},
        "files of version 2 are gone": {"version": 2},
        "version 0 is the base itself": {"version": 0, "adapter": True},
        "version 1 was trained as a whole": {"version": 1, "adapter": True},
    }.items():
        with pytest.raises(ConfigError, match=words):
            export_model(tmp_path / "out", data=data, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not empty"):
        export_model(model, version=1, data=data)
    with pytest.raises(ConfigError, match="other things than a model"):
        export_model(taken, version=1, force=True, data=data)
    assert (taken / "thesis.txt").exists()
    export_model(model, version=1, force=True, data=data)
    assert (model / "model.safetensors").exists()
    with pytest.raises(ConfigError, match="no journal at"):
        export_model(tmp_path / "out", version=1, data=str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"no journal at .*write the base with --version 0"):
        export_model(tmp_path / "out", data=str(tmp_path / "nowhere"))
    assert not (tmp_path / "out").exists()


def test_a_version_of_a_provider_is_downloaded_as_an_adapter(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is a stand-in: `TorchProvider` keeps whole models where others keep adapters."""
    provider = TorchProvider(policy, name="tinker")
    monkeypatch.setattr(launch, "create_provider", lambda _: provider)
    settings = asyncio.run(
        trained(tmp_path / "data", policy, backend="tinker", tinker_api_key="tml-x", method="binary", lora_rank=8)
    )
    folder, data = tmp_path / "exported", str(settings.serve.data)
    with pytest.raises(ConfigError, match=r"^backend = tinker needs a key: set TINKER_API_KEY"):
        export_model(folder, data=data)
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    export_model(folder, data=data)
    assert (folder / "model.safetensors").is_file() and (folder / "tokenizer.json").is_file()
    monkeypatch.setenv("OPENCLAW_RL_BACKEND", "tinker")
    with pytest.raises(ConfigError, match="stays with its provider"):
        export_model(tmp_path / "base", version=0, data=data)
