"""Explains what learning waits for: the first thing that is missing between a request and a step, and what holds the
learner up; and why nothing was learned yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.proxy.conversation.classify import describe

_SHOWN = 3
"""Reasons that are listed."""

_OFTEN = 2
_SHORT_SECONDS = 60.0
"""A learner that was started again so often, and is up for less than this, ends again and again."""

_STARTING = ("starting", "loading the policy")
_HELD_UP = {"waiting to try again", "waiting for what trains"}
"""States in which it waits for something to be mended."""


class LearningState(msgspec.Struct, frozen=True):
    """The state of learning outside the journal's counts: `training` is `running`, `paused` (for `pause_reason`) or
    `off`, `learner` its process row in `/rl/status`, `None` if it never reported.
    """

    capture: bool
    training: str
    batch_size: int
    learner: Mapping[str, Any] | None
    pause_reason: str = ""


def why_untrained(counts: Mapping[str, Any], state: LearningState) -> str:
    """A sentence, or "" where something was trained and nothing holds learning up. `counts` is the journal's status."""
    return _held_up(counts, state) if counts["consumed"] else waiting_for(counts, state)


def waiting_for(counts: Mapping[str, Any], state: LearningState) -> str:
    """A sentence about the thing that the next step waits for, or is doing."""
    first = not counts["consumed"]
    held_up = _held_up(counts, state)
    missing = (_of_traffic(counts, capture=state.capture) or _of_signals(counts)) if first else ""
    if missing:
        return f"{missing}; and {held_up}" if held_up and state.learner is not None else missing
    if held_up:
        return f"{_ready(counts)}, but {held_up}"
    if counts["unjudged"] and counts["ready"] < state.batch_size:
        return f"{_waiting(counts['unjudged'], 'turn')} for a judge; {_ready(counts)}"
    if first and not counts["ready"] and counts["known"]:
        return f"{_counted(counts['known'], 'turn')} taught nothing that the policy does not do already"
    if first and not counts["ready"]:
        return f"all that was judged was set aside: {_reasons(counts['quarantined'])}"
    if counts["ready"] >= state.batch_size:
        return f"{_ready(counts)}; the learner is {_activity(state.learner) or 'working on it'}"
    return f"{counts['ready']} of the {state.batch_size} judged turns that a step takes (batch_size)"


def _held_up(counts: Mapping[str, Any], state: LearningState) -> str:
    return _switched_off(state) or _hindrance(state.learner, counts)


def _switched_off(state: LearningState) -> str:
    if state.training == "off":
        return "training is off (the setting train)"
    if state.training == "paused":
        return f"training is paused: {state.pause_reason or 'openclaw-rl resume'}"
    return ""


def _hindrance(learner: Mapping[str, Any] | None, counts: Mapping[str, Any]) -> str:
    """The thing that the learner needs to continue."""
    if learner is None:
        return "the learner has not run yet: openclaw-rl serve starts it"
    detail = learner.get("detail") or {}
    error, state = str(detail.get("last_error") or ""), str(detail.get("state") or "")
    restarts = int(learner.get("restarts") or 0)
    if restarts >= _OFTEN and float(learner.get("up_seconds") or 0.0) < _SHORT_SECONDS:
        last = f", last while {_activity(learner)}" if state else ""
        return f"the learner has ended {restarts} times{last}{_quoted(error)}: see DATA/logs/learner.log"
    if not learner.get("alive"):
        return f"the learner has stopped{_quoted(error)}: openclaw-rl serve starts it"
    if state in _STARTING:
        return f"the learner cannot start{_quoted(error)}" if error else f"the learner is {_activity(learner)}"
    if state in _HELD_UP:
        return f"the learner is {_activity(learner)}{_quoted(error)}"
    if error.startswith("judging") and counts["unjudged"]:
        return f"{_waiting(counts['unjudged'], 'turn')} for the judge{_quoted(error)}"
    if error and state.split(" ")[0] in error.split(":")[0]:  # it tries again and again to do what it does now
        return f"the learner is {_activity(learner)}{_quoted(error)}"
    return ""


def _activity(learner: Mapping[str, Any] | None) -> str:
    detail = (learner or {}).get("detail") or {}
    return ": ".join(str(detail[name]) for name in ("state", "detail") if detail.get(name))


def _quoted(error: str) -> str:
    return f" ({error})" if error else ""


def _of_traffic(counts: Mapping[str, Any], *, capture: bool) -> str:
    """The missing thing where no main turn was recorded."""
    classes: Sequence[Mapping[str, Any]] = counts["classes"]
    seen = sum(entry["count"] for entry in classes)
    if counts["turns"]["main"]:
        return ""
    if not seen:
        return "no request has come yet"
    if not capture:
        return f"{_counted(seen, 'request')}, none recorded: capture is off"
    side = [entry for entry in classes if entry["kind"] == "side"]
    if len(side) == len(classes):
        reasons = _reasons({describe(entry["reason"]) or entry["reason"]: entry["count"] for entry in side})
        return f"{_counted(seen, 'request')}, all side: {reasons}. Only main turns train (docs/classification.md)"
    return (
        f"{_counted(seen, 'request')}, no main one recorded: they came with X-RL-Train: never, or were forgotten since"
    )


def _of_signals(counts: Mapping[str, Any]) -> str:
    """The missing thing where no signal says whether the main turns were good."""
    main, judged = counts["turns"]["main"], counts["judgements"]
    if judged or counts["unjudged"] or counts["ready"]:
        return ""
    set_aside = sum(counts["quarantined"].values())
    if set_aside >= main:
        return f"{_counted(main, 'main turn')}, all set aside: {_reasons(counts['quarantined'])}"
    if not counts["next_states"] and not counts["feedback"]:
        return (
            f"{_counted(main, 'main turn')}, and none was answered yet: a turn is learned from by what follows it, the "
            "next message of the same conversation, feedback or an outcome"
        )
    return f"{_counted(main, 'main turn')}, nothing among their reactions to judge by"


def _ready(counts: Mapping[str, Any]) -> str:
    if not counts["ready"] and counts["unjudged"]:
        return f"{_counted(counts['unjudged'], 'turn')} to be judged"
    return f"{_waiting(counts['ready'], 'judged turn')} for a step"


def _reasons(reasons: Mapping[str, int]) -> str:
    common = sorted(reasons.items(), key=lambda item: -item[1])
    more = f"; and {len(common) - _SHOWN} more reasons" if len(common) > _SHOWN else ""
    return "; ".join(f"{count}× {reason}" for reason, count in common[:_SHOWN]) + more


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _waiting(count: int, noun: str) -> str:
    return f"{_counted(count, noun)} {'waits' if count == 1 else 'wait'}"
