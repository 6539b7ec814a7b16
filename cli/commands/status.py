"""`openclaw-rl status`: the state of the service."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from openclaw_rl.cli.client import Service, ServiceError
from openclaw_rl.cli.costs.spending import spending_line
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service, settings_of
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.cli.tables import VisibleConsole, console, table

WATCH_SECONDS = 2.0


def status(
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C")] = False,
) -> None:
    """Ask the service and show its answer, with the day's spending at a cloud backend."""
    found = service(data, url, key)
    if watch and not as_json:
        _watch(found)
        return
    answer = found.get("/rl/status")
    if as_json:
        print_json(answer)
        return
    # The ledger of another machine cannot be read.
    show(found.url, answer, "" if url else spending_line(as_served(settings_of(data))))


def _watch(found: Service) -> None:
    """Show the state of a service until it is interrupted; a service that is away comes back by itself."""
    with contextlib.suppress(KeyboardInterrupt), console().screen() as screen:
        while True:
            screen.update(Text(rendered(found, screen.console.size.width)))
            time.sleep(WATCH_SECONDS)


def rendered(found: Service, width: int) -> str:
    """The state as text, or why it cannot be had."""
    text = io.StringIO()
    out = VisibleConsole(highlight=False, markup=False, emoji=False, file=text, width=width)
    try:
        _headline(out, found.url, answer := found.get("/rl/status"), "")
        _processes(out, answer.get("processes", {}))
    except ServiceError as error:
        out.print(str(error))
    out.print(time.strftime("%H:%M:%S"), "Ctrl-C ends this")
    return text.getvalue()


def show(url: str, answer: dict[str, Any], spending: str) -> None:
    """Show the answer of the service at `url`."""
    out = console()
    _headline(out, url, answer, spending)
    _classes(out, answer.get("classes", ()))
    _processes(out, answer.get("processes", {}))


def unrecorded_lines(unrecorded: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The answers that the journal could not take (serve_without_journal), and why it still cannot."""
    turns, reason = unrecorded.get("turns", 0), unrecorded.get("reason", "")
    if not turns and not reason:
        return []
    return [("not recorded", f"{turns} answers since the proxy started" + (f"; now: {reason}" if reason else ""))]


_TRANSFERS = {
    "adapter": "adapters, loaded side by side",
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
    if version.get("pinned") is not None:
        serving += f"; version {version['pinned']} is pinned"
    transfer = answer.get("model", {}).get("weight_transfer")
    quarantined = backlog.get("quarantined", {})
    total = sum(quarantined.values())
    lines = [
        ("service", url),
        ("serving", serving),
        *([("trouble", answer["trouble"])] if answer.get("trouble") else []),
        *unrecorded_lines(answer.get("unrecorded", {})),
        *([("new weights", _TRANSFERS[transfer])] if transfer else []),
        ("training", str(answer["training"])),
        ("learner", _learner(answer.get("processes", {}))),
        ("interactions", f"{answer['interactions']} (main turns with an answer)"),
        ("turns", f"{turns.get('main', 0)} main, {turns.get('side', 0)} side"),
        ("judge", judge_line(answer["judging"])),
        ("audit", audit_line(answer["audit"])),
        ("waiting", f"{backlog['unjudged']} for a judge, {backlog['ready']} for a step, {total} set aside"),
    ]
    groups = backlog.get("groups", {"waiting": 0})
    if groups["waiting"]:
        lines.append(("groups", f"{groups['waiting']} of attempts at a task, {groups['ready']} turns ready for a step"))
    lines += accounting_lines(answer.get("accounting", {"settled": 0}))
    notes = (answer.get("processes", {}).get("learner") or {}).get("detail", {}).get("notes", {})
    lines += list(notes.items())
    if answer["why_untrained"]:
        lines.append(("not learning" if answer["trained"] else "nothing trained", answer["why_untrained"]))
    elif answer.get("waiting_for"):
        lines.append(("waiting for", answer["waiting_for"]))
    lines += traffic_lines(answer)
    lines += [("cloud", spending)] if spending else []
    shown = table("", "")
    shown.show_header = False
    for name, text in lines:
        shown.add_row(name, text)
    out.print(shown)
    for reason, count in sorted(quarantined.items(), key=lambda item: -item[1]):
        out.print(f"  set aside {count}×: {reason}")


_PLACES = {
    "queued": "with the judge",
    "ready": "ready for a step",
    "consumed": "learned from",
    "rolled_back": "learned from by versions that were left",
    "rejected": "in rejected versions",
    "known": "known already",
    "without_score": "without a score",
    "quarantined": "set aside",
    "superseded": "superseded",
    "awaiting_outcome": "awaiting an outcome",
    "not_trainable": "not trainable",
}


def accounting_lines(accounting: dict[str, Any]) -> list[tuple[str, str]]:
    """The places of all settled turns, and those of them that were dropped or lost."""
    settled = accounting["settled"]
    if not settled:
        return []
    counts = accounting | {"quarantined": sum(accounting["quarantined"].values())}
    parts = [f"{counts[name]} {words}" for name, words in _PLACES.items() if counts[name]]
    dropped, lost = accounting["dropped"], accounting["lost"]
    parts += [f"{lost} LOST"] if lost else []
    found = [("settled", f"{settled} = {' + '.join(parts)}")]
    share = f"{dropped} of them set aside as too old ({100 * dropped / settled:.1f} %)"
    return [*found, ("dropped", share)] if dropped else found


def judge_line(judging: dict[str, Any]) -> str:
    """The judge, and how many turns it did not understand."""
    count = judging["not_understood"]
    return f"{judging['judge']}" + (f"; {count} turn{'s' if count > 1 else ''} not understood" if count else "")


def traffic_lines(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Unusual states: no capture, other models that answer, requests that wait or were refused."""
    lines = [] if answer["capture"] else [("capture", "off: requests are answered and not recorded")]
    for role, other in answer["other_models"].items():
        if other is not None:
            failed = f", failed {other['failed']}× (last: {other['last_failure']})" if other["failed"] else ""
            lines.append((role, f"{other['model']} answered {other['answered']}×{failed}"))
    limits = [*((f"key {place}", row) for place, row in enumerate(answer["limits"]["keys"], start=1))]
    sessions = answer["limits"]["sessions"]
    limits += [] if sessions is None else [("sessions", sessions)]
    for name, row in [*limits, ("other dialects", answer["limits"]["dialects"])]:
        if row["waiting"] or row["refused"]:
            now = f"{row['active']} of {row['places']} places taken, {row['waiting']} waiting, {row['refused']} refused"
            lines.append((name, now))
    return lines


def _learner(processes: dict[str, Any]) -> str:
    """The learner's activity and its last error."""
    row = processes.get("learner")
    if row is None:
        return "not started yet"
    detail = row.get("detail") or {}
    state = str(detail.get("state") or "unknown")
    if detail.get("detail"):
        state += f": {detail['detail']}"
    if not row.get("alive"):
        state = f"gone; it was {state}"
    return f"{state} (last error: {detail['last_error']})" if detail.get("last_error") else state


_SKIPPED = {
    "incomparable": "not comparable",
    "gone": "of a version that is gone",
    "unavailable": "while the engine was away",
}


def audit_line(audit: dict[str, Any]) -> str:
    """The distance of recorded logprobs from the engine's scores of the same tokens."""
    if not audit["fraction"]:
        return "off"
    verdicts = audit["verdicts"]
    compared = verdicts["aligned"] + verdicts["misaligned"]
    skipped = [f"{verdicts[name]} {words}" for name, words in _SKIPPED.items() if verdicts[name]]
    left_out = f"; left out {', '.join(skipped)}" if skipped else ""
    if not compared:
        return f"nothing compared yet{left_out}"
    off = f"logprobs off by {audit['mean']:.2g} on average, p99 {audit['p99']:.2g}, at most {audit['max']:.2g}"
    wrong = f"{verdicts['misaligned']} MISALIGNED" if verdicts["misaligned"] else "none misaligned"
    return f"{compared} turns scored again, {wrong}; last {audit['turns']}: {off}{left_out}"


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
    """Process ids and liveness as the proxy sees them, restarts as the supervisor counts them."""
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
