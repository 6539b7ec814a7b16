"""`openclaw-rl status`: what the service is doing right now."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.options import print_json
from openclaw_rl.cli.tables import console, table


def status(service: Service, *, as_json: bool, spending: str = "") -> None:
    """Ask the service and show its answer, with what a cloud backend's day has cost."""
    answer = service.get("/rl/status")
    if as_json:
        print_json(answer)
        return
    out = console()
    _headline(out, service.url, answer, spending)
    _classes(out, answer.get("classes", ()))
    _processes(out, answer.get("processes", {}))


_TRANSFERS = {
    "adapter": "adapters, loaded beside each other",
    "nccl": "sent between GPUs (nccl)",
    "gloo": "sent between CPUs (gloo)",
    "disk": "read from disk by the engine",
}


def _headline(out: Console, url: str, answer: dict[str, Any], spending: str) -> None:
    version, backlog, turns = answer["version"], answer["backlog"], answer["turns"]
    live, engine = version.get("live"), version.get("engine")
    serving = "the base" if not live else f"version {live}"
    if engine is not None and engine != (live or 0):
        serving += f" (the engine still has {engine})" if engine >= 0 else " (the engine has something else)"
    transfer = answer.get("model", {}).get("weight_transfer")
    quarantined = backlog.get("quarantined", {})
    total = sum(quarantined.values())
    lines = [
        ("service", url),
        ("serving", serving),
        *([("trouble", answer["trouble"])] if answer.get("trouble") else []),
        *([("new weights", _TRANSFERS[transfer])] if transfer else []),
        ("training", str(answer["training"])),
        ("learner", _learner(answer.get("processes", {}))),
        ("interactions", f"{answer['interactions']} (main turns that somebody answered)"),
        ("turns", f"{turns.get('main', 0)} main, {turns.get('side', 0)} side"),
        ("audit", audit_line(answer["audit"])),
        ("waiting", f"{backlog['unjudged']} for a judge, {backlog['ready']} for a step, {total} set aside"),
    ]
    notes = (answer.get("processes", {}).get("learner") or {}).get("detail", {}).get("notes", {})
    lines += list(notes.items())
    if answer["why_untrained"]:
        lines.append(("nothing trained", answer["why_untrained"]))
    lines += traffic_lines(answer)
    lines += [("cloud", spending)] if spending else []
    shown = table("", "")
    shown.show_header = False
    for name, text in lines:
        shown.add_row(name, text)
    out.print(shown)
    for reason, count in sorted(quarantined.items(), key=lambda item: -item[1]):
        out.print(f"  set aside {count}×: {reason}")


def traffic_lines(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """What is out of the ordinary: nothing kept, other models that answer, requests that wait or were refused."""
    lines = [] if answer["capture"] else [("capture", "off: requests are answered and nothing of them is kept")]
    for role, told in answer["other_models"].items():
        if told is not None:
            failed = f", failed {told['failed']}× (last: {told['last_failure']})" if told["failed"] else ""
            lines.append((role, f"{told['model']} answered {told['answered']}×{failed}"))
    limits = [*((f"key {place}", row) for place, row in enumerate(answer["limits"]["keys"], start=1))]
    sessions = answer["limits"]["sessions"]
    limits += [] if sessions is None else [("sessions", sessions)]
    for name, row in [*limits, ("other dialects", answer["limits"]["dialects"])]:
        if row["waiting"] or row["refused"]:
            now = f"{row['active']} of {row['places']} places taken, {row['waiting']} waiting, {row['refused']} refused"
            lines.append((name, now))
    return lines


def _learner(processes: dict[str, Any]) -> str:
    """What the learner is doing, in its own words, and what last went wrong there."""
    row = processes.get("learner")
    if row is None:
        return "has not been here yet"
    detail = row.get("detail") or {}
    told = str(detail.get("state") or "says nothing")
    if detail.get("detail"):
        told += f": {detail['detail']}"
    if not row.get("alive"):
        told = f"gone; it was {told}"
    return f"{told} (last error: {detail['last_error']})" if detail.get("last_error") else told


_SKIPPED = {
    "incomparable": "not comparable",
    "gone": "of a version that is gone",
    "unavailable": "while the engine was away",
}


def audit_line(told: dict[str, Any]) -> str:
    """How far recorded logprobs are from those that the engine gives when asked again."""
    if not told["fraction"]:
        return "off"
    verdicts = told["verdicts"]
    compared = verdicts["aligned"] + verdicts["misaligned"]
    skipped = [f"{verdicts[name]} {words}" for name, words in _SKIPPED.items() if verdicts[name]]
    left_out = f"; left out {', '.join(skipped)}" if skipped else ""
    if not compared:
        return f"nothing compared yet{left_out}"
    off = f"logprobs off by {told['mean']:.2g} on average, p99 {told['p99']:.2g}, at most {told['max']:.2g}"
    wrong = f"{verdicts['misaligned']} MISALIGNED" if verdicts["misaligned"] else "none misaligned"
    return f"{compared} turns scored again, {wrong}; last {told['turns']}: {off}{left_out}"


def _classes(out: Console, classes: Any) -> None:
    if not classes:
        return
    total = sum(row["count"] for row in classes)
    shown = table("kind", "reason", "taken so because", "#requests", "#share")
    for row in classes:
        share = f"{100 * row['count'] / total:.0f} %"
        shown.add_row(row["kind"], row["reason"], row.get("description", ""), str(row["count"]), share)
    out.print()
    out.print(shown)


def _processes(out: Console, processes: dict[str, Any]) -> None:
    """Pids and life as the proxy sees them; restarts as the supervisor counts them."""
    supervised: dict[str, Any] = {}
    for name, row in processes.items():
        if name.startswith("supervisor"):
            supervised |= (row.get("detail") or {}).get("processes", {})
    shown = table("process", "#pid", "alive", "#restarts", "#up (s)")
    for name in dict.fromkeys([*processes, *supervised]):
        row, kept = processes.get(name, {}), supervised.get(name, {})
        pid = kept.get("pid") or row.get("pid")
        lives = kept.get("alive", row.get("alive"))
        shown.add_row(
            name,
            "–" if pid is None else str(pid),
            "yes" if lives else "NO",
            str(kept.get("restarts", "–")),
            str(kept.get("up_seconds", "–")),
        )
    out.print()
    out.print(shown)
