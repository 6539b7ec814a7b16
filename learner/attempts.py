"""Accepted attempts: what the teacher of SDPO sees instead of a hint, where there is one.

An attempt is another answer to the same prompt, as several attempts at a task of an environment are, or the second try
after a person's complaint. It succeeded if its score is at least `SUCCESS`. Source: SDPO (arXiv 2601.20802), which
shows an attempt another one of its group that succeeded, never itself, and the feedback only where none did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from openclaw_rl.learner.guard.held_out import chosen_for_guard
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings

SUCCESS = 1.0
"""The score of an attempt that is shown."""
WINDOW = 512
"""Number of judgements to look back on."""
SHOWN = "An accepted answer to this request:\n\n{answer}\n\nAnswer the request."


async def accepted_attempts(journal: AsyncJournal) -> dict[str, list[str]]:
    """For each turn whose sample waits: its accepted attempts, newest first."""
    return await journal.accepted_attempts(SUCCESS, WINDOW)


async def with_attempts(
    journal: AsyncJournal, settings: Settings, samples: Sequence[Sample], attempts: Mapping[str, Sequence[str]]
) -> list[Sample]:
    """The samples; those with an accepted attempt have the newest one as their hint. Left out are attempts that are
    held out for the guard, that call tools, and that are too long together with the prompt.
    """
    return [await _shown(journal, settings, sample, attempts.get(sample.turn_id or "", ())) for sample in samples]


async def _shown(journal: AsyncJournal, settings: Settings, sample: Sample, attempts: Sequence[str]) -> Sample:
    share = settings.guard.held_back if settings.guard.enabled else 0.0
    for turn_id in attempts:
        attempt = None if chosen_for_guard(turn_id, share) else await journal.turn(turn_id)
        if attempt is None or attempt.answer.get("tool_calls"):
            continue
        answer = attempt.answer.get("content")
        length = len(sample.prompt_ids) + len(attempt.response_ids) + len(sample.response_ids)
        if isinstance(answer, str) and answer.strip() and length <= settings.learning.max_sample_tokens:
            return msgspec.structs.replace(sample, hint=SHOWN.format(answer=answer.strip()))
    return sample
