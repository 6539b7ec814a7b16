"""Lost answers and an account without credit, where the server knows a training request that comes again, as Tinker's
own service does. The rig's server does so with `recognise`; its address is taken for Tinker's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tinker.proto import tinker_public_pb2 as pb

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.errors import TrainerAway
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud import preflight
from openclaw_rl.trainer_cloud.provider import CloudError
from openclaw_rl.trainer_cloud.tinker.provider import Tinker
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer, create
from tests.real.test_tinker_trainer import logprob
from tests.rigs.fault_proxy import FaultProxy, Seen
from tests.rigs.tinker_server import TinkerServer, run_tinker_server
from tests.trainer_cloud.serving import tinker_settings
from tests.trainer_local.tiny import sample, write_policy

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PASS, STEP = "/api/v1/forward_backward", "/api/v1/optim_step"
RECIPE = Recipe(method="binary", distillation="none", rewards="all", epochs=1, learning_rate=1e-2)
ONE = sample(1, hints=0, reward=1.0)
PROBE = sample(9, response=12)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def server(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    with run_tinker_server(policy, tmp_path_factory.mktemp("tinker"), recognise=True) as running:
        yield running


@pytest.fixture
def faults(server: TinkerServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def trainer(
    faults: FaultProxy, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CloudTrainer]:
    """A trainer that takes the server behind the proxy for Tinker's own."""
    monkeypatch.setattr(preflight, "is_tinkers_own", lambda url: True)
    made = create(tinker_settings(faults.url, policy, tmp_path, request_timeout=60.0))
    yield made
    await made.close()


def is_gradient(body: bytes) -> bool:
    """True for a forward-backward request that asks for gradients; forward passes come by the same route."""
    return not pb.ForwardBackwardRequest.FromString(body).forward_only


def sent(seen: list[Seen], path: str) -> list[Seen]:
    """The requests for gradients, or for optimizer steps, in the order in which they came."""
    return [one for one in seen if one.path == path and (path == STEP or is_gradient(one.body))]


@pytest.mark.parametrize("path", [PASS, STEP], ids=["a pass", "a step"])
@pytest.mark.parametrize("fault", ["lost", "failed"])
async def test_a_request_that_is_sent_again_counts_once(
    server: TinkerServer, faults: FaultProxy, trainer: CloudTrainer, policy: Path, tmp_path: Path, path: str, fault: str
) -> None:
    untroubled = create(tinker_settings(server.url, policy, tmp_path / "untroubled"))
    await untroubled.step([ONE], RECIPE)
    wanted = await logprob(untroubled, PROBE)
    await untroubled.close()
    seen = faults.record()
    rule = faults.reset(on=path, times=1, after=True) if fault == "lost" else faults.answer(500, on=path, times=1)
    rule.of = is_gradient if path == PASS else rule.of
    before = await logprob(trainer, PROBE)
    await trainer.step([ONE], RECIPE)
    assert rule.met == 1
    first, again = sent(seen, path)
    assert first.body == again.body
    (other,) = sent(seen, STEP if path == PASS else PASS)
    assert other.answer == 200
    # The client was not given up: the step was made by the one that made the first forward pass.
    assert sum(one.path == "/api/v1/create_model" for one in seen) == 1
    assert await logprob(trainer, PROBE) == pytest.approx(wanted, abs=1e-4)
    assert abs(wanted - before) > 1e-2


@pytest.mark.parametrize("path", [PASS, STEP, "/api/v1/retrieve_future"])
async def test_an_account_without_credit_is_reported_at_once(
    faults: FaultProxy, trainer: CloudTrainer, path: str
) -> None:
    await logprob(trainer, PROBE)  # a client that works
    broke = faults.answer(402, on=path, body='{"detail": "add a payment method"}')
    with pytest.raises(TrainerAway, match="cannot pay"):
        await trainer.step([ONE], RECIPE)
    assert broke.met >= 1
    assert "credit" in await trainer.obstacle()


async def test_a_sampler_without_credit_is_reported_at_once(faults: FaultProxy, policy: Path, tmp_path: Path) -> None:
    provider = Tinker(tinker_settings(faults.url, policy, tmp_path, request_timeout=60.0))
    sampler = await provider.sampler("")
    faults.answer(402, on="asample", body='{"detail": "add a payment method"}')
    with pytest.raises(CloudError) as caught:
        await sampler.sample([5, 6, 7], SamplingParams(max_new_tokens=2))
    assert caught.value.trouble == "billing"
    await provider.close()
