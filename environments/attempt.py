"""An attempt at a task, and the seam between the runner and any agent.

The runner starts a session, hands the agent's harness an `Endpoint`, and posts the `Attempt` that comes back. The
harness sees the key of this one session, which opens the model routes and nothing else, so it cannot post its own
reward.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from openclaw_rl.shared.errors import OpenClawRLError

Status = Literal["ok", "agent_error", "timeout", "env_error"]
"""`ok`: the agent came to an end. `agent_error`: the agent could not continue (its context ran out), and the verdict is
on the state it left. `timeout`: it was stopped, without a verdict. `env_error`: the environment or the harness failed.
"""


class EnvironmentFault(OpenClawRLError):
    """The environment itself failed (a server that ended, a sandbox that did not start): never a reward; the runner
    tries the task again in a fresh session.
    """


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task. `id` names it within its environment: attempts at the same id may form a group, so the id must mean the
    same task in every run. `prompt` is the request to the agent. `data` is for the environment alone (the right answer,
    files, tools), and never reaches the agent by itself.
    """

    id: str
    prompt: str = ""
    data: dict[str, Any] = {}


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The policy for one attempt, as any OpenAI-style client takes it.

    `base_url` ends with `/v1`. `api_key` places every request in the session `session_id`, so clients need no header;
    it ends with the attempt. `model` is the name to request.
    """

    base_url: str
    api_key: str
    session_id: str
    model: str


class Attempt(msgspec.Struct, kw_only=True):
    """The result of an attempt.

    `reward` is any finite number, `None` for no verdict; a status `timeout` or `env_error` has none. `detail` is kept
    with the outcome (JSON). `next_state`: text that the agent's last answer led to and that no request carried to the
    service: the last tool results, the verdict's text. `steps`: model calls of the agent. `seconds`: wall-clock time.
    """

    reward: float | None
    status: Status = "ok"
    detail: dict[str, Any] = {}
    next_state: str = ""
    steps: int = 0
    seconds: float = 0.0


class Harness(Protocol):
    """An agent together with its environment. One object serves many attempts at a time. One that stops its agent
    itself, and judges what it left, has a number `grace`: the seconds that it may take beyond the attempt's time.
    """

    async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
        """Let the agent work on `task`, talking to `endpoint`. Cancelled when the attempt takes too long.

        Raises `EnvironmentFault` for the environment's failures, `ConfigError` for what another try will not mend.
        """
        ...
