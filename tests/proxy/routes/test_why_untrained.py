from __future__ import annotations

from typing import Any

from openclaw_rl.proxy.routes.why_untrained import why_untrained

LEARNER = {"alive": True, "detail": {"state": "waiting for a first signal", "detail": "9 samples wait"}}
TITLES = {"kind": "side", "reason": "title", "count": 9}
CHATS = {"kind": "main", "reason": "chat", "count": 5}


def why(*classes: dict[str, Any], main: int = 0, **changes: Any) -> str:
    """The sentence for these counts; settings and learner as named."""
    counts: dict[str, Any] = {
        "classes": classes,
        "turns": {"main": main},
        "next_states": {},
        "feedback": 0,
        "judgements": 0,
        "unjudged": 0,
        "ready": 0,
        "consumed": 0,
        "known": 0,
        "quarantined": {},
    }
    state: dict[str, Any] = {"capture": True, "training": "running", "batch_size": 8, "learner": LEARNER}
    state |= {name: changes.pop(name) for name in list(changes) if name in state}
    return why_untrained(counts | changes, **state)


def test_once_something_was_trained_there_is_nothing_to_tell() -> None:
    assert why(CHATS, main=5, consumed=1) == ""


def test_traffic_without_main_turns_is_reported_with_its_reasons() -> None:
    assert why() == "no request has come yet"
    crons = {"kind": "side", "reason": "openclaw-cron", "count": 3}
    assert why(TITLES, crons) == (
        "12 requests, all side: 9× asks for a title of the conversation; 3× the last user text is a "
        "scheduled job's. Only main turns train (docs/classification.md)"
    )
    assert "1× your rule 'mine' in the settings" in why({"kind": "side", "reason": "rule:mine", "count": 1})
    assert why(CHATS, capture=False) == "5 requests, none recorded: capture is off"
    assert "X-RL-Train: never" in why(CHATS, TITLES)


def test_main_turns_without_a_reaction_are_reported() -> None:
    assert why(CHATS, main=5).startswith("5 main turns, and none was answered yet: ")
    assert why(CHATS, main=2, quarantined={"logit_bias": 2}) == "2 main turns, all set aside: 2× logit_bias"


def test_waiting_turns_are_reported_with_the_cause() -> None:
    judged = {"main": 5, "next_states": {"user": 4}, "judgements": 3}
    assert why(CHATS, **judged, ready=3) == "3 of the 8 judged turns that a step takes (batch_size)"
    assert why(CHATS, **judged, ready=1, unjudged=1) == "1 turn waits for a judge; 1 judged turn waits for a step"
    assert why(CHATS, **judged, ready=9, training="paused") == (
        "9 judged turns wait for a step, but training is paused: openclaw-rl resume"
    )
    assert "training is off" in why(CHATS, **judged, ready=9, training="off")
    assert "the learner has not run yet" in why(CHATS, **judged, ready=9, learner=None)
    assert "the learner has stopped" in why(CHATS, **judged, unjudged=2, learner={"alive": False})
    assert why(CHATS, **judged, ready=9).endswith("the learner is waiting for a first signal: 9 samples wait")
    assert why(CHATS, **judged, known=8, quarantined={"no vote succeeded": 3}) == (
        "8 turns taught nothing that the policy does not do already"
    )
    assert why(CHATS, **judged, quarantined={"no vote succeeded": 3}) == (
        "all that was judged was set aside: 3× no vote succeeded"
    )
