"""LiteLLM, silent and without downloads of its own."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any


@functools.cache
def litellm() -> Any:
    """The module `litellm`; to import it takes seconds of CPU. Raises `ModuleNotFoundError` where it is missing."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches a price list
    library: Any = importlib.import_module("litellm")
    library.suppress_debug_info = True  # else it prints advice on stdout, where programs read JSON
    library.telemetry = False
    return library
