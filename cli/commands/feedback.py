"""`openclaw-rl feedback`: explicit feedback on an answer."""

from __future__ import annotations

from typing import Annotated

import typer

from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service
from openclaw_rl.shared.errors import ConfigError


def feedback(
    turn: Annotated[str, typer.Argument(metavar="[TURN]", help="Turn or completion id; without it use --session")] = "",
    text: Annotated[str, typer.Argument(help="A comment; a complaint becomes a hint")] = "",
    session: Annotated[str, typer.Option("--session", help="Give feedback on the last main turn of this session")] = "",
    good: Annotated[bool, typer.Option("--good", help="Thumbs up")] = False,
    bad: Annotated[bool, typer.Option("--bad", help="Thumbs down")] = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Send a thumb, a comment or both. Raises `ConfigError` when it is not clear which answer or thumb is meant."""
    if session and turn and not text:
        turn, text = "", turn  # with --session the only word is the comment
    if bool(turn) == bool(session):
        raise ConfigError("name either a TURN or a --session (its last main turn), for example: feedback TURN --good")
    if good and bad:
        raise ConfigError("--good and --bad at once; choose one")
    if not (good or bad or text):
        raise ConfigError("nothing to say: add --good, --bad or a comment")
    body: dict[str, str] = {"turn_id": turn} if turn else {"session_id": session}
    if good or bad:
        body["thumb"] = "up" if good else "down"
    if text:
        body["text"] = text
    answer = service(data, url, key).post("/rl/feedback", body)
    if as_json:
        print_json(answer)
        return
    score = answer.get("score")
    said = "a comment" if score is None else {1: "👍", -1: "👎"}.get(score, str(score))
    typer.echo(f"{said} noted for {answer['turn_id']}; what comes of it: openclaw-rl why {answer['turn_id']}")
