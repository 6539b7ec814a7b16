"""The real Megatron-core on a machine without CUDA.

What the trainer uses of it by default runs on a CPU as it is. Recomputing layers and the distributed optimizer ask for
CUDA by name; `site/sitecustomize.py` answers them, in every process that has that folder in its PYTHONPATH.
"""

from __future__ import annotations

import os
from pathlib import Path

SITE = Path(__file__).parent / "site"


def shimmed() -> bool:
    """Return whether this process, and those it starts, answer for CUDA."""
    return str(SITE) in os.environ.get("PYTHONPATH", "").split(os.pathsep)


def environment() -> dict[str, str]:
    """The variables of a process that does."""
    others = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SITE), *([others] if others else [])])}
