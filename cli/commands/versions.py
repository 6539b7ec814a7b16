"""`openclaw-rl versions`: every version of the policy, and what the guard said about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service
from openclaw_rl.cli.tables import console, table


def versions(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Ask for the versions and list them."""
    answer = service(data, url, key).get("/rl/versions")
    if as_json:
        print_json(answer)
        return
    out = console()
    rows = answer["versions"]
    if not rows:
        out.print("No version yet: the learner makes version 0 of the base when it first starts.")
        return
    shown = table("#version", "#parent", "state", "method", "#samples", "guard", "date")
    for row in rows:
        shown.add_row(
            str(row["number"]),
            "–" if row["parent"] is None else str(row["parent"]),
            state(row),
            row["method"] or "–",
            str(len(row["sample_ids"])) if row["number"] else "–",
            verdict(row),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(row["time"])),
        )
    out.print(shown)


def state(row: Mapping[str, Any]) -> str:
    """The version's state; one that cannot be gone back to any more says so."""
    gone = row["state"] == "retired" and not row.get("available", True)
    return f"{row['state']} (files gone)" if gone else str(row["state"])


def verdict(row: Mapping[str, Any]) -> str:
    """The guard's report in a line."""
    guard = row["guard"]
    if not row["number"]:
        return "the base"
    if row["state"] == "rejected" or not guard.get("passed", False):
        return f"rejected: {guard.get('reason') or 'no reason was written down'}"
    if guard.get("damaged"):
        return f"damaged: {guard['damaged']}"
    if guard.get("resumed"):
        return f"not probed: resumed from {guard['resumed']}"
    return "; ".join(["passed", *_figures(guard)])


def _figures(guard: Mapping[str, Any]) -> list[str]:
    figures = []
    if guard.get("not_probed"):
        figures.append(f"not probed: {guard['not_probed']}")
    accepted = guard.get("accepted", {})
    if "drop" in accepted:
        figures.append(f"accepted answers {-accepted['drop']:+.3f} nats a token")
    answers = guard.get("answers")
    if answers:
        figures.append(f"{answers['candidate']['flawed']} of {answers['asked']} answers flawed")
    if guard.get("kl_base") is not None:
        figures.append(f"{guard['kl_base']:.2f} nats from the base")
    probes = guard.get("probes")
    if probes:
        figures.append(f"{probes['asked'] - len(probes['failed_before'])} of {probes['asked']} probes")
    return figures
