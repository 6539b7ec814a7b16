"""Stands in for `sglang-kernel` (600 MB, and built for the torch that SGLang pins): what a dense Qwen3 calls of it, in
plain torch. Every other name can be imported, and raises `NotImplementedError` with its name when it is called.

Each function has the signature of the kernel it replaces and computes in single precision, as the kernels do.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

__version__ = "0.4.9"


def _norm(states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + eps) * weight.float()


def _deliver(found: torch.Tensor, out: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    return found.to(dtype) if out is None else out.copy_(found)


def rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """Divide by the root mean square of the last dimension, then multiply by `weight`."""
    return _deliver(_norm(input.float(), weight, eps), out, input.dtype)


def fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """In place: `residual` becomes the sum of both, `input` the norm of that sum before it is rounded."""
    total = input.float() + residual.float()
    residual.copy_(total)
    input.copy_(_norm(total, weight, eps))


def gemma_rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """Gemma stores the distance of the weight from 1."""
    return rmsnorm(input, weight.float() + 1.0, eps, out)


def gemma_fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """As `fused_add_rmsnorm`, with Gemma's weight."""
    fused_add_rmsnorm(input, residual, weight.float() + 1.0, eps)


def _gate(
    activation: Callable[[torch.Tensor], torch.Tensor], input: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    gate, up = input.float().chunk(2, dim=-1)
    return _deliver(activation(gate) * up, out, input.dtype)


def silu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None, *_: Any, **__: Any) -> torch.Tensor:
    """Multiply the second half of the last dimension by the SiLU of the first."""
    return _gate(functional.silu, input, out)


def gelu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None, *_: Any, **__: Any) -> torch.Tensor:
    """Multiply the second half of the last dimension by the GELU of the first."""
    return _gate(functional.gelu, input, out)


def gelu_tanh_and_mul(input: torch.Tensor, out: torch.Tensor | None = None, *_: Any, **__: Any) -> torch.Tensor:
    """As `gelu_and_mul`, with the approximation by tanh."""
    return _gate(lambda gate: functional.gelu(gate, approximate="tanh"), input, out)


def _by_row(value: torch.Tensor | float, probs: torch.Tensor) -> torch.Tensor:
    """One value a row of `probs`, or one for all rows, as a column."""
    return torch.as_tensor(value, device=probs.device).reshape(-1, 1).expand(len(probs), 1)


def top_k_renorm_prob(probs: torch.Tensor, top_k: torch.Tensor | int) -> torch.Tensor:
    """Keep the `top_k` likeliest of each row, and whatever is as likely as the last of them; each row adds up to 1."""
    ranks = _by_row(top_k, probs).long().clamp(1, probs.shape[-1])
    threshold = probs.sort(dim=-1, descending=True).values.gather(-1, ranks - 1)
    return _renormalize(probs.masked_fill(probs < threshold, 0.0))


def top_p_renorm_prob(probs: torch.Tensor, top_p: torch.Tensor | float) -> torch.Tensor:
    """Keep the fewest likeliest of each row that reach `top_p` together; each row adds up to 1."""
    ordered, places = probs.sort(dim=-1, descending=True)
    unneeded = ordered.cumsum(-1) - ordered > _by_row(top_p, probs)
    return _renormalize(torch.zeros_like(probs).scatter_(-1, places, ordered.masked_fill(unneeded, 0.0)))


top_k_renorm_probs, top_p_renorm_probs = top_k_renorm_prob, top_p_renorm_prob


def _renormalize(kept: torch.Tensor) -> torch.Tensor:
    return kept / kept.sum(-1, keepdim=True)


def _draw(weights: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(weights, 1).view(-1).int()


def min_p_sampling_from_probs(probs: torch.Tensor, min_p: torch.Tensor | float, *_: Any, **__: Any) -> torch.Tensor:
    """Draw one of each row, among those at least `min_p` times as likely as the likeliest."""
    return _draw(probs.masked_fill(probs < probs.amax(-1, keepdim=True) * _by_row(min_p, probs), 0.0))


def top_p_sampling_from_probs(probs: torch.Tensor, top_p: torch.Tensor | float, *_: Any, **__: Any) -> torch.Tensor:
    """Draw one of each row, among those that `top_p_renorm_prob` keeps."""
    return _draw(top_p_renorm_prob(probs, top_p))


def top_k_top_p_sampling_from_probs(
    probs: torch.Tensor, top_k: torch.Tensor | int, top_p: torch.Tensor | float, *_: Any, **__: Any
) -> torch.Tensor:
    """Draw one of each row, among those that `top_p_renorm_prob` keeps of what `top_k_renorm_prob` keeps."""
    return _draw(top_p_renorm_prob(top_k_renorm_prob(probs, top_k), top_p))


def is_arch_support_pdl() -> bool:
    """Programmatic dependent launch is for kernels; there are none here."""
    return False


class _Missing:
    """A kernel that is not here. SGLang's modules import such names, take attributes of them and inherit from them."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} of sglang-kernel has no stub here")

    def __getattr__(self, name: str) -> _Missing:
        return _missing_of(self.__name__)(name)

    def __mro_entries__(self, _: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)


def _missing_of(owner: str) -> Callable[[str], _Missing]:
    """A module's `__getattr__` that answers for every name without underscores in front."""

    def find(name: str) -> _Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{owner}.{name}")

    return find


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every `sgl_kernel.…` is a module of missing kernels."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(f"{__name__}."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = _missing_of(spec.name)  # type: ignore[method-assign]
        if spec.name == f"{__name__}.utils":
            module.is_arch_support_pdl = is_arch_support_pdl  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.append(_Submodules())
__getattr__ = _missing_of(__name__)
