"""Answers for CUDA where there is none, so that all of the Megatron-core trainer runs on a CPU. Python imports this at
its start; torch is touched only just before Megatron-core is imported.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any


class _BeforeMegatron(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "megatron.core":
            sys.meta_path.remove(self)
            answer_for_cuda()


def answer_for_cuda() -> None:
    """Put the CPU in the place of the current CUDA device."""
    import torch
    from torch.utils._device import _device_constructors

    if torch.cuda.is_available():
        return
    cpu = torch.device("cpu")

    def here(device: Any) -> Any:
        named = isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda"
        return cpu if named else device

    def made_here(make: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if "device" in options:
                options["device"] = here(options["device"])
            return make(*arguments, **options)

        return wrapped

    _device_constructors()  # torch looks these functions up once, by what they are: `with torch.device` knows no others
    for name in ("tensor", "zeros", "ones", "empty", "full", "arange"):
        setattr(torch, name, made_here(getattr(torch, name)))

    own_type = torch.Tensor.type

    def type_on_cuda(tensor: Any, *arguments: Any, **options: Any) -> Any:
        found = own_type(tensor, *arguments, **options)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found

    torch.Tensor.type = type_on_cuda  # type: ignore[method-assign]
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign]

    torch.cuda.current_device = lambda: cpu  # type: ignore[assignment, return-value]
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_, **__: None  # type: ignore[assignment]
    torch.cuda.stream = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    # The CPU's random state is kept and set with the one of CUDA: here that is the same one.
    torch.cuda.random.get_rng_state = lambda device="cuda": torch.get_rng_state()
    torch.cuda._lazy_call = lambda *_, **__: None


sys.meta_path.insert(0, _BeforeMegatron())
