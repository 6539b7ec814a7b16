"""Write what docs/benchmarks.md says of cards, from bench/results/gpu/CARD: `python -m bench.gpu_page`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.pages import RESULTS, Section, table

CARDS = RESULTS / "gpu"

Results = Mapping[str, dict[str, Any]]
"""Results of a card by the names of their files, which begin with the number of the step."""


def measured() -> str:
    """The section: a part for each card."""
    parts = []
    for folder in sorted(path for path in CARDS.iterdir() if path.is_dir()):
        results = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))}
        parts.append(f"\n### {folder.name.upper()}\n{''.join(_card(results))}")
    return "".join(parts) or "\nNothing has been measured on a card yet.\n"


def _card(results: Results) -> Iterator[str]:
    for title, columns, rows in PARTS:
        if found := [row for name, result in results.items() for row in rows(name, result)]:
            yield f"\n{title}:\n\n{table(columns, found)}"


def _speed(name: str, result: Mapping[str, Any]) -> Iterator[list[str]]:
    if not name.startswith(("2-", "3-")) or "cases" not in result:
        return
    turns = f"{result['turns']} × {result['tokens']:,}, {result['method']}"
    for case, figures in result["cases"].items():
        planned = f"{figures['estimate_bytes'] / 1e9:.1f}" if "estimate_bytes" in figures else ""
        if "out_of_memory" in figures:
            yield [f"{result['size']}, {turns}", case, "out of memory", "", "", "", "", planned]
            continue
        yield [
            f"{result['size']}, {turns}",
            case,
            f"{figures['tokens_per_second']:,.0f}",
            "" if figures["mfu"] is None else f"{figures['mfu']:.0%}",
            *(f"{figures[key]:.2f}" for key in ("pass_seconds", "step_seconds")),
            f"{figures['reserved_bytes'] / 1e9:.1f}",
            planned,
        ]


def _by_length(_: str, result: Mapping[str, Any]) -> Iterator[list[str]]:
    for tokens, kernels in result.get("milliseconds", {}).items():
        yield [
            f"{int(tokens):,}",
            *(" + ".join(f"{part:.1f}" for part in figures[call]) for figures in kernels.values() for call in figures),
        ]


def _agreement(_: str, result: Mapping[str, Any]) -> Iterator[list[str]]:
    if "agreement" in result:
        found = result["agreement"]
        relative = [f"{found[f'{key}_relative_difference']:.1e}" for key in ("loss", "gradients")]
        yield [result["dtype"], f"{found['logprob_difference_mean']:.1e}", *relative]


def _shared(_: str, result: Mapping[str, Any]) -> Iterator[list[str]]:
    for group, floating in (("turns", ", floating context"), ("without_floating_context", "")):
        for turns, figures in result[group].items() if isinstance(result.get(group), dict) else ():
            if "error_merged" in figures:
                yield [
                    f"{result['trainer']}, {result['size']}, {result['method']}, {turns} turns{floating}",
                    *(f"{figures[key]:,}" for key in ("tokens_per_turn", "tokens_merged")),
                    *(f"{figures[key]:.3f}" for key in ("error_per_turn", "error_merged")),
                    figures.get("branches", "not recorded"),
                ]


def _live(name: str, result: Mapping[str, Any]) -> Iterator[list[str]]:
    if not name.startswith("5-"):
        return
    for phase in ("idle", "training"):
        times = [
            ", ".join(f"{result[f'{what}_p{share}_ms'][phase]:.0f}" for share in (50, 99))
            for what in ("gap", "first_token")
        ]
        counts = [str(result[key]) for key in ("requests", "refused", "cut", "publishes")]
        service = "embedded" if name == "5-embedded" else "embedded engine, Megatron-core"
        yield [service, phase, *(counts if phase == "training" else [""] * 4), *times]


def _engines(_: str, result: Mapping[str, Any]) -> Iterator[list[str]]:
    if "versions" not in result:
        return
    for name, figures in {**result["base"], **result["versions"]}.items():
        moved = f"{figures['moved']:.1e}" if "moved" in figures else ""
        engine = "SGLang" if result["backend"] == "megatron" else result["backend"]
        yield [engine, name, f"{figures['mean']:.1e}", f"{figures['root_mean_square']:.1e}", moved]


PARTS: tuple[tuple[str, tuple[str, ...], Callable[[str, Mapping[str, Any]], Iterator[list[str]]]], ...] = (
    (
        "Training by Megatron-core, random Qwen3 models in bfloat16",
        (
            *("model, turns of up to … tokens", "case", "tokens/s", "MFU", "pass s", "step s"),
            *("reserved GB", "planned GB"),
        ),
        _speed,
    ),
    (
        "Causal attention of one layer of a 4B model, forward + backward, by kernel",
        ("tokens", "flash, first call, ms", "later", "cuDNN, first call, ms", "later"),
        _by_length,
    ),
    (
        "A step of a small model",
        ("compared with float32 on a CPU", "mean \\|Δlogprob\\|", "loss", "gradients"),
        _agreement,
    ),
    (
        "Shared prefixes; errors are relative to float32 on the card",
        ("conversation", "tokens, each turn by itself", "shared", "error of the gradients", "shared", "branches by"),
        _shared,
    ),
    (
        "The whole service with the policy that ships, clients streaming",
        (
            *("service", "phase", "requests", "refused", "cut", "versions"),
            *("gap p50, p99 ms", "first token p50, p99 ms"),
        ),
        _live,
    ),
    (
        "Logprobs of an engine and of the Megatron-core trainer",
        ("engine", "compared", "mean \\|Δlogprob\\|", "root mean square", "moved by training"),
        _engines,
    ),
)
"""The tables: a title, the columns, and the rows of a result by the name of its file."""

SECTION = Section("benchmarks.md", "cards", measured)

if __name__ == "__main__":
    SECTION.write()
