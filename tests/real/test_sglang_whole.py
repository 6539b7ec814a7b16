"""All weights of the real SGLang changed while it answers: from disk and by gloo; and what is left when the process
that changes them is killed in the middle.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from openclaw_rl.learner.guard.guard import Guard
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.versions import Versions
from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import PolicyVersion, Sampling, VersionSpan
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.shared.trainer import Checkpoint
from openclaw_rl.trainer_local.sglang import weight_transfer
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from openclaw_rl.trainer_local.sglang.versions import VersionStore
from openclaw_rl.trainer_local.sglang.weight_transfer import Batch, batched, from_folder, hand_over
from tests.processes import ROOT
from tests.rigs.sglang_cpu import run_sglang
from tests.trainer_local.serving import Answer, Reference, close_to, collect, prompt

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

WAYS = ["disk", "gloo"]


@pytest.fixture(scope="module")
def model() -> Path:
    return EMBEDDED_POLICY


@pytest.fixture(scope="module")
def checkpoints(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1 to 4: the policy with noise on its weights."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for number in range(1, 5):
        policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        torch.manual_seed(number)
        with torch.no_grad():
            for weight in policy.parameters():
                weight += torch.randn_like(weight) * weight.std() * 0.1
        policy.save_pretrained(folder / str(number) / "served")
        AutoTokenizer.from_pretrained(model).save_pretrained(folder / str(number) / "served")
    return folder


@pytest.fixture(scope="module")
def references(model: Path, checkpoints: Path) -> list[Reference]:
    return [Reference(model), *(Reference(checkpoints / str(number) / "served") for number in range(1, 5))]


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_sglang(model, tmp_path_factory.mktemp("sglang"), "--incremental-streaming-output") as server:
        yield server.url


def client(url: str, checkpoints: Path, how: str = "auto", *, owns: bool = False) -> SglangEngine:
    store = VersionStore(str(EMBEDDED_POLICY), checkpoints)
    return SglangEngine(url, store=store, transfer=how, run=checkpoints / "run", owns=owns)


@pytest.fixture
async def proxy(url: str, checkpoints: Path) -> AsyncIterator[SglangEngine]:
    """The client of a process that only chats, next to the one of SGLang's owner; the base is live again afterwards."""
    owner = client(url, checkpoints, owns=True)
    await owner.info()
    engine = client(url, checkpoints)
    yield engine
    await engine.load(0, str(EMBEDDED_POLICY), live=True)
    await engine.close()
    await owner.close()


def exact(answer: Answer, seed: int, references: list[Reference]) -> bool:
    """Return whether every token's logprob is that of the version that its span names."""
    wanted: list[float] = []
    for span in answer.last.versions:
        wanted += references[span.version].score(prompt(12, seed), answer.ids)[span.start : span.end]
    return close_to(answer.logprobs, wanted)


async def checkpoint_published(learner: SglangEngine, number: int, checkpoints: Path, how: str) -> None:
    """As a trainer publishes: tensors that it holds, or a folder."""
    served = checkpoints / str(number) / "served"
    held = Checkpoint(path=str(served.parent), served=str(served), step=number)
    batches = None if how == "disk" else lambda: from_folder(str(served))
    await hand_over(learner, held, number, batches, live=True)


@pytest.mark.parametrize("how", WAYS)
async def test_weights_are_changed_under_streaming_load_and_no_answer_is_refused_or_cut(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference], how: str
) -> None:
    learner = client(url, checkpoints, how)
    assert (await learner.info()).transfer == how
    ended = asyncio.Event()
    answers: list[tuple[int, Answer]] = []

    async def chat(seed: int) -> None:
        while not ended.is_set():
            asked = Sampling(max_tokens=60, ignore_eos=True)
            answers.append((seed, await collect(proxy.generate(prompt(12, seed), asked))))

    async with asyncio.TaskGroup() as group:
        for seed in range(4):
            group.create_task(chat(seed))
        while not answers:  # version 0 answers too
            await proxy.info()
        for number in (1, 2, 3, 4):
            before = len(answers)
            await checkpoint_published(learner, number, checkpoints, how)
            assert (await proxy.info()).live == number
            while len(answers) < before + 6:
                await proxy.info()
        ended.set()
    await learner.close()
    assert all(len(answer.ids) == 60 and answer.last.finish_reason == "length" for _, answer in answers)
    assert all(exact(answer, seed, references) for seed, answer in answers)
    spans = [[span.version for span in answer.last.versions] for _, answer in answers]
    assert any(len(versions) > 1 for versions in spans)
    assert all(versions == sorted(set(versions)) for versions in spans)
    assert {version for versions in spans for version in versions} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("how", WAYS)
async def test_the_new_weights_are_the_trainers_to_the_last_digit(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference], how: str
) -> None:
    learner = client(url, checkpoints, how)
    ids = prompt(40, seed=9)
    await collect(proxy.generate(ids, Sampling(max_tokens=2)))  # cached, as the old weights saw it
    await checkpoint_published(learner, 2, checkpoints, how)
    answer = await collect(proxy.generate(ids, Sampling(temperature=0, max_tokens=30, ignore_eos=True)))
    scores = await proxy.score(ids, answer.ids, version=2)
    await learner.close()
    assert list(answer.last.versions) == [VersionSpan(2, 0, 30)] and answer.last.cached_tokens == 0
    wanted = references[2].score(ids, answer.ids)
    assert close_to(answer.logprobs, wanted, 1e-5) and close_to(scores.logprobs, wanted, 1e-5)
    assert not close_to(scores.logprobs, references[0].score(ids, answer.ids), 1e-2)


DYING = """
import asyncio, sys
from pathlib import Path
from tests.real.test_sglang_whole import client, die_in_the_next_broadcast, half

async def main(url, checkpoints, how, number):
    learner = client(url, Path(checkpoints), how.partition(",")[0])
    if how.endswith("broadcast"):
        die_in_the_next_broadcast()
    served = Path(checkpoints) / number / "served"
    await learner.load_tensors(int(number), lambda: half(served), str(served))

asyncio.run(main(*sys.argv[1:]))
"""


def half(served: Path) -> Iterator[Batch]:
    """The first half of a folder's tensors; then the process that sends them kills itself, or waits to be killed."""
    tensors = [named for batch in from_folder(str(served)) for named in batch]
    yield from batched(tensors[: len(tensors) // 2], 1 << 20)
    print("half", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_the_next_broadcast() -> None:
    """Have this process kill itself once SGLang waits for what it was to send."""

    def kill(*_: object) -> None:
        time.sleep(2)  # SGLang has been asked by then
        print("half", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    weight_transfer._broadcast = kill


@pytest.mark.parametrize("how", ["gloo", "gloo, in a broadcast"])
async def test_a_sender_killed_in_the_middle_leaves_the_old_weights_serving(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference], how: str
) -> None:
    await proxy.load(3, str(checkpoints / "3" / "served"), live=True)
    stream = proxy.generate(prompt(12, 5), Sampling(max_tokens=400, ignore_eos=True))
    first = await anext(stream)
    line = [sys.executable, "-c", DYING, url, str(checkpoints), how, "4"]
    sender = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    said = await asyncio.to_thread(sender.communicate)
    assert said[0] == b"half\n" and sender.returncode == -signal.SIGKILL
    rest = await collect(stream)
    ids, logprobs = [*first.ids, *rest.ids], [*first.logprobs, *rest.logprobs]
    assert list(rest.last.versions) == [VersionSpan(3, 0, 400)]
    assert close_to(logprobs, references[3].score(prompt(12, 5), ids))
    info = await proxy.info()
    assert (info.live, info.trouble) == (3, "")
    fresh = await collect(proxy.generate(prompt(12, 6), Sampling(max_tokens=20, ignore_eos=True)))
    assert fresh.version_numbers == {3} and exact(fresh, 6, references)
    learner = client(url, checkpoints, "gloo")
    await checkpoint_published(learner, 1, checkpoints, "gloo")  # and the next one finds nothing in its way
    assert (await proxy.info()).live == 1
    await learner.close()


async def test_a_change_that_fails_leaves_the_old_weights_serving(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference]
) -> None:
    learner = client(url, checkpoints, "gloo")
    await learner.load(1, str(checkpoints / "1" / "served"), live=True)

    def failing() -> Iterator[Batch]:
        yield next(iter(from_folder(str(checkpoints / "2" / "served"))))
        raise ValueError("the trainer's own trouble")

    with pytest.raises(EngineError, match="did not load"):  # nor can SGLang read them
        await learner.load_tensors(2, failing, str(checkpoints / "gone"))
    assert (await proxy.info()).live == 1
    fresh = await collect(proxy.generate(prompt(12, 7), Sampling(max_tokens=20, ignore_eos=True)))
    assert fresh.version_numbers == {1} and exact(fresh, 7, references)
    await learner.load_tensors(2, failing, str(checkpoints / "2" / "served"))
    fresh = await collect(proxy.generate(prompt(12, 7), Sampling(max_tokens=20, ignore_eos=True)))
    assert fresh.version_numbers == {2} and exact(fresh, 7, references)
    await learner.close()


async def test_a_way_that_does_not_work_falls_back_on_disk(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference]
) -> None:
    learner = client(url, checkpoints, "nccl")  # SGLang has no GPU here
    for number, transfer in ((1, "nccl"), (2, "disk")):
        await checkpoint_published(learner, number, checkpoints, "nccl")
        info = await learner.info()
        assert (info.live, info.transfer) == (number, transfer)
    answer = await collect(proxy.generate(prompt(12, 8), Sampling(max_tokens=20, ignore_eos=True)))
    assert answer.version_numbers == {2} and exact(answer, 8, references)
    await learner.close()


async def test_a_change_that_a_killed_owner_left_is_undone_by_the_next_one(
    url: str, checkpoints: Path, references: list[Reference]
) -> None:
    owner = client(url, checkpoints, owns=True)
    await owner.load(1, str(checkpoints / "1" / "served"), live=True)
    await owner.close()
    server = EngineEndpoint(url, 5)
    await server.command("/pause_generation", {"mode": "retract"})
    await server.command("/begin_weight_update", {})
    server.close()
    after = client(url, checkpoints, owns=True)
    info = await after.info()
    answer = await collect(after.generate(prompt(12, 9), Sampling(max_tokens=20, ignore_eos=True)))
    await after.load(0, str(EMBEDDED_POLICY), live=True)
    await after.close()
    assert (info.live, info.trouble) == (1, "")
    assert answer.version_numbers == {1} and exact(answer, 9, references)


async def test_weights_of_another_shape_are_refused_before_anything_is_held(
    url: str, proxy: SglangEngine, checkpoints: Path, tmp_path: Path
) -> None:
    policy = AutoModelForCausalLM.from_pretrained(EMBEDDED_POLICY, dtype=torch.float32)
    policy.resize_token_embeddings(4160)
    policy.save_pretrained(tmp_path)
    with pytest.raises(EngineError, match="another architecture") as refused:
        await proxy.load(5, str(tmp_path), live=True)
    assert refused.value.status == 400 and (await proxy.info()).live == 0


async def test_memory_is_lent_between_requests_and_requests_wait_for_it(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference]
) -> None:
    """A CPU has nothing to free; what is shown is that SGLang takes the requests in this order."""
    learner = client(url, checkpoints)
    asked = Sampling(max_tokens=20, ignore_eos=True)
    async with learner.lend_memory() as lent:
        assert lent
        asking = asyncio.create_task(collect(proxy.generate(prompt(12, 1), asked)))
        await asyncio.wait([asking], timeout=2)
        assert not asking.done()
    answer = await asking
    assert exact(answer, 1, references) and answer.version_numbers == {0}
    assert (await proxy.info()).live == 0
    stream = proxy.generate(prompt(12, 2), Sampling(max_tokens=300, ignore_eos=True))
    first = await anext(stream)
    async with learner.lend_memory() as lent:
        assert not lent, "an answer is under way"
    assert len(first.ids) + len((await collect(stream)).ids) == 300
    await learner.close()


LENT = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.real.test_sglang_whole import client

async def main(url, checkpoints):
    async with client(url, Path(checkpoints)).lend_memory() as lent:
        assert lent
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_memory_of_a_trainer_that_is_killed_comes_back(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference]
) -> None:
    trainer = subprocess.Popen([sys.executable, "-c", LENT, url, str(checkpoints)], cwd=ROOT, start_new_session=True)
    assert await asyncio.to_thread(trainer.wait) == -signal.SIGKILL
    answer = await collect(proxy.generate(prompt(12, 3), Sampling(max_tokens=20, ignore_eos=True)))
    assert exact(answer, 3, references) and (await proxy.info()).live == 0


async def test_the_learner_publishes_and_rolls_back_where_no_candidate_can_be_probed(
    url: str, proxy: SglangEngine, checkpoints: Path, references: list[Reference], tmp_path: Path
) -> None:
    learner = client(url, checkpoints)
    settings = Settings(data=tmp_path, checkpoints=str(checkpoints), model=str(EMBEDDED_POLICY), guard_answers=2)
    journal = AsyncJournal(tmp_path / "journal.db")
    versions = Versions(journal, learner, None, settings, Progress())
    guard = Guard(journal, learner, Prompter(str(EMBEDDED_POLICY)), settings, lambda _: False)
    await versions.start()
    assert (await guard.probe(1, 0, [])).figures == {"not_probed": "the engine holds one version at a time"}
    for number in (1, 2):
        checkpoint = str(checkpoints / str(number))
        version = PolicyVersion(number=number, parent=number - 1, state="candidate", checkpoint=checkpoint)
        await journal.commit_version(version)
        await versions.publish(version)
        assert (await proxy.info()).live == number
    for number in (1, 0):
        await journal.set_version_state(number, "live")
        assert await versions.reconcile() and not await versions.reconcile()
        answer = await collect(proxy.generate(prompt(12, number), Sampling(max_tokens=20, ignore_eos=True)))
        assert answer.version_numbers == {number} and exact(answer, number, references)
    await journal.close()
    await learner.close()
