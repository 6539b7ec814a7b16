"""The audit: score some turns again under the version that sampled them, and compare the recorded logprobs.

Audited are `audit_fraction` of the turns, chosen by their ids alone, and each version's first turns. Only answers
sampled with a temperature and nothing else can be compared (greedy ones, and those of engines that report unscaled
logprobs, at temperature 1); no engine scores filters and penalties, and no term uses the logprobs of such turns
(`shared.objective.importance_ratio`). A turn that is off by more than the tolerance, which is wider for short answers,
goes into quarantine.

Scoring has the lowest priority. The engine's prefix cache may be what is wrong, so the fraction, and a version's turns
until one was aligned, are scored without it. If the engine is away or has dropped the version, only the audit is lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from statistics import fmean

from openclaw_rl.learner.guard.held_out import chosen
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import EngineError, JournalError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.images import images_of, misplaced
from openclaw_rl.shared.objective.importance_ratio import greedy, reshaped
from openclaw_rl.shared.records import Audit, AuditVerdict, Turn, VersionSpan
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

POLL = 1.0
FIRST_TURNS = 3
"""Aligned turns of a version before only the fraction is audited: if all logprobs are off, nothing trains."""

NOISE = 0.039
"""Root mean square of one token's noise, in nats: between two engines that compute a dense 7B and its head in bfloat16,
as published (ServiceNow/Fast-LLM, pull request 525; 0.023 with heads in float32). Nothing was measured on a GPU here.
"""
DEVIATIONS = 4.0
"""Standard errors of that noise by which an answer may be off beyond the tolerance."""

_AT_ONCE = 64
_PAUSE_AFTER_FAILURE = 2.0
_LARGEST = 100.0
"""The largest difference that counts, infinite ones included."""

_DOING = "auditing"


class _Skipped(Exception):
    """Nothing can be compared, for this reason."""

    def __init__(self, verdict: AuditVerdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


class Auditor:
    """Audits turns soon after they were recorded."""

    def __init__(self, journal: AsyncJournal, engine: Engine, settings: Settings, progress: Progress) -> None:
        self._journal = journal
        self._engine = engine
        self._settings = settings
        self._progress = progress

    async def run(self) -> None:
        """Audit until cancelled; with `audit_fraction` = 0 nothing."""
        while True:
            try:
                worked = await self.once()
                self._progress.recovered(_DOING)
            except JournalError as error:
                log.error("audit: %s", error)
                self._progress.failed(error, _DOING)
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                continue
            if not worked:
                await asyncio.sleep(POLL)

    async def once(self) -> int:
        """Audit those of the waiting turns that are due, and pass the others; returns how many waited."""
        fraction = self._settings.guard.audit_fraction
        waiting = await self._journal.unaudited(_AT_ONCE)
        passed = []
        for turn_id, version in waiting:
            picked = chosen(turn_id, fraction)
            aligned = await self._journal.aligned_count(version)
            if fraction and (picked or aligned < FIRST_TURNS):
                await self._settle(turn_id, version, fresh=picked or aligned == 0)
            else:
                passed.append(turn_id)
        if passed:
            await self._journal.pass_unaudited(passed)
        return len(waiting)

    async def _settle(self, turn_id: str, version: int, *, fresh: bool) -> None:
        turn = await self._journal.turn(turn_id)
        if turn is None:  # forgotten meanwhile
            return
        audit = await self._audit(turn, version, fresh=fresh)
        try:
            await self._journal.add_audit(audit)
        except JournalError:
            if await self._journal.turn(turn_id) is None:
                return
            raise
        if audit.verdict == "misaligned":
            log.error("turn %s is set aside: %s", turn_id, audit.reason)
        elif audit.verdict != "aligned":
            log.info("turn %s was not audited: %s", turn_id, audit.reason)

    async def _audit(self, turn: Turn, version: int, *, fresh: bool) -> Audit:
        try:
            differences = await self._differences(turn, fresh=fresh)
        except _Skipped as skipped:
            return Audit(turn_id=turn.turn_id, version=version, verdict=skipped.verdict, reason=str(skipped))
        verdict, reason = judged(differences, self._settings.guard.audit_tolerance)
        return Audit(turn_id=turn.turn_id, version=version, verdict=verdict, reason=reason, differences=differences)

    async def _differences(self, turn: Turn, *, fresh: bool) -> list[float]:
        """|recorded − found| of every token. Raises `_Skipped`."""
        shape = reshaped(turn.sampling)
        if shape:
            raise _Skipped("incomparable", f"sampled with {shape}, under which no engine scores")
        if fault := misplaced(turn):
            raise _Skipped("incomparable", fault)
        try:
            loaded = (await self._engine.info()).versions
            found: list[float] = []
            for span in turn.versions:
                if span.version not in loaded:
                    raise _Skipped("gone", f"the engine has version {span.version} no more")
                found += await self._span_differences(turn, span, fresh=fresh)
        except EngineError as error:
            if error.status == 404:
                raise _Skipped("gone", str(error)) from error
            if error.status == 501:
                raise _Skipped("incomparable", str(error)) from error
            raise _Skipped("unavailable", str(error)) from error
        if len(found) != len(turn.logprobs):
            raise _Skipped("gone", f"the versions of only {len(found)} of {len(turn.logprobs)} tokens are known")
        return found

    async def _span_differences(self, turn: Turn, span: VersionSpan, *, fresh: bool) -> list[float]:
        scores = await self._engine.score(
            [*turn.prompt_ids, *turn.response_ids[: span.start]],
            list(turn.response_ids[span.start : span.end]),
            version=span.version,
            priority=Priority.AUDIT,
            temperature=1.0 if greedy(turn.sampling) or turn.sampling.unscaled else turn.sampling.temperature,
            fresh=fresh,
            images=images_of(turn),
        )
        if scores.version != span.version:
            raise _Skipped("gone", f"the engine took version {scores.version} for {span.version}")
        recorded = turn.logprobs[span.start : span.end]
        slack = scores.slack or [0.0] * len(recorded)
        return [
            _difference(one, other, width) for one, other, width in zip(recorded, scores.logprobs, slack, strict=True)
        ]


def judged(differences: Sequence[float], tolerance: float) -> tuple[AuditVerdict, str]:
    """The verdict on |recorded − found| logprobs (at least one), with the reason.

    Judged by their root mean square, so that a few tokens that are far off count for more than noise on all of them.
    `tolerance` holds for long answers. The root mean square of n tokens varies by about 1/√n of one token's noise, so a
    short answer may be off by more.
    """
    count = len(differences)
    spread = math.sqrt(math.fsum(value * value for value in differences) / count)
    reason = (
        f"its logprobs are off by {fmean(differences):.2g} on average, {max(differences):.2g} at most (root mean "
        f"square {spread:.2g}, over {count} tokens)"
    )
    limit = tolerance + DEVIATIONS * NOISE / math.sqrt(count)
    if spread <= limit:
        return "aligned", reason
    return "misaligned", f"{reason}, more than {limit:.3g}"


def _difference(recorded: float, found: float, slack: float) -> float:
    apart = abs(recorded - found) - slack
    return min(max(apart, 0.0), _LARGEST) if math.isfinite(apart) else _LARGEST
