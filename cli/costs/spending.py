"""What today has cost at cloud providers, and what it may: for `estimate`, `status` and whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import LIMITS
from openclaw_rl.trainer_cloud.budget.ledger import Kind, Ledger, LedgerError, UsageEntry
from openclaw_rl.trainer_cloud.budget.prices import Prices, cost


def today(settings: Settings) -> dict[UsageEntry, int]:
    """What the ledger has of this UTC day. Raises `LedgerError`."""
    ledger = Ledger(settings.serve.data)
    try:
        return ledger.day(datetime.now(UTC).date().isoformat())
    finally:
        ledger.close()


def by_purpose(spent: Mapping[UsageEntry, int], prices: Prices) -> dict[str, dict[str, Any]]:
    """For each purpose its amounts by kind, `dollars` of what has a known price, and `unknown`, the kinds without."""
    found: dict[str, dict[str, Any]] = {}
    models: dict[tuple[str, str, str], dict[Kind, float]] = {}
    for entry, amount in spent.items():
        told = found.setdefault(entry.purpose, {"amounts": {}, "dollars": 0.0, "unknown": []})
        told["amounts"][entry.kind] = told["amounts"].get(entry.kind, 0) + amount
        models.setdefault((entry.purpose, entry.provider, entry.model), {})[entry.kind] = amount
    for (purpose, provider, model), amounts in models.items():
        paid = cost(prices.of(provider, model), amounts)
        found[purpose]["dollars"] += paid.dollars
        found[purpose]["unknown"] = sorted({*found[purpose]["unknown"], *paid.unknown})
    return found


def dollars(amount: float, unknown: object = ()) -> str:
    """Money as people write it; what has no known price is said."""
    told = f"${amount:,.4f}" if 0 < amount < 0.1 else f"${amount:,.2f}"
    return (f"{told} and what is not known" if amount else "not known") if unknown else told


def spending_line(settings: Settings) -> str:
    """What today has cost and what it may, in a line; "" without a cloud backend."""
    try:
        if not settings.engine.is_cloud:
            return ""
        spent = today(settings)
        told = by_purpose(spent, Prices.load(settings.cloud.prices))
    except (ConfigError, LedgerError) as error:
        return f"not known: {error}"
    parts = []
    for limit in LIMITS:
        used, most = limit.counts(spent), limit.amount(settings)
        if used or most:
            parts.append(f"{used:,} {f'of {most:,} ' if most else ''}{limit.purpose} {limit.unit}")
    paid = sum(one["dollars"] for one in told.values())
    unknown = [kind for one in told.values() for kind in one["unknown"]]
    return f"{', '.join(parts) or 'nothing'} today (UTC), {dollars(paid, unknown)}"
