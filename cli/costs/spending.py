"""The day's spending at cloud providers and its limits, for `estimate` and `status`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import LIMITS
from openclaw_rl.trainer_cloud.budget.ledger import Kind, Ledger, LedgerError, UsageEntry
from openclaw_rl.trainer_cloud.budget.prices import Prices, cost


def today(settings: Settings) -> dict[UsageEntry, int]:
    """The ledger's entries of this UTC day. Raises `LedgerError`."""
    with contextlib.closing(Ledger(settings.serve.data)) as ledger:
        return ledger.day(datetime.now(UTC).date().isoformat())


def by_purpose(spent: Mapping[UsageEntry, int], prices: Prices) -> dict[str, dict[str, Any]]:
    """For each purpose its amounts by kind, `dollars` for kinds with a known price, and `unknown`, the other kinds."""
    found: dict[str, dict[str, Any]] = {}
    models: dict[tuple[str, str, str], dict[Kind, float]] = {}
    for entry, amount in spent.items():
        row = found.setdefault(entry.purpose, {"amounts": {}, "dollars": 0.0, "unknown": []})
        row["amounts"][entry.kind] = row["amounts"].get(entry.kind, 0) + amount
        models.setdefault((entry.purpose, entry.provider, entry.model), {})[entry.kind] = amount
    for (purpose, provider, model), amounts in models.items():
        paid = cost(prices.for_model(provider, model), amounts)
        found[purpose]["dollars"] += paid.dollars
        found[purpose]["unknown"] = sorted({*found[purpose]["unknown"], *paid.unknown})
    return found


def dollars(amount: float, unknown: object = ()) -> str:
    """An amount of money, and whether more of an unknown price comes on top."""
    known = f"${amount:,.4f}" if 0 < amount < 0.1 else f"${amount:,.2f}"
    return (f"{known} plus unknown prices" if amount else "unknown") if unknown else known


def spending_line(settings: Settings) -> str:
    """The day's spending and its limits, in a line; "" without a cloud backend."""
    try:
        if not settings.engine.is_cloud:
            return ""
        spent = today(settings)
        purposes = by_purpose(spent, Prices.load(settings.cloud.prices))
    except (ConfigError, LedgerError) as error:
        return f"unknown: {error}"
    parts = []
    for limit in LIMITS:
        used, most = limit.counts(spent), limit.amount(settings)
        if used or most:
            parts.append(f"{used:,} {f'of {most:,} ' if most else ''}{limit.purpose} {limit.unit}")
    paid = sum(one["dollars"] for one in purposes.values())
    unknown = [kind for one in purposes.values() for kind in one["unknown"]]
    return f"{', '.join(parts) or 'nothing'} today (UTC), {dollars(paid, unknown)}"
