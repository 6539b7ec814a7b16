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
    help="Serve a language model and train it on its conversations. Start with: openclaw-rl serve",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
_EPILOG = "Every setting is also a flag (--batch-size 4, --no-lora); openclaw-rl doctor lists and explains them."


@app.command(context_settings=_SETTINGS, epilog=_EPILOG)
def serve(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only this part: proxy, engine or learner; may be repeated")
    ] = None,
) -> None:
    """Run the service: engine, proxy and learner; restart each if it ends."""
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
    """Train the shipped policy on a simulated student, next to a control that does not train."""
    from openclaw_rl.cli.commands.demo import main as run

    raise typer.Exit(run(context.args))


@app.command(name="eval")
def evaluate(
    data: Data = "",
    url: Url = "",
    key: Key = "",
    model_name: Annotated[str, typer.Option(help="Model to request at the URL; default: the first listed")] = "",
    versions: Annotated[str, typer.Option(help="Versions of the running service to compare: 1,5,9")] = "",
    model: Annotated[
        list[Path] | None,
        typer.Option(help="A checkpoint or model folder, served during the evaluation; may be repeated"),
    ] = None,
    suite: Annotated[
        str, typer.Option(help="Suites, comma-separated: conversation, coding, tool-use; default: conversation")
    ] = "",
    persona: Annotated[
        str, typer.Option(help="Personas of the conversation suite, comma-separated: student, ta, teacher")
    ] = "student",
    seeds: Annotated[int, typer.Option(help="Number of runs, each with its own tasks and sampling seed")] = 3,
    problems: Annotated[int, typer.Option(help="Number of first replies per persona and seed")] = 36,
    sessions: Annotated[
        int,
        typer.Option(help="Maximum number of conversations until satisfied, which the service learns from; 0: none"),
    ] = 0,
    tasks: Annotated[
        list[Path] | None,
        typer.Option(help="JSONL file of your own tasks, a suite named after the file; may be repeated"),
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Your own word problems: JSON or JSONL with GSM8K's fields")
    ] = None,
    user: Annotated[str, typer.Option(help="LiteLLM model that plays the personas; default: built-in rules")] = "",
    user_api_base: Annotated[str, typer.Option(help="Base URL of the model in --user, if not its provider's")] = "",
    user_api_key: Annotated[
        str, typer.Option(help="Key of the model in --user, if not in its provider's variable")
    ] = "",
    comment_words: Annotated[
        int,
        typer.Option(help="Words of a detailed comment (ta); 0 fits the shipped policy, 100 fits large models"),
    ] = 0,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens of a reply in the conversation suite and arms")] = 512,
    arms: Annotated[
        str,
        typer.Option(
            help="Measure learning in separate services, comma-separated: trained, control, placebo, irrelevant"
        ),
    ] = "",
    interactions: Annotated[int, typer.Option(help="Reactions of the user in each arm")] = 24,
    batch_size: Annotated[int, typer.Option(help="Judged turns per step in the arms")] = 8,
    method: Annotated[str, typer.Option(help="Learning method of the arms; default: the default of the setting")] = "",
    device: Annotated[str, typer.Option(help="Device of the services that this command starts")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for eval.json and plots")] = None,
    as_json: Json = False,
) -> None:
    """Measure a policy (conversation, coding, tool use) over seeds; compare versions, folders and learning arms."""
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
    """Show the state of the service: version, turns, backlog, processes."""
    from openclaw_rl.cli.commands.status import status as run
    from openclaw_rl.cli.costs.spending import spending_line
    from openclaw_rl.cli.service.run_file import as_served

    found = service(data, url, key)
    here = not url  # the ledger of another machine cannot be read
    spending = spending_line(as_served(load({"data": data} if data else {})[0])) if here else ""
    run(found, as_json=as_json, spending=spending)


@app.command()
def sessions(
    session: Annotated[str, typer.Argument(metavar="[SESSION]", help="Show this session with its turns")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Number of sessions to list")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Number of sessions to skip")] = 0,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """List the sessions: main and side turns, turns with a next state (settled), trained turns."""
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
    """Explain one turn: how it was placed, judged and learned from, or why it was not."""
    from openclaw_rl.cli.commands.why import why as run

    run(service(data, url, key), turn, as_json=as_json)


@app.command()
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
    """Give feedback on an answer; it overrides every judge."""
    from openclaw_rl.cli.commands.feedback import feedback as run

    run(service(data, url, key), turn=turn, session=session, good=good, bad=bad, text=text, as_json=as_json)


@app.command()
def pause(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Stop training until resume; serving, recording and judging continue."""
    from openclaw_rl.cli.commands.pause import switch

    switch(service(data, url, key), "pause", as_json=as_json)


@app.command()
def resume(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Continue training after pause."""
    from openclaw_rl.cli.commands.pause import switch

    switch(service(data, url, key), "resume", as_json=as_json)


@app.command()
def versions(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """List the versions of the policy: parent, state, samples, the guard's verdict."""
    from openclaw_rl.cli.commands.versions import versions as run

    run(service(data, url, key), as_json=as_json)


@app.command()
def rollback(
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", min=0, help="Version to serve; default: parent of the live version")
    ] = None,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Serve an older version again, within seconds, and continue learning from it."""
    from openclaw_rl.cli.commands.rollback import rollback as run

    run(service(data, url, key), number, as_json=as_json)


@app.command(name="import", epilog="docs/formats.md describes the files.")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Trajectory files, .json or .jsonl")],
    engine_url: Annotated[
        str, typer.Option(help="Engine that scores the turns; default: that of the data folder")
    ] = "",
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Import conversations with other models; the policy scores their answers, which train as off-policy turns."""
    from openclaw_rl.cli.commands.import_ import import_files as run

    run(load({"data": data} if data else {})[0], files, engine=engine_url, as_json=as_json)


@app.command(epilog="docs/formats.md describes the file and the redaction.")
def export(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="File to write; default: stdout")] = None,
    session: Annotated[list[str] | None, typer.Option(help="Only this session; may be repeated")] = None,
    since: Annotated[str, typer.Option(metavar="DATE", help="Only sessions active since this day: 2026-05-01")] = "",
    form: Annotated[
        Literal["json", "jsonl"] | None,
        typer.Option("--format", help="Format; default: by the file's extension, else json"),
    ] = None,
    kind: Annotated[
        Literal["main", "side", "all"], typer.Option(help="Only main turns, only side turns, or all")
    ] = "all",
    messages: Annotated[bool, typer.Option("--messages", help="Add the exact messages to the texts")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="As --messages, with token ids and logprobs")] = False,
    redact: Annotated[
        bool | None,
        typer.Option(
            "--redact/--no-redact", help="Remove secrets and personal data; default: if the extra is installed"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file")] = False,
    data: Data = "",
) -> None:
    """Write conversations of the journal to a trajectory file, with or without a running service."""
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
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; must be empty or new")],
    version: Annotated[
        int | None, typer.Option(min=0, help="Version; 0 is the base; default: the live version")
    ] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the PEFT adapter, not merged")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a model in the folder")] = False,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Write a version of the policy as a Hugging Face model folder, or as a PEFT adapter."""
    from openclaw_rl.cli.commands.export_model import export_model as run

    settings, _ = load({"data": data} if data else {})
    run(settings, folder, number=version, adapter=adapter, force=force, as_json=as_json)


@app.command()
def connect(
    client: Annotated[
        str, typer.Argument(metavar="[CLIENT]", help="openclaw or nanobot; without it: instructions for any client")
    ] = "",
    config: Annotated[
        str, typer.Option(help="The client's configuration file; default: the client's own default")
    ] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Restore the backup; if the file was changed since, show the difference")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without confirmation")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the changes")] = False,
    extension: Annotated[bool, typer.Option(help="OpenClaw: also enable our extension")] = True,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Connect an agent to the service: show and write the change of its configuration, with a backup; or undo it."""
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
        str,
        typer.Option(help="Plan for these GPUs instead of this machine's: 2x24 means two of 24 GB, 24,80 one of each"),
    ] = "",
    as_json: Json = False,
) -> None:
    """Show every setting with value, source and meaning, and check whether the service can run here."""
    from openclaw_rl.cli.commands.doctor import doctor as run

    healthy = run(parse_flags(context.args), as_json=as_json, with_gpus=with_gpus)
    raise typer.Exit(0 if healthy else 1)


@app.command(context_settings=_SETTINGS, epilog=_EPILOG)
def estimate(
    context: typer.Context,
    prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens per prompt; default: as recorded")] = None,
    answer_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens per answer; default: as recorded")] = None,
    turns_per_day: Annotated[float | None, typer.Option(min=0, help="Main turns per day; default: as recorded")] = None,
    as_json: Json = False,
) -> None:
    """Estimate the cost of chat and learning with a cloud backend, in tokens and dollars; sends nothing."""
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
