"""SGLang imports soundfile for audio; a model of text calls none of it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotImplementedError(f"soundfile.{name} is not in this rig")
