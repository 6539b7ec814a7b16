from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.overhead import processes
from bench.overhead.answers import TOKENS, script
from bench.overhead.load import LoadFailed, TimedReply, check
from bench.overhead.measure import ARMS, Bench, Case
from bench.overhead.prompts import KINDS, conversations

ROOT = Path(__file__).parents[2]
FIGURES = {"cpu_ms", "ttft_p50_ms", "ttft_p99_ms", "rps"}


@pytest.mark.real
@pytest.mark.real
@pytest.mark.timeout(300)
def test_the_program_compares_four_ways_and_says_so_in_its_last_line() -> None:
    command = [sys.executable, "-m", "bench.overhead", "--json", "--scale", "0.001"]
    command += ["--clients", "2", "--prompts", "openclaw", "--paces", "burst"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    asked = [(case["prompt"], case["pace"], case["clients"]) for case in result["cases"]]
    assert asked == [("openclaw", "burst", 2)]
    for case in result["cases"]:
        assert all(set(case[arm]) == FIGURES for arm in ARMS)
        assert case["direct"]["cpu_ms"] == 0 < case["relay"]["cpu_ms"] < case["litellm"]["cpu_ms"]
        assert case["proxy"]["cpu_ms"] > 0
    assert result["start_s"] > 0
    assert result["rss_mb"] > 10
    assert "memory_growth_mb" in result


async def test_relay_and_proxy_pass_every_token_on_as_it_comes() -> None:
    async with processes.engine() as engine, processes.relay(engine) as relay, processes.proxy(engine) as proxy:
        bench = Bench(engine, script().text)
        for arm in (engine, relay, proxy):
            (reply,) = await bench.ask(arm, Case("openclaw", "3ms", 1), sessions=1, turns=1)
            assert reply.text_chunks > 1  # a machine that is busy passes several on at once, but never all
            assert reply.first < reply.ended
            assert arm.cpu() > 0


def test_an_answer_that_lost_a_token_or_its_end_is_noticed() -> None:
    body = b"".join(script().chat)
    events = b"".join(part for part in body.split(b"\r\n") if part.startswith(b"data: "))
    whole = TimedReply(sent=0.0, status=200, raw=[events])
    assert check(whole, script().text) == TOKENS
    lost = events.replace(b'"content":" ', b'"content":"', 1)
    for broken in (lost, events.removesuffix(b"data: [DONE]\n\n"), events.replace(b'tokens":100', b'tokens":99')):
        with pytest.raises(LoadFailed):
            check(TimedReply(sent=0.0, status=200, raw=[broken]), script().text + "!" * (broken is lost))


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_are_all_different_and_always_the_same(kind: str) -> None:
    sessions = conversations(kind, 3, first=5, answer="so")
    assert sessions == conversations(kind, 3, first=5, answer="so")
    assert len({session[0] for session in sessions}) == 3
    assert conversations(kind, 1, first=6, answer="so") == sessions[1:2]
    for session in sessions:
        size = len(session[0])
        assert size < 1000 if kind == "short" else 28_000 < size < 34_000


def test_only_cold_sessions_have_no_line_in_common() -> None:
    def lines(kind: str) -> list[set[str]]:
        bodies = [json.loads(session[0]) for session in conversations(kind, 2, first=0, answer="so")]
        return [set(body["messages"][0]["content"].split("\n")[2:]) for body in bodies]

    one, other = lines("openclaw")
    assert one == other
    one, other = lines("openclaw-similar")
    assert one != other
    assert len(one & other) > 0.8 * len(one)
    one, other = lines("openclaw-cold")
    assert len(one & other) < 0.1 * len(one)
