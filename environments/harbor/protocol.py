"""The lines between our runner and the process in Harbor's environment: a JSON object each, on its stdin and stdout.

The first line in is a `TrialSetup`. Then each `RunTrial` gets one answer of the same number, in any order; `StopTrial`
ends a trial early, and gets none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from openclaw_rl.environments.attempt import Attempt, Endpoint

BUBBLEWRAP = "bubblewrap"
"""Our own kind of sandbox, for tasks that need no image; every other name is one of Harbor's."""


class TrialSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all trials of a process.

    `agent`: a name of ours or of Harbor's, or an import path. `agent_options`: its own settings, by name. `sandbox`:
    `bubblewrap`, a name of Harbor's, or an import path. `programs`: folders of this machine that agents inside a
    bubblewrap sandbox can read, at the same place; their `bin` is on the `PATH`. `seconds`: maximum time of the agent.
    `max_steps`: maximum number of its model calls. `folder`: an empty folder for what the trials write.
    """

    agent: str
    sandbox: str
    folder: str
    agent_options: dict[str, Any] = {}
    programs: tuple[str, ...] = ()
    seconds: float = 600.0
    max_steps: int = 10


class RunTrial(msgspec.Struct, frozen=True, tag=True):
    """Run the task in `folder` as one trial, with the policy at `endpoint`."""

    number: int
    folder: str
    endpoint: Endpoint


class StopTrial(msgspec.Struct, frozen=True, tag=True):
    """No one waits for this trial any more."""

    number: int


class TrialEnded(msgspec.Struct, frozen=True, tag=True):
    """The result of a trial."""

    number: int
    attempt: Attempt


class TrialRefused(msgspec.Struct, frozen=True, tag=True):
    """A trial that cannot be run, as another try cannot either: its agent, sandbox or task is not what it should be."""

    number: int
    error: str


Order = RunTrial | StopTrial
Answer = TrialEnded | TrialRefused

ENCODER = msgspec.json.Encoder()
SETUP_DECODER = msgspec.json.Decoder(TrialSetup)
ORDER_DECODER: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
ANSWER_DECODER: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
