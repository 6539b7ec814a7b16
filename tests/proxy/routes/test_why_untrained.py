from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.proxy.routes.why_untrained import LearningState, waiting_for, why_untrained
from openclaw_rl.shared.journal.serving import pin_reason

LEARNER = {"alive": True, "detail": {"state": "waiting for a first signal", "detail": "9 samples wait"}}
TITLES = {"kind": "side", "reason": "title", "count": 9}
CHATS = {"kind": "main", "reason": "chat", "count": 5}


def why(*classes: dict[str, Any], main: int = 0, ask: Any = why_untrained, **changes: Any) -> str:
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
    state["pause_reason"] = ""
    state |= {name: changes.pop(name) for name in list(changes) if name in state}
    return str(ask(counts | changes, LearningState(**state)))


def test_once_something_was_trained_there_is_nothing_to_tell() -> None:
    assert why(CHATS, main=5, consumed=1) == ""


def test_a_later_step_waits_for_something_too() -> None:
    later = {"main": 5, "consumed": 9, "next_states": {"user": 4}, "judgements": 3, "ask": waiting_for}
    assert why(CHATS, **later) == "0 of the 8 judged turns that a step takes (batch_size)"
    assert why(CHATS, **later, ready=2, unjudged=1) == "1 turn waits for a judge; 2 judged turns wait for a step"
    assert why(CHATS, **later, ready=9).startswith("9 judged turns wait for a step; the learner is waiting for a first")
    assert (
        why(CHATS, **later, training="off") == "0 judged turns wait for a step, but training is off (the setting train)"
    )
    assert why(ask=waiting_for) == why() == "no request has come yet"


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


JUDGED = {"main": 9, "next_states": {"user": 9}, "judgements": 9, "ready": 9}
ENGINE_AWAY = "asking the engine which version it serves: the engine cannot be reached"


def learner(state: str, error: str = "", detail: str = "", **row: Any) -> dict[str, Any]:
    return {"alive": True, "detail": {"state": state, "detail": detail, "last_error": error}, **row}


HELD_UP: dict[str, tuple[dict[str, Any], str]] = {
    "off": ({"training": "off"}, "training is off (the setting train)"),
    "paused": ({"training": "paused"}, "training is paused: openclaw-rl resume"),
    "pinned": (
        {"training": "paused", "pause_reason": pin_reason(3)},
        "training is paused: version 3 is pinned, so that nothing else goes live: openclaw-rl pin --off",
    ),
    "deadly batches": (
        {"training": "paused", "pause_reason": "2 batches in a row ended the learner"},
        "training is paused: 2 batches in a row ended the learner",
    ),
    "never started": ({"learner": None}, "the learner has not run yet: openclaw-rl serve starts it"),
    "stopped": ({"learner": {"alive": False}}, "the learner has stopped: openclaw-rl serve starts it"),
    "loading": ({"learner": learner("loading the policy", detail="tiny")}, "the learner is loading the policy: tiny"),
    "damaged checkpoint": (
        {"learner": learner("loading the policy", "starting: version 3 cannot be read")},
        "the learner cannot start (starting: version 3 cannot be read)",
    ),
    "engine away at the start": (
        {"learner": learner("starting", "starting: the engine cannot be reached")},
        "the learner cannot start (starting: the engine cannot be reached)",
    ),
    "crash loop": (
        {"learner": learner("training", detail="8 turns", restarts=4, up_seconds=3.0)},
        "the learner has ended 4 times, last while training: 8 turns: see DATA/logs/learner.log",
    ),
    "crash loop before the first word": (
        {"learner": {"alive": False, "detail": {}, "restarts": 7, "up_seconds": 0.0}},
        "the learner has ended 7 times: see DATA/logs/learner.log",
    ),
    "disk full": (
        {"learner": learner("waiting for what trains", detail="3 MB are free for /data")},
        "the learner is waiting for what trains: 3 MB are free for /data",
    ),
    "memory": (
        {"learner": learner("waiting to try again", "training: CUDA out of memory", "after an error while training")},
        "the learner is waiting to try again: after an error while training (training: CUDA out of memory)",
    ),
    "engine away while probing": (
        {"learner": learner("probing", "probing version 4: the engine cannot be reached", "version 4")},
        "the learner is probing: version 4 (probing version 4: the engine cannot be reached)",
    ),
    "engine away while publishing": (
        {"learner": learner("publishing", "publishing version 4: the engine cannot be reached", "version 4")},
        "the learner is publishing: version 4 (publishing version 4: the engine cannot be reached)",
    ),
    "judge away": (
        {"learner": learner("waiting for samples", "judging: no judge answers"), "unjudged": 3, "ready": 0},
        "3 turns wait for the judge (judging: no judge answers)",
    ),
}


@pytest.mark.parametrize("case", HELD_UP)
def test_all_that_holds_learning_up_is_named_before_and_after_the_first_step(case: str) -> None:
    changes, words = HELD_UP[case]
    assert why(CHATS, **(JUDGED | changes)).endswith(words)
    assert why(CHATS, **(JUDGED | changes), consumed=8) == words


@pytest.mark.parametrize("traffic", [{}, {"main": 5}])
def test_a_lack_of_traffic_does_not_hide_that_the_learner_cannot_start(traffic: dict[str, Any]) -> None:
    broken = learner("starting", "starting: version 3 cannot be read")
    assert why(*[CHATS] * bool(traffic), **traffic, learner=broken).endswith(
        "; and the learner cannot start (starting: version 3 cannot be read)"
    )


def test_an_error_that_is_over_holds_nothing_up() -> None:
    for state in ("waiting for samples", "training", "probing"):
        assert why(CHATS, **JUDGED, consumed=8, learner=learner(state, ENGINE_AWAY)) == ""
    restarted = learner("waiting for samples", restarts=4, up_seconds=600.0)
    assert why(CHATS, **JUDGED, consumed=8, learner=restarted) == ""
