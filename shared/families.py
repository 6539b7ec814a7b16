"""Model families that can be served: how their prompts are rendered and how their answers are parsed.

A family is found by the `model_type` of the model folder's `config.json`; a new one is an entry here, and a parser
where its answers follow a grammar that `shared.answer` does not know yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import ConfigError


class Grammar(msgspec.Struct, frozen=True):
    """The control tokens of an answer: reasoning, one JSON object per tool call, and what ends the answer."""

    think_open: str
    think_close: str
    call_open: str
    call_close: str
    stops: tuple[str, ...]


class Family(msgspec.Struct, frozen=True):
    """`config(thinking)` is the configuration `renderers` takes; `images`: whether the family sees."""

    name: str
    config: Callable[[bool], Any]
    grammar: Grammar
    images: bool = False


HERMES = Grammar("<think>", "</think>", "<tool_call>", "</tool_call>", ("<|im_end|>", "<|endoftext|>"))


def _qwen3(thinking: bool) -> Any:
    from renderers import Qwen3RendererConfig  # heavy: only who renders pays for it

    return Qwen3RendererConfig(enable_thinking=thinking)


_QWEN3 = Family("qwen3", _qwen3, HERMES)
FAMILIES: dict[str, Family] = {"qwen3": _QWEN3, "qwen3_moe": _QWEN3}


def model_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a model folder. Raises `ConfigError`."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}. Point the model setting at a Hugging Face model folder."
        ) from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is not a JSON object. Point the model setting at a Hugging Face model folder.")
    return config


def family_of(folder: Path) -> Family:
    """The family of the model in `folder`. Raises `ConfigError` for one that cannot be served."""
    model_type = model_config(folder).get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise ConfigError(
            f"{folder / 'config.json'} says model_type {model_type!r}, which cannot be rendered yet. "
            f"Serve a model of type {', '.join(sorted(FAMILIES))}, or add the family to shared/families.py."
        )
    return family
