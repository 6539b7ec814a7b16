"""mini-swe-agent as a Harbor agent: its own loop runs out here, its commands by `environment.exec`. Harbor's own agent
of that name runs inside, and has to be installed there.
"""

from __future__ import annotations

import asyncio
import platform
import shlex
import threading
from collections.abc import Callable, Mapping
from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from minisweagent.agents.default import AgentConfig, DefaultAgent
from minisweagent.config import builtin_config_dir, get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel, LitellmModelConfig

from openclaw_rl.environments.agents.computer import Execute
from openclaw_rl.environments.agents.mini_swe_agent import settings
from openclaw_rl.environments.harbor.host_agent import HostAgent, executor
from openclaw_rl.environments.sandbox.sandbox import CommandResult

SHORT = "short"


class MiniSweAgent(HostAgent):
    """mini-swe-agent's own loop, with its own settings; `--agent-option config=short` puts short templates over them,
    `config=FILE.toml` those of yours.
    """

    @staticmethod
    def name() -> str:
        """Its name in Harbor's records, which know another one that runs inside."""
        return "mini-swe-agent-host"

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Let it work until it submits, or has no step left."""
        tables = mini_settings(str(self.settings.get("config", "")))
        policy = {"api_base": self.endpoint.base_url, "api_key": self.endpoint.api_key}
        computer = _MiniComputer(executor(environment), asyncio.get_running_loop(), tables["environment"])
        agent = DefaultAgent(
            LitellmModel(
                **_known(LitellmModelConfig, tables["model"])
                | {
                    "cost_tracking": "ignore_errors",
                    "model_name": self.model_name,
                    "model_kwargs": tables["model"].get("model_kwargs", {}) | policy,
                }
            ),
            computer,
            **_known(AgentConfig, tables["agent"]) | {"cost_limit": 0, "step_limit": self.max_steps},
        )
        try:
            ended = await _in_thread(lambda: agent.run(instruction))
        finally:
            computer.stopped = True
            context.metadata = {"steps": agent.n_calls}
        context.metadata["end"] = ended.get("exit_status", "")


def mini_settings(config: str) -> dict[str, dict[str, Any]]:
    """The tables `agent`, `environment` and `model`: of mini-swe-agent's own file, with those of `config` over them.
    Raises `ConfigError` for a file that cannot be read.
    """
    own = get_config_from_spec(builtin_config_dir / "mini.yaml")
    more = settings("" if config == SHORT else config) if config else {}
    return {part: (own.get(part) or {}) | more.get(part, {}) for part in ("agent", "environment", "model")}


class _MiniComputer(LocalEnvironment):
    """A computer as mini-swe-agent has it, whose commands run in `execute`. It is called in a thread of its own."""

    def __init__(self, execute: Execute, loop: asyncio.AbstractEventLoop, settings: Mapping[str, Any]) -> None:
        super().__init__(env=settings.get("env", {}), timeout=settings.get("timeout", 30))
        self.stopped = False
        self._execute = execute
        self._loop = loop

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a command, and return its output as mini-swe-agent's templates take it."""
        if self.stopped:
            raise RuntimeError("the trial has ended")
        variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.config.env.items())
        seconds = timeout or self.config.timeout
        running = self._run(variables + action.get("command", ""), seconds)
        result = asyncio.run_coroutine_threadsafe(running, self._loop).result()
        late = "" if result.code is not None else f"the command was stopped after {seconds} s"
        code = -1 if result.code is None else result.code
        output = {"output": result.stdout + result.stderr, "returncode": code, "exception_info": late}
        self._check_finished(output)
        return output

    async def _run(self, command: str, seconds: float) -> CommandResult:
        return await self._execute(command, seconds)

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        """Words of the templates; no variable of this process is among them."""
        return {**self.config.model_dump(), **platform.uname()._asdict(), **more}


def _known(config: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that `config` has: the file has those of its command line too."""
    return {name: value for name, value in settings.items() if name in config.model_fields}


async def _in_thread(work: Callable[[], Any]) -> Any:
    """The result of blocking work. A cancelled one runs on by itself until it notices."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def finish(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(result) if error is None else done.set_exception(error)

    def run() -> None:
        try:
            result, error = work(), None
        except Exception as failed:
            result, error = None, failed
        loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, daemon=True).start()
    return await done
