"""Answers of the `/rl` routes in the shapes that the dashboard reads, with hostile texts in every field of people's."""

from __future__ import annotations

import time
from typing import Any

NOW = time.time()
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> [go](javascript:alert(1)) ![i](https://evil.example/x.png) "
    "\u202edesrever\u202c \x1b[31mred\x1b[0m \u0000 " + "W" * 500
)
ENDLESS = "a" * 1_000_000


def answers() -> dict[str, Any]:
    """The answer of each path."""
    turns, live = [_turn(number) for number in range(3)], _version(2, 0, "live")
    return {
        "/rl/status": _status(),
        "/rl/versions": {"versions": [_version(0, None, "retired"), _version(1, 0, "rejected"), live]},
        "/rl/versions/2": live | {"lessons": [_lesson()], "rehearsals": 3, "anchors": 2},
        "/rl/wishes": _page([{"id": "w1", "text": HOSTILE, "count": 2, "first": NOW, "last": NOW, "state": "standing",
                              "from": [{"turn_id": "turn_1", "words": HOSTILE}]}]),
        "/rl/verdicts": _page([{"key": "2", "n": 9, "mean": 0.5, "complaints": 2, "thumbs_up": 5, "thumbs_down": 1}]),
        "/rl/sessions": _page([{"session_id": "s1", "title": HOSTILE, "turns": 3, "first": NOW, "last": NOW,
                                "source": "chat", "state": "open", "needs_review": 1}]),
        "/rl/sessions/s1/transcript": _page(turns),
        "/rl/turns/turn_1": {"turn": {"turn_id": "turn_1", "session_id": "s1"}, "story": [HOSTILE]},
        "/rl/settings": {
            "settings": [{"name": "model", "value": HOSTILE, "source": "set", "meaning": "The model", "secret": False}],
            "checks": [{"name": "judge", "ok": False, "detail": HOSTILE}],
            "leaves_machine": [HOSTILE],
        },
        "/rl/logs": {"processes": ["proxy"], "lines": [HOSTILE]},
        "/rl/data": {"bytes": 5, "parts": {"journal": 5}, "counts": {"turns": 3}, "oldest": NOW, "keep_days": 30},
        "/rl/evals": _page([]),
    }  # fmt: skip


def _page(items: list[Any]) -> dict[str, Any]:
    return {"total": len(items), "next": None, "items": items}


def _status() -> dict[str, Any]:
    learner = {"pid": 3, "alive": True, "restarts": 0, "detail": {"state": HOSTILE, "last_error": HOSTILE}}
    return {
        "ready": True, "engine": "ok", "journal": "ok", "capture": True, "training": "running", "trouble": "",
        "version": {"live": 2, "engine": 2, "pinned": None},
        "model": {"name": "policy", "path": "tiny", "context_length": 512, "versions": [2]},
        "waiting_for": HOSTILE, "why_untrained": "", "batch_size": 8, "backlog": {"ready": 3},
        "processes": {"proxy": {"pid": 1, "alive": True, "detail": {}}, "learner": learner},
        "limits": {"keys": [], "dialects": None, "sessions": None},
    }  # fmt: skip


def _version(number: int, parent: int | None, state: str) -> dict[str, Any]:
    guard = {"passed": state != "rejected", "reason": HOSTILE, "kl": 0.1, "max_kl": 0.5} if number else {}
    metrics = {"loss/total": 1.0, "tokens": 5.0} if number else {}
    return {
        "number": number, "parent": parent, "state": state, "available": state != "rejected", "guard": guard,
        "metrics": metrics, "sample_ids": ["one"], "method": "rehearse", "time": NOW,
    }  # fmt: skip


def _lesson() -> dict[str, Any]:
    return {
        "turn_id": "turn_1", "session_id": "s1", "words": HOSTILE, "verdict": -1, "hint": HOSTILE, "weight": 1.0,
        "advantage": None, "terms": {"distill": 0.5},
    }  # fmt: skip


def _turn(number: int) -> dict[str, Any]:
    tool = {"role": "tool", "text": HOSTILE, "folded": False, "images": 0}
    return {
        "turn_id": f"turn_{number}", "parent": None, "episode": 0, "kind": "main", "reason": HOSTILE, "time": NOW,
        "status": "complete", "version": [2], "score": -1.0, "judged_by": HOSTILE, "hint": HOSTILE, "advantage": 0.5,
        "state": "trained", "versions": [2], "excluded": False, "review": True,
        "new_messages": [{"role": "user", "text": HOSTILE, "folded": False, "images": 1}, tool],
        "answer": {"text": ENDLESS if number == 2 else HOSTILE, "reasoning": HOSTILE,
                   "tool_calls": [{"name": HOSTILE, "arguments": HOSTILE}]},
        "feedback": [{"score": 1.0, "text": HOSTILE, "source": "api", "time": NOW}],
    }  # fmt: skip
