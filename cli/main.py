"""`openclaw-rl`: one file a command, loaded when it is called."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from openclaw_rl.shared.errors import ConfigError, OpenClawRLError

COMMANDS = {
    "serve": ("serve:serve", "Run the service: engine, proxy and learner; restart each if it ends."),
    "demo": ("demo:demo", "Train the shipped policy on a simulated student, next to a control that does not train."),
    "eval": (
        "eval:evaluate_policy",
        "Measure a policy with several seeds; compare versions, model folders, and runs with and without training.",
    ),
    "env": (
        "env:env",
        "Let the policy work on tasks that have a verdict: list environments, measure the pass rate, train.",
    ),
    "status": ("status:status", "Show the state of the service: version, turns, backlog, processes."),
    "dashboard": ("dashboard:dashboard", "Open the dashboard in a browser, signed in."),
    "sessions": (
        "sessions:sessions",
        "List the sessions and count their turns: main, side, settled (with a next state) and trained.",
    ),
    "why": (
        "why:why",
        "Explain one turn: its place in the session, its score, and its training or the reason why there is none.",
    ),
    "feedback": ("feedback:feedback", "Give feedback on an answer; it overrides every judge."),
    "pause": ("pause:pause", "Stop training until resume; serving, recording and judging continue."),
    "resume": ("pause:resume", "Continue training after pause."),
    "versions": ("versions:versions", "List the versions of the policy: parent, state, samples, the guard's verdict."),
    "rollback": ("rollback:rollback", "Serve an older version again, within seconds, and continue learning from it."),
    "promote": ("rollback:promote", "Serve this version, older or newer, and continue learning from it."),
    "pin": (
        "rollback:pin",
        "Keep a version live: no other goes live, and training waits, until pin --off.",
    ),
    "diff": (
        "diff:diff",
        "Let two versions answer the same prompts, recent ones or your own, and show both answers.",
    ),
    "forget": (
        "forget:forget",
        "Delete conversations and all that was said about them: a session, or everything before a day.",
    ),
    "import": (
        "import_:import_files",
        "Import other models' conversations for off-policy training; the policy computes the answers' logprobs.",
    ),
    "export": (
        "export:export",
        "Write conversations of the journal to a trajectory file, with or without a running service.",
    ),
    "export-model": (
        "export_model:export_model",
        "Write a version of the policy as a Hugging Face model folder, or as a PEFT adapter.",
    ),
    "connect": (
        "connect:connect",
        "Connect an agent to the service: show the change of its configuration, write it with a backup, or undo it.",
    ),
    "doctor": (
        "doctor:doctor",
        "Show every setting with value, source and meaning, and check whether the service can run here.",
    ),
    "keys": (
        "keys:keys",
        "Make, list and revoke further API keys with scopes: chat, feedback, read, admin.",
    ),
    "check": (
        "check:check",
        "Check the data folder: every turn in one place, checksums of turns and checkpoints, the journal's file.",
    ),
    "fetch": (
        "fetch:fetch",
        "Download the files of a model (smollm2, or a Hugging Face hub name) so that later starts need no network.",
    ),
    "estimate": (
        "estimate:estimate",
        "Estimate the cost of chat and learning with a cloud backend, in tokens and dollars; sends nothing.",
    ),
}
"""The function of each command, as "module:function", and its help."""

TAKES_SETTINGS = ("serve", "doctor", "estimate")
_EPILOGS = dict.fromkeys(
    TAKES_SETTINGS,
    "Every setting is also a flag. The most used ones are --port, --model, --backend, --method, --data and --config "
    "(the file of settings). openclaw-rl doctor lists and explains all settings.",
) | {
    "import": "docs/formats.md describes the files.",
    "export": "docs/formats.md describes the file and the redaction.",
    "env": "docs/environments.md describes the environments, and how to bring your own. Without --url and --data the "
    "command starts a service for the run. Its settings come from OPENCLAW_RL_* variables, and its data stay in the "
    "folder of the run.",
    "demo": "The student dislikes bold text and numbered steps. An interaction is one reaction of the student to an "
    "answer. After every batch of interactions the student waits until the service has learned. The demo starts its "
    "own services with temporary data folders. Other settings come from OPENCLAW_RL_* variables, and keys from "
    "TINKER_API_KEY or FIREWORKS_API_KEY. The last line on stdout is one JSON object; all other output goes to stderr.",
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
    help="Serve a model and train it on your conversations. Start with: openclaw-rl serve",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, (_, _help) in COMMANDS.items():
    _free = {"allow_extra_args": True, "ignore_unknown_options": True} if _name in TAKES_SETTINGS else {}
    app.command(_name, cls=_Command, help=_help, epilog=_EPILOGS.get(_name), context_settings=_free)(lambda: None)


def main() -> None:
    """Run the command line; expected errors become one message on stderr, with exit code 2 for settings, else 1."""
    logging.getLogger("stamina").setLevel(logging.ERROR)  # its warnings say "stamina.retry_scheduled", and of nothing
    try:
        app()
    except OpenClawRLError as error:
        from openclaw_rl.cli.tables import visible  # with rich, which most commands load by themselves
        from openclaw_rl.shared.settings.aliases import without_passwords

        typer.echo(visible(without_passwords(f"openclaw-rl: {error}")), err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
