"""The process in Harbor's environment, `python -m openclaw_rl.environments.harbor.trials`: runs tasks as Harbor trials.

Its lines are described in `protocol`. It ends when its stdin does, and ends its sandboxes before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter, Task
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harbor.agents.factory import AgentFactory
from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError
from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import VerifierEnvironmentMode
from harbor.models.task.task import Task as HarborTask
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

from openclaw_rl.environments.attempt import Endpoint
from openclaw_rl.environments.harbor.connection import INSIDE, connect
from openclaw_rl.environments.harbor.protocol import (
    BUBBLEWRAP,
    ENCODER,
    ORDER_DECODER,
    SETUP_DECODER,
    Answer,
    RunTrial,
    TrialEnded,
    TrialRefused,
    TrialSetup,
)
from openclaw_rl.environments.harbor.verdict import CONTEXT_ERRORS, attempt_of, carried_over
from openclaw_rl.environments.sandbox.artifacts import remove_folder
from openclaw_rl.shared.errors import ConfigError

LINE_LIMIT = 16 * 2**20
END_SECONDS = 25
"""Time for the trials to end their sandboxes when the runner has ended."""
OURS = {
    "bash": "openclaw_rl.environments.harbor.bash_agent:BashAgent",
    "mini-swe-agent": "openclaw_rl.environments.harbor.mini_swe_agent:MiniSweAgent",
}
"""Our agents. Harbor's own mini-swe-agent runs inside: `harbor.agents.installed.mini_swe_agent:MiniSweAgent`."""
SANDBOX = "openclaw_rl.environments.harbor.bubblewrap:BubblewrapEnvironment"
REFUSALS = ("ConfigError", "NeedsContainer")


class TrialRunner:
    """Runs trials side by side, with one set of settings."""

    def __init__(self, setup: TrialSetup) -> None:
        self._setup = setup
        self._doors: dict[str, asyncio.Server] = {}

    async def run(self, order: RunTrial) -> Answer:
        """One trial and its result; its files are deleted."""
        try:
            trial = await self._create(order)
        except (Exception, SystemExit) as error:  # of an agent, a sandbox or a task of other people's
            return TrialRefused(order.number, f"{order.folder}: {type(error).__name__}: {error}")
        try:
            result = await trial.run()
            failed = result.exception_info
            if failed is not None and failed.exception_type in REFUSALS:
                return TrialRefused(order.number, f"{order.folder}: {failed.exception_message}")
            return TrialEnded(order.number, attempt_of(result, trial.paths.trial_dir))
        finally:
            await asyncio.to_thread(remove_folder, trial.paths.trial_dir)

    async def _create(self, order: RunTrial) -> Any:
        folder = Path(order.folder)
        task = HarborTask(folder)
        name = OURS.get(self._setup.agent, self._setup.agent)
        kind = AgentFactory.get_agent_class_from_config(AgentConfig(name=name))
        inside = issubclass(kind, BaseInstalledAgent) and self._setup.sandbox == BUBBLEWRAP
        config = TrialConfig(
            task=TaskConfig(path=folder),
            trials_dir=Path(self._setup.folder),
            agent=self._agent(name, kind.name(), inside, order.endpoint, task.config.agent.timeout_sec),
            environment=self._environment(await self._door(order.endpoint) if inside else ""),
            artifacts=carried_over(task.config, folder, self._setup.sandbox),
        )
        trial = await Trial.create(config)
        # The sandbox in which the agent worked says nothing that can be trusted.
        for part in (trial.task.config, *(trial.task.config.steps or [])):
            part.verifier.environment_mode = VerifierEnvironmentMode.SEPARATE
        # Some agents send it as a header, which the key of an attempt takes for its own session alone.
        trial.agent.session_id = order.endpoint.session_id
        trial.agent.run = _ending_in_a_verdict(trial.agent.run)
        if self._setup.programs and isinstance(trial.agent, BaseInstalledAgent):
            trial.agent.install = _is_installed
        return trial

    def _agent(self, name: str, kind: str, inside: bool, endpoint: Endpoint, seconds: float | None) -> Any:
        setup = self._setup
        base = f"{INSIDE}/v1" if inside else endpoint.base_url
        options, variables = connect(kind, setup.agent in OURS, endpoint, base, setup.max_steps)
        options |= setup.agent_options
        model = options.pop("model_name", None)
        provider = "anthropic" if kind == "claude-code" else "openai"
        return AgentConfig(
            name=name,
            model_name=model or f"{provider}/{endpoint.model}",
            override_timeout_sec=min(seconds or setup.seconds, setup.seconds),
            kwargs=options,
            env=variables,
        )

    def _environment(self, policy_socket: str) -> Any:
        name = self._setup.sandbox
        if name == BUBBLEWRAP:
            options = {"policy_socket": policy_socket, "programs": list(self._setup.programs)}
            return EnvironmentConfig(import_path=SANDBOX, kwargs=options)
        if ":" in name:
            return EnvironmentConfig(import_path=name)
        if name not in [kind.value for kind in EnvironmentType]:
            known = ", ".join([BUBBLEWRAP, *sorted(kind.value for kind in EnvironmentType)])
            raise ConfigError(f"there is no sandbox {name!r}; there are {known}, or an import path")
        return EnvironmentConfig(type=EnvironmentType(name))

    async def _door(self, endpoint: Endpoint) -> str:
        """A Unix socket that leads to the service, and nowhere else."""
        address = urlsplit(endpoint.base_url)
        path = str(Path(self._setup.folder).with_name(f"policy-{address.port or 0}.sock"))
        if path not in self._doors:

            async def connected(reader: StreamReader, writer: StreamWriter) -> None:
                secure = address.scheme == "https"
                await _join(reader, writer, address.hostname or "", address.port or (443 if secure else 80), secure)

            self._doors[path] = await asyncio.start_unix_server(connected, path)
        return path

    def close(self) -> None:
        """Close the sockets."""
        for server in self._doors.values():
            server.close()


def _ending_in_a_verdict(run: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """An agent whose context is full has come to its end, and is judged; Harbor would take it for a failed trial."""

    async def judged(**arguments: Any) -> None:
        try:
            await run(**arguments)
        except Exception as error:
            if type(error).__name__ in CONTEXT_ERRORS:
                raise NonZeroAgentExitCodeError(f"{type(error).__name__}: {error}") from error
            raise

    return judged


async def _is_installed(environment: Any) -> None:
    """Nothing to install: the programs are in folders of this machine that the sandbox can read."""


async def _join(reader: StreamReader, writer: StreamWriter, host: str, port: int, secure: bool) -> None:
    """Pass bytes between a connection and a new one to the service, until both ends are done."""
    try:
        upstream, downstream = await asyncio.open_connection(host, port, ssl=secure or None)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_copy(reader, downstream), _copy(upstream, writer))
    finally:
        downstream.close()
        writer.close()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while block := await reader.read(65_536):
            writer.write(block)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except ConnectionError:
        writer.close()


async def serve(orders: StreamReader, send: Callable[[Answer], None]) -> None:
    """Carry out orders until they end; then stop all trials."""
    setup = SETUP_DECODER.decode(await orders.readline())
    runner = TrialRunner(setup)
    running: dict[int, Task[None]] = {}

    async def answer(order: RunTrial) -> None:
        try:
            send(await runner.run(order))
        finally:
            del running[order.number]

    async for line in orders:
        order = ORDER_DECODER.decode(line)
        if isinstance(order, RunTrial):
            running[order.number] = asyncio.create_task(answer(order))
        elif order.number in running:
            running[order.number].cancel()
    signal.alarm(END_SECONDS)  # a trial that does not stop does not keep this process
    for task in (left := list(running.values())):
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    runner.close()
    remove_folder(Path(setup.folder).parent)  # the runner may have been killed


async def main() -> None:
    """Serve our stdin. Whatever the agents print is no answer: it goes to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    orders = StreamReader(limit=LINE_LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: StreamReaderProtocol(orders), sys.stdin.buffer)

    def send(answer: Answer) -> None:
        line = memoryview(ENCODER.encode(answer) + b"\n")
        while line:
            line = line[os.write(answers, line) :]

    await serve(orders, send)


if __name__ == "__main__":
    asyncio.run(main())
