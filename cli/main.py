"""`openclaw-rl`: one file a command, loaded when it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from openclaw_rl.cli.options import Data, Json, Key, Url, service
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.sources import load, parse_flags

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
    """Run the service: engine, proxy and learner, each restarted when it ends."""
    from openclaw_rl.cli.commands.serve import serve as run
    from openclaw_rl.cli.service.plan import ROLES

    unknown = set(only or ()) - set(ROLES)
    if unknown:
        raise ConfigError(f"--only {', '.join(sorted(unknown))}: no such part; choose from {', '.join(ROLES)}")
    flags = parse_flags(context.args)
    settings, _ = load(flags)
    for line in aliases.notes(os.environ):
        typer.echo(line, err=True)
    run(settings, only or (), flags)


@app.command(context_settings=_SETTINGS | {"help_option_names": []}, add_help_option=False)
def demo(context: typer.Context) -> None:
    """Watch the shipped policy learn from a simulated student, beside a control that does not train."""
    from openclaw_rl.cli.commands.demo import main as run

    raise typer.Exit(run(context.args))


@app.command(name="eval")
def evaluate(
    data: Data = "",
    url: Url = "",
    key: Key = "",
    model_name: Annotated[str, typer.Option(help="Model to ask for at the URL; default: the first it lists")] = "",
    versions: Annotated[str, typer.Option(help="Versions of the running service to compare: 1,5,9")] = "",
    model: Annotated[
        list[Path] | None, typer.Option(help="A checkpoint or model folder, served for the while; may be repeated")
    ] = None,
    suite: Annotated[str, typer.Option(help="conversation, coding, tool-use, with commas; default: conversation")] = "",
    persona: Annotated[str, typer.Option(help="Of the conversation suite: student, ta, teacher")] = "student",
    seeds: Annotated[int, typer.Option(help="Runs with other tasks and other sampling")] = 3,
    problems: Annotated[int, typer.Option(help="First replies of a persona and seed")] = 36,
    sessions: Annotated[
        int, typer.Option(help="Hold at most so many conversations that the service may learn from; 0 holds none")
    ] = 0,
    tasks: Annotated[
        list[Path] | None, typer.Option(help="JSONL of your own tasks, a suite of the file's name; may be repeated")
    ] = None,
    dataset: Annotated[Path | None, typer.Option(help="Word problems in GSM8K's fields, JSON or JSONL")] = None,
    user: Annotated[str, typer.Option(help="LiteLLM model that plays the personas; default: the built-in ones")] = "",
    user_api_base: Annotated[str, typer.Option(help="Base URL of the user, if not the provider's own")] = "",
    user_api_key: Annotated[str, typer.Option(help="Key of the user, if not in the provider's own variable")] = "",
    comment_words: Annotated[
        int, typer.Option(help="Words of a detailed comment (ta); 0: as fits the shipped policy, 100 fits large ones")
    ] = 0,
    max_tokens: Annotated[int, typer.Option(help="Longest reply of the conversation suite and the arms")] = 512,
    arms: Annotated[
        str, typer.Option(help="Learn in separate services: trained, control, placebo, irrelevant, with commas")
    ] = "",
    interactions: Annotated[int, typer.Option(help="Reactions of the user in each arm")] = 24,
    batch_size: Annotated[int, typer.Option(help="Judged turns a step in the arms")] = 8,
    method: Annotated[str, typer.Option(help="Learning method of the arms; default: the service's own")] = "",
    device: Annotated[str, typer.Option(help="Device of services that are started here")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for eval.json and pictures")] = None,
    as_json: Json = False,
) -> None:
    """How good a policy is: personas, coding and tool-use, over seeds; compare versions, folders and learning arms."""
    from openclaw_rl.cli.commands.eval import EvalOptions, run

    found = service(data, url, key) if url or data or versions or not (model or arms) else None
    run(
        EvalOptions(
            service=found,
            model_name=model_name,
            versions=versions,
            models=model or (),
            suites=suite,
            personas=persona,
            seeds=seeds,
            problems=problems,
            sessions=sessions,
            task_files=tasks or (),
            dataset=dataset,
            user=user,
            user_api_base=user_api_base,
            user_api_key=user_api_key,
            comment_words=comment_words,
            max_tokens=max_tokens,
            arms=arms,
            interactions=interactions,
            batch_size=batch_size,
            method=method,
            device=device,
            out=out,
            as_json=as_json,
        )
    )


@app.command()
def status(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """The state of the service: version, turns, backlog, processes."""
    from openclaw_rl.cli.commands.status import status as run
    from openclaw_rl.cli.costs.spending import spending_line
    from openclaw_rl.cli.service.run_file import as_served

    found = service(data, url, key)
    here = not url  # the ledger of another machine cannot be read
    spending = spending_line(as_served(load({"data": data} if data else {})[0])) if here else ""
    run(found, as_json=as_json, spending=spending)


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
    from openclaw_rl.cli.commands.sessions import sessions as run

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
    from openclaw_rl.cli.commands.why import why as run

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
    from openclaw_rl.cli.commands.feedback import feedback as run

    run(service(data, url, key), turn=turn, session=session, good=good, bad=bad, text=text, as_json=as_json)


@app.command()
def pause(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Stop training until resume; serving, recording and judging go on."""
    from openclaw_rl.cli.commands.pause import switch

    switch(service(data, url, key), "pause", as_json=as_json)


@app.command()
def resume(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Let training go on."""
    from openclaw_rl.cli.commands.pause import switch

    switch(service(data, url, key), "resume", as_json=as_json)


@app.command()
def versions(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """The versions of the policy: parent, state, samples, what the guard said."""
    from openclaw_rl.cli.commands.versions import versions as run

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
    from openclaw_rl.cli.commands.rollback import rollback as run

    run(service(data, url, key), number, as_json=as_json)


@app.command(name="import", epilog="The form of the files: docs/formats.md")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Trajectory files, .json or .jsonl")],
    engine_url: Annotated[str, typer.Option(help="Engine that scores; default: the one of the data folder")] = "",
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Learn from conversations held elsewhere: written as this policy would, scored by it, marked off-policy."""
    from openclaw_rl.cli.commands.import_ import import_files as run

    run(load({"data": data} if data else {})[0], files, engine=engine_url, as_json=as_json)


@app.command(epilog="The form of the file, and what is redacted: docs/formats.md")
def export(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: stdout")] = None,
    session: Annotated[list[str] | None, typer.Option(help="This session alone; may be repeated")] = None,
    since: Annotated[str, typer.Option(metavar="DATE", help="Sessions seen since then: 2026-05-01")] = "",
    form: Annotated[
        Literal["json", "jsonl"] | None, typer.Option("--format", help="Default: by the file's name, else json")
    ] = None,
    kind: Annotated[
        Literal["main", "side", "all"], typer.Option(help="Turns that a person had, side calls, or all")
    ] = "all",
    messages: Annotated[bool, typer.Option("--messages", help="Our lossless form beside the texts")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="That, with token ids and logprobs")] = False,
    redact: Annotated[
        bool | None,
        typer.Option("--redact/--no-redact", help="Take secrets and personal data out; default: if installed"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file")] = False,
    data: Data = "",
) -> None:
    """Write conversations of the journal to a trajectory file; works beside a running service and without one."""
    from openclaw_rl.cli.commands.export import export as run

    run(
        load({"data": data} if data else {})[0],
        file,
        sessions=session or (),
        since=since,
        form=form,
        kind=None if kind == "all" else kind,
        messages=messages,
        tokens=tokens,
        redact=redact,
        force=force,
    )


@app.command(name="export-model")
def export_model(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is empty or not there yet")],
    version: Annotated[int | None, typer.Option(min=0, help="Default: the live one; 0 is the base")] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="The PEFT adapter alone, not merged")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the model that the folder holds")] = False,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Write a version of the policy as a Hugging Face folder that plain transformers loads, or as a PEFT adapter."""
    from openclaw_rl.cli.commands.export_model import export_model as run

    settings, _ = load({"data": data} if data else {})
    run(settings, folder, number=version, adapter=adapter, force=force, as_json=as_json)


@app.command()
def connect(
    client: Annotated[str, typer.Argument(metavar="[CLIENT]", help="openclaw or nanobot; none: how by hand")] = "",
    config: Annotated[str, typer.Option(help="The client's configuration file; default: where it looks itself")] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Put the file back as it was, or show what has changed since")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be changed")] = False,
    extension: Annotated[bool, typer.Option(help="OpenClaw: let our extension in as well")] = True,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Point an agent at the service: shows the change to its configuration, writes it with a backup, takes it back."""
    from openclaw_rl.cli.commands.connect import connect as run

    settings, _ = load({"data": data} if data else {})
    run(
        settings,
        service(data, url, key),
        client,
        file=config,
        undo=undo,
        yes=yes,
        dry_run=dry_run,
        extension=extension,
        as_json=as_json,
    )


@app.command(context_settings=_SETTINGS, epilog=_EPILOG)
def doctor(
    context: typer.Context,
    with_gpus: Annotated[
        str, typer.Option(help="Plan for GPUs that are not here: 2x24 means two of 24 GB each, 24,80 one of each")
    ] = "",
    as_json: Json = False,
) -> None:
    """Every setting with its value, source and meaning, and whether this machine has what it takes."""
    from openclaw_rl.cli.commands.doctor import doctor as run

    healthy = run(parse_flags(context.args), as_json=as_json, with_gpus=with_gpus)
    raise typer.Exit(0 if healthy else 1)


@app.command(context_settings=_SETTINGS, epilog=_EPILOG)
def estimate(
    context: typer.Context,
    prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a prompt; default: as recorded")] = None,
    answer_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of an answer; default: as recorded")] = None,
    turns_per_day: Annotated[float | None, typer.Option(min=0, help="Main turns a day; default: as recorded")] = None,
    as_json: Json = False,
) -> None:
    """The cost of chat and learning with a cloud backend, in tokens and dollars, and the limits; a dry run."""
    from openclaw_rl.cli.commands.estimate import estimate as run

    run(
        parse_flags(context.args),
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        turns_per_day=turns_per_day,
        as_json=as_json,
    )


def main() -> None:
    """Run the command line; expected errors become one message on stderr, with exit code 2 for settings, else 1."""
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
