"""The weights of a policy on one rank: the frozen base, the trained weights in single precision, and their exchange by
Hugging Face or PEFT names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron.lora import adapt, initial, targets
from openclaw_rl.trainer_local.megatron.model import PackedModel, configuration
from openclaw_rl.trainer_local.megatron.process_group import ProcessGroup
from openclaw_rl.trainer_local.megatron.shape import shape_of
from openclaw_rl.trainer_local.megatron.weight_names import Mapped, Source, mapping
from openclaw_rl.trainer_local.training.host_copies import HostTransfer, ReusedCopies, parts
from openclaw_rl.trainer_local.training.masters import take_gradient
from openclaw_rl.trainer_local.training.targets import swapped_weights


@dataclass
class Trained:
    """A trained weight: the parameter that the model computes with, the master in single precision that the optimizer
    changes (the same tensor where the model computes in it, else maybe on the host), and how it is cut.
    """

    parameter: torch.nn.Parameter
    master: Tensor
    mapped: Mapped
    accumulated: Tensor | None = None

    def __post_init__(self) -> None:
        if self.separate:
            self.parameter.register_post_accumulate_grad_hook(self._accumulate)

    @property
    def separate(self) -> bool:
        """True if the model computes with a copy in lower precision."""
        return self.master is not self.parameter

    @property
    def gradient(self) -> Tensor | None:
        """In single precision, on the model's device."""
        return self.accumulated if self.separate else self.parameter.grad

    @gradient.setter
    def gradient(self, value: Tensor | None) -> None:
        self.accumulated = value if self.separate else None
        self.parameter.grad = None if self.separate else value

    def _accumulate(self, parameter: Tensor) -> None:
        # Not in the master's `grad`: the master may be on the host.
        self.accumulated = take_gradient(parameter, self.accumulated)


class RankWeights:
    """One rank's part of a policy: `model`, and its `trained` weights by Megatron-core's names. `names` are their
    Hugging Face or PEFT names, in the order of those tools.

    On a CPU all is in single precision; on CUDA the model computes in bfloat16, and trained weights have a copy in
    single precision (adapters have only that).
    """

    def __init__(self, settings: Settings, group: ProcessGroup, dtype: torch.dtype) -> None:
        self.group = group
        self.lora = settings.learning.lora
        self.dtype = dtype
        self.source = Source(settings.engine.model)
        self.shape = shape_of(self.source.config, settings.engine.model, group.tensor_parallel)
        if self.shape.experts and not self.lora:
            raise ConfigError(
                f"lora = false would train all {self.shape.experts} experts of each layer of "
                f"{settings.engine.model!r}, which Megatron-core does not do here: set lora = true"
            )
        self.vocab_size = self.shape.vocabulary
        self.offload = settings.learning.offload_optimizer
        self.shared = settings.gpu.distributed_optimizer  # it keeps the weights in single precision itself
        host = torch.device("cpu")
        self._rest = host if self.offload else group.device
        self.copies_device = self._rest if settings.learning.lora else host
        """Device of copies: a GPU that trains all weights has no room for another copy."""
        self.transfer = HostTransfer(group.device)
        self._before = ReusedCopies(self.copies_device, self.transfer)
        config = configuration(self.shape, group.tensor_parallel, dtype, group.device)
        self.model = PackedModel(self.shape, config).to(group.device).eval()
        self.model.gpt.to(dtype)  # norms too, which torch makes in single precision
        self._base: Mapping[str, Tensor] | None = None
        self._cuts = mapping(self.shape, group.tensor_parallel)
        self._gpt = dict(self.model.gpt.named_parameters())
        with torch.no_grad():
            for name, part in self._read():
                self._gpt[name].copy_(part)
        self._untrained: Mapping[str, Tensor] | None = None
        self.trained = self._adapted(settings) if settings.learning.lora else self._all()
        self.shapes = self._full_shapes()
        if settings.learning.lora:
            self._untrained = self.snapshot()

    @property
    def masters(self) -> dict[str, Tensor]:
        """The tensors that the optimizer changes."""
        return {name: one.master for name, one in self.trained.items()}

    def base(self) -> Any:
        """A context in which the model is the frozen base."""
        return self.model.switch.off() if self._base is None else self.with_values(self._base)

    @contextmanager
    def with_values(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Let the model compute with `values` while the block runs; no gradient may be computed inside."""
        own = {name: one.parameter for name, one in self.trained.items()}
        with swapped_weights(own, {name: values[name].to(part.device, part.dtype) for name, part in own.items()}):
            yield

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """No dropout while the block runs."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of all trained weights; on the host if the optimizer's state is."""
        return {name: one.master.detach().to(self.copies_device, copy=True) for name, one in self.trained.items()}

    def before_step(self) -> dict[str, Tensor]:
        """The same for undoing a step: it holds until the next step."""
        return self._before.take(self.masters)

    def reset(self) -> None:
        """Go back to the weights that training began with."""
        if self._untrained is not None:
            self.assign(self._untrained)
            return
        with torch.no_grad():
            for name, part in self._read():
                self.trained[name].master.copy_(part)
        self.update_model()

    def assign(self, values: Mapping[str, Tensor]) -> None:
        """Set all trained weights."""
        with torch.no_grad():
            for name, one in self.trained.items():
                self.transfer.copy(one.master, values[name].to(one.master.dtype))
        self.update_model()

    def update_model(self) -> None:
        """Copy the masters to the parameters that the model computes with."""
        with torch.no_grad():
            for one in self.trained.values():
                if one.separate:
                    for parameter, master in zip(parts(one.parameter), parts(one.master), strict=True):
                        parameter.copy_(master)

    def clear(self) -> None:
        """Forget all gradients."""
        for one in self.trained.values():
            one.gradient = None

    def gather(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Join the ranks' parts of `values` (weights, moments, …, one for each trained weight): full tensors by `names`
        on the CPU of rank 0, nothing elsewhere.
        """
        found: dict[str, Tensor] = {}
        for name, one in self.trained.items():
            parts = self.group.gather_parts(values[name]) if one.mapped.cut.parallel else [values[name]]
            if self.group.rank == 0:
                joined = one.mapped.cut.join([part.detach() for part in parts])
                found |= {name: part.to("cpu", copy=True) for name, part in zip(one.mapped.names, joined, strict=True)}
        return {name: found[name] for name in self.names} if found else {}

    def full_weight(self, name: str) -> list[tuple[str, Tensor]]:
        """One trained weight joined, by its `names`, as the model computes with it, on the device of every rank."""
        one = self.trained[name]
        part = one.parameter.detach()
        parts = self.group.gather_parts(part) if one.mapped.cut.parallel else [part]
        return list(zip(one.mapped.names, one.mapped.cut.join(parts), strict=True))

    def cut(self, full: Callable[[str], Tensor]) -> dict[str, Tensor]:
        """This rank's parts of the tensors that `full` returns for `names`; it is called in the same order on all
        ranks.
        """
        group = self.group
        return {
            name: one.mapped.cut.split(
                [full(theirs) for theirs in one.mapped.names], group.tensor_parallel, group.tensor_rank
            ).to(one.master.device, copy=True)
            for name, one in self.trained.items()
        }

    def _read(self) -> Iterator[tuple[str, Tensor]]:
        """This rank's part of every weight of the folder, by Megatron-core's name."""
        group = self.group
        for name in self._gpt:
            mapped = self._cuts[name]
            whole = [self.source.tensor(theirs) for theirs in mapped.names]
            yield name, mapped.cut.split(whole, group.tensor_parallel, group.tensor_rank)

    def _adapted(self, settings: Settings) -> dict[str, Trained]:
        modules = targets(settings.learning.lora_targets, self.shape, settings.engine.model)
        whole = initial(modules, self.shape, settings.learning.lora_rank)
        self.names = list(whole)
        parts = adapt(self.model.gpt, self.shape, settings.learning, whole, self.model.switch, self.group.device)
        self.model.eval()
        self.model.open_input()
        return {name: Trained(part, part, mapped) for name, (part, mapped) in parts.items()}

    def _all(self) -> dict[str, Trained]:
        self.names = _names(self.source.config)
        self._base = {name: part.detach().to(self._rest, copy=True) for name, part in self._gpt.items()}
        if self.dtype == torch.float32 or self.shared:
            return {name: Trained(part, part, self._cuts[name]) for name, part in self._gpt.items()}
        return {
            name: Trained(self._gpt[name], part.to(self._rest, torch.float32, copy=True), self._cuts[name])
            for name, part in self._read()
        }

    def _full_shapes(self) -> dict[str, tuple[int, ...]]:
        """The full shape of each trained weight, by `names`."""
        found: dict[str, tuple[int, ...]] = {}
        for one in self.trained.values():
            part = torch.empty(one.master.shape, device="meta")
            count = self.group.tensor_parallel if one.mapped.cut.parallel else 1
            joined = one.mapped.cut.join([part] * count)
            found |= {name: tuple(full.shape) for name, full in zip(one.mapped.names, joined, strict=True)}
        return {name: found[name] for name in self.names}


def _names(config: Any) -> list[str]:
    """The names of the model's weights, in transformers' order."""
    with torch.device("meta"):
        return [name for name, _ in AutoModelForCausalLM.from_config(config).named_parameters()]
