"""Explains why nothing was trained yet: the first thing that is missing between a request and a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openclaw_rl.proxy.conversation.classify import describe

_SHOWN = 3
"""Reasons that are listed."""


def why_untrained(
    counts: Mapping[str, Any], *, capture: bool, training: str, batch_size: int, learner: Mapping[str, Any] | None
) -> str:
    """A sentence, or "" where something was trained. `counts` is the journal's status, `training` is `running`,
    `paused` or `off`, `learner` its process row in `/rl/status`, `None` if it never reported.
    """
    if counts["consumed"]:
        return ""
    missing = _of_traffic(counts, capture=capture) or _of_signals(counts)
    if missing:
        return missing
    if training == "off":
        return f"{_ready(counts)}, but training is off (the setting train)"
    if training == "paused":
        return f"{_ready(counts)}, but training is paused: openclaw-rl resume"
    if learner is None or not learner.get("alive"):
        state = "has not run yet" if learner is None else "has stopped"
        return f"{_ready(counts)}, but the learner {state}: openclaw-rl serve starts it"
    if counts["unjudged"] and counts["ready"] < batch_size:
        return f"{_waiting(counts['unjudged'], 'turn')} for a judge; {_ready(counts)}"
    if not counts["ready"] and counts["known"]:
        return f"{_counted(counts['known'], 'turn')} taught nothing that the policy does not do already"
    if not counts["ready"]:
        return f"all that was judged was set aside: {_reasons(counts['quarantined'])}"
    detail = learner.get("detail") or {}
    if counts["ready"] >= batch_size:
        state = ": ".join(str(detail[name]) for name in ("state", "detail") if detail.get(name))
        return f"{_ready(counts)}; the learner is {state or 'working on it'}"
    return f"{counts['ready']} of the {batch_size} judged turns that a step takes (batch_size)"


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
