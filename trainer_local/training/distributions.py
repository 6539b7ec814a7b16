"""Distributions over the vocabulary, kept whole or as their likeliest tokens.

A distribution over 49,152 tokens takes 192 KiB a position, one over 151,936 takes 594. Of large vocabularies only the
likeliest tokens are kept, and all others share one bin (`losses.with_tail`). Divergences are then computed in these
bins, and are lower bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.shared.objective import losses

LARGE_VOCABULARY = 16_384
"""Tokens. Distributions over at most as many are kept whole."""
LIKELIEST = 256
"""Tokens kept of each distribution over a large vocabulary."""


@dataclass(frozen=True)
class Likeliest:
    """The K likeliest tokens of R distributions: `ids` and `log_probs` `[R, K]`, likeliest first."""

    ids: Tensor
    log_probs: Tensor


Distribution = Tensor | Likeliest
"""Log-probabilities `[R, V]`, or those of the likeliest tokens."""


def kept(log_probs: Tensor) -> Distribution:
    """`log_probs` `[R, V]` in the form in which they are kept."""
    return log_probs if log_probs.shape[-1] <= LARGE_VOCABULARY else likeliest(log_probs, LIKELIEST)


def part_of_distribution(distribution: Distribution, start: int, end: int) -> Distribution:
    """Rows `start` to `end`."""
    if isinstance(distribution, Likeliest):
        return Likeliest(distribution.ids[start:end], distribution.log_probs[start:end])
    return distribution[start:end]


def joined(parts: Sequence[Distribution]) -> Distribution:
    """The rows of all `parts`, which have the same form."""
    whole = [part for part in parts if isinstance(part, Tensor)]
    if whole:
        return torch.cat(whole)
    some = [part for part in parts if isinstance(part, Likeliest)]
    return Likeliest(torch.cat([part.ids for part in some]), torch.cat([part.log_probs for part in some]))


def bytes_kept(vocab_size: int) -> int:
    """Bytes of a distribution over `vocab_size` tokens in the form in which `kept` has it."""
    return 4 * vocab_size if vocab_size <= LARGE_VOCABULARY else (4 + 8) * LIKELIEST


def likeliest(log_probs: Tensor, count: int) -> Likeliest:
    """The `count` likeliest tokens of `log_probs` `[R, V]`; all, if V is less."""
    found = log_probs.topk(min(count, log_probs.shape[-1]), dim=-1)
    return Likeliest(found.indices, found.values)


def in_same_bins(log_probs: Tensor, others: Sequence[Distribution]) -> tuple[Tensor, Tensor]:
    """`log_probs` `[N, V]` and `others`, whose rows are N together, in the same bins: `[N, B]` each. The bins are the
    tokens of the vocabulary, or those that the others keep and one for the rest.
    """
    device = log_probs.device
    whole = [one for one in others if isinstance(one, Tensor)]
    if len(whole) == len(others):
        return log_probs, torch.cat([one.to(device) for one in whole])
    parts = [one for one in others if isinstance(one, Likeliest)]
    if whole:
        raise TypeError("whole distributions and likeliest tokens cannot be compared in the same bins")
    ids = torch.cat([one.ids.to(device) for one in parts])
    theirs = torch.cat([one.log_probs.to(device) for one in parts])
    return losses.with_tail(log_probs.gather(-1, ids)), losses.with_tail(theirs)
