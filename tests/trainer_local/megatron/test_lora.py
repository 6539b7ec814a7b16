"""Adapters of fused layers on a stand-in for Megatron-core's linear layer: the results of each projection apart, with
fewer products and without tensors of the output's size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._python_dispatch import TorchDispatchMode

from openclaw_rl.shared.settings.learning import LearningSettings
from openclaw_rl.trainer_local.megatron.lora import DOWN, UP, Adapted, Adapter, Switch, parameter_name

RANK, ALPHA, HIDDEN, TOKENS = 3, 12.0, 20, 64
GROUPS, HEAD, SHARED = 2, 4, 3
"""Key-value heads, their width, and the query heads of each."""
ATTENTION = {"q_proj": GROUPS * SHARED * HEAD, "k_proj": GROUPS * HEAD, "v_proj": GROUPS * HEAD}
FEED_FORWARD = {"gate_proj": 28, "up_proj": 28}
LAYERS: dict[str, tuple[dict[str, int], dict[str, int], int]] = {
    "attention": (ATTENTION, {"q_proj": SHARED, "k_proj": 1, "v_proj": 1}, GROUPS),
    "feed forward": (FEED_FORWARD, {"gate_proj": 1, "up_proj": 1}, 1),
    "output": ({"o_proj": 26}, {"o_proj": 1}, 1),
}
"""The projections of a layer with their widths, their shares of a group, and its groups."""


class OneRank:
    """A tensor-parallel group of one."""

    def size(self) -> int:
        return 1

    def rank(self) -> int:
        return 0


class AsItIs(Function):
    """Returns its input, as Megatron-core's reduction on one rank does."""

    @staticmethod
    def forward(context: Any, part: Tensor) -> Tensor:
        return part

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0]


class Layer(torch.nn.Module):
    """A frozen linear layer that returns its bias, `None`, too."""

    def __init__(self, rows: int, *, reduced: bool) -> None:
        super().__init__()
        self.weight = torch.randn(rows, HIDDEN, dtype=torch.float64)
        self._reduced = reduced

    def forward(self, hidden: Tensor) -> tuple[Tensor, None]:
        output = hidden @ self.weight.to(hidden.dtype).t()
        return (AsItIs.apply(output) if self._reduced else output), None


class Apart(torch.nn.Module):
    """The reference: each projection's addition by itself, put together and added."""

    def __init__(self, fused: Adapted, widths: Mapping[str, int], groups: int) -> None:
        super().__init__()
        self.fused, self.widths, self.groups = fused, widths, groups

    def forward(self, hidden: Tensor) -> tuple[Tensor, None]:
        output, _ = self.fused.layer(hidden)
        parts = []
        for name, width in self.widths.items():
            if name in self.fused.adapters:
                adapter: Any = self.fused.adapters[name]
                inner = hidden @ adapter.down.to(hidden.dtype).t()
                part = (inner @ adapter.up.to(hidden.dtype).t()) * adapter.scale
            else:
                part = hidden.new_zeros(*hidden.shape[:-1], width)
            parts.append(part.unflatten(-1, (self.groups, -1)))
        added = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return output + added.flatten(-2), None


class Counting(TorchDispatchMode):
    """Counts matrix products, and the elements of new tensors `[tokens, …, width]` for all `widths`."""

    def __init__(self, widths: Collection[int]) -> None:
        super().__init__()
        self.widths, self.counts = widths, Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mine = {part.untyped_storage().data_ptr() for part in args if isinstance(part, Tensor)}
        found = func(*args, **(kwargs or {}))
        self.counts["products"] += func.overloadpacket.__name__ in ("mm", "addmm", "addmm_", "bmm")
        if isinstance(found, Tensor) and found.untyped_storage().data_ptr() not in mine:
            self.counts["elements"] += found.numel() * (found.numel() in {TOKENS * width for width in self.widths})
        return found


def adapted(layer: str, chosen: set[str]) -> tuple[Adapted, Apart]:
    """A layer with random adapters of the projections `chosen`, and the reference with the same parameters."""
    widths, parts, groups = LAYERS[layer]
    torch.manual_seed(3)
    learning = LearningSettings(lora_rank=RANK, lora_alpha=ALPHA)
    adapters = {}
    for name in (name for name in widths if name in chosen):
        sizes = {DOWN: (RANK, HIDDEN), UP: (widths[name], RANK)}
        whole = {parameter_name(name, side): torch.randn(size) for side, size in sizes.items()}
        adapters[name] = Adapter([name], learning, OneRank(), whole, torch.device("cpu"))
    made = Adapted(Layer(sum(widths.values()), reduced="o_proj" in widths), adapters, parts, groups, Switch())
    return made.double(), Apart(made, widths, groups)


def results(module: torch.nn.Module, hidden: Tensor) -> list[Tensor]:
    """Output, and the gradients to the input, A's and B's, of a loss with another weight for every element."""
    output, bias = module(hidden)
    assert bias is None
    loss = (output * torch.arange(output.numel(), dtype=output.dtype).view_as(output)).sum()
    wanted = [part for part in (hidden, *module.parameters()) if part.requires_grad]
    return [output, *torch.autograd.grad(loss, wanted)]


CASES = {
    "q, k and v": ("attention", {"q_proj", "k_proj", "v_proj"}),
    "q and v": ("attention", {"q_proj", "v_proj"}),
    "k": ("attention", {"k_proj"}),
    "gate and up": ("feed forward", {"gate_proj", "up_proj"}),
    "up": ("feed forward", {"up_proj"}),
    "o": ("output", {"o_proj"}),
}


@pytest.mark.parametrize("open_input", [True, False], ids=["", "into a frozen layer"])
@pytest.mark.parametrize(("layer", "chosen"), list(CASES.values()), ids=list(CASES))
def test_outputs_and_gradients_are_those_of_projections_apart(layer: str, chosen: set[str], open_input: bool) -> None:
    fused, apart = adapted(layer, chosen)
    hidden = torch.randn(TOKENS, 1, HIDDEN, dtype=torch.float64, requires_grad=open_input)
    found, wanted = results(fused, hidden), results(apart, hidden)
    assert len(found) == len(wanted) == 1 + open_input + 2 * len(chosen)
    assert all(bool(part.any()) for part in wanted)
    assert all(torch.allclose(*pair, rtol=1e-12) for pair in zip(found, wanted, strict=True))


def test_switched_off_a_layer_is_its_base() -> None:
    fused, _ = adapted("attention", set(ATTENTION))
    hidden = torch.randn(TOKENS, 1, HIDDEN, dtype=torch.float64)
    with fused._switch.off():
        assert torch.equal(fused(hidden)[0], fused.layer(hidden)[0])
    assert not torch.allclose(fused(hidden)[0], fused.layer(hidden)[0])


@pytest.mark.parametrize(
    ("case", "products", "outputs"),
    [("q, k and v", (8, 20), (1, 7)), ("gate and up", (8, 14), (1, 6)), ("o", (8, 8), (2, 5))],
)
def test_fewer_products_and_elements_than_apart(
    case: str, products: tuple[int, int], outputs: tuple[float, float]
) -> None:
    """Counted in a forward and a backward pass, fused and apart, with the frozen layer's own: products, and elements of
    new tensors in multiples of the layer's output.
    """
    layer, chosen = CASES[case]
    widths = LAYERS[layer][0].values()
    found = []
    for module in adapted(layer, chosen):
        hidden = torch.randn(TOKENS, 1, HIDDEN, dtype=torch.float64, requires_grad=True)
        gradient = torch.ones(TOKENS, 1, sum(widths), dtype=torch.float64)
        with Counting({sum(widths), *widths}) as counting:
            module(hidden)[0].backward(gradient)
        found.append(counting.counts)
    assert tuple(counts["products"] for counts in found) == products
    assert tuple(counts["elements"] / gradient.numel() for counts in found) == outputs
