"""The state of the whole service, for `/rl/status` and `/readyz`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, get_args

from openclaw_rl.proxy.conversation.classify import describe
from openclaw_rl.proxy.routes.why_untrained import LearningState, waiting_for, why_untrained
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.journal import AuditFigures, ProcessRow
from openclaw_rl.shared.journal.status import PAUSE_REASON
from openclaw_rl.shared.process import alive
from openclaw_rl.shared.records import NOT_UNDERSTOOD, AuditVerdict, now

_LOST_SECONDS = 60.0
_COUNTS = (
    "turns", "interactions", "last_change", "next_states", "feedback", "sessions", "open_episodes", "versions",
)  # fmt: skip


def readiness(service: ProxyService) -> dict[str, Any]:
    """Readiness to answer chat requests, if need be by the fallback model, and the reason if there is none."""
    return {
        "ready": (service.watch.ready or service.others.fallback is not None)
        and not (service.journal_error and service.recorder.required),
        "engine": service.watch.error or "ok",
        "journal": service.journal_error or "ok",
    }


async def status_report(service: ProxyService) -> dict[str, Any]:
    """Asks the journal only; the engine's last answer is at most some seconds old."""
    counts = await service.journal.status()
    processes = await service.journal.processes()
    control = await service.journal.get_control("train", "running")
    figures = await service.journal.learning_figures()
    info = service.watch.info
    training = "off" if not service.settings.learning.train else "paused" if control == "paused" else "running"
    shown = _processes(service, processes)
    learning = LearningState(
        capture=service.settings.serve.capture,
        training=training,
        batch_size=service.settings.learning.batch_size,
        learner=shown.get("learner"),
        pause_reason=await service.journal.get_control(PAUSE_REASON),
    )
    return {
        "version": {
            "live": counts["live"],
            "engine": info.live if info is not None else None,
            "pinned": await service.journal.pinned(),
        },
        "model": {
            "name": service.settings.serve.model_name,
            "path": service.settings.engine.model,
            "context_length": service.watch.context_length,
            "versions": sorted(info.versions) if info is not None else [],
            "weight_transfer": info.transfer if info is not None else "",
        },
        "classes": [{**entry, "description": describe(entry["reason"])} for entry in counts["classes"]],
        **{name: counts[name] for name in _COUNTS},
        "accounting": await service.journal.accounting(),
        "backlog": {name: counts[name] for name in ("unjudged", "ready", "groups", "quarantined")},
        "judging": {
            "judge": service.judge,
            **{name: getattr(figures, name) for name in ("judgements", "without_score", "votes", "failed")},
            "not_understood": sum(
                count for reason, count in counts["quarantined"].items() if reason.startswith(NOT_UNDERSTOOD)
            ),
        },
        "audit": _audit(service, await service.journal.audit_figures()),
        "trained": counts["consumed"],
        "why_untrained": why_untrained(counts, learning),
        "waiting_for": waiting_for(counts, learning),
        "batch_size": service.settings.learning.batch_size,
        "training": training,
        "learning": {name: getattr(service.settings.learning, name) for name in ("turns_a_step", "max_version_lag")},
        "capture": service.settings.serve.capture,
        "unrecorded": {"turns": service.recorder.unrecorded, "reason": service.recorder.skipping},
        "trouble": info.trouble if info is not None and service.watch.ready else "",
        "processes": shown,
        "active": len(service.answering),
        "limits": {
            "keys": service.limits.figures(),
            "dialects": service.dialects.limit.figures(),
            "sessions": service.session_limit.figures(),
        },
        "other_models": service.others.figures(),
        **readiness(service),
    }


def _audit(service: ProxyService, figures: AuditFigures) -> dict[str, Any]:
    """The results of audits; `mean`, `p99` and `max` are |recorded − found| logprob per token over the last `turns`."""
    differences = {"mean": figures.mean, "p99": figures.p99, "max": figures.largest}
    return {
        "fraction": service.settings.guard.audit_fraction,
        "tolerance": service.settings.guard.audit_tolerance,
        "verdicts": {verdict: figures.verdicts.get(verdict, 0) for verdict in get_args(AuditVerdict)},
        "turns": figures.turns,
        "tokens": figures.tokens,
        **(differences if figures.turns else dict.fromkeys(differences)),
        "time": figures.time,
    }


def _processes(service: ProxyService, rows: Mapping[str, ProcessRow]) -> dict[str, Any]:
    current = now()
    shown: dict[str, Any] = {}
    for name, row in rows.items():
        age = current - row.time
        shown[name] = {
            "pid": row.pid,
            "alive": age < _LOST_SECONDS and alive(row.pid),
            "seconds_ago": round(age, 1),
            "detail": row.status,
        }
    shown["proxy"] = {**shown.get("proxy", {"detail": {}}), "pid": os.getpid(), "alive": True}
    children = shown.get("supervisor", {}).get("detail", {}).get("processes", {})
    engine, learner = (
        children.get(name, {}) if isinstance(children, Mapping) else {} for name in ("engine", "learner")
    )
    if "learner" in shown or learner.get("restarts"):
        shown["learner"] = {
            **shown.get("learner", {"pid": None, "alive": False, "detail": {}}),
            "restarts": learner.get("restarts"),
            "up_seconds": learner.get("up_seconds"),
        }
    shown["engine"] = {
        "pid": engine.get("pid"),
        "alive": service.watch.ready,
        "detail": {"error": service.watch.error, "restarts": engine.get("restarts")},
    }
    return shown
