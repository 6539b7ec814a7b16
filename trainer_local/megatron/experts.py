"""A mixture of experts (Shazeer et al., arXiv 1701.06538) as in Qwen3's, in place of a layer's feed-forward part.

Megatron-core (0.16.1) has one too, but its router needs CUDA, and its experts are a module each or need Transformer
Engine. Here one tensor has the weights of all experts of a layer. Under tensor parallelism every expert is cut as a
feed-forward layer is, and all ranks choose alike.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor
from torch.nn import functional as F

from openclaw_rl.trainer_local.megatron.collectives import copy_to_parts, reduce_parts
from openclaw_rl.trainer_local.megatron.grouped import grouped
from openclaw_rl.trainer_local.megatron.shape import Shape


class Mixture(torch.nn.Module):
    """The router `[experts, hidden]` and the experts' weights: `fc1` `[experts, 2 · width, hidden]`, gate above up, and
    `fc2` `[experts, hidden, width]`, this rank's part of the width. `adapters` (`lora.ExpertAdapter`), by projection,
    count while `switch` is on. A subclass has the `shape`.
    """

    shape: Shape

    def __init__(self, config: TransformerConfig, **_: Any) -> None:
        super().__init__()
        shape = self.shape
        self._chosen, self._renormalized = shape.chosen, shape.renormalized
        self._group = parallel_state.get_tensor_model_parallel_group()
        self._ranks = config.tensor_model_parallel_size
        width = shape.feed_forward // self._ranks
        device = torch.device("cpu" if config.use_cpu_initialization else "cuda")

        def empty(*size: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.empty(*size, dtype=config.params_dtype, device=device))

        self.router = empty(shape.experts, shape.hidden)
        self.fc1 = empty(shape.experts, 2 * width, shape.hidden)
        self.fc2 = empty(shape.experts, shape.hidden, width)
        self.adapters: torch.nn.ModuleDict = torch.nn.ModuleDict()
        self.switch: Any = None

    def forward(self, hidden: Tensor, **_: Any) -> tuple[Tensor, None]:
        """`[N, 1, hidden]` to the same, and no bias."""
        tokens = hidden.flatten(0, -2)
        experts, shares = self._choose(tokens)
        order = experts.flatten().argsort(stable=True)
        ends = torch.bincount(experts.flatten(), minlength=len(self.router)).cumsum(0)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))

        def together(rows: Tensor, shares: Tensor) -> Tensor:
            """The sum of each token's rows, by their shares: `[N, hidden]`."""
            return (rows[back].unflatten(0, shares.shape) * shares.unsqueeze(-1)).sum(dim=1)

        parallel = self._ranks > 1
        place = order // self._chosen
        plain = tokens[place]
        inside = grouped(copy_to_parts(tokens, self._group)[place] if parallel else plain, self.fc1, ends)
        gate, up = (
            self._with_adapter(name, part, plain, ends)
            for name, part in zip(("gate_proj", "up_proj"), inside.chunk(2, dim=-1), strict=True)
        )
        active = F.silu(gate) * up
        out = together(grouped(active, self.fc2, ends), copy_to_parts(shares, self._group) if parallel else shares)
        if parallel:
            out = reduce_parts(out, self._group)
        if self._adapts("down_proj"):
            out = out + together(self.adapters["down_proj"](active, ends), shares)
        return out.view_as(hidden), None

    def _choose(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The experts `[N, chosen]` of each token, and their shares in its precision. All in single precision but the
        router's product, as transformers has it.
        """
        likely = F.linear(tokens, self.router).softmax(dim=-1, dtype=torch.float32)
        shares, experts = likely.topk(self._chosen, dim=-1)
        if self._renormalized:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        return experts, shares.to(tokens.dtype)

    def _adapts(self, name: str) -> bool:
        return name in self.adapters and self.switch is not None and bool(self.switch.on)

    def _with_adapter(self, name: str, part: Tensor, rows: Tensor, ends: Tensor) -> Tensor:
        return part + self.adapters[name](rows, ends) if self._adapts(name) else part
