"""Daily limits on the spending of a cloud backend, over its ledger.

What a piece of work may take is reserved before it, and what its requests took counts after it:
`async with budget.spending("chat", {"prefill": 900, "sample": 512}) as bill`, and for each request
`with bill.request({"prefill": 900, "sample": 512}) as taken`, `taken["sample"] = 40`. After kill -9 what was reserved
counts. Learning (training, rehearsals, guard, scoring, the judge through the policy) has its own limits; it never stops
chat, nor chat it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, time, timedelta
from typing import Any

import msgspec

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.ledger import Kind, Ledger, LedgerError, Purpose, UsageEntry
from openclaw_rl.trainer_cloud.provider import CloudError, Trouble

log = logging.getLogger(__name__)


class DailyLimit(msgspec.Struct, frozen=True):
    """A daily limit: the setting that holds it, and what counts against it."""

    setting: str
    purpose: Purpose
    kinds: frozenset[Kind]
    unit: str

    def amount(self, settings: Settings) -> int:
        """The amount that a day may take; 0 is no limit."""
        return int(settings.value(self.setting))

    def counts(self, amounts: Mapping[UsageEntry, int]) -> int:
        """The share of the amounts, of any provider and model, that counts against it."""
        return sum(n for entry, n in amounts.items() if entry.purpose == self.purpose and entry.kind in self.kinds)


_TOKENS: frozenset[Kind] = frozenset(["prefill", "cached", "sample", "train"])
LIMITS = (
    DailyLimit("cloud_daily_train_tokens", "learning", _TOKENS, "tokens"),
    DailyLimit("cloud_daily_steps", "learning", frozenset(["step"]), "steps"),
    DailyLimit("cloud_daily_chat_tokens", "chat", _TOKENS, "tokens"),
)
_UNAFFECTED: dict[Purpose, str] = {"learning": "Chat continues", "chat": "Learning has its own limits"}

_OTHERS = "others"


class _LimitPassed(CloudError):
    """A limit would be passed by an amount that is wanted."""

    def __init__(self, limit: DailyLimit, wanted: int, message: str, trouble: Trouble, **more: Any) -> None:
        super().__init__(message, trouble, **more)
        self.limit = limit
        self.wanted = wanted


class Bill:
    """The amounts of requests, each counted from the moment it is sent."""

    def __init__(self) -> None:
        self._requests: list[dict[Kind, int]] = []

    @contextmanager
    def request(self, most: Mapping[Kind, int]) -> Iterator[dict[Kind, int]]:
        """Send a request, as amounts that it may take at most, to be changed to what it took. One that was certainly
        not taken by the provider counts nothing; one of unknown fate counts as it is.
        """
        taken = dict(most)
        self._requests.append(taken)
        try:
            yield taken
        except CloudError as error:
            if error.undone:
                taken.clear()
            raise

    def taken(self) -> dict[Kind, int]:
        """The amounts of all requests together."""
        found: Counter[Kind] = Counter()
        for one in self._requests:
            found.update(one)
        return dict(found)


class Budget:
    """The spending on one model of a provider. `add`, `reserve` and `obstacle` wait for a disk, so on an event loop
    they belong into a thread; `spending` goes there itself.
    """

    def __init__(
        self, settings: Settings, provider: str, model: str, *, now: Callable[[], datetime] | None = None
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._model = model
        self._now = now or (lambda: datetime.now(UTC))
        self._warned = False
        self.ledger = Ledger(settings.serve.data)

    @asynccontextmanager
    async def spending(self, purpose: Purpose, reserved: Mapping[Kind, int]) -> AsyncIterator[Bill]:
        """Reserve what requests may take at most, and count at the end what they took, also after an error. Raises
        `CloudError` (`trouble="budget"`) where a limit would be passed.
        """
        day = self._day()
        await asyncio.to_thread(self.reserve, purpose, reserved, day=day)
        bill = Bill()
        try:
            yield bill
        finally:
            taken = bill.taken()
            rest = {kind: taken.get(kind, 0) - reserved.get(kind, 0) for kind in {*reserved, *taken}}
            if any(rest.values()):
                await asyncio.shield(asyncio.to_thread(self.add, purpose, rest, day=day))

    def reserve(self, purpose: Purpose, amounts: Mapping[Kind, int], *, day: str = "") -> None:
        """Count amounts as spent if every limit allows them, else raise `CloudError`; no other process can come in
        between.
        """
        entries = self._entries(purpose, amounts, day or self._day())
        try:
            self.ledger.add(entries, approve=lambda spent: self._allow(purpose, spent, entries))
            self._warned = False
            if any(entry.kind == "step" for entry in entries):
                with suppress(LedgerError):
                    self.ledger.refuse(self._step_asker(), self._day(), {})
        except _LimitPassed as error:
            with suppress(LedgerError):
                self._note(purpose, entries, error)
            raise
        except LedgerError as error:
            # A request that cannot be counted proceeds only where nothing limits it.
            if any(limit.amount(self._settings) for limit in _limits(purpose)):
                raise self._blind(purpose, error) from error
            self._owe(entries, error)

    def add(self, purpose: Purpose, amounts: Mapping[Kind, int], *, day: str = "") -> None:
        """Count amounts that are spent already, whatever the limits say; negative ones are given back."""
        entries = self._entries(purpose, amounts, day or self._day())
        try:
            self.ledger.add(entries)
            self._warned = False
        except LedgerError as error:
            # It is spent: forgetting it because it cannot be written would be the worse of two.
            self._owe(entries, error)

    def obstacle(self, purpose: Purpose) -> str:
        """The reason that nothing more may be spent today; "" if it may. It may not where a limit is reached, nor where
        a request of any process was refused today that would be refused again: to begin a step again and again that
        cannot be ended would spend what is left. A step that no day has room for is in the way on other days too, until
        the limit is raised or steps are made smaller.
        """
        if not any(limit.amount(self._settings) for limit in _limits(purpose)):
            return ""
        day = self._day()
        try:
            spent, refused = self.ledger.day(day), self.ledger.refused()
        except LedgerError as error:
            return str(self._blind(purpose, error))
        step = self._step_asker()
        for limit in _limits(purpose):
            most, had, wanted = limit.amount(self._settings), limit.counts(spent), 1
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

    def _entries(self, purpose: Purpose, amounts: Mapping[Kind, int], day: str) -> dict[UsageEntry, int]:
        return {UsageEntry(day, self._provider, self._model, purpose, kind): n for kind, n in amounts.items() if n}

    def _note(self, purpose: Purpose, entries: Mapping[UsageEntry, int], error: _LimitPassed) -> None:
        """Remember what was refused: of a step all that it wants, of other requests the smallest that a limit refused.
        A small one may have been refused for a moment only, and says nothing about the step.
        """
        if not any(entry.kind == "step" for entry in entries):
            self.ledger.refuse(_OTHERS, self._day(), {error.limit.setting: error.wanted}, smallest=True)
            return
        wanted = {limit.setting: limit.counts(entries) for limit in _limits(purpose)}
        self.ledger.refuse(self._step_asker(), self._day(), wanted)

    def _step_asker(self) -> str:
        """The steps that these settings make: those of others need not be as large."""
        ours = self._settings.learning
        rollouts = f"{ours.rehearsals} + {ours.anchors} rehearsals"
        return f"step of {ours.turns_a_step} turns, {rollouts}, {ours.epochs} epochs"

    def _allow(self, purpose: Purpose, spent: Mapping[UsageEntry, int], more: Mapping[UsageEntry, int]) -> None:
        for limit in _limits(purpose):
            most, had, wanted = limit.amount(self._settings), limit.counts(spent), limit.counts(more)
            if most and wanted and had + wanted > most:
                raise self._passed(limit, most, had, wanted)

    def _passed(self, limit: DailyLimit, most: int, had: int, wanted: int) -> _LimitPassed:
        now = self._now().astimezone(UTC)
        seconds = (datetime.combine(now.date() + timedelta(days=1), time.min, UTC) - now).total_seconds()
        minutes = int(seconds // 60)
        smaller = ", or steps made smaller (batch_size, epochs)" if limit.purpose == "learning" else ""
        whole = f" More than the limit of a whole day: it has to be raised{smaller}." if wanted > most else ""
        return _LimitPassed(
            limit,
            wanted,
            f"Today's limit {limit.setting} = {most} is used up: {limit.purpose} has spent {had} {limit.unit} at cloud "
            f"providers, and the next request takes up to {wanted} more.{whole} {_UNAFFECTED[limit.purpose]}. The day "
            f"ends at 00:00 UTC, in {minutes // 60} h {minutes % 60:02d} min; to continue now, raise {limit.setting} "
            "(0: no limit) and start the service again.",
            "budget",
            retry_after=seconds,
            undone=True,
        )

    def _owe(self, entries: Mapping[UsageEntry, int], error: LedgerError) -> None:
        """Keep in memory what cannot be written now."""
        self.ledger.owe(entries)
        if not self._warned:
            self._warned = True
            log.warning("%s. Spending is counted in memory until it can be written", error)

    def _blind(self, purpose: Purpose, error: LedgerError) -> CloudError:
        set_ = [limit.setting for limit in _limits(purpose) if limit.amount(self._settings)]
        return CloudError(
            f"{error}. Without it the cost of today is not known, so {purpose} spends nothing while "
            f"{' and '.join(set_)} limits it. Make room or give access; then it continues by itself.",
            "budget",
            undone=True,
        )


def _limits(purpose: Purpose) -> list[DailyLimit]:
    return [limit for limit in LIMITS if limit.purpose == purpose]
