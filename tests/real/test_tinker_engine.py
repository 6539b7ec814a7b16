"""The engine contract on Tinker: our wire, by our one client, over the native client and an independent server.

Contract tests that cannot be passed there are in `CANNOT`, each with its reason: what no provider does, and what this
server does not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud import pointer
from openclaw_rl.trainer_cloud.provider import CloudError, ScoreRequest
from openclaw_rl.trainer_cloud.tinker import client as tinker_library
from openclaw_rl.trainer_cloud.tinker import provider as tinker
from openclaw_rl.trainer_cloud.training.trainer import create
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.contract import test_engine as contract
from tests.rigs.tinker_server import KEY, TinkerServer, run_tinker_server
from tests.trainer_cloud.serving import serving_cloud, tinker_settings
from tests.trainer_local.serving import (
    CONTEXT,
    END,
    VOCABULARY,
    Answer,
    Reference,
    close_to,
    collect,
    prompt,
    write_model,
)
from tests.trainer_local.tiny import sample

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

AT_ONE = "providers tell logprobs at temperature 1 alone: see test_answers_that_run_together_at_temperature_one"
WHOLE = "providers do not stream: see test_requests_in_flight_end_on_the_version_they_began_with"
NO_TOPS = "this server tells no likeliest tokens"
CANNOT = {
    "test_answers_that_run_together_have_the_logprobs_of_the_training_forward": AT_ONE,
    "test_an_answer_is_scored_at_the_temperature_it_was_sampled_at[0.6]": AT_ONE,
    "test_an_answer_is_scored_at_the_temperature_it_was_sampled_at[0.9]": AT_ONE,
    "test_a_shared_prefix_is_computed_once_and_stays_exact": "providers do not tell what they kept of a prompt",
    "test_a_fresh_score_uses_nothing_of_earlier_requests_and_leaves_nothing": "providers do not tell what they kept",
    "test_top_logprobs_are_the_best_of_the_distribution": NO_TOPS,
    "test_a_continuation_is_scored_like_the_training_forward": f"{NO_TOPS}; see test_a_text_is_scored",
    "test_a_new_version_serves_new_requests_and_those_in_flight_end_on_the_old_one": WHOLE,
    "test_closing_the_iterator_ends_the_work": "this server continues abandoned requests",
    "test_a_prompt_of_several_thousand_tokens_is_exact": "this server takes minutes for it on two cores",
}

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})


@pytest.fixture(autouse=True)
def possible(request: pytest.FixtureRequest) -> None:
    """Skips what is not possible there."""
    if reason := CANNOT.get(request.node.name):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def shape() -> contract.Shape:
    return contract.Shape(END, CONTEXT, VOCABULARY)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def reference(model: Path) -> Reference:
    return Reference(model)


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    shim = not os.environ.get("TINKER_OLD_CLIENT")
    with run_tinker_server(model, tmp_path_factory.mktemp("tinker"), shim=shim) as running:
        yield running


@pytest.fixture(scope="module")
def adapter(server: TinkerServer, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained version: its place at the provider, and next to it the same adapter as PEFT writes it."""

    async def train() -> Path:
        folder = tmp_path_factory.mktemp("trained")
        trainer = create(tinker_settings(server.url, model, folder))
        recipe = Recipe(distillation="none", rewards="all", epochs=4, learning_rate=2e-2)
        await trainer.step([sample(1, hints=0, reward=1.0), sample(2, hints=0, reward=-1.0)], recipe)
        checkpoint = await trainer.save(str(folder / "checkpoints" / "1"))
        await trainer.export(str(folder / "adapter"))
        await trainer.close()
        for file in (folder / "adapter").iterdir():
            file.rename(Path(checkpoint.served) / file.name)
        return Path(checkpoint.served)

    return asyncio.run(train())


@pytest.fixture
def removed(server: TinkerServer, model: Path, tmp_path: Path) -> Callable[[], Awaitable[tuple[Path, str]]]:
    """Makes a version, and tells how its weights are removed at the provider."""

    async def make() -> tuple[Path, str]:
        trainer = create(tinker_settings(server.url, model, tmp_path))
        await trainer.step([sample(1, hints=0, reward=1.0)], Recipe(distillation="none", rewards="all"))
        served = Path((await trainer.save(str(tmp_path / "checkpoints" / "1"))).served)
        await trainer.close()
        where = pointer.read(served, provider="tinker", model=str(model)).sampler
        run, kind, name = where.removeprefix("tinker://").split("/")
        return served, f"{server.url}/api/v1/training_runs/{run}/checkpoints/{kind}/{name}"

    return make


@pytest.fixture(scope="module")
def url(server: TinkerServer, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_cloud(tinker_settings(server.url, model, tmp_path_factory.mktemp("engine"))) as address:
        yield address


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    client = SglangEngine(url)
    yield client
    await client.close()


async def test_answers_that_run_together_at_temperature_one(engine: Engine, reference: Reference) -> None:
    prompts = [prompt(length, seed=length) for length in (1, 3, 17, 90, 300)]
    answers = await asyncio.gather(
        *(collect(engine.generate(ids, Sampling(max_tokens=24), version=0)) for ids in prompts)
    )
    for ids, answer in zip(prompts, answers, strict=True):
        assert close_to(answer.logprobs, reference.score(ids, answer.ids))
        assert answer.last.prompt_tokens == len(ids)


async def test_a_text_is_scored(engine: Engine, reference: Reference) -> None:
    ids, continuation = prompt(40, seed=1), prompt(25, seed=2)
    scores = await engine.score(ids, continuation, version=0)
    assert close_to(scores.logprobs, reference.score(ids, continuation)) and scores.version == 0


async def test_sampled_logprobs_are_the_scored_ones_to_five_digits(engine: Engine, adapter: Path) -> None:
    await engine.load(105, str(adapter), live=False)
    for version in (0, 105):
        answer = await collect(engine.generate(prompt(30, seed=4), Sampling(max_tokens=40), version=version))
        scores = await engine.score(prompt(30, seed=4), answer.ids, version=version)
        assert close_to(scores.logprobs, answer.logprobs, tolerance=1e-5)


async def test_an_engine_says_that_its_logprobs_are_at_temperature_one(engine: Engine, reference: Reference) -> None:
    assert not (await engine.info()).scales
    answer = await collect(engine.generate(prompt(9), Sampling(temperature=0.5, max_tokens=20), version=0))
    assert close_to(answer.logprobs, reference.score(prompt(9), answer.ids))


async def test_stop_strings_end_an_answer(engine: Engine) -> None:
    asked = Sampling(max_tokens=60, ignore_eos=True, seed=3)
    whole = await collect(engine.generate(prompt(6), asked, version=0))
    text = "".join(chr(31 + token) for token in whole.ids)  # see write_model
    stop = text[10:12]
    cut = await collect(
        engine.generate(prompt(6), Sampling(max_tokens=60, ignore_eos=True, seed=3, stop=(stop,)), version=0)
    )
    assert cut.ids == whole.ids[: text.index(stop) + 2] and cut.last.finish_reason == "stop"


async def test_requests_in_flight_end_on_the_version_they_began_with(
    engine: Engine, model: Path, adapter: Path, reference: Reference
) -> None:
    asked = Sampling(max_tokens=200, ignore_eos=True)
    begun = [asyncio.create_task(collect(engine.generate(prompt(12, seed), asked))) for seed in range(4)]
    await asyncio.sleep(0.3)
    await engine.load(106, str(adapter), live=True)
    fresh = await collect(engine.generate(prompt(12), Sampling(max_tokens=30, ignore_eos=True)))
    new = Reference(model, adapter)
    for seed, task in enumerate(begun):
        answer = await task
        assert list(answer.last.versions) == [VersionSpan(0, 0, 200)]
        assert close_to(answer.logprobs, reference.score(prompt(12, seed), answer.ids), tolerance=1e-3)
    assert list(fresh.last.versions) == [VersionSpan(106, 0, 30)]
    assert close_to(fresh.logprobs, new.score(prompt(12), fresh.ids))
    assert not close_to(fresh.logprobs, reference.score(prompt(12), fresh.ids))
    await engine.load(0, str(model), live=True)


async def test_versions_swap_under_load_without_a_failed_request(
    engine: Engine, model: Path, adapter: Path, reference: Reference
) -> None:
    references = {0: reference, 107: Reference(model, adapter)}
    answers: list[tuple[int, Answer]] = []
    done = asyncio.Event()

    async def talk(seed: int) -> None:
        while not done.is_set():
            answers.append((seed, await collect(engine.generate(prompt(9, seed), Sampling(max_tokens=24)))))

    talking = [asyncio.create_task(talk(seed)) for seed in range(6)]
    for version, path in ((107, adapter), (0, model), (107, adapter), (0, model)):
        await asyncio.sleep(1.5)
        await engine.load(version, str(path), live=True)
    done.set()
    await asyncio.gather(*talking)
    seen = {answer.last.version for _, answer in answers}
    assert seen == {0, 107}
    for seed, answer in answers:
        assert close_to(answer.logprobs, references[answer.last.version].score(prompt(9, seed), answer.ids))


async def test_chat_continues_with_the_base_when_the_live_weights_were_removed(
    engine: Engine,
    url: str,
    adapter: Path,
    reference: Reference,
    model: Path,
    removed: Callable[[], Awaitable[tuple[Path, str]]],
) -> None:
    served, where = await removed()
    await engine.load(120, str(adapter), live=False)
    await engine.load(121, str(served), live=True)
    assert (await collect(engine.generate(prompt(9), Sampling(max_tokens=4)))).last.version == 121
    async with httpx.AsyncClient(headers={"x-api-key": KEY}) as http:
        assert (await http.delete(where)).status_code == 204
        answer = await collect(engine.generate(prompt(9), Sampling(max_tokens=20)))
        assert answer.last.version == 0 and close_to(answer.logprobs, reference.score(prompt(9), answer.ids))
        with pytest.raises(EngineError, match="121") as caught:
            await collect(engine.generate(prompt(9), Sampling(max_tokens=4), version=121))
        assert caught.value.status == 404
        for _ in range(2):  # as the learner does each second
            with pytest.raises(EngineError) as caught:
                await engine.load(121, str(served), live=True)
            assert caught.value.status == 400
        info = (await http.get(f"{url}/model_info")).json()
        assert info["live"] == 0 and 121 not in info["versions"]
        for message in (info["live_error"], info["trouble"]):
            assert "version 121" in message and "openclaw-rl rollback N" in message
        await engine.load(120, str(adapter), live=True)
        answer = await collect(engine.generate(prompt(9), Sampling(max_tokens=20)))
        assert answer.last.version == 120
        info = (await http.get(f"{url}/model_info")).json()
        assert (info["live"], info["live_error"], info["trouble"]) == (120, "", "")
    await engine.load(0, str(model), live=True)


async def test_a_state_that_was_removed_is_gone_and_its_session_ends(
    server: TinkerServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []

    async def end(service: Any) -> None:
        ended.append(service)
        await tinker_library.end(service)

    monkeypatch.setattr(tinker, "end", end)
    provider = tinker.Tinker(tinker_settings(server.url, model, tmp_path))
    training = await provider.train(rank=8, seed=0)
    state, weights = await training.save_state("removed"), await training.save_sampler("removed")
    await training.close()
    for path in (state, weights):
        for _ in range(2):  # what is gone already is removed
            await provider.delete(path)
    ended.clear()
    with pytest.raises(CloudError) as caught:
        await provider.resume(state, rank=8)
    assert caught.value.trouble == "gone" and state in str(caught.value)
    assert len(ended) == 2  # of either way to resume
    with pytest.raises(CloudError) as caught:
        await (await provider.sampler(weights)).score(ScoreRequest(prompt(5), 1))
    assert caught.value.trouble == "gone" and weights in str(caught.value)
    await provider.close()


async def test_likeliest_tokens_of_an_answer_are_refused_by_name(engine: Engine) -> None:
    for _ in range(2):
        with pytest.raises(EngineError, match="top_logprobs") as caught:
            await collect(engine.generate(prompt(9), Sampling(max_tokens=4), top_logprobs=3))
        assert caught.value.status == 400
