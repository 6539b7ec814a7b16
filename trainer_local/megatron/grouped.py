"""Products of rows with the weights of their experts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def grouped(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """`rows` `[N, in]` times their expert's weight `[experts, out, in]`: `[N, out]`. Rows are ordered by expert, and
    those of expert e end at `ends[e]`.
    """
    if rows.device.type == "cuda" and all(size * rows.element_size() % 16 == 0 for size in weights.shape[1:]):
        return F.grouped_mm(rows, weights.transpose(-2, -1), offs=ends.to(torch.int32))
    starts = torch.cat([ends.new_zeros(1), ends]).tolist()
    pieces = [F.linear(rows[starts[e] : starts[e + 1]], weights[e]) for e in range(len(weights))]
    return torch.cat(pieces)
