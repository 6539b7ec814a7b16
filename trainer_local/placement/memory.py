"""What training and serving take of a GPU's memory: estimates, with every constant in this file.

Formulas are sums over what the code in `trainer_local` holds, so that a figure can be traced; P is the number of a
model's parameters, t that of the GPUs which share each layer. No figure here was compared with a card yet:
`bench/megatron_gpu.py` does that, and corrects the constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.model_shape import ModelShape

GIB = 1 << 30
MIB = 1 << 20

HALF, SINGLE = 2, 4
"""Bytes of a number in bfloat16 and in single precision."""

KEPT_FREE = 0.02
"""Share of a card that is planned for nobody: what the driver and a display keep, and pieces that fit nothing."""

CONTEXT = 700 * MIB
"""What a process takes of a GPU before it holds anything: CUDA's context, the libraries' kernels and work space."""

NCCL = 400 * MIB
"""The buffers of a process that talks to other GPUs."""

ALLOCATOR = 1.08
"""What torch's allocator takes for activations and the like, to what is asked of it (pieces that fit nothing)."""

SLACK = 1536 * MIB
"""What SGLang leaves free for what comes and goes while it serves (`arg_groups/memory_hook.py`, 0.5.23: its floor)."""

GRAPHS = 0.012
"""Share of a card that SGLang's CUDA graphs take: by `memory_hook.py` 2 MB for each batch size up to the largest, and 8
for each length of a prompt's piece, which it chooses by the card's size.
"""

JUDGE_CONTEXT = 32768
"""Tokens that a judge's KV cache has to hold at least, or its model's context where that is shorter."""

SEQUENCES = 8
"""Answers at a time that a hybrid model's states are kept for, at least."""

LOGIT_BYTES = 512 * MIB
"""Logits in single precision that the Megatron-core trainer holds at once (`trainer_local.megatron.forward`)."""

TARGET_BYTES = 2 * GIB
"""Distributions of teacher and base that are held at once (`trainer_local.training.targets`)."""

ANSWERED = 0.5
"""Share of a micro batch's tokens that are answers, at most, where all their logits are made at once (transformers)."""

LOGIT_COPIES = {"distributions": 6.0, "sampled": 4.0}
"""How often logits `[N, V]` in single precision are in memory when a loss over whole distributions, or one over sampled
tokens, is differentiated: 5.5 to 6 and 3.5 to 4, counted with torch's profiler over `shared.objective.losses` on a CPU.
"""

SAMPLED = frozenset(["binary", "opd", "combined", "topk-select"])
"""Methods whose loss is over sampled tokens, or a few likely ones."""

QUANTIZED: dict[str, float] = {
    **dict.fromkeys(("fp8", "w8a8_fp8", "modelopt_fp8", "w8a8_int8", "blockwise_int8", "mxfp8"), 1.01),
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "moe_wna16"), 0.53),
    **dict.fromkeys(("bitsandbytes", "nvfp4_online", "modelopt_fp4", "mxfp4"), 0.57),
}
"""Bytes of a number in a projection under SGLang's `--quantization`, scales included (4 bits: groups of 128, 64 and
16); embeddings, norms and the output head stay in bfloat16. Another method counts as bfloat16.
"""

QUANTIZES_ITSELF = frozenset(["fp8", "mxfp8", "w8a8_fp8", "bitsandbytes", "nvfp4_online"])
"""Methods by which SGLang itself quantizes what is stored in bfloat16: all of it is on the card first."""


class Saved(msgspec.Struct, frozen=True):
    """Bytes of activations that a layer keeps for its backward pass, for each token: a number for each of the hidden
    size, the queries' and the keys' width and the feed-forward width; `per_head` more for each query head
    (normalisation and attention), half of it for each key head, `angles` for each number of a head (rotary positions).
    """

    hidden: float
    queries: float
    keys: float
    feed_forward: float
    per_head: float = 8.0
    angles: float = 0.0


SAVED: dict[tuple[str, bool], Saved] = {
    ("megatron", True): Saved(12, 10, 10, 10, angles=8),
    ("megatron", False): Saved(20, 14, 14, 10, angles=8),
    ("transformers", True): Saved(28, 12, 8, 10),
    ("transformers", False): Saved(24, 16, 16, 16),
}
"""By trainer and whether it is a LoRA. Counted exactly with `torch.autograd.graph.saved_tensors_hooks` over Qwen3
layers of several sizes on a CPU (bfloat16; all weights in transformers: single precision); fused kernels on a GPU keep
less. Without dropout, and with torch's attention kernels, which keep no matrix of scores. Compare Korthikanti et al.
(arXiv 2205.05198, section 4), who count 34 bytes for each number of the hidden size of a GPT layer with dropout.
"""

_CONTEXT, _CACHE, _WEIGHTS, _AROUND = "CUDA context", "KV cache", "weights", "CUDA graphs and work space"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the estimate: what `role` (`trainer`, `policy`, `judge`, `hint`) needs for `what` on each of its
    GPUs, in bytes. `host`: it is in the machine's own memory instead. `step`: it is there only while a step is made.
    `tag`: what SGLang calls it when the policy's server gives it back (`kv_cache`, `weights`); "" for what stays.
    """

    role: str
    what: str
    bytes: int
    host: bool = False
    step: bool = False
    tag: str = ""

    @property
    def is_cache(self) -> bool:
        """Whether it is a KV cache, which may be larger than it has to be."""
        return self.what.startswith(_CACHE)

    @property
    def is_static(self) -> bool:
        """Whether SGLang counts it in `--mem-fraction-static`: weights, adapters, KV cache."""
        return self.role != "trainer" and self.what not in (_CONTEXT, _AROUND)


def usable(memory: int) -> int:
    """Bytes of a card that may be planned with."""
    return int(memory * (1 - KEPT_FREE))


def at_step(parts: Iterable[Part], lends: Collection[str] = ()) -> int:
    """Bytes of a GPU that are held while a step is made, when the policy's server has given back what it `lends`."""
    return sum(part.bytes for part in parts if not part.host and not (part.tag and part.tag in lends))


def at_rest(parts: Iterable[Part]) -> int:
    """Bytes of a GPU that are held while no step is made and the trainer has emptied torch's cache."""
    return sum(part.bytes for part in parts if not part.host and not part.step)


def weights(shape: ModelShape, tensor_parallel: int, quantization: str = "") -> int:
    """Bytes of a model's weights on one of t GPUs: 2 P / t in bfloat16. Projections and embeddings are shared out, the
    rest and what sees images are on every GPU. `quantization` makes the projections smaller.
    """
    if shape.quantization and shape.stored_bytes:
        return shape.stored_bytes // tensor_parallel
    each = QUANTIZED.get(quantization or shape.quantization, HALF)
    rest = shape.parameters - shape.projected - shape.embeddings
    return int((each * shape.projected + HALF * shape.embeddings) / tensor_parallel + HALF * rest)


def kv_token(shape: ModelShape, tensor_parallel: int) -> int:
    """Bytes of a token's keys and values on one of t GPUs: 2 · layers · heads · head · 2, in bfloat16. Where there are
    fewer heads than GPUs each has one whole.
    """
    return 2 * shape.cached * max(1, shape.groups // tensor_parallel) * shape.head * HALF


def context_of(settings: Settings, shape: ModelShape, role: str = "policy") -> int:
    """Tokens of the longest conversation that a server has to hold."""
    if role != "policy":
        return min(shape.context or JUDGE_CONTEXT, JUDGE_CONTEXT)
    return settings.context_length or shape.context or JUDGE_CONTEXT


def serving(settings: Settings, shape: ModelShape, role: str, tensor_parallel: int, memory: int) -> list[Part]:
    """What an SGLang server takes of each of its t GPUs of `memory` bytes, its KV cache holding one conversation of
    full length.
    """
    mine = role == "policy"
    quantization = settings.quantization if mine else ""
    context = context_of(settings, shape, role)
    cache = context * kv_token(shape, tensor_parallel) + SEQUENCES * shape.state_bytes // tensor_parallel
    around = CONTEXT + (NCCL if tensor_parallel > 1 else 0)
    precision = quantization or shape.quantization or "bfloat16"
    # Every version in memory, and the one being loaded, has a place (`--max-loras-per-batch`).
    slots = settings.engine_max_versions + 1 if mine and settings.lora and settings.train else 0
    adapters = slots * HALF * shape.adapter(settings.lora_rank, settings.lora_targets, tensor_parallel)
    found = [
        (_CONTEXT, around, ""),
        (f"{_WEIGHTS}, {precision}", weights(shape, tensor_parallel, quantization), "weights"),
        (f"{slots} adapters", adapters, ""),
        (f"{_CACHE}, {context} tokens", cache, "kv_cache"),
        (_AROUND, SLACK + int(GRAPHS * memory), ""),
    ]
    return [Part(role=role, what=what, bytes=number, tag=tag if mine else "") for what, number, tag in found if number]


def loading(settings: Settings, shape: ModelShape, tensor_parallel: int) -> int:
    """Bytes that the policy's server needs on each GPU while it loads the model, where that may be more than later."""
    return CONTEXT + weights(shape, tensor_parallel) if settings.quantization in QUANTIZES_ITSELF else 0


def training(settings: Settings, shape: ModelShape, trainer: str, tensor_parallel: int, ranks: int = 1) -> list[Part]:
    """What the trainer takes of each of its GPUs; `ranks` train in all."""
    parts = [Part(role="trainer", what=_CONTEXT, bytes=CONTEXT + (NCCL if ranks > 1 else 0))]
    if settings.lora:
        parts += _adapter(settings, shape, tensor_parallel)
    elif trainer == "megatron":
        shares = max(1, ranks // tensor_parallel) if settings.distributed_optimizer else 0
        parts += _megatron(settings, shape, tensor_parallel, shares)
    else:
        parts += _transformers(settings, shape)
    kind = "sampled" if settings.method in SAMPLED and not _base_is_asked(settings) else "distributions"
    logits = LOGIT_COPIES[kind] * SINGLE * shape.vocabulary * _logit_tokens(settings, shape, trainer)
    tokens = longest(settings, shape, trainer)
    kept = activations(settings, shape, trainer, tensor_parallel)
    parts += [
        _part(f"activations, {tokens} tokens", ALLOCATOR * kept, step=True),
        _part("logits and their loss", ALLOCATOR * logits, step=True),
        _part("distributions of teacher and base", TARGET_BYTES if _teaches(settings) else 0, step=True),
    ]
    return [part for part in parts if part.bytes]


def longest(settings: Settings, shape: ModelShape, trainer: str) -> int:
    """Tokens that go through the model at once, at most: a micro batch, or one turn that is longer. Megatron-core's
    trainer packs as many more beside that turn (`trainer_local.megatron.forward.budget`).
    """
    turn = min(settings.max_sample_tokens, context_of(settings, shape))
    if turn <= settings.micro_batch_tokens:
        return settings.micro_batch_tokens
    return turn + (settings.micro_batch_tokens if trainer == "megatron" else 0)


def activations(settings: Settings, shape: ModelShape, trainer: str, tensor_parallel: int) -> int:
    """Bytes of what is kept for the backward pass: of all layers, or with recompute their inputs and one layer (Chen et
    al., arXiv 1604.06174); and one layer's gradients. Sequences are not shared out, so hidden states are whole on
    every GPU.
    """
    saved = SAVED[trainer, settings.lora]
    queries, keys = shape.heads * shape.head, shape.groups * shape.head
    shared = saved.queries * queries + saved.keys * keys + saved.feed_forward * shape.feed_forward
    shared += saved.per_head * (shape.heads + shape.groups / 2)
    layer = saved.hidden * shape.hidden + saved.angles * shape.head + saved.per_head + shared / tensor_parallel
    if settings.lora:
        layer += SINGLE * settings.lora_rank * len(shape.projections)
    number = SINGLE if trainer == "transformers" and not settings.lora else HALF
    kept = number * shape.hidden if settings.recomputes(on_gpu=True) else layer
    return int(longest(settings, shape, trainer) * (shape.layers * kept + layer))


def _part(what: str, size: float, *, step: bool = False, host: bool = False) -> Part:
    return Part(role="trainer", what=what, bytes=int(size), step=step, host=host)


def _adapter(settings: Settings, shape: ModelShape, tensor_parallel: int) -> Iterator[Part]:
    """Base in bfloat16, or as stored quantized; an adapter of A numbers in single precision 4 A, its gradient 4 A,
    AdamW's moments 8 A and a copy of them from before a step 8 A, copies of the adapter from the beginning and from
    before a step 4 A each, and 4 A more where the teacher is a moving average.
    """
    adapter = SINGLE * shape.adapter(settings.lora_rank, settings.lora_targets, tensor_parallel)
    yield _part(f"{_WEIGHTS}, {shape.quantization or 'bfloat16'}", weights(shape, tensor_parallel))
    yield _part("adapter and its gradient", 2 * adapter)
    copies = 2 + (settings.teacher == "ema")
    yield _part("optimizer, and copies that undo a step", (4 + copies) * adapter, host=settings.offload_optimizer)


def _megatron(settings: Settings, shape: ModelShape, tensor_parallel: int, shares: int) -> Iterator[Part]:
    """All of the language model's numbers L on a GPU: weights 2 L, gradients 4 L, masters 4 L, AdamW's moments 8 L and
    a copy of them from before a step 8 L, the base 2 L. With the optimizer's state on the host all but weights and
    gradients are there, the base coming to the GPU while it is asked. The distributed optimizer cuts masters and
    moments into `shares` (0 without it), copies them to the host, keeps its gradients, and brings the moments back for
    a step.
    """
    aside = settings.offload_optimizer
    rest = shape.language - shape.embeddings - shape.projected
    language = int((shape.embeddings + shape.projected) / tensor_parallel + rest)
    share = language // max(1, shares)
    yield _part(f"{_WEIGHTS}, bfloat16", weights(shape, tensor_parallel))
    yield _part("gradients", SINGLE * language, step=not shares)
    yield _part("weights in single precision", SINGLE * share, host=aside and not shares)
    yield _part("moments of AdamW", 2 * SINGLE * share, host=aside and not shares, step=aside and bool(shares))
    yield _part("copy of the moments, which undoes a step", 2 * SINGLE * share, step=True, host=aside or bool(shares))
    yield _part("copy of the weights, which undoes a step", SINGLE * language, step=True, host=True)
    yield _part("base", HALF * language, host=aside)
    yield _part("base while it is asked", HALF * language if aside else 0, step=True)
    yield _part("moving average", SINGLE * language if settings.teacher == "ema" else 0, host=True)


def _transformers(settings: Settings, shape: ModelShape) -> Iterator[Part]:
    """All numbers of the model in single precision, twice with the base; of the language model's, which learn, the
    first and those from before a step, gradients, and AdamW's moments, of which what is on the host between steps comes
    back for them.
    """
    language, aside = SINGLE * shape.language, settings.offload_optimizer
    yield _part(f"{_WEIGHTS}, single precision", SINGLE * shape.parameters)
    yield _part("base", SINGLE * shape.parameters)
    yield _part("first weights", language)
    yield _part("gradients", language, step=True)
    yield _part("moments of AdamW", 2 * language, step=aside)
    yield _part("copy of the moments, which undoes a step", 2 * language, step=True, host=aside)
    yield _part("copy of the weights, which undoes a step", language, step=True)
    yield _part("moving average", language if settings.teacher == "ema" else 0)


def _logit_tokens(settings: Settings, shape: ModelShape, trainer: str) -> int:
    """Answer tokens whose logits are made at once."""
    tokens = longest(settings, shape, trainer)
    if trainer == "megatron":
        return min(tokens, max(settings.max_output_tokens, LOGIT_BYTES // (SINGLE * shape.vocabulary)))
    held = int(ANSWERED * tokens)
    return min(held, TARGET_BYTES // (SINGLE * shape.vocabulary)) if _teaches(settings) else held


def _base_is_asked(settings: Settings) -> bool:
    """Whether all turns are compared with the base over the whole vocabulary."""
    return bool(settings.custom_loss) or settings.kl_base > 0


def _teaches(settings: Settings) -> bool:
    """Whether a teacher or the base is asked for distributions at all."""
    return settings.method != "binary" or _base_is_asked(settings)
