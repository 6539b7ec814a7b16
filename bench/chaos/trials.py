"""Faults other than kills, one after another under traffic. Each returns a row: promised, tried, seen, kept."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any, TypedDict

import httpx
import psutil

from bench.chaos.clients import Traffic
from bench.chaos.victim import Victim
from openclaw_rl.evaluation.service import ServiceFailed, own_service
from openclaw_rl.shared.chat_client import ChatClient, ChatError

HEALED_SECONDS = 120.0
LEARNER_SECONDS = 240.0
HELD_SECONDS = 15.0
DAY = 86400.0
DISK_MB = 600


class FaultTrial(TypedDict):
    """A row of the table; `kept` is null if it could not be tried here."""

    promise: str
    tried: str
    seen: str
    kept: bool | None


async def run_all(victim: Victim, traffic: Traffic, disk: bool) -> list[FaultTrial]:
    """All trials on a service that has traffic. `disk`: the data folder is a file system of its own."""
    return [
        *await stopped(victim, traffic),
        await locked(victim, traffic),
        await clock(victim, traffic),
        await judge_away(victim, traffic),
        await full(victim, traffic, disk),
        await garbage(),
    ]


async def stopped(victim: Victim, traffic: Traffic) -> list[FaultTrial]:
    """SIGSTOP of each process. The learner is stopped first and looked at last: it is given longer."""
    promise = "A process that hangs is restarted by itself"
    learner = await victim.find("learner")
    begun = time.monotonic()
    learner.send_signal(signal.SIGSTOP)
    rows = []
    for role in ("engine", "proxy"):
        process = await victim.find(role)
        at = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        answered = await _replaced(victim, role, process, HEALED_SECONDS) and await traffic.probe(HEALED_SECONDS)
        rows.append(_healed(promise, role, answered, time.monotonic() - at))
    replaced = await _replaced(victim, "learner", learner, LEARNER_SECONDS)
    rows.append(_healed(promise, "learner", replaced, time.monotonic() - begun))
    supervisor = victim.supervisor
    supervisor.send_signal(signal.SIGSTOP)
    try:
        answered = await traffic.probe(HELD_SECONDS)
    finally:
        supervisor.send_signal(signal.SIGCONT)
    seen = "chats are answered meanwhile" if answered else "no chat is answered meanwhile"
    rows.append(
        FaultTrial(promise="Chats need no supervisor", tried="SIGSTOP of the supervisor", seen=seen, kept=answered)
    )
    return rows


async def locked(victim: Victim, traffic: Traffic) -> FaultTrial:
    """Hold the journal's write lock in this process."""
    with closing(sqlite3.connect(victim.data / "journal.db", timeout=30, isolation_level=None)) as journal:
        journal.execute("BEGIN IMMEDIATE")
        before = traffic.turns
        await asyncio.sleep(HELD_SECONDS)
        during = traffic.turns - before
        journal.execute("ROLLBACK")
    answered = await traffic.probe(HEALED_SECONDS)
    return FaultTrial(
        promise="Chats are answered again once another process lets go of the journal",
        tried=f"its write lock held for {HELD_SECONDS:.0f} s",
        seen=f"{during} turns acknowledged meanwhile, then chats are answered" if answered else "no chat afterwards",
        kept=answered,
    )


async def clock(victim: Victim, traffic: Traffic) -> FaultTrial:
    """The wall clock of all processes jumps a day ahead and two days back."""
    answered = []
    for offset in (DAY, -DAY, 0.0):
        victim.clock.write_text(str(offset))
        answered.append(await traffic.probe(HEALED_SECONDS))
    return FaultTrial(
        promise="Chats are answered though the clock jumps",
        tried="`time.time` of all processes a day ahead, a day behind, and right again",
        seen=f"chats are answered after {sum(answered)} of {len(answered)} jumps",
        kept=all(answered),
    )


async def judge_away(victim: Victim, traffic: Traffic) -> FaultTrial:
    """The judge cannot be asked; then it can."""
    victim.away.touch()
    before = traffic.turns
    await asyncio.sleep(2 * HELD_SECONDS)
    during = traffic.turns - before
    async with ChatClient(victim.url, victim.key) as client:
        waiting = (await client.get("/rl/status"))["backlog"]["unjudged"]
        victim.away.unlink()
        judged = await _until_judged(client)
    return FaultTrial(
        promise="While the judge is away chats are answered, and their turns are judged afterwards",
        tried=f"a judge that is away for {2 * HELD_SECONDS:.0f} s",
        seen=f"{during} turns meanwhile, {waiting} waited, {'all judged' if judged else 'some still wait'} afterwards",
        kept=during > 0 and judged,
    )


async def full(victim: Victim, traffic: Traffic, disk: bool) -> FaultTrial:
    """Fill the disk of the data folder, and empty it again."""
    promise = "Chats are answered again once a full disk has room"
    tried = f"the data folder's disk full for {HELD_SECONDS:.0f} s"
    if not disk:
        return FaultTrial(promise=promise, tried=tried, seen="needs root, for a tmpfs", kept=None)
    filler = victim.data / "filler"
    before = traffic.turns
    with filler.open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(1 << 16))
        except OSError:
            pass
    await asyncio.sleep(HELD_SECONDS)
    during = traffic.turns - before
    filler.unlink()
    try:
        answered = await traffic.probe(HEALED_SECONDS) and victim.supervisor.is_running()
    except ServiceFailed:
        answered = False
    seen = f"{during} turns acknowledged meanwhile, then chats are {'' if answered else 'not '}answered"
    return FaultTrial(promise=promise, tried=tried, seen=seen, kept=answered)


async def read_only(victim: Victim, disk: bool) -> FaultTrial:
    """Start the service, which has ended, on a read-only disk."""
    promise = "On a read-only disk the service says so and does not start"
    tried = "the data folder's disk mounted read-only"
    if not disk:
        return FaultTrial(promise=promise, tried=tried, seen="needs root, for a tmpfs", kept=None)
    subprocess.run(["mount", "-o", "remount,ro", str(victim.data)], check=True)
    command = [sys.executable, "-m", "openclaw_rl.cli.main", "serve", "--data", str(victim.data), "--model", "tiny"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
    said = "cannot be written" in done.stderr and "Traceback" not in done.stderr
    return FaultTrial(
        promise=promise,
        tried=tried,
        seen=f"exit code {done.returncode}, {'the reason' if said else 'no reason'} is given",
        kept=done.returncode != 0 and said,
    )


async def garbage() -> FaultTrial:
    """A proxy in front of an engine that answers with bytes that are no answer."""
    async with _garbage_engine() as url, own_service({"engine_url": url}, only=["proxy"]) as service:
        outcomes = []
        async with ChatClient(service.url, service.key, patience=0) as client:
            for stream in (True, False):
                try:
                    await client.chat([{"role": "user", "content": "hello"}], stream=stream)
                    outcomes.append("an answer")
                except ChatError as error:
                    outcomes.append("an error" if error.status is None or error.status >= 500 else str(error))
        async with httpx.AsyncClient(trust_env=False) as http:
            alive = (await http.get(f"{service.url}/healthz")).status_code == 200
    return FaultTrial(
        promise="Garbage of an engine is never an answer",
        tried="an engine that sends random bytes, to a streamed and to a whole answer",
        seen=f"{', '.join(outcomes)}; the proxy {'lives' if alive else 'is gone'}",
        kept=outcomes == ["an error"] * 2 and alive,
    )


@asynccontextmanager
async def _garbage_engine() -> AsyncIterator[str]:
    info = (
        b'{"openclaw_rl": true, "live": 0, "versions": [0], "model_path": "", "context_length": 2048, "vocab_size": 9}'
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            body = info if head.startswith(b"GET") else b"data: " + os.urandom(200) + b"\n\ndata: {]\n\n"
            lines = (
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            writer.write(lines % len(body) + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _replaced(victim: Victim, role: str, process: psutil.Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not process.is_running() and (await victim.find(role)).pid != process.pid:
            return True
        await asyncio.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    return False


async def _until_judged(client: ChatClient) -> bool:
    deadline = time.monotonic() + HEALED_SECONDS
    while time.monotonic() < deadline:
        status: dict[str, Any] = await client.get("/rl/status")
        if not status["backlog"]["unjudged"]:
            return True
        await asyncio.sleep(0.5)
    return False


def _healed(promise: str, role: str, healed: bool, seconds: float) -> FaultTrial:
    seen = f"healed after {seconds:.0f} s" if healed else f"not healed after {seconds:.0f} s"
    return FaultTrial(promise=promise, tried=f"SIGSTOP of the {role}", seen=seen, kept=healed)
