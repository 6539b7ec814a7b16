"""Versions over the embedded engine's wire: loaded, kept, refused and made live while answers are generated."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.checkpoints import seal, sealed_digest
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling
from openclaw_rl.trainer_local.embedded.engine import EmbeddedEngine
from openclaw_rl.trainer_local.models.loading import load_version
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.processes import HTTP
from tests.trainer_local.serving import Reference, close_to, collect, prompt, write_adapter, write_model


def post(url: str, **body: Any) -> httpx.Response:
    return HTTP.post(f"{url}/generate", json=body, timeout=60)


async def test_versions_on_disk_are_loaded_when_asked_for_and_the_oldest_makes_room(
    client: SglangEngine, served: tuple[str, EmbeddedEngine], model: Path, checkpoints: Path
) -> None:
    asked = Sampling(max_tokens=10, ignore_eos=True)
    await client.load(1, str(checkpoints / "1" / "served"), live=True)
    for number in (2, 3, 4, 2):
        answer = await collect(client.generate(prompt(6), asked, version=number))
        right = Reference(model, checkpoints / str(number) / "served").score(prompt(6), answer.ids)
        assert answer.version_numbers == {number} and close_to(answer.logprobs, right)
    info = await client.info()
    assert info.live == 1 and len(info.versions) <= 3 and {0, 1} <= set(info.versions)
    await client.load(0, str(model), live=True)


async def test_a_version_in_use_is_never_dropped(client: SglangEngine, model: Path, checkpoints: Path) -> None:
    asked = Sampling(max_tokens=600, ignore_eos=True)
    stream = client.generate(prompt(6), asked, version=5)
    first = await anext(stream)
    others = [collect(client.generate(prompt(6), Sampling(max_tokens=3), version=n)) for n in (1, 2, 3, 4, 6)]
    await asyncio.gather(*others)
    rest = await collect(stream)
    assert rest.version_numbers == {5} and len(first.ids) + len(rest.ids) == 600
    ids = [*first.ids, *rest.ids]
    right = Reference(model, checkpoints / "5" / "served").score(prompt(6), ids)
    assert close_to([*first.logprobs, *rest.logprobs], right)


async def test_a_rewritten_checkpoint_is_loaded_again(client: SglangEngine, model: Path, tmp_path: Path) -> None:
    folder = write_adapter(model, tmp_path / "served", seed=50)
    await client.load(7, str(folder), live=False)
    before = await client.score(prompt(5), [3, 4], version=7)
    shutil.rmtree(folder)
    write_adapter(model, folder, seed=51)
    await client.load(7, str(folder), live=False)
    after = await client.score(prompt(5), [3, 4], version=7)
    assert not close_to(before.logprobs, after.logprobs)
    assert close_to(after.logprobs, Reference(model, folder).score(prompt(5), [3, 4]))


async def test_a_whole_model_folder_is_a_version_too(client: SglangEngine, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", seed=9)
    await client.load(8, str(other), live=False)
    answer = await collect(client.generate(prompt(6), Sampling(max_tokens=10), version=8))
    assert close_to(answer.logprobs, Reference(other).score(prompt(6), answer.ids))


def _nan(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(iter(weights))
    return weights | {name: torch.full_like(weights[name], float("nan"))}


async def test_broken_checkpoints_are_refused_with_a_reason_and_nothing_changes(
    client: SglangEngine, model: Path, tmp_path: Path
) -> None:
    adapter = write_adapter(model, tmp_path / "adapter")
    weights = load_file(adapter / "adapter_model.safetensors")

    def variant(name: str, changed: dict[str, torch.Tensor] | bytes) -> Path:
        folder = tmp_path / name
        shutil.copytree(adapter, folder)
        file = folder / "adapter_model.safetensors"
        file.write_bytes(changed) if isinstance(changed, bytes) else save_file(changed, file)
        return folder

    first = next(iter(weights))
    whole_nan = write_model(tmp_path / "nan")
    broken = AutoModelForCausalLM.from_pretrained(whole_nan)
    broken.model.norm.weight.data.fill_(float("nan"))
    broken.save_pretrained(whole_nan)
    cases = {
        variant("nan adapter", _nan(weights)): "not finite",
        variant("truncated", (adapter / "adapter_model.safetensors").read_bytes()[:1000]): "cannot be read",
        variant("half", {name: w for name, w in weights.items() if "lora_A" in name}): "pairs",
        variant("misnamed", {name.replace("layers.0", "layers.9"): w for name, w in weights.items()}): "layers.9",
        variant("misshapen", weights | {first: torch.zeros(4, 7)}): "do not fit",
        write_model(tmp_path / "wider", hidden_size=64): "architecture",
        whole_nan: "not finite",
        tmp_path / "nothing": "not a folder",
    }
    before = await client.info()
    for path, reason in cases.items():
        with pytest.raises(EngineError, match=reason) as caught:
            await client.load(9, str(path), live=True)
        assert caught.value.status == 400
    assert await client.info() == before
    with pytest.raises(EngineError, match="version 0 is the base"):
        await client.load(0, str(adapter), live=True)


async def test_a_new_live_version_has_read_the_long_prompts_of_the_old_one(
    client: SglangEngine, model: Path, tmp_path: Path
) -> None:
    shared = prompt(1500, seed=31)
    adapter = write_adapter(model, tmp_path / "served", seed=31)
    await collect(client.generate([*shared, 4, 5], Sampling(max_tokens=4, ignore_eos=True)))
    await client.load(90, str(adapter), live=True)
    answer = await collect(client.generate([*shared, 6, 7], Sampling(max_tokens=8, ignore_eos=True)))
    assert answer.version_numbers == {90} and answer.last.cached_tokens == 1500
    assert close_to(answer.logprobs, Reference(model, adapter).score([*shared, 6, 7], answer.ids))
    await client.load(0, "", live=True)


async def test_answers_continue_while_a_version_is_slow_to_load(
    client: SglangEngine, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released = threading.Event(), threading.Event()

    def slow(path: str, base: Any) -> Any:
        begun.set()
        assert released.wait(60)
        return load_version(path, base)

    monkeypatch.setattr("openclaw_rl.trainer_local.embedded.versions.load_version", slow)
    load = asyncio.create_task(client.load(70, str(checkpoints / "1" / "served"), live=False))
    assert await asyncio.to_thread(begun.wait, 30)
    answer = await collect(client.generate(prompt(6), Sampling(max_tokens=100, ignore_eos=True)))
    assert len(answer.ids) == 100 and not load.done()
    released.set()
    await load
    assert 70 in (await client.info()).versions


async def test_a_model_that_yields_nan_fails_its_requests_and_no_others(
    client: SglangEngine, served: tuple[str, EmbeddedEngine], checkpoints: Path
) -> None:
    await client.load(6, str(checkpoints / "6" / "served"), live=False)
    version = served[1].versions.acquire(6)
    assert version is not None
    weight: Any = version.model.model.norm.weight
    version.model.model.norm.weight = torch.nn.Parameter(weight * float("nan"), requires_grad=False)
    good = asyncio.create_task(collect(client.generate(prompt(6), Sampling(max_tokens=50, ignore_eos=True))))
    with pytest.raises(EngineError, match="not finite") as caught:
        await collect(client.generate(prompt(6), Sampling(max_tokens=5), version=6))
    assert caught.value.status == 500
    assert len((await good).ids) == 50
    served[1].versions.release(version)


async def test_the_base_is_made_live_again_by_its_number_alone(client: SglangEngine, checkpoints: Path) -> None:
    await client.load(1, str(checkpoints / "1" / "served"), live=True)
    await client.load(0, "", live=True)
    assert (await client.info()).live == 0


async def test_weights_that_are_not_those_of_their_seal_are_refused(
    client: SglangEngine, model: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "9"
    served = write_adapter(model, checkpoint / "served", seed=60)
    seal(checkpoint, parent=0, sample_ids=["sample_1"])
    await client.load(9, str(served), live=True)
    assert (await client.info()).digest == sealed_digest(checkpoint)
    file = served / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    with pytest.raises(EngineError, match="not what was written"):
        await client.load(10, str(served), live=True)
    assert (await client.info()).live == 9
    await client.load(0, str(model), live=True)
    assert (await client.info()).digest == ""
