"""Choose among the signals of a turn, and decide whether it can be trained on. Pure functions.

The order: explicit feedback with a score; an outcome, unless a person answered the turn; the next state. A comment is
read like the user's next message. A hint comes from the comment at any score, else from the next state if the score is
not positive. An outcome may be discounted over earlier turns (`gamma`), and mixed with the judge's score of each step
(`step_rewards`); in a group of attempts the mean of the votes is added to it (`learner.groups`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from openclaw_rl.learner.groups import step_reward
from openclaw_rl.learner.judge.rules.rules import LONGEST_HINT, read_message, strip_stamp
from openclaw_rl.learner.judge.rules.rules import VERSION as RULES
from openclaw_rl.learner.judge.selection import NONE
from openclaw_rl.learner.methods import Method
from openclaw_rl.shared.journal import Attempted, Lineage
from openclaw_rl.shared.journal.accounting import STALE
from openclaw_rl.shared.journal.step_statistics import mean_vote
from openclaw_rl.shared.messages.images import images_of, misplaced
from openclaw_rl.shared.objective.importance_ratio import IMPORTED, no_ratio
from openclaw_rl.shared.records import NOT_UNDERSTOOD, Feedback, Judgement, NextState, Outcome, Sample, Turn, new_id
from openclaw_rl.shared.settings.settings import Settings

COMMENT = "a comment"
LONGEST_FOLLOW_UP = 4000
"""Characters of a person's next message that a teacher is shown."""
LEFT_OUT = "at_least_one"


def latest_score(feedback: Sequence[Feedback]) -> Feedback | None:
    """The last feedback that has a score."""
    return next((one for one in reversed(feedback) if one.score is not None), None)


def comment_hint(feedback: Sequence[Feedback], answer: str) -> str | None:
    """The hint in the last comment: its wish; next to a score that is not positive all of it, unless it only praises or
    rejects. Comments with a score that was taken back do not count.
    """
    score = scored.score if (scored := latest_score(feedback)) is not None else None
    standing = [one for one in feedback if one.score is None or score is None or (one.score > 0) == (score > 0)]
    comment = next((one.text for one in reversed(standing) if one.text.strip()), "")
    if not comment:
        return None
    reading = read_message(comment, answer=answer)
    if reading.hint or reading.score or (score is not None and score > 0):
        return reading.hint
    return strip_stamp(comment)[:LONGEST_HINT] or None


def by_feedback(turn: Turn, feedback: Sequence[Feedback]) -> Judgement | None:
    """The judgement of explicit feedback alone; `None` without any."""
    if not feedback:
        return None
    answer = str(turn.answer.get("content") or "")
    scored = latest_score(feedback)
    hint = comment_hint(feedback, answer)
    score: float | None
    if scored is not None and scored.score is not None:
        score, reason = max(-1.0, min(1.0, scored.score)), "explicit feedback"
    else:
        score, reason = read_message(feedback[-1].text, answer=answer).score, COMMENT
        if score is None:
            hint = None  # a comment that is not understood may be praise
        elif hint:
            score = -1.0
    return Judgement(
        turn_id=turn.turn_id,
        score=score,
        hint=hint,
        judge="feedback",
        signal="feedback",
        prompt_version=RULES,
        selection="comment" if hint else NONE,
        reason=reason,
        feedback_id=feedback[-1].feedback_id,
    )


def by_outcome(turn: Turn, outcome: Outcome, *, gamma: float = 0.0, later: int = 0, grouped: bool = False) -> Judgement:
    """The judgement of an environment's outcome; a reward of `None` is no verdict. It is clamped to [−1, +1], but not
    in a group, where rewards are only compared with each other.

    With `gamma` > 0 a turn with `later` main turns after it gets gamma^later of the reward: the discounted return of an
    episode with a reward at its end only. Without, every turn gets all of it.
    """
    reward = outcome.reward if outcome.reward is None or grouped else max(-1.0, min(1.0, outcome.reward))
    reason = outcome.detail or ("the session ended without a verdict" if reward is None else "the session's outcome")
    if reward is not None and gamma > 0 and later:
        reason = f"{reason}; {reward:+g} times gamma^{later} ({later} main turns came later)"
        reward *= gamma**later
    return Judgement(
        turn_id=turn.turn_id,
        score=reward,
        judge="outcome",
        prompt_version="outcome",
        signal="outcome",
        selection=NONE,
        reason=reason,
    )


def with_step(judgement: Judgement, step: Judgement, weight: float, *, grouped: bool = False) -> Judgement:
    """An outcome's judgement with the judge's score of this step: (outcome + weight · step) / (1 + weight), in
    [−1, +1]; in a group outcome + weight · mean(valid votes). Without a verdict on the step, the outcome counts alone,
    and the reason says so.
    """
    if judgement.score is None:
        return judgement
    vote = mean_vote(step.votes) if grouped else None
    vote = step.score if vote is None else vote  # a judge of the user's may give a score and no votes
    if vote is None:
        score, part = judgement.score, f"the step was not scored: {step.reason}"
    elif grouped:
        score = step_reward(judgement.score, vote, weight)
        part = f"outcome {judgement.score:+g} plus the mean vote {vote:+.3g} (weight {weight:g}, by {step.judge})"
    else:
        score = (judgement.score + weight * vote) / (1.0 + weight)
        part = f"outcome {judgement.score:+g} and step {vote:+g} (weight {weight:g}, by {step.judge}) together"
    return msgspec.structs.replace(
        with_hint_of(judgement, step),
        score=score,
        votes=step.votes,
        prompt_version=step.prompt_version or judgement.prompt_version,
        reason=f"{judgement.reason}; {part}",
    )


def without_hint(judgement: Judgement) -> Judgement:
    """A judgement whose hint is not used."""
    return msgspec.structs.replace(judgement, hint=None, selection=NONE)


def without_outcome(turn: Turn) -> Judgement:
    """The judgement of a step of an attempt in a group that ended without an outcome: there is no verdict, so nothing
    to compare with the others.
    """
    return by_outcome(
        turn, Outcome(session_id=turn.session_id, reward=None, detail="its attempt ended without an outcome")
    )


def with_hint_of(judgement: Judgement, step: Judgement) -> Judgement:
    """A judgement with the hint of another one of the same turn."""
    return msgspec.structs.replace(judgement, hint=step.hint, hint_role=step.hint_role, selection=step.selection)


def outcome_counts(turn: Turn, outcome: Outcome, next_state: NextState | None) -> bool:
    """True if the session's outcome judges this turn: no person answered it, and it came before the outcome."""
    return turn.timings.arrived <= outcome.time and (next_state is None or next_state.role != "user")


def with_feedback(judgement: Judgement, explicit: Judgement | None) -> Judgement:
    """The `judgement` of the next state, outranked by explicit feedback, which may take its hint."""
    if explicit is None:
        return judgement
    if explicit.reason == COMMENT and not explicit.score:
        return msgspec.structs.replace(judgement, feedback_id=explicit.feedback_id)
    hint, role = explicit.hint, explicit.hint_role
    if hint is None and explicit.score is not None and explicit.score <= 0:
        hint, role = judgement.hint, judgement.hint_role
    return msgspec.structs.replace(
        explicit,
        hint=hint,
        hint_role=role,
        votes=judgement.votes,
        prompt_version=judgement.prompt_version or explicit.prompt_version,
        selection=NONE if hint is None else explicit.selection if explicit.hint else judgement.selection,
    )


def left_out(turn: Turn) -> Judgement:
    """The judgement of the last judged turn if the judge left out the whole session (`at_least_one`): reward 0, as in
    OpenClaw-RL.
    """
    return Judgement(
        turn_id=turn.turn_id,
        score=0.0,
        judge=LEFT_OUT,
        prompt_version=LEFT_OUT,
        selection=NONE,
        reason="the judge left out every judged turn of this session, so the last of them counts with reward 0",
    )


def defect(turn: Turn, judgement: Judgement, settings: Settings, *, needs_verdict: bool = True) -> str:
    """The reason why the turn cannot be trained on, whatever its age, or ""; no score is one only if the method
    `needs_verdict`.
    """
    max_tokens = settings.learning.max_sample_tokens
    if turn.untrainable:
        return turn.untrainable
    if turn.image_spans and settings.engine.backend == "fireworks":
        return "its prompt holds images, and Fireworks trains on text only here"
    if turn.status != "complete":
        return f"the answer was cut off ({turn.status}{': ' + turn.error if turn.error else ''})"
    if not len(turn.response_ids):
        return "the answer is empty"
    if len(turn.logprobs) != len(turn.response_ids) or not all(math.isfinite(value) for value in turn.logprobs):
        return "logprobs of the sampled tokens are missing"
    if not len(turn.prompt_ids):
        return "token ids of the prompt are missing"
    if fault := misplaced(turn):
        return fault
    length = len(turn.prompt_ids) + len(turn.response_ids)
    if length > max_tokens:
        return f"{length} tokens, more than max_sample_tokens = {max_tokens}"
    if judgement.score is None and needs_verdict and judgement.reason.startswith(NOT_UNDERSTOOD):
        return judgement.reason
    if judgement.score is None and needs_verdict:
        return f"{'no vote succeeded' if judgement.signal == 'judge' else 'no verdict'}: {judgement.reason}"
    return ""


def aged(sample: Sample, lag: int, most: int, method: Method, *, spoken: bool) -> tuple[Sample, str]:
    """The sample as it can be learned from `lag` updates after its sampling, and the reason why it cannot, or "".

    A person's explicit word (`spoken`) keeps: the truncated ratio bounds the effect of an old answer. Any other sample
    of more than `most` updates has no ratio any more, and is too old for a method that learns from it by no other way.
    """
    if spoken or lag <= most:
        return sample, ""
    age = f"sampled {lag} versions ago, more than max_version_lag = {most}"
    old = msgspec.structs.replace(sample, no_ratio=sample.no_ratio or age)
    return old, f"{STALE}: {age}" if method.cannot_use(old) else ""


def version_lag(record: Turn | Sample, lineage: Lineage) -> int:
    """Updates between the version of an answer's tokens and the live one, the most of several versions; 0 for an
    imported answer, which no version sampled.
    """
    if (no_ratio(record.sampling) if isinstance(record, Turn) else record.no_ratio) == IMPORTED:
        return 0
    return max((lineage.updates_from(span.version) for span in record.versions), default=0)


def follow_up(next_state: NextState | None, feedback: Sequence[Feedback]) -> str | None:
    """The words of a person after an answer: the next message, else the last comment."""
    said = [one.text for one in feedback]
    if next_state is not None and next_state.role == "user":
        said.append(next_state.text)
    return next((strip_stamp(text).strip()[:LONGEST_FOLLOW_UP] for text in reversed(said) if text.strip()), None)


def sample_of(turn: Turn, judgement: Judgement, attempt: Attempted | None = None) -> Sample:
    """A turn without a `defect` as a sample; `explicit` unless a judge gave the reward. `attempt` is the one that it is
    a step of.
    """
    return Sample(
        sample_id=new_id("sample"),
        turn_id=turn.turn_id,
        policy=turn.policy,
        origin="turn",
        prompt_ids=turn.prompt_ids,
        response_ids=turn.response_ids,
        logprobs=turn.logprobs,
        versions=turn.versions,
        images=images_of(turn),
        temperature=turn.sampling.temperature,
        no_ratio=no_ratio(turn.sampling),
        reward=judgement.score,
        explicit=judgement.signal in ("feedback", "outcome"),
        hint=judgement.hint,
        group="" if attempt is None else attempt.group,
        step_index=None if attempt is None else attempt.step_index,
    )
