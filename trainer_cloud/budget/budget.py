"""Daily limits on what a cloud backend may spend, over the ledger of what it spent.

Amounts are reserved before a request and corrected after it: `async with budget.spending("chat", prefill=900,
sample=512) as bill`. What no correction came for, as after kill -9, counts as spent. Learning (training, rehearsals,
guard, scoring, the judge through the policy) has limits of its own; it never stops chat, nor chat it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.ledger import Entry, Kind, Ledger, LedgerError, Purpose
from openclaw_rl.trainer_cloud.provider import CloudError, Trouble

log = logging.getLogger(__name__)


class Limit(msgspec.Struct, frozen=True):
    """A daily limit: the setting that holds it, and what counts against it."""

    setting: str
    purpose: Purpose
    kinds: frozenset[Kind]
    unit: str

    def of(self, settings: Settings) -> int:
        """How much a day may take; 0 is no limit."""
        return int(settings.value(self.setting))

    def counts(self, amounts: Mapping[Entry, int]) -> int:
        """How much of the amounts, of whatever provider and model, counts against it."""
        return sum(n for entry, n in amounts.items() if entry.purpose == self.purpose and entry.kind in self.kinds)


_TOKENS: frozenset[Kind] = frozenset(["prefill", "sample", "train"])
LIMITS = (
    Limit("cloud_daily_train_tokens", "learning", _TOKENS, "tokens"),
    Limit("cloud_daily_steps", "learning", frozenset(["step"]), "steps"),
    Limit("cloud_daily_chat_tokens", "chat", _TOKENS, "tokens"),
)
_GOES_ON: dict[Purpose, str] = {"learning": "Chat goes on", "chat": "Learning has limits of its own"}

_OTHERS = "others"


class _Passed(CloudError):
    """A limit would be passed by an amount that is wanted."""

    def __init__(self, limit: Limit, wanted: int, message: str, trouble: Trouble, **more: Any) -> None:
        super().__init__(message, trouble, **more)
        self.limit = limit
        self.wanted = wanted


class Bill:
    """What one request takes. It stands at what was reserved until `settle` says what it was."""

    def __init__(self, amounts: Mapping[Kind, int]) -> None:
        self.amounts: dict[Kind, int] = dict(amounts)

    def settle(self, *, prefill: int = 0, sample: int = 0, train: int = 0, step: int = 0) -> None:
        """Say what the request took, in all. It may be said again while more comes."""
        self.amounts = _kinds(prefill, sample, train, step)


class Budget:
    """What may be spent on one model of a provider. `check`, `spend`, `reserve`, `spent` and `obstacle` wait for a
    disk, so on an event loop they belong into a thread; `spending` goes there itself.
    """

    def __init__(
        self, settings: Settings, provider: str, model: str, *, now: Callable[[], datetime] | None = None
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._model = model
        self._now = now or (lambda: datetime.now(UTC))
        self._told = False
        self.ledger = Ledger(settings.data)

    @asynccontextmanager
    async def spending(
        self, purpose: Purpose, *, prefill: int = 0, sample: int = 0, train: int = 0, step: int = 0
    ) -> AsyncIterator[Bill]:
        """Reserve what a request may take at most; at the end it is what the bill was settled at. An error that is
        certain to have changed nothing gives all of it back, any other leaves the bill as it is. Raises `CloudError`
        (`trouble="budget"`) where a limit would be passed.
        """
        reserved = _kinds(prefill, sample, train, step)
        day = self._day()
        await asyncio.to_thread(self.reserve, purpose, reserved, day=day)
        bill = Bill(reserved)
        try:
            yield bill
        except CloudError as error:
            if error.undone:
                bill.settle()
            raise
        finally:
            rest = {kind: bill.amounts.get(kind, 0) - reserved.get(kind, 0) for kind in reserved | bill.amounts}
            if any(rest.values()):
                await asyncio.shield(asyncio.to_thread(self._add, purpose, rest, day))

    def reserve(self, purpose: Purpose, amounts: Mapping[Kind, int], *, day: str = "") -> None:
        """Count amounts as spent if every limit allows them, else raise `CloudError`; no other process can come in
        between.
        """
        entries = self._entries(purpose, amounts, day or self._day())
        try:
            self.ledger.add(entries, approve=lambda spent: self._allow(purpose, spent, entries))
            self._told = False
            if any(entry.kind == "step" for entry in entries):
                with suppress(LedgerError):
                    self.ledger.refuse(self._step_asker(), self._day(), {})
        except _Passed as error:
            with suppress(LedgerError):
                self._note(purpose, entries, error)
            raise
        except LedgerError as error:
            self._unwritten(purpose, entries, error)

    def check(self, purpose: Purpose, kind: Kind, tokens: int) -> None:
        """Raise `CloudError` (`trouble="budget"`) if so much more would pass a limit. Reserves nothing."""
        if any(limit.of(self._settings) for limit in _limits(purpose)):
            try:
                spent = self.ledger.day(self._day())
            except LedgerError as error:
                raise self._blind(purpose, error) from error
            self._allow(purpose, spent, self._entries(purpose, {kind: tokens}, self._day()))

    def spend(self, purpose: Purpose, kind: Kind, tokens: int) -> None:
        """Count tokens, or steps, that are spent already, whatever the limits say."""
        self._add(purpose, {kind: tokens}, self._day())

    def spent(self) -> dict[tuple[Purpose, Kind], int]:
        """What today took, over all providers and models. Raises `LedgerError`."""
        found: dict[tuple[Purpose, Kind], int] = {}
        for entry, amount in self.ledger.day(self._day()).items():
            key = entry.purpose, entry.kind
            found[key] = found.get(key, 0) + amount
        return found

    def obstacle(self, purpose: Purpose) -> str:
        """Why nothing more may be spent today, in words; "" if it may. It may not where a limit is reached, nor where a
        request of any process was refused today that would be refused again: to make the beginning of a step again and
        again that cannot be ended would spend what is left. A step that no day has room for stays in the way on other
        days too, until the limit is raised or steps are made smaller.
        """
        if not any(limit.of(self._settings) for limit in _limits(purpose)):
            return ""
        day = self._day()
        try:
            spent, refused = self.ledger.day(day), self.ledger.refused()
        except LedgerError as error:
            return str(self._blind(purpose, error))
        step = self._step_asker()
        for limit in _limits(purpose):
            most, had, wanted = limit.of(self._settings), limit.counts(spent), 1
            for one in refused:
                lasts = one.day == day or (one.asker == step and one.wanted > most)
                if lasts and one.setting == limit.setting and one.asker in (step, _OTHERS):
                    wanted = max(wanted, one.wanted)
            if most and had + wanted > most:
                return str(self._passed(limit, most, had, wanted))
        return ""

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def _day(self) -> str:
        return self._now().astimezone(UTC).date().isoformat()

    def _entries(self, purpose: Purpose, amounts: Mapping[Kind, int], day: str) -> dict[Entry, int]:
        return {Entry(day, self._provider, self._model, purpose, kind): n for kind, n in amounts.items() if n}

    def _add(self, purpose: Purpose, amounts: Mapping[Kind, int], day: str) -> None:
        entries = self._entries(purpose, amounts, day)
        try:
            self.ledger.add(entries)
            self._told = False
        except LedgerError as error:
            # It is spent: forgetting it because it cannot be written would be the worse of two.
            self.ledger.owe(entries)
            self._tell(error)

    def _note(self, purpose: Purpose, entries: Mapping[Entry, int], error: _Passed) -> None:
        """Remember what was refused: of a step all that it wants, of other requests the smallest that a limit refused.
        What is small may have been in the way of another request for a moment, and says nothing about the step.
        """
        if not any(entry.kind == "step" for entry in entries):
            self.ledger.refuse(_OTHERS, self._day(), {error.limit.setting: error.wanted}, smallest=True)
            return
        wanted = {limit.setting: limit.counts(entries) for limit in _limits(purpose)}
        self.ledger.refuse(self._step_asker(), self._day(), wanted)

    def _step_asker(self) -> str:
        """The steps that these settings make: those of others need not be as large."""
        ours = self._settings
        return f"step of {ours.turns_a_step} turns, {ours.rehearsals} + {ours.anchors} rehearsals, {ours.epochs} epochs"

    def _allow(self, purpose: Purpose, spent: Mapping[Entry, int], more: Mapping[Entry, int]) -> None:
        for limit in _limits(purpose):
            most, had, wanted = limit.of(self._settings), limit.counts(spent), limit.counts(more)
            if most and wanted and had + wanted > most:
                raise self._passed(limit, most, had, wanted)

    def _passed(self, limit: Limit, most: int, had: int, wanted: int) -> _Passed:
        now = self._now().astimezone(UTC)
        seconds = (_midnight(now) - now).total_seconds()
        minutes = int(seconds // 60)
        smaller = ", or steps made smaller (batch_size, epochs)" if limit.purpose == "learning" else ""
        whole = f" More than the limit of a whole day: it has to be raised{smaller}." if wanted > most else ""
        return _Passed(
            limit,
            wanted,
            f"Today's limit {limit.setting} = {most} is used up: {limit.purpose} has spent {had} {limit.unit} at cloud "
            f"providers, and the next request takes up to {wanted} more.{whole} {_GOES_ON[limit.purpose]}. The day "
            f"ends at 00:00 UTC, in {minutes // 60} h {minutes % 60:02d} min; to go on now, raise {limit.setting} "
            "(0: no limit) and start the service again.",
            "budget",
            retry_after=seconds,
            undone=True,
        )

    def _unwritten(self, purpose: Purpose, entries: Mapping[Entry, int], error: LedgerError) -> None:
        """A request that cannot be counted goes on only where nothing limits it."""
        if any(limit.of(self._settings) for limit in _limits(purpose)):
            raise self._blind(purpose, error) from error
        self.ledger.owe(entries)
        self._tell(error)

    def _blind(self, purpose: Purpose, error: LedgerError) -> CloudError:
        set_ = [limit.setting for limit in _limits(purpose) if limit.of(self._settings)]
        return CloudError(
            f"{error}. Without it nobody knows what today has cost, so {purpose} spends nothing while "
            f"{' and '.join(set_)} limits it. Make room or give access; then it goes on by itself.",
            "budget",
            undone=True,
        )

    def _tell(self, error: LedgerError) -> None:
        if not self._told:
            self._told = True
            log.warning("%s. What is spent is counted in memory until it can be written", error)


def _limits(purpose: Purpose) -> list[Limit]:
    return [limit for limit in LIMITS if limit.purpose == purpose]


def _kinds(prefill: int, sample: int, train: int, step: int) -> dict[Kind, int]:
    amounts: dict[Kind, int] = {"prefill": prefill, "sample": sample, "train": train, "step": step}
    return {kind: amount for kind, amount in amounts.items() if amount}


def _midnight(now: datetime) -> datetime:
    return (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
