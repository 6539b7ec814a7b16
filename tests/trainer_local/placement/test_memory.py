from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.shared.gpus import GIB
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.placement import MemoryPart
from openclaw_rl.shared.settings.settings import Settings, to_environment
from openclaw_rl.shared.settings.sources import parse_flags
from openclaw_rl.trainer_local.megatron.attention import CurrentSequence, PackedAttention
from openclaw_rl.trainer_local.models import head_product as head_product_module
from openclaw_rl.trainer_local.models.head_product import head_product
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.memory import HALF, SINGLE
from openclaw_rl.trainer_local.placement.model_shape import ModelShape, read_shape, shape_of
from openclaw_rl.trainer_local.prefix import attention as prefix_attention
from openclaw_rl.trainer_local.prefix.tree import Run
from openclaw_rl.trainer_local.training import slices, targets
from tests.shared.saved_tensors import saved_bytes

TINY: dict[str, Any] = {
    **{"model_type": "qwen3", "hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64, "num_hidden_layers": 2},
}
TOKENS = 192


def known(model: str) -> ModelShape:
    shape = read_shape(model)
    assert shape is not None
    return shape


def settings(**changes: Any) -> Settings:
    return Settings(**{"model": "Qwen/Qwen3-4B", "micro_batch_tokens": TOKENS, "max_sample_tokens": TOKENS, **changes})


def parts(
    trainer: str = "megatron", model: str = "Qwen/Qwen3-4B", parallel: int = 1, **changes: Any
) -> dict[str, MemoryPart]:
    found = memory.training(settings(**changes), known(model), trainer, parallel)
    return {part.what.split(",")[0]: part for part in found}


@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize("recompute", [True, False])
def test_activations_are_what_autograd_keeps_in_transformers(lora: bool, recompute: bool) -> None:
    mine = settings(lora=lora, lora_rank=4, recompute=recompute)

    def kept(layers: int) -> int:
        return _kept_by_transformers({**TINY, "num_hidden_layers": layers}, lora, recompute)

    def estimated(layers: int) -> int:
        shape = shape_of({**TINY, "num_hidden_layers": layers})
        return memory.activations(mine, shape, "transformers", 1)

    assert kept(3) - kept(2) == estimated(3) - estimated(2)


def _kept_by_transformers(config: dict[str, Any], lora: bool, recompute: bool) -> int:
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.bfloat16)
    if lora:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        model.to(torch.bfloat16)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    return saved_bytes(
        lambda: model(input_ids=ids, use_cache=False, logits_to_keep=1), [*model.parameters(), *model.buffers()]
    )


@pytest.mark.parametrize("kind", ["distributions", "sampled"])
def test_logits_are_in_memory_once_less_than_is_planned(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_product_module, "BLOCK", 500)  # so that what a CPU casts counts for little
    answers, vocabulary = 64, 8000
    hidden = torch.randn(answers, 32, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(vocabulary, 32, dtype=torch.bfloat16)
    teacher = torch.log_softmax(torch.randn(answers, vocabulary), -1)
    ids = torch.zeros(answers, dtype=torch.long)
    nothing = torch.zeros(answers)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        log_probs = losses.log_softmax(head_product(hidden, head))
        if kind == "distributions":
            loss = losses.reverse_kl(log_probs, teacher)
        else:
            sampled = losses.sampled_logprobs(log_probs, ids)
            loss = losses.clipped_policy_loss(sampled, nothing, nothing, clip_low=0.2, clip_high=0.2, ratio_cap=2.0)
        loss.mean().backward()
    held = most = 0
    for event in measured.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    assert most / (SINGLE * answers * vocabulary) == pytest.approx(memory.LOGIT_COPIES[kind] - 1, rel=0.01)


def test_weights_are_two_bytes_a_parameter_shared_out_and_less_where_quantized() -> None:
    shape = known("Qwen/Qwen3-8B")
    assert memory.weights(shape, 1) == 2 * shape.parameters
    assert memory.weights(shape, 4) == pytest.approx(memory.weights(shape, 1) / 4, rel=1e-3)
    fp8, four = (memory.weights(shape, 1, name) for name in ("fp8", "awq"))
    assert 2 * shape.embeddings < four < fp8 < memory.weights(shape, 1)
    assert memory.weights(shape, 1, "not a method") == 2 * shape.parameters
    stored = msgspec.structs.replace(shape, quantization="gptq", stored_bytes=6 * GIB)
    assert memory.weights(stored, 2) == 3 * GIB


def test_a_token_of_qwen3_8b_takes_144_kib_of_kv_cache() -> None:
    shape = known("Qwen/Qwen3-8B")
    assert memory.kv_token(shape, 1) == 144 * 1024
    assert memory.kv_token(shape, 8) == memory.kv_token(shape, 16) == 18 * 1024


def test_the_cache_holds_the_longest_conversation() -> None:
    shape = known("Qwen/Qwen3-8B")
    for length, context in ((0, 40960), (8192, 8192)):
        served = memory.serving(settings(context_length=length), shape, "policy", 1, 80 * GIB)
        (cache,) = [part for part in served if part.tag == "kv_cache"]
        assert cache.bytes == context * 144 * 1024 and str(context) in cache.what and cache.tag == "kv_cache"
    judge = memory.serving(settings(context_length=8192), shape, "judge", 1, 80 * GIB)
    assert any("32768 tokens" in part.what for part in judge)
    assert memory.during_step(judge, alternating=True) == judge, "a judge gives nothing back"


def state(found: dict[str, MemoryPart]) -> tuple[int, int, int]:
    """Bytes of optimizer, gradients and copies: at rest, more of them during a step, and on the host."""
    names = ("optimizer", "gradients", "state of the optimizer and copies")
    at_rest, in_step, on_host = (found[name].bytes if name in found else 0 for name in names)
    assert all(found[name].host for name in names[2:] if name in found)
    assert all(found[name].step for name in names[1:2] if name in found)
    return at_rest, in_step, on_host


MASTERS, GRADIENTS, MOMENTS, BASE = SINGLE, SINGLE, 2 * SINGLE, HALF


def test_full_training_in_megatron_is_counted_number_by_number() -> None:
    count = known("Qwen/Qwen3-4B").parameters
    found = parts(lora=False)
    assert found["weights"].bytes == HALF * count
    rest, step, host = MASTERS + MOMENTS + BASE, GRADIENTS, MASTERS + MOMENTS
    assert state(found) == (rest * count, step * count, host * count)
    assert state(parts(lora=False, teacher="ema"))[2] == (host + SINGLE) * count


def test_with_the_optimizer_on_the_host_weights_gradients_and_the_base_are_left() -> None:
    count = known("Qwen/Qwen3-4B").parameters
    host = MASTERS + 2 * MOMENTS + SINGLE + BASE
    assert state(parts(lora=False, offload_optimizer=True)) == (0, (GRADIENTS + BASE) * count, host * count)


def test_the_distributed_optimizer_cuts_masters_and_moments_among_data_parallel_gpus() -> None:
    shape = known("Qwen/Qwen3-4B")
    half = shape.parameters / 2

    def cut(**changes: Any) -> tuple[float, ...]:
        mine = settings(lora=False, distributed_optimizer=True, **changes)
        found = memory.training(mine, shape, "megatron", 2, ranks=8)
        return tuple(size / half for size in state({part.what.split(",")[0]: part for part in found}))

    quarter = (MASTERS + MOMENTS) / 4
    assert cut() == pytest.approx((GRADIENTS + BASE + quarter, 0, HALF + quarter), rel=1e-3)
    aside = (GRADIENTS + MASTERS / 4, BASE + MOMENTS / 4, HALF + BASE + quarter + MOMENTS / 4)
    assert cut(offload_optimizer=True) == pytest.approx(aside, rel=1e-3)


def test_full_training_in_transformers_is_counted_number_by_number() -> None:
    count = known("Qwen/Qwen3-4B").parameters
    found = parts("transformers", lora=False)
    assert found["weights and base"].bytes == (HALF + BASE) * count
    assert state(found) == ((MASTERS + SINGLE + MOMENTS) * count, (GRADIENTS + MOMENTS + SINGLE) * count, 0)
    aside = state(parts("transformers", lora=False, offload_optimizer=True))
    assert aside == ((MASTERS + SINGLE) * count, (GRADIENTS + MOMENTS + SINGLE) * count, MOMENTS * count)


def test_a_lora_trains_a_small_part() -> None:
    adapter = known("Qwen/Qwen3-4B").adapter(16)
    joined = 2 * HALF  # the adapters of a layer in bfloat16, with zeros between them
    assert state(parts()) == ((8 * SINGLE + joined) * adapter, 0, 0)
    assert state(parts("transformers")) == ((8 * SINGLE + HALF) * adapter, 0, 0)
    assert state(parts(teacher="ema")) == ((9 * SINGLE + joined) * adapter, 0, 0)
    assert state(parts(offload_optimizer=True)) == ((2 * SINGLE + joined) * adapter, 0, 6 * SINGLE * adapter)


def test_recompute_and_tensor_parallelism_make_activations_smaller() -> None:
    ways: tuple[dict[str, Any], ...] = ({}, {"recompute": True}, {"parallel": 4})
    plain, recomputed, shared = (parts(**{"recompute": False, **changes})["activations"].bytes for changes in ways)
    assert recomputed < plain / 10 and shared < plain / 2
    assert parts()["activations"].bytes == recomputed, "a plan counts on recomputing all that may be"


def test_without_the_compiler_more_is_kept() -> None:
    """As an H200 reserved for a sequence of 8k tokens in a 4B model: 60.2 GB, with it 48.3 (benchmarks.md)."""
    mine = settings(recompute=False, method="binary", micro_batch_tokens=8193, max_sample_tokens=8193)
    measured = {True: 48.29e9, False: 60.19e9}
    for compiled, reserved in measured.items():
        found = memory.training(mine, known("Qwen/Qwen3-4B"), "megatron", 1, compiled=compiled)
        used = [part for part in memory.during_step(found) if part.what != "CUDA context"]
        assert memory.total(used) == pytest.approx(reserved, rel=0.03)
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    shapes = {
        "transformers": known("Qwen/Qwen3-4B"),
        "megatron": shape_of({**TINY, **experts, "model_type": "qwen3_moe"}),
    }
    for trainer, shape in shapes.items():
        both = {memory.activations(mine, shape, trainer, 1, compiled=compiled) for compiled in (True, False)}
        assert len(both) == 1, "these parts are no fused ones"


@pytest.mark.parametrize("tokens", [4096, 8192, 20480])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B"])
def test_as_few_layers_recompute_as_the_memory_allows(model: str, tokens: int) -> None:
    mine, shape = settings(model=model, micro_batch_tokens=tokens, max_sample_tokens=tokens), known(model)

    def need(layers: int) -> int:
        return memory.total(memory.during_step(memory.training(mine, shape, "megatron", 1, recomputed=layers)))

    def fewest(gib: float, trainer: str = "megatron") -> int:
        return memory.layers_to_recompute(mine, shape, trainer, 1, room=int(gib * GIB))

    for gib in range(8, 200, 4):
        layers = fewest(gib)
        assert layers >= fewest(gib + 4), "more memory, fewer layers"
        assert need(layers) <= gib * GIB or layers == shape.layers
        assert layers == 0 or need(layers - 1) > gib * GIB
        assert fewest(gib, "transformers") in (0, shape.layers)
    assert fewest(1) == fewest(1, "transformers") == shape.layers and fewest(1000) == fewest(1000, "transformers") == 0
    assert 0 < fewest((need(0) + need(shape.layers)) / 2 / GIB) < shape.layers


def test_recompute_is_read_from_every_source() -> None:
    flags = {"--recompute": "true", "--no-recompute": "false", "--recompute auto": "auto", "--recompute=auto": "auto"}
    for line, said in flags.items():
        assert parse_flags([*line.split(), "--lora"]) == {"recompute": said, "lora": "true"}
    again = Settings.model_validate({"recompute": to_environment(Settings())["OPENCLAW_RL_RECOMPUTE"]})
    assert again.learning.recompute == "auto"


def test_a_turn_that_is_longer_than_a_micro_batch_counts() -> None:
    shape = known("Qwen/Qwen3-4B")
    mine = settings(micro_batch_tokens=4096, max_sample_tokens=16384)
    assert memory.longest(mine, shape, "transformers") == 16384
    assert memory.longest(mine, shape, "megatron") == 16384 + 4096
    short = settings(micro_batch_tokens=4096, max_sample_tokens=16384, context_length=2048)
    assert memory.longest(short, shape, "megatron") == 4096


@pytest.mark.parametrize(("method", "held"), [("rehearse", True), ("topk", True), ("opd", True), ("binary", False)])
def test_distributions_of_a_teacher_are_held_where_a_method_asks_one(method: str, held: bool) -> None:
    assert ("distributions of teacher and base" in parts(method=method)) == held
    assert "distributions of teacher and base" in parts(method=method, kl_base=0.1)


def test_copies_for_branches_are_planned_where_there_are_branches_and_no_flex_attention() -> None:
    shape = known("Qwen/Qwen3-4B")

    def copied(
        trainer: str, parallel: int = 1, compiled: bool = False, shape: ModelShape = shape, **changes: Any
    ) -> int:
        found = memory.training(settings(**changes), shape, trainer, parallel, compiled=compiled)
        return sum(part.bytes for part in found if "copied for a branch" in part.what)

    for trainer in ("megatron", "transformers"):
        assert copied(trainer) > 0 == copied(trainer, compiled=True) == copied(trainer, merge_prefixes=False)
        assert copied(trainer, max_sample_tokens=2 * TOKENS) == pytest.approx(2 * copied(trainer), rel=1e-6)
        assert copied(trainer, 2) == pytest.approx(copied(trainer) / 2, rel=1e-6)
    assert copied("transformers", shape=known("Qwen/Qwen3.5-4B")) == 0, "its linear attention cannot fork"


TRUNK, BRANCH, HEADS, GROUPS, WIDTH = 3000, 16, 6, 2, 64
OWN = prefix_attention.OWN


def branches_of_megatron(query: Tensor, *sources: Tensor) -> Tensor:
    keys, values = (torch.cat(parts, 2) for parts in (sources[::2], sources[1::2]))
    attention = PackedAttention(CurrentSequence())
    queries = torch.cat([query.new_zeros(1, HEADS, TRUNK, WIDTH), query], 2)
    runs = [Run(begin, begin + BRANCH, TRUNK, before=((0, TRUNK),)) for begin in (TRUNK, TRUNK + BRANCH)]
    return torch.cat([attention._attend(run, queries, keys, values) for run in runs], 2)


def branches_of_transformers(query: Tensor, *sources: Tensor) -> Tensor:
    calls = [
        prefix_attention._Call(begin, begin + BRANCH, [(0, 0, TRUNK), (OWN, begin, begin + BRANCH)])
        for begin in (0, BRANCH)
    ]
    found: Tensor = prefix_attention._Sliced.apply(calls, [0, OWN], None, query, *sources)
    return found


@pytest.mark.parametrize(
    ("trainer", "branches"), [("megatron", branches_of_megatron), ("transformers", branches_of_transformers)]
)
def test_copies_for_a_branch_take_on_a_cpu_what_its_kernels_need_of_those_planned(
    trainer: str, branches: Callable[..., Tensor]
) -> None:
    """Its kernels do without the first two by query head."""
    shapes = [(HEADS, 2 * BRANCH), *[(GROUPS, TRUNK)] * 2, *[(GROUPS, 2 * BRANCH)] * 2]
    inputs = [torch.randn(1, *shape, WIDTH, dtype=torch.bfloat16, requires_grad=True) for shape in shapes]
    output = branches(*inputs)
    gradient = torch.randn_like(output)
    held = most = 0
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        torch.autograd.grad(output, inputs, gradient)
    for event in measured.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    each = HALF * (TRUNK + BRANCH) * WIDTH
    by_head, by_group = memory.BRANCH_COPIES[trainer]
    assert (by_head - 2) * HEADS + by_group * GROUPS <= most / each <= by_head * HEADS + by_group * GROUPS


def test_all_of_a_server_and_a_trainer_is_counted_once() -> None:
    mine, shape = settings(), known("Qwen/Qwen3-4B")
    everything = [
        *memory.training(mine, shape, "megatron", 1),
        *memory.serving(mine, shape, "policy", 1, 24 * GIB),
    ]
    at_once = memory.total(memory.during_step(everything))
    assert at_once == sum(part.bytes for part in everything if not part.host)
    lent = memory.total(memory.during_step(everything, alternating=True))
    assert at_once - lent == sum(part.bytes for part in everything if part.tag in ("kv_cache", "weights"))
    rest = memory.total(memory.between_steps(everything))
    assert rest == at_once - sum(part.bytes for part in everything if part.step)


def test_constants_are_those_of_the_trainers_code() -> None:
    assert memory.TARGET_BYTES == targets.TARGET_BYTES
    assert memory.LOGIT_BYTES == slices.LOGIT_BYTES
