"""Parts of the Megatron-core trainer without Megatron-core: sharding of weights, initial adapters, and attention to
packed sequences. The rest is tested where it is (`tests/real/test_megatron.py`).
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_local.megatron.attention import CurrentSequence, PackedAttention
from openclaw_rl.trainer_local.megatron.lora import initial, targets
from openclaw_rl.trainer_local.megatron.shape import Shape, shape_of
from openclaw_rl.trainer_local.megatron.weight_names import Source, mapping
from openclaw_rl.trainer_local.models.weights import Weights
from openclaw_rl.trainer_local.prefix.tree import pack
from openclaw_rl.trainer_local.training.batching import row
from tests.trainer_local.plain import mask
from tests.trainer_local.tiny import settings, write_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Neither heads nor vocabulary are as many as there is width; the vocabulary is odd, and has weights of its own."""
    folder = tmp_path_factory.mktemp("policy")
    return write_policy(folder, tie_word_embeddings=False, vocab_size=51, num_attention_heads=8, num_key_value_heads=4)


def shape(policy: Path, ranks: int = 1) -> Shape:
    return shape_of(Source(str(policy)).config, str(policy), ranks)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_weight_is_cut_and_put_together_again(policy: Path, ranks: int) -> None:
    source = Source(str(policy))
    whole = {name: source.tensor(name) for name in source.files}
    found: dict[str, torch.Tensor] = {}
    for mapped in mapping(shape(policy, ranks), ranks).values():
        parts = [mapped.cut.split([whole[name] for name in mapped.names], ranks, rank) for rank in range(ranks)]
        assert len({part.shape for part in parts}) == 1, "every rank has as much"
        found |= dict(zip(mapped.names, mapped.cut.join(parts), strict=True))
    assert found.keys() == dict(AutoModelForCausalLM.from_pretrained(policy).named_parameters()).keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)


def test_queries_keys_and_values_of_a_group_lie_together(policy: Path) -> None:
    one = shape(policy)
    (fused,) = (
        part for name, part in mapping(one, 1).items() if name.endswith("layers.0.self_attention.linear_qkv.weight")
    )
    rows = [torch.arange(count * one.head).float()[:, None] for count in (one.heads, one.groups, one.groups)]
    rows = [1000.0 * kind + values for kind, values in enumerate(rows)]
    first = fused.cut.split(rows, 4, 0)[:, 0].tolist()
    assert first == [
        *range(2 * one.head),
        *(1000.0 + value for value in range(one.head)),
        *(2000.0 + value for value in range(one.head)),
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
            "stretches its positions .yarn.",
        ),
        ({"attention_bias": True}, "has biases"),
        ({"quantization_config": {"quant_method": "awq"}}, "is quantized"),
    ],
)
def test_models_that_it_does_not_know_are_sent_elsewhere(policy: Path, changes: dict[str, object], reason: str) -> None:
    config = Source(str(policy)).config
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(ConfigError, match=f"{reason}.*set backend = embedded with device = cuda"):
        shape_of(config, "a-model", 1)
    with pytest.raises(ConfigError, match=r"a-llama', which is llama, .*set backend = embedded"):
        shape_of(LlamaConfig(), "a-llama", 1)


def test_a_layer_that_does_not_divide_is_refused(policy: Path) -> None:
    with pytest.raises(ConfigError, match="tensor_parallel = 3 does not divide the 4 key-value heads"):
        shape(policy, 3)


@pytest.mark.parametrize("wanted", ["all-linear", "q_proj, v_proj, down_proj", "layers.1.self_attn.o_proj"])
def test_adapters_begin_as_those_of_peft(policy: Path, wanted: str) -> None:
    chosen = settings(policy, lora_targets=wanted)
    torch.manual_seed(5)
    theirs = Weights(chosen, torch.device("cpu"), torch.float32).masters
    torch.manual_seed(5)
    ours = initial(targets(wanted, shape(policy), str(policy)), shape(policy), chosen.learning.lora_rank)
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_adapters_on_what_has_none_are_refused(policy: Path) -> None:
    with pytest.raises(ConfigError, match="lm_head, wrong is none of all-linear, q_proj"):
        targets("q_proj, lm_head, wrong", shape(policy), "a-model")


def test_a_folder_in_parts_is_read_and_one_that_is_not_whole_refused(policy: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(policy).save_pretrained(tmp_path / "parts", max_shard_size="20kB")
    parts = Source(str(tmp_path / "parts"))
    assert len(set(parts.files.values())) > 1
    assert all(torch.equal(parts.tensor(name), Source(str(policy)).tensor(name)) for name in parts.files)

    AutoModelForCausalLM.from_pretrained(policy).save_pretrained(tmp_path / "less")
    file = tmp_path / "less" / "model.safetensors"
    held = load_file(file)
    del held["model.norm.weight"]
    save_file(held, file, {"format": "pt"})
    with pytest.raises(ConfigError, match=r"has no weight model\.norm\.weight"):
        Source(str(tmp_path / "less")).tensor("model.norm.weight")
    file.unlink()
    with pytest.raises(ConfigError, match=r"has no model\.safetensors"):
        Source(str(tmp_path / "less")).tensor("model.norm.weight")


def test_runs_attend_to_what_the_mask_of_their_sequence_shows() -> None:
    draw = Random(3)
    trunk = [draw.randrange(9) for _ in range(30)]
    rows = [row([*trunk[:length], *(draw.randrange(9) for _ in range(4))], [1, 2]) for length in (30, 12, 25, 3, 25)]
    (packed,) = pack([*rows, row([8, 8, 8], [1, 2, 3])], 1000)
    assert sum(bool(run.before) for run in packed.runs) > 2
    torch.manual_seed(1)
    shapes = [(packed.tokens, 1, heads, 8) for heads in (6, 3, 3)]
    query, key, value = (torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes)
    seen = PackedAttention(CurrentSequence(packed.runs))(query, key, value)
    assert seen.shape == (packed.tokens, 1, 48)

    keys, values = (part[:, 0].repeat_interleave(2, dim=1).transpose(0, 1) for part in (key, value))
    scores = query[:, 0].transpose(0, 1) @ keys.transpose(1, 2) / 8**0.5
    shown = torch.softmax(scores.masked_fill(~mask(packed), -torch.inf), dim=-1) @ values
    wanted = shown.transpose(0, 1).reshape(packed.tokens, 1, 48)
    assert torch.allclose(seen, wanted, atol=1e-12)
    weight = torch.randn_like(wanted)
    ours = torch.autograd.grad((seen * weight).sum(), (query, key, value))
    theirs = torch.autograd.grad((wanted * weight).sum(), (query, key, value))
    assert all(torch.allclose(*pair, atol=1e-12) for pair in zip(ours, theirs, strict=True))
