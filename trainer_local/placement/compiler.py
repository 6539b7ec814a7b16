"""Torch's compiler on this machine's GPUs, as far as that is known without torch and a GPU. Trainers try it themselves
(`trainer_local.megatron.fused`, `trainer_local.prefix.branch_attention`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping

SWITCH = "TORCH_COMPILE_DISABLE"


def why_no_compiler(environ: Mapping[str, str] | None = None) -> str:
    """The reason why torch's compiler cannot be used in processes of `environ` (default: this one's), or ""."""
    environ = os.environ if environ is None else environ
    if environ.get(SWITCH) == "1":
        return f"{SWITCH} = 1"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed, which torch's wheels for CUDA bring along"
    named, path = environ.get("CC"), environ.get("PATH")
    if not any(shutil.which(name, path=path) for name in ([named] if named else ["clang", "gcc"])):
        return f"{named or 'a C compiler'} is not there (on Debian: apt-get install gcc)"
    return ""
