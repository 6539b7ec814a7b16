"""`openclaw-rl sessions`: conversations, and how far each of their turns has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer

from openclaw_rl.cli.client import ServiceError
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service
from openclaw_rl.cli.tables import console, table
from openclaw_rl.shared.wording import ago, score


def sessions(
    session: Annotated[str, typer.Argument(metavar="[SESSION]", help="Show this session with its turns")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Number of sessions to list")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Number of sessions to skip")] = 0,
    query: Annotated[str, typer.Option(help="Only sessions whose first words or id hold these words")] = "",
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """List the sessions, or show one with its turns."""
    asked = service(data, url, key)
    if session:
        if session in (".", ".."):  # a URL cannot hold them, and no session is called so
            raise ServiceError(f"There is no session {session!r}.")
        found = asked.get(f"/rl/sessions/{quote(session, safe='')}")
        print_json(found) if as_json else _one(found)
        return
    answer = asked.get("/rl/sessions", limit=limit, offset=offset, query=query)
    if as_json:
        print_json(answer)
        return
    out = console()
    rows = answer["items"]
    if not rows:
        out.print("No sessions yet." if not offset else "No more sessions.")
        return
    shown = table(
        "session", "first words", "policy", "#episodes", "#main", "#side", "#settled", "#trained", "last seen"
    )
    for row in rows:
        numbers = (str(row[name]) for name in ("episodes", "main", "side", "settled", "trained"))
        shown.add_row(row["session_id"], row["title"], row["policy"], *numbers, ago(row["last"]))
    out.print(shown)
    if answer["next"] is not None:
        out.print(f"More: openclaw-rl sessions --offset {offset + limit}")


def _one(row: dict[str, Any]) -> None:
    out = console()
    out.print(f"{row['session_id']}: {row['main']} main and {row['side']} side turns, {row['settled']} settled, "
              f"{row['trained']} trained; last seen {ago(row['last_seen'])}")  # fmt: skip
    for episode in row["episodes"]:
        if episode["environment"]:
            task = f" at {episode['task']}" if episode["task"] else ""
            group = f" of the group {episode['group']}" if episode["group"] else ""
            out.print(f"episode {episode['episode']} is an attempt{task}{group}")
        if episode["ended"] is not None:
            out.print(f"episode {episode['episode']} ended {ago(episode['ended'])}: {episode['reason']}")
    turns = row.get("turns", ())
    numbers = {turn["turn_id"]: str(number) for number, turn in enumerate(turns, 1)}
    shown = table(
        "#", "turn", "#episode", "#after", "kind", "taken so because", "status", "#tokens", "settled", "#score", "state"
    )
    for turn in turns:
        parent = turn["parent_turn_id"]
        shown.add_row(
            numbers[turn["turn_id"]],
            turn["turn_id"],
            str(turn["episode"]),
            numbers.get(parent, "other" if parent else "–"),
            turn["kind"],
            turn["kind_reason"],
            turn["status"],
            f"{turn['prompt_tokens']}+{turn['response_tokens']}",
            "yes" if turn["settled"] else "no",
            score(turn["score"]),
            turn["state"],
        )
    out.print(shown)
    for line in _parents(turns, numbers):
        out.print(line, soft_wrap=True)


def _parents(turns: Sequence[Mapping[str, Any]], numbers: Mapping[str, str]) -> Iterator[str]:
    """The reasons why turns continue none, or one that the list does not show."""
    reasons: dict[str, list[str]] = {}
    for turn in turns:
        parent, reason = turn["parent_turn_id"], turn["parent_reason"]
        if parent is None:
            reason = f"no turn before it: {reason}"
        elif parent not in numbers:
            reason = f"after {parent} of another session"
        if reason:
            reasons.setdefault(reason, []).append(numbers[turn["turn_id"]])
    for reason, which in reasons.items():
        yield f"{', '.join(which)}: {reason}"
