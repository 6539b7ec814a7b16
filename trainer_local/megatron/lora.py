"""LoRA (Hu et al. 2021) on Megatron-core's fused and cut linear layers, with PEFT's adapters.

Each Hugging Face projection has its own adapter, though query, key and value are one layer here, and gate and up
another: an adapter trained here is PEFT's, to the name. Under tensor parallelism the side next to a cut is cut with it:
B of column-parallel layers, A of row-parallel ones. The other side is on every rank with its full gradient: parts are
summed in the forward pass of row-parallel layers, in the backward pass of the others.

Experts have an adapter each, `experts.E.gate_proj` and so on, in the names under which SGLang (0.5.23) takes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import dropout

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.learning import LearningSettings
from openclaw_rl.trainer_local.megatron.collectives import copy_to_parts, reduce_parts, sum_parts
from openclaw_rl.trainer_local.megatron.grouped import grouped
from openclaw_rl.trainer_local.megatron.shape import Shape
from openclaw_rl.trainer_local.megatron.weight_names import Chunked, Cut, Mapped, Replicated, Stacked

PROJECTIONS = (
    ("self_attn.q_proj", "self_attention.linear_qkv"),
    ("self_attn.k_proj", "self_attention.linear_qkv"),
    ("self_attn.v_proj", "self_attention.linear_qkv"),
    ("self_attn.o_proj", "self_attention.linear_proj"),
    ("mlp.gate_proj", "mlp.linear_fc1"),
    ("mlp.up_proj", "mlp.linear_fc1"),
    ("mlp.down_proj", "mlp.linear_fc2"),
)
"""In PEFT's order: the projections of a layer, and the module here that each is a part of."""

EXPERTS = ("gate_proj", "up_proj", "down_proj")
"""The projections of an expert."""
PREFIX, DOWN, UP = "base_model.model.", "lora_A", "lora_B"


@dataclass
class Switch:
    """Turns the adapters on and off; off, the model is the base. Their values change only between two of the `runs` of
    rows through the model, which are counted.
    """

    on: bool = True
    runs: int = 0

    @contextmanager
    def off(self) -> Iterator[None]:
        """Without adapters while the block runs."""
        before, self.on = self.on, False
        try:
            yield
        finally:
            self.on = before


def targets(setting: str, shape: Shape, model: str) -> list[str]:
    """The Hugging Face modules that `lora_targets` names, in order. Raises `ConfigError` for a name that fits none."""
    every = [module for layer in range(shape.layers) for module in _modules(layer, shape)]
    if setting.strip() == "all-linear":
        return every
    wanted = [name.strip() for name in setting.split(",")]
    missing = [name for name in wanted if not any(_matches(module, name) for module in every)]
    if missing:
        known = ", ".join(name.rpartition(".")[2] for name, _ in PROJECTIONS)
        raise ConfigError(
            f"lora_targets = {setting!r} does not fit {model!r}: {', '.join(missing)} is none of all-linear, {known}"
        )
    return [module for module in every if any(_matches(module, name) for name in wanted)]


def _modules(layer: int, shape: Shape) -> list[str]:
    """The Hugging Face modules of a layer that can have an adapter, in order."""
    place = f"model.layers.{layer}."
    found = [place + name for name, _ in PROJECTIONS if not (shape.experts and name.startswith("mlp."))]
    return found + [f"{place}mlp.experts.{expert}.{name}" for expert in range(shape.experts) for name in EXPERTS]


def _matches(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def initial(modules: Sequence[str], shape: Shape, rank: int) -> dict[str, Tensor]:
    """The untrained adapters by PEFT's names: A random, B zero, drawn in PEFT's order and way, so that the same random
    state makes the same adapters in both.
    """
    projections = {projection.name: projection for projection in shape.projections}
    found: dict[str, Tensor] = {}
    for module in modules:
        projection = projections[module.rpartition(".")[2]]
        down = torch.nn.Linear(projection.inside, rank, bias=False)
        up = torch.nn.Linear(rank, projection.outside, bias=False)
        torch.nn.init.kaiming_uniform_(down.weight, a=math.sqrt(5))
        torch.nn.init.zeros_(up.weight)
        found[parameter_name(module, DOWN)] = down.weight.detach()
        found[parameter_name(module, UP)] = up.weight.detach()
    return found


def parameter_name(module: str, side: str) -> str:
    """PEFT's name of a parameter in its model."""
    return f"{PREFIX}{module}.{side}.default.weight"


def file_name(name: str) -> str:
    """PEFT's name of it in an adapter's file."""
    return name.replace(".default.", ".")


class Adapter(torch.nn.Module):
    """The adapter of one projection on one rank, its part of the adapters `whole`: `down` `[r, in]`, `up` `[out, r]`,
    one of them cut. Of the `modules` of several experts both are stacked: `[experts, …]`.
    """

    def __init__(
        self,
        modules: Sequence[str],
        learning: LearningSettings,
        group: Any,
        whole: Mapping[str, Tensor],
        device: torch.device,
    ) -> None:
        super().__init__()
        self.scale, self._dropout = learning.lora_alpha / learning.lora_rank, learning.lora_dropout
        self.row_parallel = row_parallel = modules[0].endswith(("o_proj", "down_proj"))
        self._group = group
        cuts = {
            DOWN: Chunked(1) if row_parallel else Replicated(),
            UP: Replicated() if row_parallel else Chunked(0),
        }
        self.cuts = {
            side: Mapped([parameter_name(module, side) for module in modules], self._cut(cut))
            for side, cut in cuts.items()
        }
        for side, mapped in self.cuts.items():
            part = mapped.cut.split([whole[name] for name in mapped.names], group.size(), group.rank())
            parameter = torch.nn.Parameter(part.to(device, torch.float32).contiguous())
            # Megatron-core's optimizer needs it to count each element of the norm once.
            parameter.tensor_model_parallel = mapped.cut.parallel  # type: ignore[attr-defined]
            self.register_parameter(side, parameter)

    @property
    def down(self) -> Tensor:
        """A, in single precision."""
        return self.get_parameter(DOWN)

    @property
    def up(self) -> Tensor:
        """B, in single precision."""
        return self.get_parameter(UP)

    @property
    def group(self) -> Any:
        """The ranks that share the layer."""
        return self._group

    def _cut(self, cut: Cut) -> Cut:
        return cut

    def dropped(self, hidden: Tensor) -> Tensor:
        """`hidden` under dropout, in training mode."""
        share = self._dropout
        if not (self.training and share):
            return hidden
        ranks = self._group.size()
        if not self.row_parallel or ranks == 1:
            return dropout(hidden, share)
        # Ranks draw alike for the full width and take their parts, so that dropout does not depend on their number.
        width = hidden.shape[-1]
        kept = dropout(hidden.new_ones(*hidden.shape[:-1], width * ranks), share)
        return hidden * kept.narrow(-1, self._group.rank() * width, width)


class ExpertAdapter(Adapter):
    """The adapters of one projection of every expert."""

    def forward(self, hidden: Tensor, ends: Tensor) -> Tensor:
        """Their addition for rows ordered by expert, of which those of expert e end at `ends[e]`."""
        down, up = self.down.to(hidden.dtype), self.up.to(hidden.dtype)
        inner = grouped(self.dropped(hidden), down, ends)
        if self._group.size() > 1:
            inner = reduce_parts(inner, self._group) if self.row_parallel else copy_to_parts(inner, self._group)
        return grouped(inner, up, ends) * self.scale

    def _cut(self, cut: Cut) -> Cut:
        return Stacked(cut)


class Adapted(torch.nn.Module):
    """A linear layer of Megatron-core with the adapters of its projections.

    The rows of its output are `groups` times the projections `parts`, by their share of a group; not every one has an
    adapter. All A's are one product and all B's another, which is added to the layer's output in place. Under dropout
    the projections of a layer drop the same inputs.
    """

    def __init__(
        self,
        layer: torch.nn.Module,
        adapters: Mapping[str, Adapter],
        parts: Mapping[str, int],
        groups: int,
        switch: Switch,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.adapters = torch.nn.ModuleDict(adapters)
        self._parts, self._groups = parts, groups
        self._switch = switch
        self._joined: tuple[Any, Joined] | None = None

    def forward(self, hidden: Tensor) -> tuple[Tensor, Any]:
        output, bias = self.layer(hidden)
        return (self._add(hidden, output) if self._switch.on else output), bias

    def _add(self, hidden: Tensor, output: Tensor) -> Tensor:
        adapters: list[Adapter] = list(self.adapters.values())  # type: ignore[arg-type]
        weights = [*(one.down for one in adapters), *(one.up for one in adapters)]
        joined = self._join(adapters, output)
        return cast(Tensor, _AddAdapters.apply(output, adapters[0].dropped(hidden), joined, *weights))

    def _join(self, adapters: Sequence[Adapter], output: Tensor) -> Joined:
        """The adapters' factors for products in the type of `output`, made once a run."""
        run = self._switch.runs, output.dtype
        if self._joined is None or self._joined[0] != run:
            with torch.no_grad():
                down = torch.cat([one.down for one in adapters]).to(output.dtype)
                places = self._places(output.shape[-1])
                shape = self._groups, output.shape[-1] // self._groups, len(adapters), adapters[0].up.shape[1]
                ups = torch.zeros(shape, dtype=output.dtype, device=down.device)
                for number, (one, (begin, end)) in enumerate(zip(adapters, places, strict=True)):
                    ups[:, begin:end, number] = (one.up * one.scale).view(self._groups, end - begin, -1)
            self._joined = run, Joined(adapters[0], down, ups.view(output.shape[-1], -1), shape, places)
        return self._joined[1]

    def _places(self, rows: int) -> list[tuple[int, int]]:
        """The rows of each adapter's projection in a group."""
        places: list[tuple[int, int]] = []
        begin = 0
        for name, share in self._parts.items():
            end = begin + rows // self._groups * share // sum(self._parts.values())
            if name in self.adapters:
                places.append((begin, end))
            begin = end
        return places


@dataclass(frozen=True)
class Joined:
    """The factors of a layer's adapters, of which `one` is any: all A's `[k · r, in]` for k adapters, and all B's,
    scaled, `[out, k · r]`. A row of `up` is zero but for the columns of its projection's adapter. Its `shape` is
    `[groups, rows, k, r]`, and `places` are the rows of each adapter.
    """

    one: Adapter
    down: Tensor
    up: Tensor
    shape: tuple[int, int, int, int]
    places: Sequence[tuple[int, int]]


class _AddAdapters(Function):
    """Adds the product of `hidden` `[…, in]` and the joined adapters to `output` `[…, out]`. `weights` are the A's,
    then the B's, which get their gradients.
    """

    @staticmethod
    def forward(context: Any, output: Tensor, hidden: Tensor, joined: Joined, *weights: Tensor) -> Tensor:
        inner = hidden.flatten(0, -2) @ joined.down.t()
        if joined.one.row_parallel:
            inner = sum_parts(inner, joined.one.group)
        context.joined, context.dtype = joined, weights[0].dtype
        context.save_for_backward(hidden, inner)
        if joined.one.row_parallel:
            # Megatron-core returns this output from a function of its own, as a view that autograd does not let change.
            return torch.addmm(output.flatten(0, -2), inner, joined.up.t()).view_as(output)
        context.mark_dirty(output)
        output.view(-1, output.shape[-1]).addmm_(inner, joined.up.t())
        return output

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        joined: Joined = context.joined
        hidden, inner = context.saved_tensors
        gradient = gradients[0].flatten(0, -2)
        to_inner = gradient @ joined.up
        if not joined.one.row_parallel:
            to_inner = sum_parts(to_inner, joined.one.group)
        downs = (to_inner.t() @ hidden.flatten(0, -2)).to(context.dtype).chunk(len(joined.places))
        to_up = (gradient.t() @ inner).view(joined.shape)
        ups = [
            to_up[:, begin:end, number].flatten(0, 1).to(context.dtype).mul_(joined.one.scale)
            for number, (begin, end) in enumerate(joined.places)
        ]
        return gradients[0], (to_inner @ joined.down).view_as(hidden), None, *downs, *ups


def adapt(
    gpt: Any,
    shape: Shape,
    learning: LearningSettings,
    whole: Mapping[str, Tensor],
    switch: Switch,
    device: torch.device,
) -> dict[str, tuple[torch.nn.Parameter, Mapped]]:
    """Put adapters with the values `whole` into a GPTModel, and freeze the rest. Returns their parameters by PEFT's
    names, in PEFT's order, each with how it is cut.
    """
    gpt.requires_grad_(False)
    found: dict[str, tuple[torch.nn.Parameter, Mapped]] = {}
    group = gpt.pg_collection.tp

    def made(kind: type[Adapter], modules: Sequence[str]) -> Adapter:
        adapter = kind(modules, learning, group, whole, device)
        for side, mapped in adapter.cuts.items():
            found[mapped.names[0]] = adapter.get_parameter(side), mapped
        return adapter

    for number, layer in enumerate(gpt.decoder.layers):
        modules = [name for name in _modules(number, shape) if parameter_name(name, DOWN) in whole]
        inside: dict[str, dict[str, Adapter]] = {}
        for projection, place in PROJECTIONS:
            if (module := f"model.layers.{number}.{projection}") in modules:
                inside.setdefault(place, {})[projection.rpartition(".")[2]] = made(Adapter, [module])
        for place, adapters in inside.items():
            owner = layer.get_submodule(place.rpartition(".")[0])
            attribute = place.rpartition(".")[2]
            fused = attribute == "linear_qkv"
            parts = {name.rpartition(".")[2]: 1 for name, where in PROJECTIONS if where == place}
            if fused:
                parts["q_proj"] = shape.heads // shape.groups
            groups = shape.groups // group.size() if fused else 1
            setattr(owner, attribute, Adapted(getattr(owner, attribute), adapters, parts, groups, switch))
        for name in EXPERTS if shape.experts else ():
            if experts := [module for module in modules if module.endswith(f".{name}")]:
                layer.mlp.adapters[name] = made(ExpertAdapter, experts)
                layer.mlp.switch = switch
    return found
