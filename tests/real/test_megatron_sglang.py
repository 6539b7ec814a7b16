"""The whole service with `backend = megatron`, on a CPU: the demo's student talks to it while other clients stream, and
Megatron-core makes versions that SGLang serves. No answer is refused or cut, and each is from the versions that it
says it is from.

The service runs in the rig's environment that has Megatron-core, SGLang in its own; this file runs in neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from openclaw_rl.evaluation import arm as arms
from openclaw_rl.evaluation.arm import Arm, Plan
from openclaw_rl.learner.guard.held_out import REASON as HELD_OUT
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion, Turn, VersionSpan
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.cli.commands.test_serve import command, environment, serving
from tests.rigs import environments
from tests.rigs.sglang_cpu import START_SECONDS, sglang_command
from tests.trainer_local.serving import Reference

pytestmark = [pytest.mark.real, pytest.mark.timeout(3000)]

BATCHES, VERSIONS = 11, 4
"""The student's batches, and the least number of versions: a batch that teaches nothing new makes none."""
TOLERANCE = 2e-4
OTHER = 10 * TOLERANCE
"""Weights of another version are recognised by a token whose logprob is at least this far off."""
SETTINGS = {
    **{"backend": "megatron", "device": "cpu", "context-length": "4096", "keep-checkpoints": "20"},
    **{"batch-size": "2", "epochs": "2", "rehearsals": "2", "anchors": "1", "rehearsal-max-tokens": "24"},
}
CASES: dict[str, list[str]] = {
    "lora": ["--lora-rank", "8"],
    "full": ["--no-lora", "--learning-rate", "5e-4"],
}
ASKED = ("What is 12 + 30?", "Tom has 7 apples and buys 5 more. How many has he?", "What is 9 times 8?")


@dataclass
class Answer:
    """One streamed answer as its client saw it. `lacks` says what it lacks, "" where it is whole."""

    turn_id: str = ""
    text: str = ""
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    fingerprints: set[str] = field(default_factory=set)
    lacks: str = "an end"


@dataclass
class Run:
    """The results of one service: its student, the other clients' answers, its own status, its journal."""

    case: str
    arm: Arm
    answers: list[Answer]
    status: dict[str, Any]
    trainer: str
    journal: Journal
    versions: list[PolicyVersion]
    """Those that were served."""
    references: dict[int, Reference] = field(default_factory=dict)

    @property
    def turns(self) -> list[Turn]:
        """The turns of all answers, those of the student too."""
        found = [self.journal.turn(turn_id) for turn_id in (*(one.turn_id for one in self.answers), *self.arm.turns)]
        assert None not in found
        return [turn for turn in found if turn is not None]

    def apart(self, turn: Turn, span: VersionSpan, version: int) -> float:
        """The distance of the logprobs of a span from those that a version's weights give, in plain transformers."""
        if version not in self.references:
            (checkpoint,) = [one.checkpoint for one in self.versions if one.number == version]
            served = Path(checkpoint) / "served" if version else EMBEDDED_POLICY
            adapter = served if version and self.case == "lora" else None
            self.references[version] = Reference(EMBEDDED_POLICY if adapter else served, adapter)
        wanted = self.references[version].score(turn.prompt_ids, turn.response_ids)[span.start : span.end]
        pairs = zip(turn.logprobs[span.start : span.end], wanted, strict=True)
        return max(abs(one - other) for one, other in pairs)


@pytest.fixture(scope="module", params=list(CASES))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The loop, once for each case."""
    torch.set_num_threads(1)
    case = str(request.param)
    python = str(environments.environment("megatron_cpu") / "bin" / "python")
    data = tmp_path_factory.mktemp(case) / "data"
    started = sglang_command(*(["--lora-backend", "torch_native"] if case == "lora" else []))
    flags = [f"--{name}={value}" for name, value in SETTINGS.items()]
    flags += [*CASES[case], f"--sglang-command={started}"]
    with serving(data, *flags, seconds=2 * START_SECONDS, python=python) as service:
        card = service.card()
        arm, answers, status = asyncio.run(talk(card["url"], card["key"]))
    doctor = subprocess.run(
        command("doctor", "--json", f"--data={data}", *flags, python=python),
        env=environment(),
        cwd=data.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    (trainer,) = [check["message"] for check in json.loads(doctor.stdout)["checks"] if check["name"] == "trainer"]
    with contextlib.closing(Journal(str(data / "journal.db"))) as journal:
        versions = [version for version in journal.versions() if version.state in ("live", "retired")]
        yield Run(case, arm, answers, status, trainer, journal, versions)


async def talk(url: str, key: str) -> tuple[Arm, list[Answer], dict[str, Any]]:
    """The demo's student, with other clients who stream until he is done."""
    done = asyncio.Event()
    answers: list[Answer] = []
    plan = Plan(seed=1, interactions=2 * BATCHES, batch=2, problems=12, glances=1, patience=300, max_tokens=160)
    async with (
        httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=300) as http,
        ChatClient(url, key) as client,
        asyncio.TaskGroup() as group,
    ):
        for place in range(len(ASKED)):
            group.create_task(stream(http, place, answers, done))
        arm = await arms.run(client, plan)
        status = await client.get("/rl/status")
        done.set()
    return arm, answers, status


async def stream(http: httpx.AsyncClient, place: int, answers: list[Answer], done: asyncio.Event) -> None:
    """One client: the same question again and again, so that what is kept of its prompt is used under every version;
    every other answer continues past its end, to last.
    """
    count = 0
    while not done.is_set():
        long = {"ignore_eos": True, "max_tokens": 150} if count % 2 else {"max_tokens": 100}
        body = {"model": "policy", "messages": [{"role": "user", "content": ASKED[place]}], "temperature": 1.0, **long}
        answers.append(await answer(http, {**body, "stream": True, "stream_options": {"include_usage": True}}))
        count += 1


async def answer(http: httpx.AsyncClient, body: dict[str, Any]) -> Answer:
    """Ask once, and never again."""
    found = Answer()
    try:
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                found.lacks = f"status 200: {response.status_code} {(await response.aread())[:300]!r}"
                return found
            found.turn_id = response.headers["x-openclaw-rl-turn"]
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    found.lacks = "" if found.finish_reason and found.usage else "finish reason or usage"
                elif line.startswith("data: "):
                    read(json.loads(line.removeprefix("data: ")), found)
    except httpx.HTTPError as error:
        found.lacks = f"an end: {error!r}"
    return found


def read(event: dict[str, Any], found: Answer) -> None:
    """Take in one event of a stream."""
    found.fingerprints.add(event["system_fingerprint"])
    found.usage = event.get("usage") or found.usage
    for choice in event["choices"]:
        found.text += choice["delta"].get("content") or ""
        found.finish_reason = choice["finish_reason"] or found.finish_reason


def test_megatron_made_versions_and_the_student_got_what_he_likes(run: Run) -> None:
    assert run.trainer.startswith("megatron: the model is of Qwen3's text family; SGLang serves")
    base, *made = run.versions
    assert len(made) >= VERSIONS
    for version, parent, step in zip(made, [base, *made], itertools.count(1), strict=False):
        written = json.loads((Path(version.checkpoint) / "meta.json").read_text())
        assert written["trainer"] == "megatron" and written["lora"] == (run.case == "lora")
        assert version.metrics["step"] == written["step"] == step and version.parent == parent.number
    learned = [sample for version in made for sample in version.sample_ids]
    assert len(learned) == len(set(learned)) and all(1 <= len(version.sample_ids) <= 2 for version in made)
    assert run.arm.after.style > run.arm.before.style + 0.3


def test_the_service_says_how_it_went(run: Run) -> None:
    assert run.status["model"]["weight_transfer"] == {"lora": "adapter", "full": "gloo"}[run.case]
    assert run.status["version"]["live"] == run.status["version"]["engine"] == run.versions[-1].number
    assert {*run.status["backlog"]["quarantined"]} <= {"ignore_eos sampled past the end of the answer", HELD_OUT}
    assert run.status["trouble"] == ""
    verdicts = run.status["audit"]["verdicts"]
    assert verdicts["aligned"] >= VERSIONS and verdicts["misaligned"] == 0
    parts = run.status["processes"]["supervisor"]["detail"]["processes"]
    assert {name: part["restarts"] for name, part in parts.items()} == {"engine": 0, "proxy": 0, "learner": 0}


def test_no_answer_was_refused_or_cut(run: Run) -> None:
    assert [one.lacks for one in run.answers if one.lacks] == []
    assert (run.arm.retries, run.arm.lost, run.arm.late) == (0, [], 0)
    counted = run.status["turns"]
    assert counted["complete"] == counted["total"] and counted["aborted"] == counted["error"] == 0
    for one in run.answers:
        turn = run.journal.turn(one.turn_id)
        assert turn is not None and turn.status == "complete"
        assert (one.text, one.finish_reason) == (turn.answer["content"], turn.finish_reason)
        assert (one.usage["prompt_tokens"], one.usage["completion_tokens"]) == (
            len(turn.prompt_ids),
            len(turn.response_ids),
        )


def test_answers_were_under_way_whenever_a_version_was_published(run: Run) -> None:
    """Else nothing above says anything about the changes."""
    turns = run.turns
    for version in run.versions[1:]:
        assert any(one.timings.arrived < version.time < one.timings.finished for one in turns), version.number
    assert len({span.version for turn in turns for span in turn.versions}) >= len(run.versions) - 1


def test_every_span_has_the_logprobs_of_its_version_and_of_no_other(run: Run) -> None:
    numbers = [version.number for version in run.versions]
    spans, distinct, both_distinct = 0, 0, 0
    for turn in run.turns:
        assert_spans(turn.versions, len(turn.response_ids))
        found = []
        for span in turn.versions:
            assert run.apart(turn, span, span.version) < TOLERANCE, (turn.turn_id, span)
            place = numbers.index(span.version)
            others = {numbers[max(0, place - 1)], *numbers[place + 1 : place + 2]} - {span.version}
            found.append(all(run.apart(turn, span, other) > OTHER for other in others))
        spans, distinct = spans + len(found), distinct + sum(found)
        both_distinct += len(found) > 1 and all(found)
    assert distinct > 0.75 * spans, "versions are so much alike that nothing is shown"
    if run.case == "lora":
        assert spans == len(run.turns), "an answer of two adapters"
    else:
        assert both_distinct >= VERSIONS / 2


def test_clients_see_the_version(run: Run) -> None:
    """The one that an answer began with, where there are two."""
    for one in run.answers:
        turn = run.journal.turn(one.turn_id)
        assert turn is not None and one.fingerprints == {f"version-{turn.versions[0].version}"}


def assert_spans(spans: Sequence[VersionSpan], length: int) -> None:
    """They cover the answer, one version after the other."""
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == length and all(span.end > span.start for span in spans)
    versions = [span.version for span in spans]
    assert versions == sorted(set(versions))


def test_the_demo_runs_one_arm_after_the_other(tmp_path: Path) -> None:
    """Each takes all GPUs where there are any."""
    python = str(environments.environment("megatron_cpu") / "bin" / "python")
    chosen = {name.replace("-", "_").upper(): value for name, value in SETTINGS.items()} | {"LORA_RANK": "8"}
    chosen["SGLANG_COMMAND"] = sglang_command("--lora-backend", "torch_native")
    flags = ["--backend=megatron", "--seeds=1", "--interactions=6", "--batch-size=2", "--problems=4"]
    done = subprocess.run(
        command("demo", *flags, f"--out={tmp_path}", python=python),
        env=environment() | {f"OPENCLAW_RL_{name}": value for name, value in chosen.items()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2800,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["backend"] == "megatron"
    assert found["trained"]["versions"] >= [2] and found["control"]["versions"] == [0]
    assert all(found[name]["lost_turns"] == found[name]["retries"] == 0 for name in ("trained", "control"))
    named = [line.split()[2] for line in done.stderr.splitlines() if line.startswith("seed 1 ")]
    assert named == sorted(named, reverse=True) and {*named} == {"trained", "control"}
