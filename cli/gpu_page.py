"""Writes the tables of docs/gpu.md out of `shared.placement`: `python -m cli.gpu_page`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared.gpus import imagined
from shared.model_shape import QWEN3
from shared.placement import plan
from shared.settings import Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu.md"
BEGIN, END = "<!-- what fits -->", "<!-- /what fits -->"

CARDS = (12, 16, 24, 48, 80)
TURNS = (32768, 16384, 8192, 4096)

_HEAD = """
The longest turn (prompt and answer, in tokens) that can be trained on and served: `max_sample_tokens` and
`context_length` set to it, `micro_batch_tokens` to at most 8192, `recompute = true`, and for all weights
`offload_optimizer = true`. *Turns* is where it fits only if training and serving take turns at the card's memory,
*FP8* where it needs `quantization = fp8`; of several ways the first of plain, FP8, turns, FP8 with turns is named that
gives the longest turn. A dash: refused.

| card | model | LoRA, one card | LoRA, two cards | all weights, one card | all weights, two cards |
|---|---|---|---|---|---|
"""
_LARGE = """
With eight cards of 80 GB, four train and four serve one server (`tensor_parallel` as named):

| model | LoRA | all weights |
|---|---|---|
"""
_APART: dict[str, Any] = {"actor_gpus": "0,", "rollout_gpus": "1,"}


def tables() -> str:
    """Both tables."""
    return _HEAD + "".join(_rows()) + _LARGE + "".join(_large())


def page(text: str) -> str:
    """The page with its tables renewed."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{tables()}{END}{tail}"


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
            cells.append(f"{found[parts]}, {parts}")
        yield f"| {_short(model)} | {' | '.join(cells)} |\n"


def _length(cell: str) -> int:
    return int(cell.split("k")[0]) if "k" in cell else 0


def _cell(model: str, cards: str, *, lora: bool, **more: Any) -> str:
    """The longest turn that fits, and what it takes beside the settings of the page."""
    ways = [("", {}), ("FP8", {"quantization": "fp8"})] if lora else [("", {})]
    for length in TURNS:
        found = {
            name: plan(_settings(model, length, lora, {**more, **changes}), imagined(cards), {})
            for name, changes in ways
        }
        fitting = {name: one.sharing for name, one in found.items() if not one.refusal}
        for name, sharing in sorted(fitting.items(), key=lambda one: (one[1] == "turns", one[0])):
            words = [f"{length // 1024}k", name, "turns" if sharing == "turns" else ""]
            return " ".join(word for word in words if word)
    return "–"


def _settings(model: str, length: int, lora: bool, more: dict[str, Any]) -> Settings:
    return Settings(
        backend="megatron",
        model=model,
        lora=lora,
        recompute=True,
        offload_optimizer=not lora,
        context_length=length,
        max_sample_tokens=length,
        micro_batch_tokens=min(8192, length),
        **more,
    )


def _short(model: str) -> str:
    return model.rpartition("/")[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")
