"""The engine contract on the cloud engine over a stand-in (`TorchProvider`), and what the engine does when its provider
fails. On a real server: `tests/real/test_tinker_engine.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.engine.wire import Refused, UpdateWeights
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from openclaw_rl.trainer_cloud.budget.budget import Budget
from openclaw_rl.trainer_cloud.engine import engine as engines
from openclaw_rl.trainer_cloud.provider import CloudError, Trouble
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.contract import test_engine as contract
from tests.trainer_cloud.engine_fixtures import ask
from tests.trainer_cloud.serving import serving_cloud
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.serving import CONTEXT, END, VOCABULARY, Reference, close_to, collect, prompt
from tests.trainer_local.tiny import settings

AT_ONE = "providers tell logprobs at temperature 1 alone"
WHOLE = "providers do not stream: see test_requests_in_flight_end_on_the_version_they_began_with"
KEPT = "providers do not tell what they kept of a prompt"
PEFT = "the stand-in trains all weights"
CANNOT = {
    "test_answers_that_run_together_have_the_logprobs_of_the_training_forward": AT_ONE,
    "test_an_answer_is_scored_at_the_temperature_it_was_sampled_at[0.6]": AT_ONE,
    "test_an_answer_is_scored_at_the_temperature_it_was_sampled_at[0.9]": AT_ONE,
    "test_a_shared_prefix_is_computed_once_and_stays_exact": KEPT,
    "test_a_fresh_score_uses_nothing_of_earlier_requests_and_leaves_nothing": KEPT,
    "test_top_logprobs_are_the_best_of_the_distribution": "the stand-in reports none of sampled tokens",
    "test_a_new_version_serves_new_requests_and_those_in_flight_end_on_the_old_one": WHOLE,
    "test_a_prompt_of_several_thousand_tokens_is_exact": "the stand-in computes a prompt again for every token",
    "test_closing_the_iterator_ends_the_work": "see test_a_client_that_hangs_up_ends_the_request",
    "test_a_candidate_is_sampled_by_number_and_is_not_live": PEFT,
}

pytest_plugins = ("tests.trainer_cloud.engine_fixtures",)

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})


@pytest.fixture(autouse=True)
def possible(request: pytest.FixtureRequest) -> None:
    """Skips what is another thing with a provider."""
    if reason := CANNOT.get(request.node.name):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def shape() -> contract.Shape:
    return contract.Shape(END, CONTEXT, VOCABULARY)


@pytest.fixture(scope="module")
def reference(model: Path) -> Reference:
    return Reference(model)


@pytest.fixture(scope="module")
def url(model: Path, provider: TorchProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_cloud(settings(model, data=tmp_path_factory.mktemp("engine")), provider) as address:
        yield address


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    client = SglangEngine(url)
    yield client
    await client.close()


async def test_requests_in_flight_end_on_the_version_they_began_with(
    engine: Engine, model: Path, adapter: Path, provider: TorchProvider, reference: Reference
) -> None:
    provider.gate = gate = asyncio.Event()
    sampled = provider.sampled
    begun = [
        asyncio.create_task(collect(engine.generate(prompt(12, seed), Sampling(max_tokens=9, ignore_eos=True))))
        for seed in range(4)
    ]
    while provider.sampled < sampled + 4:
        await asyncio.sleep(0.01)
    await engine.load(106, str(adapter), live=True)
    assert (await engine.info()).live == 106
    next(_loops(gate)).call_soon_threadsafe(gate.set)
    for seed, task in enumerate(begun):
        answer = await task
        assert list(answer.last.versions) == [VersionSpan(0, 0, 9)]
        assert close_to(answer.logprobs, reference.score(prompt(12, seed), answer.ids))
    fresh = await collect(engine.generate(prompt(12), Sampling(max_tokens=9, ignore_eos=True)))
    assert list(fresh.last.versions) == [VersionSpan(106, 0, 9)]
    assert not close_to(fresh.logprobs, reference.score(prompt(12), fresh.ids))
    scores = await engine.score(prompt(12), fresh.ids, version=106)
    assert close_to(scores.logprobs, fresh.logprobs)
    await engine.load(0, str(model), live=True)


async def test_a_client_that_hangs_up_ends_the_request(engine: Engine, provider: TorchProvider) -> None:
    provider.gate, provider.cancelled = asyncio.Event(), 0
    asked = asyncio.create_task(collect(engine.generate(prompt(5), Sampling(max_tokens=3))))
    while not provider.gate._waiters:  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
    asked.cancel()
    while not provider.cancelled:
        await asyncio.sleep(0.01)
    provider.gate = asyncio.Event()
    provider.gate.set()
    assert len((await collect(engine.generate(prompt(5), Sampling(max_tokens=3, ignore_eos=True)))).ids) == 3


def _loops(event: asyncio.Event) -> Iterator[asyncio.AbstractEventLoop]:
    """The loop that an event is waited for in."""
    for waiter in event._waiters:  # type: ignore[attr-defined]
        yield waiter.get_loop()


async def test_other_temperatures_are_sampled_and_reported_at_one(engine: Engine, reference: Reference) -> None:
    assert not (await engine.info()).scales
    answer = await collect(engine.generate(prompt(9), Sampling(temperature=0.5, max_tokens=12), version=0))
    assert close_to(answer.logprobs, reference.score(prompt(9), answer.ids))
    with pytest.raises(EngineError) as caught:
        await engine.score(prompt(9), [3], version=0, temperature=0.5)
    assert caught.value.status == 501


@pytest.mark.parametrize("field", ["min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"])
async def test_a_parameter_that_no_provider_can_sample_with_is_refused_by_name(engine: Engine, field: str) -> None:
    with pytest.raises(EngineError, match=field) as caught:
        await collect(engine.generate(prompt(5), Sampling(max_tokens=3, **{field: 0.5})))  # type: ignore[arg-type]
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("trouble", "status"),
    [("key", 503), ("billing", 503), ("away", 503), ("limit", 503), ("budget", 429), ("refused", 400), ("model", 400)],
)
async def test_trouble_with_the_provider_is_reported_in_its_words(
    alone: Callable[..., Awaitable[Any]], trouble: Trouble, status: int
) -> None:
    provider, engine = await alone()
    provider.failures["sample"] = deque([CloudError("it says why", trouble)])
    failed = await ask(engine)
    assert (failed.error.message, failed.error.status) == ("it says why", status)
    reported = engine.info()["trouble"]
    assert reported == ("it says why" if trouble not in ("refused", "budget") else "")
    assert (await ask(engine)).error is None
    assert engine.info()["trouble"] == ""


async def test_chat_waits_for_nothing_that_learning_asks(alone: Callable[..., Awaitable[Any]]) -> None:
    provider, engine = await alone()
    provider.gate.clear()
    learning = [asyncio.create_task(ask(engine, priority=int(Priority.REHEARSAL))) for _ in range(engines.PLACES + 8)]
    while provider.sampled < engines.PLACES:
        await asyncio.sleep(0)
    chat = asyncio.create_task(ask(engine))
    while provider.sampled < engines.PLACES + 1:
        await asyncio.sleep(0)
    assert provider.sampled == engines.PLACES + 1  # the rest of learning waits for places, and chat did not
    provider.gate.set()
    assert (await chat).error is None
    assert all(event.error is None for event in await asyncio.gather(*learning))


async def test_after_a_rate_limit_learning_takes_fewer_places(alone: Callable[..., Awaitable[Any]]) -> None:
    provider, engine = await alone()
    provider.failures["sample"] = deque([CloudError("slow down", "limit", retry_after=1.0)])
    assert (await ask(engine)).error.status == 503
    provider.gate.clear()
    before = provider.sampled
    learning = [asyncio.create_task(ask(engine, priority=int(Priority.AUDIT))) for _ in range(8)]
    while provider.sampled - before < engines.SLOW_PLACES:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    assert provider.sampled - before == engines.SLOW_PLACES
    provider.gate.set()
    assert all(event.error is None for event in await asyncio.gather(*learning))


async def test_requests_that_wait_for_a_provider_that_keeps_failing_are_refused(
    alone: Callable[..., Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(engines, "SUSPICIOUS_SECONDS", 0.05)
    provider, engine = await alone(cloud_patience=0.3)
    provider.gate.clear()
    provider.away = CloudError("it cannot be reached", "away")
    asked = asyncio.get_running_loop().time()
    failed = await ask(engine)
    assert failed.error.message == "it cannot be reached"
    assert asyncio.get_running_loop().time() - asked >= 0.3
    assert engine.info()["trouble"] == "it cannot be reached"
    provider.away = None
    provider.gate.set()
    assert (await ask(engine)).error is None and engine.info()["trouble"] == ""


async def test_a_key_that_expired_is_reported_at_once(
    alone: Callable[..., Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(engines, "SUSPICIOUS_SECONDS", 0.05)
    provider, engine = await alone(cloud_patience=600.0)
    provider.gate.clear()
    provider.away = CloudError("the key has expired", "key")
    assert (await ask(engine)).error.message == "the key has expired"


async def test_one_check_that_fails_ends_nothing(
    alone: Callable[..., Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(engines, "SUSPICIOUS_SECONDS", 0.05)
    provider, engine = await alone(cloud_patience=0.5)
    provider.gate.clear()
    asked = asyncio.create_task(ask(engine))
    await asyncio.sleep(0.3)
    provider.away = CloudError("a busy line", "away")
    while engine.info()["trouble"] != "a busy line":
        await asyncio.sleep(0.01)
    provider.away = None
    while engine.info()["trouble"] == "a busy line":
        await asyncio.sleep(0.01)
    provider.gate.set()
    assert (await asked).error is None


async def test_the_chats_budget_ends_chats_and_not_learning(alone: Callable[..., Awaitable[Any]]) -> None:
    _, engine = await alone(cloud_daily_chat_tokens=20)
    assert (await ask(engine, tokens=10)).error is None
    refused = await ask(engine, tokens=10)
    assert refused.error.status == 429 and "cloud_daily_chat_tokens" in refused.error.message
    assert (await ask(engine, tokens=10, priority=int(Priority.REHEARSAL))).error is None


async def test_a_provider_with_one_version_at_a_time_is_asked_for_no_other(
    alone: Callable[..., Awaitable[Any]], adapter: Path
) -> None:
    provider, engine = await alone()
    provider.several_versions = False
    assert (engine.info()["beside"], engine.info()["versions"]) == (False, [0])
    with pytest.raises(Refused) as caught:
        await ask(engine, version=7)
    assert caught.value.status == 404 and "7" in caught.value.message
    with pytest.raises(Refused, match="serves one version here"):
        await engine.load(UpdateWeights(str(adapter), 7, live=False))


async def test_a_chat_that_meets_a_swap_is_answered_by_the_new_version(
    alone: Callable[..., Awaitable[Any]], adapter: Path, provider: TorchProvider
) -> None:
    """`sample` fails as it does where the old weights are gone by then."""
    single, engine = await alone()
    single.several_versions, single.kept = False, provider.kept
    gone = CloudError("other weights are served by now", "away", undone=True, retry_after=0.0)
    single.gate.clear()
    single.failures["sample"] = deque([gone])
    asked = asyncio.create_task(ask(engine))
    while not single.sampled:
        await asyncio.sleep(0.01)
    await engine.load(UpdateWeights(str(adapter), 7, live=True))
    single.gate.set()
    event = await asked
    assert event.error is None and single.sampled == 2
    single.failures["sample"] = deque([gone])
    assert (await ask(engine)).error.message == str(gone)  # nothing was swapped: it is said


async def test_any_seed_repeats_an_answer(engine: Engine) -> None:
    asked = Sampling(max_tokens=8, seed=2**40 + 7, ignore_eos=True)
    once, again = [await collect(engine.generate(prompt(9), asked, version=0)) for _ in range(2)]
    assert once.ids == again.ids


async def test_an_engine_starts_while_its_provider_is_away(
    alone: Callable[..., Awaitable[Any]], adapter: Path, model: Path, tmp_path: Path
) -> None:
    provider = TorchProvider(model)
    provider.away = CloudError("no one there", "away")
    provider.failures["sampler"] = deque([CloudError("no one there", "away")])
    chosen = settings(model, data=tmp_path)
    engine = engines.CloudEngine(provider, chosen, Budget(chosen, "torch", str(model)), live=(7, str(adapter)))
    assert engine.healthy and engine.info()["live"] == 7
    assert (await ask(engine)).error.message == "no one there"
    await engine.close()


async def test_a_live_version_that_is_gone_leaves_the_base(model: Path, tmp_path: Path) -> None:
    chosen = settings(model, data=tmp_path)
    budget = Budget(chosen, "torch", str(model))
    engine = engines.CloudEngine(TorchProvider(model), chosen, budget, live=(7, str(tmp_path / "gone")))
    assert engine.info()["live"] == 0 and "version 7" in engine.info()["live_error"]
    await engine.close()


async def test_likeliest_tokens_that_the_provider_does_not_tell_are_refused_by_name(
    alone: Callable[..., Awaitable[Any]],
) -> None:
    provider, engine = await alone()
    refused = (await ask(engine, top_logprobs=3)).error
    assert refused.status == 400 and "top_logprobs" in refused.message
    sampled = provider.sampled
    with pytest.raises(Refused, match="top_logprobs") as caught:
        await ask(engine, top_logprobs=3)
    assert caught.value.status == 400 and provider.sampled == sampled
    assert (await ask(engine)).error is None


async def test_tokens_that_the_provider_had_in_its_cache_are_counted_apart(
    alone: Callable[..., Awaitable[Any]],
) -> None:
    _, engine = await alone()
    for _ in range(2):
        await ask(engine, tokens=3)
    assert spent(engine) == {"prefill": 5, "cached": 5, "sample": 6}


@pytest.mark.parametrize(("score_from", "prefill"), [(2, 5), (4, 0)], ids=["two tokens", "none"])
async def test_scores_count_where_a_token_is_scored(
    alone: Callable[..., Awaitable[Any]], score_from: int, prefill: int
) -> None:
    provider, engine = await alone()
    await ask(engine, tokens=0, score_from=score_from)
    assert spent(engine).get("prefill", 0) == prefill == sum(length for length, _, _ in provider.scored)


def spent(engine: engines.CloudEngine) -> dict[str, int]:
    """The amounts that were spent today, by kind."""
    entries = engine._budget.ledger.day(engine._budget._day())
    return {entry.kind: amount for entry, amount in entries.items()}
