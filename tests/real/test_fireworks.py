"""Fireworks' training client on an independent server that speaks its wire: the trainer contract, and what training
does there.

That server samples nothing through this client, and scores one token in each place; `tests/trainer_cloud/
test_fireworks_requests.py` has the rest. So the suite looks at weights by what they make of a text, and hands out no
adapter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe, Trainer
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.fireworks import provider as fireworks
from openclaw_rl.trainer_cloud.fireworks.training import FireworksTraining
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass, ScoreRequest
from openclaw_rl.trainer_cloud.training.scorer import Scorer
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer, create
from tests.contract import test_trainer as contract
from tests.contract.test_trainer import Make, Subject
from tests.rigs.tinker_server import TinkerServer, run_tinker_server
from tests.trainer_cloud.front import Answer, Choose, Front, Lost, Sent, Silent, run_front
from tests.trainer_local.tiny import write_policy

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RECIPE = Recipe(method="binary", distillation="none", rewards="all", epochs=2, learning_rate=1e-2)
CANNOT = {
    "test_other_tools_load_what_is_served_and_what_is_exported": "adapters are handed out by Fireworks' own API alone",
}
ADAM = Adam(learning_rate=1e-3, beta1=0.9, beta2=0.95, epsilon=1e-12, weight_decay=0.0, clip_grad=1.0)
IDS = [5, 6, 7, 8, 9, 10, 11, 12]
TARGETS = np.array(IDS[1:], dtype=np.int64)
CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
distils = contract.distils


@pytest.fixture(autouse=True)
def possible(request: pytest.FixtureRequest) -> None:
    """Skips what is not possible there."""
    if request.node.name in CANNOT:
        pytest.skip(CANNOT[request.node.name])


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def server(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    with run_tinker_server(policy, tmp_path_factory.mktemp("fireworks"), shim=False, adapters=72) as running:
        yield running


@pytest.fixture(scope="module")
def front(server: TinkerServer) -> Iterator[Front]:
    with run_front(target=server.url) as running:
        yield running


@pytest.fixture
def line(front: Front) -> Front:
    """A way to the server on which nothing happens yet."""
    front.sent.clear()
    front.answer = lambda _: None
    return front


def settings(url: str, policy: Path, data: Path, **changes: Any) -> Settings:
    own = {"backend": "fireworks", "model": str(policy), "data": data, "fireworks_api_key": "fw_test"}
    quick = {"fireworks_base_url": url, "lora_rank": 8, "request_timeout": 240.0, "cloud_redact": "off"}
    return Settings(**(own | quick | changes))


async def seen(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    """Compute the logprobs that the weights give a text; like an export it keeps them first."""
    assert isinstance(trainer, CloudTrainer)
    training = await trainer._ready()
    if trainer._unsaved:
        await trainer._save(training, weights=True)
    (found,) = await training.forward([Datum(IDS[:-1], TARGETS)])
    return {"logprobs": torch.from_numpy(found)}


@pytest.fixture
def subject() -> Subject:
    return Subject(recipe=RECIPE, distils=False, tolerance=1e-4, many=4, weights=seen)


@pytest.fixture
async def make(server: TinkerServer, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Make]:
    """Makes trainers on the same settings, each as a fresh process would."""
    made: list[CloudTrainer] = []
    data = tmp_path_factory.mktemp("data")

    def build() -> CloudTrainer:
        made.append(create(settings(server.url, policy, data)))
        return made[-1]

    yield build
    for trainer in made:
        await trainer.close()


@pytest.fixture
async def provider(line: Front, policy: Path, tmp_path: Path) -> AsyncIterator[fireworks.Fireworks]:
    made = fireworks.Fireworks(settings(line.url, policy, tmp_path))
    yield made
    await made.close()


async def logprobs(training: FireworksTraining) -> NDArray[np.float32]:
    (found,) = await training.forward([Datum(IDS[:-1], TARGETS)])
    return found


async def step(training: FireworksTraining, sign: float = 1.0, loss: str = "ppo") -> None:
    known = await logprobs(training)
    advantages = np.full(len(TARGETS), sign, dtype=np.float32)
    config = CLIP if loss in ("ppo", "cispo") else {}
    await training.update([Pass(loss, [Datum(IDS[:-1], TARGETS, None, known, advantages)], config)], ADAM)


@pytest.mark.parametrize("loss", ["ppo", "cispo", "importance_sampling"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
async def test_an_advantage_moves_an_answer_in_its_direction(
    provider: fireworks.Fireworks, loss: str, sign: float
) -> None:
    training = await provider.train(rank=8, seed=1)
    before = (await logprobs(training)).sum()
    await step(training, sign, loss)
    after = (await logprobs(training)).sum()
    await training.close()
    assert (after - before) * sign > 0.1


async def test_weights_of_a_cross_entropy_move_an_answer(provider: fireworks.Fireworks) -> None:
    training = await provider.train(rank=8, seed=1)
    before = (await logprobs(training)).sum()
    weights = np.ones(len(TARGETS), dtype=np.float32)
    updated = await training.update([Pass("cross_entropy", [Datum(IDS[:-1], TARGETS, weights)])], ADAM)
    assert (await logprobs(training)).sum() > before + 0.1
    assert updated.metrics["gradient/norm"] > 0
    await training.close()


async def test_a_forward_pass_says_the_same_again(provider: fireworks.Fireworks) -> None:
    training = await provider.train(rank=8, seed=1)
    assert np.array_equal(await logprobs(training), await logprobs(training))
    await training.close()


async def test_a_resumed_lora_continues_with_its_optimizer(provider: fireworks.Fireworks) -> None:
    training = await provider.train(rank=8, seed=1)
    await step(training)
    await step(training, -1.0)
    path = await training.save_state("Openclaw_RL 7")
    await step(training)
    wanted = await logprobs(training)
    again = await provider.resume(path, rank=8)
    await step(again)
    assert np.array_equal(await logprobs(again), wanted)
    await training.close()
    await again.close()


async def test_base_and_live_are_scored_at_the_training_endpoint(provider: fireworks.Fireworks) -> None:
    training = await provider.train(rank=8, seed=1)
    untouched = await logprobs(training)
    await step(training)
    path = await training.save_sampler("openclaw-rl-1-beef")
    live, base = _scorer(provider, path, training), _scorer(provider, "", await provider.base(rank=8))
    assert (await live.score(ScoreRequest(IDS, 3), Bill())).logprobs == pytest.approx(
        (await logprobs(training))[2:], abs=1e-6
    )
    assert (await base.score(ScoreRequest(IDS, 3), Bill())).logprobs == pytest.approx(untouched[2:], abs=1e-5)
    with pytest.raises(CloudError, match="several tokens in one place"):
        await base.score(ScoreRequest(IDS, 3, chosen=np.ones((len(IDS) - 3, 2), dtype=np.int64)), Bill())
    await training.close()


def _scorer(provider: fireworks.Fireworks, path: str, training: FireworksTraining) -> Scorer:
    async def ready() -> FireworksTraining:
        return training

    return Scorer(ready, partial(provider.sampler, path), scores_texts=provider.scores_texts)


@pytest.mark.parametrize("path", ["/api/v1/forward_backward", "/api/v1/optim_step"])
@pytest.mark.parametrize("fault", [Lost(), Answer({"detail": "bad gateway"}, 502)])
async def test_a_step_whose_answer_was_lost_is_not_sent_again(
    provider: fireworks.Fireworks, line: Front, path: str, fault: Lost | Answer
) -> None:
    training = await provider.train(rank=8, seed=1)
    before = await logprobs(training)
    state = await training.save_state("before")
    line.answer = lambda sent: fault if sent.path == path else None
    with pytest.raises(CloudError) as caught:
        await step(training)
    assert (caught.value.trouble, caught.value.undone) == ("away", False)
    assert len(line.posts(path)) == 1
    line.answer = lambda _: None
    # The client is of no use any more and says so; what was saved is.
    assert not training.usable
    with pytest.raises(CloudError):
        await logprobs(training)
    await training.close()
    again = await provider.resume(state, rank=8)
    assert np.array_equal(await logprobs(again), before)
    await again.close()


async def test_a_step_that_was_refused_for_now_is_sent_again(provider: fireworks.Fireworks, line: Front) -> None:
    training = await provider.train(rank=8, seed=1)
    before = (await logprobs(training)).sum()
    line.answer = _refusing_once("/api/v1/forward_backward", Answer({"detail": "slow down"}, 429, {"retry-after": "0"}))
    await step(training)
    assert len(line.posts("/forward_backward")) == 2
    assert (await logprobs(training)).sum() > before
    await training.close()


async def test_a_silent_server_is_given_up_on(line: Front, policy: Path, tmp_path: Path) -> None:
    provider = fireworks.Fireworks(settings(line.url, policy, tmp_path, request_timeout=240.0))
    training = await provider.train(rank=8, seed=1)
    await step(training)
    training._settings = training._settings.replace(request_timeout=2.0)
    line.answer = lambda sent: Silent() if sent.path.endswith("/optim_step") else None
    with pytest.raises(CloudError, match="did not answer within 2 s"):
        await step(training)
    assert len(line.posts("/optim_step")) == 2
    assert not training.usable
    await training.close()
    await provider.close()


def _refusing_once(path: str, answer: Answer) -> Choose:
    left = [answer]
    return lambda sent: left.pop() if sent.path == path and left else None


async def test_nothing_of_telemetry_is_sent(provider: fireworks.Fireworks, line: Front) -> None:
    training = await provider.train(rank=8, seed=1)
    await training.close()
    assert not [sent for sent in line.sent if "telemetry" in sent.path]
    session: Sent = line.posts("/create_session")[0]
    assert session.headers["X-API-Key"] == "fw_test"
