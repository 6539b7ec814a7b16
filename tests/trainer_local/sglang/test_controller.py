"""The process that keeps SGLang running, with a fake in its place: a real one takes a minute to start
(`tests/real/test_sglang_launch.py`)."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from openclaw_rl.shared.engine.answers import version_number
from openclaw_rl.shared.engine.http_client import authorization, without_secret
from openclaw_rl.shared.engine.server import live_version
from openclaw_rl.shared.engine.wire import SECRET
from openclaw_rl.shared.gpus import GIB
from openclaw_rl.shared.process import PARENT_VARIABLE, alive, claim_port
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.memory import fraction_at
from openclaw_rl.trainer_local.sglang import launch
from openclaw_rl.trainer_local.sglang.container import faults
from openclaw_rl.trainer_local.sglang.launch import FleetPlan
from openclaw_rl.trainer_local.sglang.owner_client import owner_url
from tests.processes import HTTP, ROOT
from tests.shared.faked_gpus import faked_smi, row
from tests.trainer_local.serving import wait_for

FAKE = Path(__file__).parents[1] / "fake_sglang.py"
BACKENDS = ROOT / "docs" / "backends.md"


class Keeper:
    """A running `trainer_local.sglang.controller`; `started` are the programs that it started, in order."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self._log = process, port, log

    def started(self, least: int) -> list[dict[str, Any]]:
        """Waits for so many."""

        def lines() -> list[str]:
            return self._log.read_text().splitlines() if self._log.exists() else []

        wait_for(lambda: len(lines()) >= least, 90.0)
        return [json.loads(line) for line in lines()]


def get(port: int | str, path: str) -> None:
    try:
        HTTP.get(f"http://127.0.0.1:{port}{path}", timeout=5)
    except httpx.HTTPError:
        assert path == "/end"


@contextmanager
def kept(
    folder: Path,
    gpus: list[list[str]],
    *flags: str,
    memory: list[tuple[float, int]] | None = None,
    program: list[str] | None = None,
    key_file: str = "",
    **variables: str,
) -> Iterator[Keeper]:
    folder.mkdir(exist_ok=True)
    port, log = claim_port("127.0.0.1", 0, setting="engine_port"), folder / "started"
    program = program or [sys.executable, str(FAKE), str(log)]
    plan = FleetPlan(
        port=port,
        program=program,
        arguments=["--model-path", "base"],
        router=program,
        gpus=gpus,
        memory=memory or [],
        key_file=key_file,
    )
    line = [sys.executable, "-m", "openclaw_rl.trainer_local.sglang.controller", *flags]
    line += ["--plan", msgspec.json.encode(plan).decode()]
    process = subprocess.Popen(line, cwd=ROOT, env=os.environ | {PARENT_VARIABLE: str(os.getpid())} | variables)
    try:
        yield Keeper(process, port, log)
    finally:
        process.kill()
        process.wait()


def test_one_fake_server_is_started_with_its_arguments_and_left_to_the_supervisor_when_it_ends(tmp_path: Path) -> None:
    with kept(tmp_path, [["2", "3"]], "--live", "7=/7/served") as keeper:
        (started,) = keeper.started(1)
        assert (started["gpus"], started["--port"], started["--tp-size"]) == ("2,3", str(keeper.port), "2")
        assert (started["--model-path"], version_number(started["--weight-version"])) == ("/7/served", 7)
        get(keeper.port, "/end")
        assert keeper.process.wait(60) == 3


def test_a_fake_server_and_its_router_get_the_services_key_and_no_line_of_the_log_shows_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key_file = tmp_path / "key.yaml"
    with kept(tmp_path, [["0"], ["1"]], key_file=str(key_file), **{SECRET: "s3cret"}) as keeper:
        started = keeper.started(3)
        (router,) = [one for one in started if "--worker-urls" in one]
        assert router["--api-key"] == "s3cret" and router["--worker-urls"].startswith("http://127.0.0.1:")
        for server in started:
            assert server is router or ("s3cret" not in server["line"] and server["--config"] == str(key_file))
        assert json.loads(key_file.read_text()) == {"api-key": "s3cret"} and key_file.stat().st_mode & 0o077 == 0
        keeper.process.send_signal(signal.SIGTERM)
        assert keeper.process.wait(60) == 0 and not key_file.exists()
    with kept(tmp_path / "container", [[]], **{SECRET: "s3cret"}) as keeper:
        assert keeper.started(1)[0]["--api-key"] == "s3cret"
    shown = "".join(capfd.readouterr())
    assert shown.count("starting") == 4 and "(key)" in shown and "s3cret" not in shown


def test_a_fake_server_ends_with_the_process_that_keeps_it(tmp_path: Path) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        log = tmp_path / ending.name
        log.mkdir()
        with kept(log, [[]]) as keeper:
            (started,) = keeper.started(1)
            assert alive(started["pid"])
            keeper.process.send_signal(ending)
            keeper.process.wait(60)
            wait_for(lambda pid=started["pid"]: not alive(pid), 60.0)


@pytest.fixture
def docker(tmp_path: Path) -> dict[str, str]:
    """Variables under which a program called docker behaves as docker does (`fake_docker`)."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    fake = Path(__file__).parents[1] / "fake_docker.py"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "FAKE_DOCKER": str(tmp_path)}


def documented_command() -> list[str]:
    """The line that starts a container, as docs/backends.md has it and a shell understands it."""
    (line,) = re.findall(r"^export OPENCLAW_RL_SGLANG_COMMAND='.*?'$", BACKENDS.read_text(), re.M | re.S)
    given = subprocess.run(
        ["sh", "-c", f'{line}\nprintf %s "$OPENCLAW_RL_SGLANG_COMMAND"'], capture_output=True, text=True, check=True
    )
    chosen = Settings(backend="megatron", sglang_command=given.stdout)
    assert not list(faults(shlex.split(given.stdout), 2))
    return launch.program(chosen)


@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL", "the service is killed"])
def test_the_documented_container_of_a_fake_docker_ends_with_its_service(
    tmp_path: Path, docker: dict[str, str], ending: str
) -> None:
    """A controller that gets SIGKILL ends no container; the next one does, before it starts its own."""
    parent = subprocess.Popen(["sleep", "600"])
    if ending == "the service is killed":
        docker[PARENT_VARIABLE] = str(parent.pid)
    program = documented_command()
    with kept(tmp_path, [["0", "1"]], program=program, **docker) as keeper:
        (started,) = keeper.started(1)
        assert (started["gpus"], started["health"], started["--tp-size"]) == ("0,1", "0", "2")
        (name,) = [path.name for path in tmp_path.glob("openclaw-rl-*")]
        assert alive(started["pid"])
        if ending == "the service is killed":
            parent.kill()
            parent.wait()
        else:
            keeper.process.send_signal(getattr(signal, ending))
        keeper.process.wait(60)
    parent.kill()
    parent.wait()
    assert alive(started["pid"]) == (ending == "SIGKILL")
    if ending == "SIGKILL":
        with kept(tmp_path, [["0", "1"]], program=program, **docker) as keeper:
            (_, again) = keeper.started(2)
            assert not alive(started["pid"]) and (tmp_path / name).read_text() == str(again["pid"])
            keeper.process.send_signal(signal.SIGTERM)
            keeper.process.wait(60)
            assert not alive(again["pid"])


def test_a_fake_docker_refuses_two_gpus_without_inner_quotes_and_a_killed_client_leaves_its_container(
    tmp_path: Path, docker: dict[str, str]
) -> None:
    """That it behaves as docker does is what the test above builds on."""
    server = ["-m", "x", "--host", "127.0.0.1", "--port", str(claim_port("127.0.0.1", 0, setting="engine_port"))]

    def run(gpus: str) -> subprocess.Popen[str]:
        line = ["docker", "run", "--rm", "--name", "one", "--gpus", gpus, "image", "python3", *server]
        return subprocess.Popen(line, env=os.environ | docker, stderr=subprocess.PIPE, text=True)

    refused = run("device=0,1")
    assert "cannot set both Count and DeviceIDs" in refused.communicate()[1] and refused.returncode == 125
    client = run('"device=0,1"')
    log = tmp_path / "started"
    wait_for(lambda: log.exists() and bool(log.read_text()), 60.0)
    container = json.loads(log.read_text())["pid"]
    for ending in (signal.SIGTERM, signal.SIGKILL):
        client.send_signal(ending)
        assert alive(container)
    client.communicate()
    assert alive(container) and run('"device=0,1"').wait(60) == 125, "the name is taken"
    subprocess.run(["docker", "rm", "--force", "one"], env=os.environ | docker, check=True)
    wait_for(lambda: not alive(container), 60.0)


def test_fake_servers_behind_a_router_come_back_with_the_version_that_is_live_then(tmp_path: Path) -> None:
    served = tmp_path / "checkpoints" / "9" / "served"
    served.mkdir(parents=True)
    flags = ("--checkpoints", str(served.parent.parent), "--live", "7=/7/served")
    with kept(tmp_path, [["0"], ["1"]], *flags) as keeper:
        first = keeper.started(3)
        (router,) = [one for one in first if "--worker-urls" in one]
        servers = [one for one in first if one is not router]
        assert router["--port"] == str(keeper.port) and {one["gpus"] for one in servers} == {"0", "1"}
        assert {version_number(one["--weight-version"]) for one in servers} == {7}
        for one in servers:
            get(one["--port"], "/label/9")
        ended = servers[0]
        while True:  # until the keeper has heard of version 9
            before = len(keeper.started(3))
            get(ended["--port"], "/end")
            again = keeper.started(before + 1)[-1]
            assert (again["gpus"], again["--port"]) == (ended["gpus"], ended["--port"])
            if version_number(again["--weight-version"]) == 9:
                assert again["--model-path"] == str(served)
                break
        assert keeper.process.poll() is None


def test_a_fake_server_whose_weights_are_a_mixture_is_ended(tmp_path: Path) -> None:
    with kept(tmp_path, [[]]) as keeper:
        keeper.started(1)
        get(keeper.port, "/label/broken")
        assert keeper.process.wait(60) == 256 - signal.SIGKILL


def test_a_fake_server_gets_a_fraction_of_what_the_faked_driver_says_is_free_at_each_start(tmp_path: Path) -> None:
    """A trainer has taken 14 GiB of the card meanwhile."""
    tmp_path.joinpath("driver").mkdir()
    planned, static = 0.3, 6 << 30

    def driver(free: float) -> dict[str, str]:
        faked = faked_smi(tmp_path / "driver", [row(0, 80), row(1, 24, free=free)])
        return {"PATH": faked["PATH"] + os.pathsep + os.environ["PATH"]}

    memory = [(planned, static), (0.0, 0)]
    with kept(tmp_path, [["1"], ["0"]], memory=memory, **driver(23.7)) as keeper:
        first = {one["gpus"]: one for one in keeper.started(3) if "--worker-urls" not in one}
        assert float(first["1"]["--mem-fraction-static"]) == fraction_at(int(23.7 * GIB), planned, static)
        assert "--mem-fraction-static" not in first["0"], "a GPU of its own is all SGLang's"
        driver(10)
        get(first["1"]["--port"], "/end")
        again = keeper.started(4)[-1]
        assert float(again["--mem-fraction-static"]) == fraction_at(10 * GIB, planned, static) > 0.6
        faked_smi(tmp_path / "driver", (), says="no driver", code=9)
        get(again["--port"], "/end")
        assert float(keeper.started(5)[-1]["--mem-fraction-static"]) == planned


def test_the_owner_of_a_fake_server_says_where_it_listens_while_it_runs(tmp_path: Path) -> None:
    card = tmp_path / "run" / "card.json"
    with kept(tmp_path, [[]], "--card", str(card)) as keeper:
        keeper.started(1)
        url = owner_url(card)
        refused = HTTP.post(f"{without_secret(url)}/load", json={"version": 1}, headers=authorization(url))
        assert refused.status_code == 400 and "path" in refused.json()["message"]
        keeper.process.send_signal(signal.SIGTERM)
        assert keeper.process.wait(60) == 0
    assert not card.exists()


def test_a_malformed_live_version_is_refused() -> None:
    with pytest.raises(SystemExit, match="NUMBER=FOLDER"):
        live_version("seven")
