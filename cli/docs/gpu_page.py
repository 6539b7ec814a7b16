"""Writes the tables of docs/gpu.md out of `trainer_local.placement.place`: `python -m
openclaw_rl.cli.docs.gpu_page`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from openclaw_rl.shared.gpus import imagined
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.known_models import QWEN3_5, QWEN3_VL
from openclaw_rl.trainer_local.placement.model_shape import QWEN3
from openclaw_rl.trainer_local.placement.planner import Planner

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"
BEGIN, END = "<!-- {} -->", "<!-- /{} -->"

CARDS = (12, 16, 24, 48, 80)
TURNS = (32768, 16384, 8192, 4096)

_HEAD = """
Each cell is the longest turn, prompt and answer together, that can be trained on and served: `max_sample_tokens` and
`context_length` are set to it, `micro_batch_tokens` to it or 8192, and for all weights `offload_optimizer = true`;
`recompute` is on, as it is on every GPU unless you say `recompute = false`. *FP8*: so long only with
`quantization = fp8`. *alternating*: so long only where training and serving alternate, see below. A dash: refused.
Models for which a card has dashes alone are left out.

| card | model | LoRA, one card | LoRA, two cards | all weights, one card | all weights, two cards |
|---|---|---|---|---|---|
"""
_LARGE = """
Eight cards of 80 GB, of which four train and four share one server (`actor_gpus = 4`, `rollout_gpus = 4`), with the
least `tensor_parallel` that gives the longest turn:

| model | LoRA | all weights |
|---|---|---|
"""
_SEEING = """
| model | 24 GB, LoRA | 48 GB, LoRA | 80 GB, LoRA | 2 × 24 GB, LoRA | 2 × 48 GB, LoRA | 80 GB, all weights | 2 × 80 GB, all weights |
|---|---|---|---|---|---|---|---|
"""  # noqa: E501
_SEEING_CARDS = (
    (1, 24, True),
    (1, 48, True),
    (1, 80, True),
    (2, 24, True),
    (2, 48, True),
    (1, 80, False),
    (2, 80, False),
)
_APART: dict[str, Any] = {"actor_gpus": "0,", "rollout_gpus": "1,"}


def page(text: str) -> str:
    """The page with its tables renewed."""
    tables = {
        "what fits": _HEAD + "".join(_rows()) + _LARGE + "".join(_large()),
        "what fits with images": _SEEING + "".join(_seeing()),
    }
    for name, table in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}{table}{end}{tail}"
    return text


def _rows() -> Iterator[str]:
    for card in CARDS:
        for model in QWEN3:
            cells = [
                _cell(model, f"{cards}x{card}", lora=lora, **(_APART if cards == 2 else {}))
                for lora in (True, False)
                for cards in (1, 2)
            ]
            if any(cell != "–" for cell in cells):
                yield f"| {card} GB | {_short(model)} | {' | '.join(cells)} |\n"


def _large() -> Iterator[str]:
    for model in QWEN3:
        cells = []
        for lora in (True, False):
            found = {
                parts: _cell(model, "8x80", lora=lora, tensor_parallel=parts, actor_gpus="4", rollout_gpus="4")
                for parts in (1, 2, 4)
            }
            parts = max(found, key=lambda parts: (_length(found[parts]), -parts))
            cells.append(f"{found[parts]} at {parts}")
        yield f"| {_short(model)} | {' | '.join(cells)} |\n"


def _seeing() -> Iterator[str]:
    for model in (*QWEN3_5, *QWEN3_VL):
        cells = []
        for cards, size, lora in _SEEING_CARDS:
            found = _longest(model, f"{cards}x{size}", lora, _APART if cards == 2 else {})
            cells.append(_told(*found))
        yield f"| {_short(model).removesuffix('-Instruct')} | {' | '.join(cells)} |\n"


def _length(cell: str) -> int:
    return int(cell.split("k")[0]) if "k" in cell else 0


def _cell(model: str, cards: str, *, lora: bool, **more: Any) -> str:
    """The longest turn that fits with training and serving at once, with FP8 where it is longer so; and alternating."""
    plain, alternating = _longest(model, cards, lora, more)
    fp8, _ = _longest(model, cards, lora, {**more, "quantization": "fp8"}) if lora else (0, 0)
    return _told(max(plain, fp8), alternating, " FP8" if fp8 > plain else "")


def _told(best: int, alternating: int, how: str = "") -> str:
    found = [f"{best // 1024}k{how}"] if best else []
    found += [f"{alternating // 1024}k alternating"] if alternating > best else []
    return ", ".join(found) or "–"


def _longest(model: str, cards: str, lora: bool, more: dict[str, Any]) -> tuple[int, int]:
    """The longest turns that fit with training and serving at once, and alternating; 0 for none."""
    alternating = 0
    for length in TURNS:
        found = Planner(_settings(model, length, lora, more), {}).best(imagined(cards))
        if found.short:
            continue
        if found.placement.sharing != "alternating":
            return length, alternating
        alternating = max(alternating, length)
    return 0, alternating


@cache
def _defaults() -> Settings:
    return Settings.model_validate({"backend": "megatron"})


def _settings(model: str, length: int, lora: bool, more: dict[str, Any]) -> Settings:
    changes = {
        "model": model,
        "lora": lora,
        "offload_optimizer": not lora,
        "context_length": length,
        "max_sample_tokens": length,
        "micro_batch_tokens": min(8192, length),
    }
    return _defaults().model_copy(update={**changes, **more})


def _short(model: str) -> str:
    return model.rpartition("/")[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")
