"""A mixture of experts in Megatron-core: transformers' logprobs and gradients, adapters of all experts, and the folders
that are served and exported. Needs Megatron-core.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.func import functional_call
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from tests.trainer_local.tiny import sample, settings, with_adapters, write_experts

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from tests.real.megatron_trainers import LAYOUTS, create

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200), pytest.mark.usefixtures("trainers_closed")]

TOLERANCE = 1e-5
EXPERTS, RANK, ALPHA = 4, 4, 8.0
LOSS = """
import torch
def loss(tokens):
    return -torch.log_softmax(tokens.logits.float(), dim=-1).gather(-1, tokens.token_ids[:, None])[:, 0]
"""
PREFIX = "base_model.model."


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experts(tmp_path_factory.mktemp("experts"))


@pytest.fixture(scope="module", params=list(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> dict[str, Any]:
    return LAYOUTS[str(request.param)]


def turn() -> Sample:
    """A turn whose answer is long enough to go through every expert of every layer."""
    return sample(5, prompt=30, response=60, hints=0, reward=1.0, explicit=True)


async def moved(policy: Path, folder: Path, **changes: Any) -> str:
    """A checkpoint some way from the base, so that A and B of every adapter have gradients."""
    trainer = create(settings(policy, lora_rank=RANK, lora_alpha=ALPHA, **changes))
    for seed in (101, 102):
        example = sample(seed, prompt=30, response=60, reward=1.0, explicit=True)
        await trainer.step([example], Recipe(learning_rate=1e-2, epochs=3))
    checkpoint = await trainer.save(str(folder))
    await trainer.close()
    return checkpoint.path


async def learned(policy: Path, folder: Path, start: str, **changes: Any) -> tuple[dict[str, Tensor], float]:
    """Gradients by PEFT's names, and the loss, of one pass over `turn` from the checkpoint `start`."""
    folder.mkdir()
    (folder / "loss.py").write_text(LOSS)
    trainer = create(settings(policy, lora_rank=RANK, lora_alpha=ALPHA, **changes))
    await trainer.restore(start)
    recipe = Recipe(epochs=1, beta1=0.0, clip_grad=1e9, custom_loss=f"{folder / 'loss.py'}:loss")
    report = await trainer.step([turn()], recipe)
    checkpoint = await trainer.save(str(folder / "checkpoint"))
    state = torch.load(Path(checkpoint.path) / "trainer.pt", weights_only=True)
    found = {name: state["optimizer"]["state"][index]["exp_avg"] for index, name in enumerate(state["weights"])}
    return found, report.metrics["loss/total"]


def plainly(policy: Path, adapter: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
    """The same by transformers, whose weights are sums here that the adapters' tensors are differentiated through."""
    parts = {name: value.clone().requires_grad_() for name, value in adapter.items()}
    model, weights = with_adapters(policy, parts, ALPHA / RANK)
    one = turn()
    ids = torch.tensor([[*one.prompt_ids, *one.response_ids]])
    logits = functional_call(model, weights, args=(ids,)).logits[0, len(one.prompt_ids) - 1 : -1]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(list(one.response_ids)))
    loss.backward()
    return {name: part.grad for name, part in parts.items() if part.grad is not None}, float(loss)


async def test_gradients_of_all_experts_adapters_are_those_of_transformers(
    policy: Path, layout: dict[str, Any], tmp_path: Path
) -> None:
    start = await moved(policy, tmp_path / "start", **layout)
    adapter = torch.load(Path(start) / "trainer.pt", weights_only=True)["weights"]
    wanted, loss = plainly(policy, adapter)
    found, ours = await learned(policy, tmp_path / "one", start, **layout)
    assert ours == pytest.approx(loss, rel=TOLERANCE)
    assert found.keys() == wanted.keys() and len(found) == 2 * 2 * (4 + 3 * EXPERTS)
    assert min(float(part.abs().max()) for part in wanted.values()) > 1e-4, "every adapter has a gradient"
    largest = max(float(part.abs().max()) for part in wanted.values())
    assert max(float((found[name] - wanted[name]).abs().max()) for name in wanted) < TOLERANCE * max(1.0, largest)


async def test_shares_that_are_not_renormalized(layout: dict[str, Any], tmp_path: Path) -> None:
    policy = write_experts(tmp_path / "model", norm_topk_prob=False)
    start = await moved(policy, tmp_path / "start", **layout)
    adapter = torch.load(Path(start) / "trainer.pt", weights_only=True)["weights"]
    _, ours = await learned(policy, tmp_path / "one", start, **layout)
    assert ours == pytest.approx(plainly(policy, adapter)[1], rel=TOLERANCE)


async def test_an_export_is_the_policy_in_transformers(policy: Path, layout: dict[str, Any], tmp_path: Path) -> None:
    start = await moved(policy, tmp_path / "start", **layout)
    trainer = create(settings(policy, lora_rank=RANK, lora_alpha=ALPHA, **layout))
    await trainer.restore(start)
    await trainer.export(str(tmp_path / "exported"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", dtype=torch.float32).eval()
    one = turn()
    with torch.no_grad():
        logits = model(torch.tensor([[*one.prompt_ids, *one.response_ids]])).logits[0, len(one.prompt_ids) - 1 : -1]
    exported = float(torch.nn.functional.cross_entropy(logits, torch.tensor(list(one.response_ids))))
    adapter = torch.load(Path(start) / "trainer.pt", weights_only=True)["weights"]
    assert exported == pytest.approx(plainly(policy, adapter)[1], rel=TOLERANCE)


async def test_the_served_adapter_names_every_expert(policy: Path, tmp_path: Path) -> None:
    start = await moved(policy, tmp_path / "start")
    served = Path(start) / "served"
    found = load_file(served / "adapter_model.safetensors")
    assert found[f"{PREFIX}model.layers.1.mlp.experts.3.gate_proj.lora_A.weight"].shape == (RANK, 32)
    assert found[f"{PREFIX}model.layers.1.mlp.experts.3.down_proj.lora_B.weight"].shape == (32, RANK)
    config = json.loads((served / "adapter_config.json").read_text())
    names = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(config["target_modules"]) == names


async def test_attention_alone_can_have_adapters(policy: Path, tmp_path: Path) -> None:
    start = await moved(policy, tmp_path / "start", lora_targets="q_proj,k_proj,v_proj,o_proj")
    adapter = torch.load(Path(start) / "trainer.pt", weights_only=True)["weights"]
    assert len(adapter) == 2 * 2 * 4 and not any("experts" in name for name in adapter)


async def test_all_weights_are_refused(policy: Path) -> None:
    with pytest.raises(ConfigError, match="lora = true"):
        await create(settings(policy, lora=False)).step([turn()], Recipe())
