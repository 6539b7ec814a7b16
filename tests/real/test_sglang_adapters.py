"""The engine contract on the real SGLang with LoRA: versions are adapters side by side, swapped during chat.

What is in `CANNOT` no SGLang on a CPU can do, whatever it serves.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from openclaw_rl.trainer_local.sglang.versions import VersionStore, adapters_of
from tests.contract import test_engine as contract
from tests.real.test_sglang import CANNOT as ALL_CANNOT
from tests.real.test_sglang import ONE_VERSION
from tests.rigs.sglang_cpu import LORA, run_sglang
from tests.trainer_local.serving import Answer, Reference, close_to, collect, prompt, write_adapter

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

CANNOT = {name: reason for name, reason in ALL_CANNOT.items() if reason != ONE_VERSION}

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})


@pytest.fixture(autouse=True)
def possible(request: pytest.FixtureRequest) -> None:
    """Skips what SGLang cannot do."""
    if reason := CANNOT.get(request.node.name):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def model() -> Path:
    return EMBEDDED_POLICY


@pytest.fixture(scope="module")
def shape(model: Path) -> contract.Shape:
    config = json.loads((model / "config.json").read_text())
    return contract.Shape(config["eos_token_id"], config["max_position_embeddings"], vocabulary=0)


@pytest.fixture(scope="module")
def adapters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Eight adapters as checkpoints 1 to 8 of one folder."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return [write_adapter(model, folder / str(number) / "served", seed=number) for number in range(1, 9)]


@pytest.fixture(scope="module")
def adapter(adapters: list[Path]) -> Path:
    return adapters[0]


@pytest.fixture(scope="module")
def reference(model: Path) -> Reference:
    return Reference(model)


@pytest.fixture(scope="module")
def references(model: Path, adapters: list[Path], reference: Reference) -> list[Reference]:
    """By version: the base and each of `adapters`."""
    return [reference, *(Reference(model, folder) for folder in adapters)]


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_sglang(model, tmp_path_factory.mktemp("sglang"), *LORA) as server:
        yield server.url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    client = SglangEngine(url)
    yield client
    await client.close()


@pytest.fixture
async def learner(url: str, adapters: list[Path]) -> AsyncIterator[SglangEngine]:
    """The client of a process that loads versions; it leaves the base live."""
    client = SglangEngine(url, store=VersionStore(checkpoints=adapters[0].parent.parent))
    yield client
    await client.load(0, "", live=True)
    await client.close()


@pytest.fixture
async def proxy(url: str, adapters: list[Path]) -> AsyncIterator[SglangEngine]:
    """The client of a process that only chats."""
    client = SglangEngine(url, store=VersionStore(checkpoints=adapters[0].parent.parent))
    yield client
    await client.close()


async def test_eight_versions_under_load_are_swapped_without_a_failed_or_mixed_answer(
    learner: SglangEngine, proxy: SglangEngine, adapters: list[Path], references: list[Reference]
) -> None:
    ended = asyncio.Event()
    served: list[tuple[int, Answer]] = []

    async def chat(seed: int) -> None:
        while not ended.is_set():
            answer = await collect(proxy.generate(prompt(12, seed), Sampling(max_tokens=30, ignore_eos=True)))
            served.append((seed, answer))

    async with asyncio.TaskGroup() as group:
        for seed in range(4):
            group.create_task(chat(seed))
        for number, folder in enumerate(adapters, 1):
            await learner.load(number, str(folder), live=False)
            assert (await learner.score(prompt(9), [4, 5], version=number)).version == number
            await learner.load(number, str(folder), live=True)
            while not any(answer.version_numbers == {number} for _, answer in served):
                await proxy.info()
        ended.set()
    for seed, answer in served:
        (version,) = answer.version_numbers
        assert list(answer.last.versions) == [VersionSpan(version, 0, 30)] and len(answer.ids) == 30
        assert close_to(answer.logprobs, references[version].score(prompt(12, seed), answer.ids))
    assert {version for _, answer in served for version in answer.version_numbers} >= set(range(1, 9))


async def test_a_version_that_one_client_makes_live_is_served_by_others_at_once(
    learner: SglangEngine, proxy: SglangEngine, adapters: list[Path]
) -> None:
    asked = Sampling(max_tokens=2, ignore_eos=True)
    for number in (1, 3, 2, 0):
        path = str(adapters[number - 1]) if number else ""
        await learner.load(number, path, live=True)
        async with asyncio.timeout(2):
            while (await collect(proxy.generate(prompt(5), asked))).version_numbers != {number}:
                pass
        assert (await proxy.info()).live == number


async def test_unused_versions_are_unloaded_and_come_back_when_requested(
    learner: SglangEngine, proxy: SglangEngine, adapters: list[Path], references: list[Reference], url: str
) -> None:
    server = EngineEndpoint(url, 5)
    for number, folder in enumerate(adapters[:6], 1):
        await learner.load(number, str(folder), live=True)
    async with asyncio.timeout(30):
        while len(await adapters_of(server)) > 3:
            pass
    held = set((await learner.info()).versions)
    server.close()
    assert {0, 6} <= held and 1 not in held
    answer = await collect(proxy.generate(prompt(7), Sampling(max_tokens=10), version=1))
    assert answer.version_numbers == {1} and close_to(answer.logprobs, references[1].score(prompt(7), answer.ids))


async def test_a_rewritten_checkpoint_is_loaded_again(
    learner: SglangEngine, model: Path, adapters: list[Path], references: list[Reference], tmp_path: Path
) -> None:
    folder = tmp_path / "served"
    for number in (1, 2):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(adapters[number - 1], folder)
        await learner.load(50, str(folder), live=False)
        answer = await collect(learner.generate(prompt(8), Sampling(max_tokens=8), version=50))
        assert close_to(answer.logprobs, references[number].score(prompt(8), answer.ids))


async def test_an_adapter_of_a_folder_that_the_server_cannot_read_is_handed_over(
    learner: SglangEngine,
    adapters: list[Path],
    references: list[Reference],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(adapters[4], tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    await learner.load(60, "here", live=False)  # the server is elsewhere
    answer = await collect(learner.generate(prompt(8), Sampling(max_tokens=8), version=60))
    assert close_to(answer.logprobs, references[5].score(prompt(8), answer.ids))


async def test_whole_weights_are_refused_with_adapters(learner: SglangEngine, model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "whole")
    with pytest.raises(EngineError, match="holds none") as refused:
        await learner.load(70, str(tmp_path / "whole"), live=True)
    with pytest.raises(EngineError, match="that is the base"):
        await learner.load(0, str(tmp_path / "whole"), live=True)
    assert refused.value.status == 400 and (await learner.info()).live == 0


async def test_an_answer_under_way_keeps_its_adapter_until_it_is_done(
    learner: SglangEngine, proxy: SglangEngine, adapters: list[Path], references: list[Reference]
) -> None:
    await learner.load(1, str(adapters[0]), live=True)
    stream = proxy.generate(prompt(10), Sampling(max_tokens=300, ignore_eos=True))
    first = await anext(stream)
    for number, folder in enumerate(adapters[1:6], 2):
        await learner.load(number, str(folder), live=True)
    rest = await collect(stream)
    ids, logprobs = [*first.ids, *rest.ids], [*first.logprobs, *rest.logprobs]
    assert list(rest.last.versions) == [VersionSpan(1, 0, 300)]
    assert close_to(logprobs, references[1].score(prompt(10), ids))
