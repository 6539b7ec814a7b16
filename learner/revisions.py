"""Revisions: second tries that a person accepted, taught as answers to the first prompt.

A person complains about an answer, the policy tries again, and they are content. The second try was written after the
complaint: the base with that conversation in its prompt is the teacher, and the policy learns its distributions from
the first prompt alone. Source of the idea: the revisions of Constitutional AI (arXiv 2212.08073, section 3.1), which
are trained on as first answers too.
"""

from __future__ import annotations

from openclaw_rl.learner.guard.held_out import chosen_for_guard
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.images import images_of
from openclaw_rl.shared.records import Sample, Turn, new_id
from openclaw_rl.shared.settings.settings import Settings

WINDOW = 64
"""Number of judgements to look back on."""


async def accepted_revisions(journal: AsyncJournal, settings: Settings) -> list[Sample]:
    """The newest accepted second tries, at most `revisions`, without those that the guard holds out, that are in
    quarantine, that broke off, or that show images.
    """
    wanted, share = settings.learning.revisions, settings.guard.held_back if settings.guard.enabled else 0.0
    found: list[Sample] = []
    for _, turn_id in await journal.accepted_answers(WINDOW) if wanted else ():
        if len(found) == wanted:
            break
        second = await journal.turn(turn_id)
        if second is None or second.parent_turn_id is None or chosen_for_guard(turn_id, share):
            continue
        first = await journal.turn(second.parent_turn_id)
        if first is not None and await _revises(journal, first, second, settings):
            found.append(_sample(first, second))
    return found


async def _revises(journal: AsyncJournal, first: Turn, second: Turn, settings: Settings) -> bool:
    """True if the second turn answers a complaint about the first, and may be trained on."""
    complaint = await journal.judgement(first.turn_id)
    if complaint is None or complaint.score is None or complaint.score > 0 or not complaint.hint:
        return False
    if second.finish_reason not in ("stop", "length") or images_of(first) or images_of(second):
        return False
    if len(first.prompt_ids) + len(second.response_ids) > settings.learning.max_sample_tokens:
        return False
    explained = await journal.explain(second.turn_id)
    return explained is not None and not explained.get("quarantine")


def _sample(first: Turn, second: Turn) -> Sample:
    return Sample(
        sample_id=new_id("revision"),
        turn_id=None,
        policy=first.policy,
        origin="revision",
        prompt_ids=first.prompt_ids,
        response_ids=second.response_ids,
        hinted_prompts=[second.prompt_ids],
        logprobs=[0.0] * len(second.response_ids),
        versions=second.versions,
        no_ratio="it was sampled after another prompt",
    )
