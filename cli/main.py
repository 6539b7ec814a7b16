"""`openclaw-rl`: one file a command, loaded when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from openclaw_rl.shared.errors import ConfigError, OpenClawRLError

COMMANDS = {
    "serve": ("serve:serve", "Run the service: engine, proxy and learner, each restarted when it ends."),
    "demo": (
        "demo:demo",
        "Watch the shipped policy learn from a simulated student, next to a control that does not train.",
    ),
    "eval": (
        "eval:evaluate_policy",
        "How good a policy is: personas, coding and tool-use, over seeds; compare versions, folders and learning arms.",
    ),
    "status": ("status:status", "The state of the service: version, turns, backlog, processes."),
    "sessions": ("sessions:sessions", "The conversations: main and side turns, settled and trained, per session."),
    "why": ("why:why", "The story of one turn: how it was placed, judged and learned from, or why not."),
    "feedback": ("feedback:feedback", "Say what you think of an answer; this outranks every judge."),
    "pause": ("pause:pause", "Stop training until resume; serving, recording and judging continue."),
    "resume": ("pause:resume", "Let training continue."),
    "versions": ("versions:versions", "The versions of the policy: parent, state, samples, what the guard said."),
    "rollback": (
        "rollback:rollback",
        "Let an older version serve again, within seconds, and learning continue from it.",
    ),
    "import": (
        "import_:import_files",
        "Learn from conversations held elsewhere: written as this policy would, scored by it, marked off-policy.",
    ),
    "export": (
        "export:export",
        "Write conversations of the journal to a trajectory file, with or without a running service.",
    ),
    "export-model": (
        "export_model:export_model",
        "Write a version of the policy as a Hugging Face folder that plain transformers loads, or as a PEFT adapter.",
    ),
    "connect": (
        "connect:connect",
        "Point an agent at the service: shows the change to its configuration, writes it with a backup, takes it back.",
    ),
    "doctor": (
        "doctor:doctor",
        "Every setting with its value, source and meaning, and whether this machine has what it takes.",
    ),
    "estimate": (
        "estimate:estimate",
        "The cost of chat and learning with a cloud backend, in tokens and dollars, and the limits; a dry run.",
    ),
}
"""The function of each command, as "module:function", and its help."""

_TAKES_SETTINGS = ("serve", "doctor", "estimate")
_EPILOGS = dict.fromkeys(
    _TAKES_SETTINGS,
    "Every setting is also a flag (--batch-size 4, --no-lora); openclaw-rl doctor lists them with their meaning.",
) | {
    "import": "The form of the files: docs/formats.md",
    "export": "The form of the file, and what is redacted: docs/formats.md",
    "demo": "The student reads and types slower than the machine trains, so after every batch of interactions he waits "
    "until it is learned. Every service has a temporary data folder; other settings come from OPENCLAW_RL_* variables, "
    "and keys from TINKER_API_KEY or FIREWORKS_API_KEY. The last line on stdout is one JSON object; everything else "
    "goes to stderr.",
}


class _Command(TyperCommand):
    """A command by its name and help; its module is imported when it is called."""

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        module, _, function = COMMANDS[str(self.name)][0].partition(":")
        run = getattr(import_module(f"openclaw_rl.cli.commands.{module}"), function)
        loaded = typer.Typer(add_completion=False)
        loaded.command(self.name, help=self.help, epilog=self.epilog, context_settings=dict(self.context_settings))(run)
        return typer.main.get_command(loaded).make_context(*arguments, **extra)


app = typer.Typer(
    name="openclaw-rl",
    help="Talk to your agent and it learns. Start with: openclaw-rl serve",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, (_, _help) in COMMANDS.items():
    _free = {"allow_extra_args": True, "ignore_unknown_options": True} if _name in _TAKES_SETTINGS else {}
    app.command(_name, cls=_Command, help=_help, epilog=_EPILOGS.get(_name), context_settings=_free)(lambda: None)


def main() -> None:
    """Run the command line; expected errors become one message on stderr, with exit code 2 for settings, else 1."""
    try:
        app()
    except OpenClawRLError as error:
        typer.echo(f"openclaw-rl: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
