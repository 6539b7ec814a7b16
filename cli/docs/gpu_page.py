"""Writes the tables of docs/gpu.md: `python -m openclaw_rl.cli.docs.gpu_page`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openclaw_rl.shared.gpus import imagined
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.model_shape import known_models
from openclaw_rl.trainer_local.placement.place import place

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"
BEGIN, END = "<!-- what fits: {} -->", "<!-- /what fits: {} -->"

CARDS = {
    True: ("12", "16", "24", "48", "80", "2x24", "2x48", "2x80"),
    False: ("24", "48", "80", "2x24", "2x48", "2x80"),
}
"""Columns of the tables, by `lora`."""
DEFAULTS = Settings(backend="megatron")
TURNS = (32768, 16384, 8192, 4096)


def page(text: str) -> str:
    """The page with its tables renewed."""
    for name, lora in (("LoRA", True), ("all weights", False)):
        begin, end = BEGIN.format(name), END.format(name)
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{_table(lora=lora)}{end}{tail}"
    return text


def _table(*, lora: bool) -> str:
    titles = [f"{cards.replace('x', ' × ')} GB" for cards in CARDS[lora]]
    rows = [["model", *titles], ["---"] * (1 + len(titles))]
    for model in (name for family in ("qwen3", "qwen3_5", "qwen3_vl") for name in known_models(family)):
        cells = [_cell(model, cards, lora=lora) for cards in CARDS[lora]]
        if any(cell != "–" for cell in cells):
            rows.append([model.rpartition("/")[2].removesuffix("-Instruct"), *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(model: str, cards: str, *, lora: bool) -> str:
    """The longest turn that fits, and a longer one that fits with training and serving alternating."""
    alternating = ""
    for length in TURNS:
        placement = place(_settings(model, length, lora=lora), imagined(cards), {})
        if not placement.refusal and placement.sharing != "alternating":
            return ", ".join(filter(None, [f"{length // 1024}k", alternating]))
        if not placement.refusal:
            alternating = alternating or f"{length // 1024}k*"
    return alternating or "–"


def _settings(model: str, length: int, *, lora: bool) -> Settings:
    changes: dict[str, Any] = {"model": model, "lora": lora, "offload_optimizer": not lora, "context_length": length}
    changes |= {"max_sample_tokens": length, "micro_batch_tokens": min(8192, length)}
    return DEFAULTS.replace(**changes)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")
