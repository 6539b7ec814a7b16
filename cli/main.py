"""`openclaw-rl`: one file a command, loaded when it is called."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from cli.options import Data, Json, Key, Url, service
from shared import aliases
from shared.errors import ConfigError, OpenClawRLError
from shared.setting_sources import load, parse_flags

app = typer.Typer(
    name="openclaw-rl",
    help="Talk to your agent and it learns. Start with: openclaw-rl serve",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
_EPILOG = "Every setting is also a flag (--batch-size 4, --no-lora); openclaw-rl doctor lists them with their meaning."


@app.command(context_settings=_SETTINGS, epilog=_EPILOG)
def serve(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Option("--only", help="proxy, engine or learner; default: all")] = None,
) -> None:
    """Run the service: engine, proxy and learner, each restarted whatever ends it."""
    from cli.serve import serve as run
    from cli.supervisor import ROLES

    unknown = set(only or ()) - set(ROLES)
    if unknown:
        raise ConfigError(f"--only {', '.join(sorted(unknown))}: no such part; choose from {', '.join(ROLES)}")
    settings, _ = load(parse_flags(context.args))
    for line in aliases.notes(os.environ):
        typer.echo(line, err=True)
    run(settings, only or ())


@app.command(context_settings=_SETTINGS | {"help_option_names": []}, add_help_option=False)
def demo(context: typer.Context) -> None:
    """Watch the shipped policy learn from a simulated student, beside a control that does not train."""
    from cli.demo import main as run

    raise typer.Exit(run(context.args))


@app.command()
def status(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """What the service is doing: version, turns, backlog, processes."""
    from cli.status import status as run

    run(service(data, url, key), as_json=as_json)


@app.command()
def sessions(
    session: Annotated[str, typer.Argument(metavar="[SESSION]", help="Show this one in full")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="How many to skip")] = 0,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """The conversations: main and side turns, settled and trained, per session."""
    from cli.sessions import sessions as run

    run(service(data, url, key), session, limit=limit, offset=offset, as_json=as_json)


@app.command()
def why(
    turn: Annotated[str, typer.Argument(help="Turn id (turn_…) or the id of a completion (chatcmpl-…)")],
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """The story of one turn: how it was placed, judged and learned from, or why not."""
    from cli.why import why as run

    run(service(data, url, key), turn, as_json=as_json)


@app.command()
def feedback(
    turn: Annotated[str, typer.Argument(metavar="[TURN]", help="Turn or completion id; or name a --session")] = "",
    text: Annotated[str, typer.Argument(help="In your words; a complaint becomes a hint")] = "",
    session: Annotated[str, typer.Option("--session", help="Its last main turn is meant")] = "",
    good: Annotated[bool, typer.Option("--good", help="Thumbs up")] = False,
    bad: Annotated[bool, typer.Option("--bad", help="Thumbs down")] = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Say what you think of an answer; this outranks every judge."""
    from cli.feedback import feedback as run

    run(service(data, url, key), turn=turn, session=session, good=good, bad=bad, text=text, as_json=as_json)


@app.command()
def pause(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Stop training until resume; serving, recording and judging go on."""
    from cli.pause import switch

    switch(service(data, url, key), "pause", as_json=as_json)


@app.command()
def resume(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Let training go on."""
    from cli.pause import switch

    switch(service(data, url, key), "resume", as_json=as_json)


@app.command()
def versions(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """The versions of the policy: parent, state, samples, what the guard said."""
    from cli.versions import versions as run

    run(service(data, url, key), as_json=as_json)


@app.command()
def rollback(
    number: Annotated[int | None, typer.Argument(metavar="[N]", min=0, help="Default: the live one's parent")] = None,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Let an older version serve again, within seconds, and learning go on from it."""
    from cli.rollback import rollback as run

    run(service(data, url, key), number, as_json=as_json)


@app.command(context_settings=_SETTINGS, epilog=_EPILOG)
def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Every setting with its value, source and meaning, and whether this machine has what it takes."""
    from cli.doctor import doctor as run

    healthy = run(parse_flags(context.args), as_json=as_json)
    raise typer.Exit(0 if healthy else 1)


def main() -> None:
    """Run the command line; what a person can mend becomes one message on stderr: exit code 2 for settings, else 1."""
    try:
        app()
    except ConfigError as error:
        typer.echo(f"openclaw-rl: {error}", err=True)
        sys.exit(2)
    except OpenClawRLError as error:
        typer.echo(f"openclaw-rl: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
