"""Estimate of the GPU memory that training and serving need, with all its constants.

The formulas sum up what the code of `trainer_local` allocates. P is the number of a model's parameters, t the number of
GPUs that share each layer. `bench/megatron_gpu.py` compares them with a GPU (docs/benchmarks.md has what it found).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from openclaw_rl.shared.gpus import GIB, MIB
from openclaw_rl.shared.placement import MemoryPart
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.model_shape import ModelShape

HALF, SINGLE = 2, 4  # bytes of a number in bfloat16 and in single precision
KEPT_FREE = 0.02  # share of a GPU left out of the plan: driver, display, fragments, exchange of gradients
CONTEXT = 700 * MIB  # CUDA's context, kernels and work space of a process
NCCL = 400 * MIB  # communication buffers of a process with a part of each layer
ALLOCATOR = 1.08  # memory that torch's allocator reserves for activations, relative to what is requested
SLACK = 1536 * MIB  # SGLang's minimum for temporary tensors (`arg_groups/memory_hook.py`, 0.5.23)
GRAPHS = 0.012  # share of a GPU for SGLang's CUDA graphs (same file: 2 MB a batch size, 8 MB a prefill length)
JUDGE_CONTEXT = 32768  # minimum tokens in a judge's KV cache, or its model's context where that is shorter
SEQUENCES = 8  # minimum number of sequences for which a hybrid model's states are kept
LOGIT_BYTES = 512 * MIB  # logits that the trainers compute at once (`trainer_local.training.slices`)
ANSWER = 1024  # tokens of the longest answer that the plan has room for under a custom loss, which gets it whole
TARGET_BYTES = 2 * GIB  # distributions of teacher and base held at once (`trainer_local.training.targets`)
PER_HEAD = 8.0  # bytes saved for each token and query head by normalization and attention; half of it for a key head

# Peak copies of the logits `[N, V]` in single precision while a loss over whole distributions, or over sampled tokens,
# is differentiated: 5 and 3, counted with torch's profiler over `shared.objective.losses` on a CPU, and one to spare.
LOGIT_COPIES = {"distributions": 6.0, "sampled": 4.0}
SAMPLED = frozenset(["binary", "opd", "combined", "topk-select", "follow-up"])  # methods of the second kind

# Bytes of a number in a projection by SGLang's `--quantization`, scales included. Embeddings, norms and the output head
# stay in bfloat16, as does everything under any other method.
QUANTIZED: dict[str, float] = {
    **dict.fromkeys(("fp8", "w8a8_fp8", "modelopt_fp8", "w8a8_int8", "blockwise_int8", "mxfp8"), 1.01),
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "moe_wna16"), 0.53),
    **dict.fromkeys(("bitsandbytes", "nvfp4_online", "modelopt_fp4", "mxfp4"), 0.57),
}


class Saved(NamedTuple):
    """Bytes of activations that a layer saves for its backward pass, for each token and each number of the hidden size,
    the queries' and keys' width, and the feed-forward width.
    """

    hidden: float
    queries: float
    keys: float
    feed_forward: float


class SavedByExperts(NamedTuple):
    """Bytes that a layer's experts save in place of its feed-forward part, for each token: on its way through one of
    them for each number of the `hidden` size and of the expert's `width`, and for its `place`; by the `router` for each
    expert. `hidden_less` of a plain layer's bytes for each number of the hidden size fall away.
    """

    hidden: float
    width: float
    place: float
    router: float
    hidden_less: float


# By trainer and `lora`. Counted with `torch.autograd.graph.saved_tensors_hooks` over Qwen3 layers of several sizes in
# bfloat16: Megatron-core's on an H200 with the fused kernels that it has there, the other on a CPU. Compare Korthikanti
# et al. (arXiv 2205.05198, section 4): 34 bytes per number of the hidden size in a GPT layer with dropout.
SAVED: dict[tuple[str, bool], Saved] = {
    ("megatron", True): Saved(8, 8, 2, 6),
    ("megatron", False): Saved(8, 8, 2, 6),
    ("transformers", True): Saved(12, 8, 8, 8),
    ("transformers", False): Saved(16, 10, 10, 8),
}
# Bytes for each token and number of the feed-forward width that Megatron-core's trainer saves in addition where torch's
# compiler cannot be used: an H200 reserved 11.9 GB more without it (bench/results/gpu/h200/2-8192.json).
UNFUSED = 4.0
# Counted likewise in the Megatron-core trainer with LoRA, on a CPU. There are no fused kernels in that code, so a GPU
# saves the same.
BY_EXPERTS = SavedByExperts(hidden=6, width=8, place=26, router=4, hidden_less=HALF)

# The numbers of copies of keys and values that one branch sees, and of their gradients, which exist at once in its
# backward pass where FlexAttention is not used: by query heads and by key heads. By key head: copies, the sum of all
# branches' gradients, and in Megatron-core's trainer this one's. By query head: gradients, and in transformers' the
# copies that the kernels for CUDA need. Counted by the code (`megatron.attention`, `prefix.attention`); a CPU, which
# needs neither all copies nor all gradients by query head, stays within it, and no card measured it.
BRANCH_COPIES = {"megatron": (2, 6), "transformers": (4, 4)}


def usable(memory: int) -> int:
    """Bytes of a GPU that may be planned with."""
    return int(memory * (1 - KEPT_FREE))


def total(parts: Iterable[MemoryPart]) -> int:
    """Bytes of all parts."""
    return sum(part.bytes for part in parts)


def during_step(parts: Iterable[MemoryPart], *, alternating: bool = False) -> list[MemoryPart]:
    """Parts on a GPU during a step; `alternating`: while the policy's server has released KV cache and weights."""
    lent = ("kv_cache", "weights") if alternating else ()
    return [part for part in parts if not part.host and not (part.role == "policy" and part.tag in lent)]


def between_steps(parts: Iterable[MemoryPart]) -> list[MemoryPart]:
    """Parts on a GPU between steps, when the trainer has emptied torch's cache."""
    return [part for part in parts if not part.host and not part.step]


def fraction_at(free: int, planned: float, static_bytes: int) -> float:
    """`--mem-fraction-static` for a server that starts with `free` bytes free on its GPU; `planned` where it cannot be
    computed. SGLang measures once it has its CUDA context (`mem_cache/kv_cache_configurator.py`, 0.5.23). Rounded down:
    others need the rest.
    """
    if not static_bytes or free <= CONTEXT:
        return planned
    return min(0.98, max(1, int(1000 * static_bytes / (free - CONTEXT))) / 1000)


def weights(shape: ModelShape, tensor_parallel: int, quantization: str = "") -> int:
    """Bytes of a model's weights on one of t GPUs: 2 P / t in bfloat16. Norms and the vision encoder are on every GPU;
    `quantization` makes the projections smaller.
    """
    if shape.quantization and shape.stored_bytes:
        return shape.stored_bytes // tensor_parallel
    each = QUANTIZED.get(quantization or shape.quantization, HALF)
    rest = shape.parameters - shape.projected - shape.embeddings
    return int((each * shape.projected + HALF * shape.embeddings) / tensor_parallel + HALF * rest)


def kv_token(shape: ModelShape, tensor_parallel: int) -> int:
    """Bytes of a token's keys and values on one of t GPUs: 2 · layers · heads · head · 2, with at least one head."""
    return 2 * shape.cached_layers * max(1, shape.groups // tensor_parallel) * shape.head * HALF


def serving(settings: Settings, shape: ModelShape, role: str, tensor_parallel: int, memory: int) -> list[MemoryPart]:
    """Parts of an SGLang server on each of t GPUs of `memory` bytes, with a KV cache for one full conversation."""
    learning, policy = settings.learning, role == "policy"
    precision = (settings.gpu.quantization if policy else "") or shape.quantization
    context = _context(settings, shape) if policy else min(shape.context or JUDGE_CONTEXT, JUDGE_CONTEXT)
    cache = context * kv_token(shape, tensor_parallel) + SEQUENCES * shape.state_bytes // tensor_parallel
    # Every version in memory, and the one being loaded, has a place (`--max-loras-per-batch`).
    slots = settings.engine.max_versions + 1 if policy and learning.lora and learning.train else 0
    adapters = slots * HALF * shape.adapter(learning.lora_rank, learning.lora_targets, tensor_parallel)
    may_quantize = policy and not precision and (learning.lora or not learning.train)
    quantize = "sglang_args = --quantization fp8" if may_quantize else ""
    shorter = f"a smaller context_length (now {context})" if policy else ""
    size = weights(shape, tensor_parallel, precision)
    parts = [
        MemoryPart(role=role, what="CUDA context", bytes=CONTEXT + NCCL * (tensor_parallel > 1)),
        MemoryPart(role=role, what=f"weights, {precision or 'bfloat16'}", bytes=size, tag="weights", hint=quantize),
        MemoryPart(role=role, what=f"{slots} adapters", bytes=adapters, tag="adapters"),
        MemoryPart(role=role, what=f"KV cache, {context} tokens", bytes=cache, tag="kv_cache", hint=shorter),
        MemoryPart(role=role, what="CUDA graphs and work space", bytes=SLACK + int(GRAPHS * memory)),
    ]
    return [part for part in parts if part.bytes]


def training(
    settings: Settings,
    shape: ModelShape,
    trainer: str,
    tensor_parallel: int,
    ranks: int = 1,
    *,
    recomputed: int | None = None,
    compiled: bool = True,
) -> list[MemoryPart]:
    """Parts of the trainer on each of its GPUs, `ranks` in all, if `recomputed` layers recompute their activations
    (`None`: all that the settings allow). `compiled`: torch's compiler can be used (`UNFUSED`, `BRANCH_COPIES`).
    """
    learning, tokens = settings.learning, longest(settings, shape, trainer)
    shorter = "max_sample_tokens" if tokens > learning.micro_batch_tokens else "micro_batch_tokens"
    hint = f"a smaller {shorter} (now {settings.value(shorter)})"
    recompute = "recompute = auto" if learning.recompute is False else hint
    with_base = bool(learning.custom_loss) or learning.kl_base > 0
    teacher = learning.method != "binary" or with_base
    copies = LOGIT_COPIES["sampled" if learning.method in SAMPLED and not with_base else "distributions"]
    logit = SINGLE * shape.vocabulary
    answers = LOGIT_BYTES // logit
    if learning.custom_loss:
        answers = max(answers, min(settings.serve.max_output_tokens, ANSWER))
    kept = ALLOCATOR * activations(settings, shape, trainer, tensor_parallel, recomputed, compiled=compiled)
    what, size, trained = f"weights, {shape.quantization or 'bfloat16'}", weights(shape, tensor_parallel), "lora = true"
    if learning.lora:
        trained = "a larger tensor_parallel" if trainer == "megatron" else ""
    elif trainer == "transformers":
        what, size = "weights and base, bfloat16", 2 * HALF * shape.parameters
    at_rest, in_step, on_host = _state(settings, shape, trainer, tensor_parallel, ranks)
    offload = "" if learning.lora else "lora = true" if learning.offload_optimizer else "offload_optimizer = true"
    parts = [
        _part("CUDA context", CONTEXT + NCCL * (tensor_parallel > 1)),
        _part(what, size, hint=trained),
        _part("optimizer, and copies of weights", at_rest, hint=offload),
        _part("gradients, and copies that undo a step", in_step, step=True, hint=offload),
        _part("state of the optimizer and copies", on_host, host=True),
        _part(f"activations, {tokens} tokens", kept, step=True, hint=recompute),
        _part("logits and their loss", ALLOCATOR * copies * logit * min(tokens, answers), step=True, hint=hint),
        _part("distributions of teacher and base", TARGET_BYTES * teacher, step=True),
        _part(
            "keys and values copied for a branch",
            0 if compiled else ALLOCATOR * branch_copies(settings, shape, trainer, tensor_parallel),
            step=True,
            hint=hint,
        ),
    ]
    return [part for part in parts if part.bytes]


def layers_to_recompute(
    settings: Settings,
    shape: ModelShape,
    trainer: str,
    tensor_parallel: int,
    ranks: int = 1,
    *,
    room: int,
    compiled: bool = True,
) -> int:
    """The smallest number of layers that have to recompute their activations so that a step fits in `room` bytes; all
    if it does not fit even then. The transformers trainer recomputes all or none.
    """
    for layers in range(shape.layers) if trainer == "megatron" else (0,):
        parts = training(settings, shape, trainer, tensor_parallel, ranks, recomputed=layers, compiled=compiled)
        if total(during_step(parts)) <= room:
            return layers
    return shape.layers


def longest(settings: Settings, shape: ModelShape, trainer: str) -> int:
    """Maximum tokens of one forward pass: a micro batch, or one turn that is longer. The Megatron-core trainer packs up
    to a micro batch next to such a turn (`trainer_local.megatron.forward.budget`).
    """
    turn = min(settings.learning.max_sample_tokens, _context(settings, shape))
    if turn <= settings.learning.micro_batch_tokens:
        return settings.learning.micro_batch_tokens
    return turn + (settings.learning.micro_batch_tokens if trainer == "megatron" else 0)


def activations(
    settings: Settings,
    shape: ModelShape,
    trainer: str,
    tensor_parallel: int,
    recomputed: int | None = None,
    *,
    compiled: bool = True,
) -> int:
    """Bytes saved for the backward pass: all of the layers that keep theirs, and the inputs of the `recomputed` ones
    (Chen et al., arXiv 1604.06174; `None`: all layers unless `recompute = false`); and one layer, whose gradients are
    computed. Hidden states are whole on every GPU.
    """
    if recomputed is None:
        recomputed = 0 if settings.learning.recompute is False else shape.layers
    saved = SAVED[trainer, settings.learning.lora]
    cut = saved.queries * shape.heads * shape.head + saved.keys * shape.groups * shape.head
    cut += PER_HEAD * (shape.heads + shape.groups / 2)
    wide = saved.feed_forward + (0 if compiled or trainer != "megatron" else UNFUSED)
    cut += (BY_EXPERTS.width * shape.chosen if shape.experts else wide) * shape.feed_forward
    layer = saved.hidden * shape.hidden + PER_HEAD + cut / tensor_parallel
    if shape.experts:
        layer += (BY_EXPERTS.hidden * shape.chosen - BY_EXPERTS.hidden_less) * shape.hidden
        layer += BY_EXPERTS.place * shape.chosen + BY_EXPERTS.router * shape.experts
    if settings.learning.lora:
        inside = sum(shape.chosen if one.count > shape.layers else 1 for one in shape.projections)
        layer += HALF * settings.learning.lora_rank * inside
    kept = recomputed * HALF * shape.hidden + (shape.layers - recomputed) * layer
    return int(longest(settings, shape, trainer) * (kept + layer))


def branch_copies(settings: Settings, shape: ModelShape, trainer: str, tensor_parallel: int) -> int:
    """Bytes of the copies of keys and values for the longest branch in one layer (`BRANCH_COPIES`); 0 where no prefixes
    are shared, or some layers keep a state that cannot fork.
    """
    if not settings.learning.merge_prefixes or shape.cached_layers < shape.layers:
        return 0
    heads, groups = BRANCH_COPIES[trainer]
    turn = min(settings.learning.max_sample_tokens, _context(settings, shape))
    return int(HALF * turn * shape.head * (heads * shape.heads + groups * shape.groups) / tensor_parallel)


def _part(what: str, size: float, *, step: bool = False, host: bool = False, hint: str = "") -> MemoryPart:
    return MemoryPart(role="trainer", what=what, bytes=int(size), step=step, host=host, hint=hint)


def _state(
    settings: Settings, shape: ModelShape, trainer: str, tensor_parallel: int, ranks: int
) -> tuple[float, float, float]:
    """Bytes of what is trained: at rest, more of them during a step, and on the host. A parameter's gradient, master
    and copies of its weight take 4 each, AdamW's moments 8, a moving average 4.
    """
    learning, average = settings.learning, SINGLE * (settings.learning.teacher == "ema")
    rest = shape.language - shape.embeddings - shape.projected
    trained: float = (shape.embeddings + shape.projected) / tensor_parallel + rest
    state: tuple[float, float, float]
    if learning.lora:
        # Adapter and gradient; then moments, those before the step, and the adapter at the start and before the step.
        trained = shape.adapter(learning.lora_rank, learning.lora_targets, tensor_parallel)
        state = (8, 0, 24 + average) if learning.offload_optimizer else (32 + average, 0, 0)
        # It computes with a copy in bfloat16; Megatron-core's joins the adapters of a layer, with zeros between them.
        state = (state[0] + (HALF if trainer == "transformers" else 2 * HALF), *state[1:])
    elif trainer == "transformers":
        # Masters, first weights and moments; in a step gradients, and moments and weights before it.
        trained = shape.language
        state = (8 + average, 16, 8) if learning.offload_optimizer else (16 + average, 16, 0)
    elif settings.gpu.distributed_optimizer:
        # Gradients, base (2), masters and moments, these two cut. On the host weights (2), masters and moments before a
        # step; an average is of the weights.
        cut = max(1, ranks // tensor_parallel)
        state = (6 + 12 / cut, 0, 2 + average / 2 + 12 / cut)
        if learning.offload_optimizer:  # the base is on the host, moments come for a step
            state = (4 + 4 / cut, 2 + 8 / cut, 4 + average / 2 + 20 / cut)
    else:
        # Masters, moments and base (2); in a step gradients; masters and moments before it are on the host.
        state = (0, 6, 26 + average) if learning.offload_optimizer else (14, 4, 12 + average)
    at_rest, in_step, on_host = (each * trained for each in state)
    return at_rest, in_step, on_host


def _context(settings: Settings, shape: ModelShape) -> int:
    """Tokens of the longest conversation with the policy."""
    return settings.engine.context_length or shape.context or JUDGE_CONTEXT
