"""Runs one model over rows: packed where that is proven to be exact for the model, else row by row."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, DynamicCache, PreTrainedModel

from openclaw_rl.trainer_local.embedded import attention
from openclaw_rl.trainer_local.embedded.attention import PackedSpan
from openclaw_rl.trainer_local.embedded.kv_pool import CachedRow, Pools
from openclaw_rl.trainer_local.training.attention_kernels import attention_kernels

log = logging.getLogger(__name__)
AttentionInterface.register(attention.NAME, attention.packed_attention)

_TOLERANCE = {torch.float32: 2e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}


class LoneRow(CachedRow):
    """A row that transformers' own cache holds, for models that cannot be packed; no other row can reuse it."""

    def __init__(self, model: PreTrainedModel, pools: Pools) -> None:
        super().__init__(pools)
        self.cache = DynamicCache(config=model.config)


@dataclass(frozen=True)
class RowInput:
    """The next tokens of one row, and which of them (indices into `ids`) need logits."""

    row: CachedRow
    ids: Sequence[int]
    keep: Sequence[int]


class Runner:
    """Forward passes of models of one architecture. `packed` says whether rows share one pass and prefixes can be
    reused."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.packed = False
        self._pools = Pools()
        self._native = model.config._attn_implementation
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.packed = self._can_pack(model)

    def prepare(self, model: PreTrainedModel) -> None:
        """Set a freshly loaded model's attention to the way this runner uses it."""
        model.set_attn_implementation(attention.NAME if self.packed else self._native)

    def row(self, model: PreTrainedModel) -> CachedRow:
        """An empty row."""
        return CachedRow(self._pools) if self.packed else LoneRow(model, self._pools)

    @torch.inference_mode()
    def forward(self, model: PreTrainedModel, parts: Sequence[RowInput]) -> torch.Tensor:
        """Advance every row by its ids; returns float32 logits `[sum of keeps, vocabulary]` in the order of the
        parts."""
        with attention_kernels(model.device):
            if self.packed:
                return self._forward_packed(model, parts)
            return torch.cat([self._forward_lone(model, part) for part in parts])

    def _forward_packed(self, model: PreTrainedModel, parts: Sequence[RowInput]) -> torch.Tensor:
        device = model.device
        ids: list[int] = []
        positions: list[int] = []
        starts = [0] * len(parts)
        spans = []
        # Rows that lie side by side come one after another; the logits go back in the order of the parts.
        for index in sorted(range(len(parts)), key=lambda index: (len(parts[index].ids) > 1, parts[index].row.place)):
            part = parts[index]
            starts[index] = len(ids)
            ids.extend(part.ids)
            positions.extend(range(part.row.length, part.row.length + len(part.ids)))
            spans.append(PackedSpan(part.row, starts[index], len(ids)))
        keep = [start + index for start, part in zip(starts, parts, strict=True) for index in part.keep]
        chosen = torch.tensor(keep, device=device, dtype=torch.long)
        attention.begin(spans, device)
        output = model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            **self._only(chosen),
        )
        attention.finish()
        return self._chosen(output, chosen)

    def _forward_lone(self, model: PreTrainedModel, part: RowInput) -> torch.Tensor:
        assert isinstance(part.row, LoneRow)
        device = model.device
        length = part.row.length
        chosen = torch.tensor(list(part.keep), device=device, dtype=torch.long)
        output = model(
            input_ids=torch.tensor([list(part.ids)], device=device),
            position_ids=torch.arange(length, length + len(part.ids), device=device)[None],
            past_key_values=part.row.cache,
            use_cache=True,
            **self._only(chosen),
        )
        part.row.length += len(part.ids)
        return self._chosen(output, chosen)

    def _only(self, chosen: torch.Tensor) -> dict[str, Any]:
        """The argument by which a model makes logits at the `chosen` places alone; empty where it makes all."""
        return {"logits_to_keep": chosen} if self._keeps_logits else {}

    def _chosen(self, output: Any, chosen: torch.Tensor) -> torch.Tensor:
        """The logits at the `chosen` places, in single precision."""
        logits: torch.Tensor = output.logits[0] if self._keeps_logits else output.logits[0, chosen]
        return logits.float()

    def _can_pack(self, model: PreTrainedModel) -> bool:
        """Compare a packed, chunked pass of two sequences with the model's own; the model's flags alone are not proof
        enough."""
        if not getattr(model, "_supports_attention_backend", False):
            return False
        ids = [[(7 * i + 3) % model.config.get_text_config().vocab_size for i in range(length)] for length in (23, 9)]
        with torch.inference_mode():
            wanted = torch.cat([model(input_ids=torch.tensor([s], device=model.device)).logits[0] for s in ids]).float()
        try:
            model.set_attn_implementation(attention.NAME)
            self.packed = True
            rows = [CachedRow(self._pools), CachedRow(self._pools)]
            pieces: list[list[torch.Tensor]] = [[], []]
            for start, end in ((0, 8), (8, 9), (9, 23)):
                taking = [i for i in (0, 1) if start < len(ids[i])]
                parts = [RowInput(rows[i], ids[i][start:end], range(len(ids[i][start:end]))) for i in taking]
                logits = self.forward(model, parts)
                for i, piece in zip(taking, torch.split(logits, [len(part.ids) for part in parts]), strict=True):
                    pieces[i].append(piece)
            found = torch.cat([torch.cat(piece) for piece in pieces])
            scale = max(1.0, wanted.abs().max().item())
            error = (found - wanted).abs().max().item() / scale
            for row in rows:
                row.release()
            if error <= _TOLERANCE.get(model.dtype, 1e-3):
                return True
            log.warning("packed attention differs from %s by %.1e: rows run one by one", type(model).__name__, error)
        except (NotImplementedError, RuntimeError, AttributeError, TypeError, ValueError, IndexError) as error:
            log.warning("%s cannot be packed (%s): rows run one by one", type(model).__name__, error)
        attention.begin(())
        model.set_attn_implementation(self._native)
        self.packed = False
        return False
