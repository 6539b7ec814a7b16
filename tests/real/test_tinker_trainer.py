"""The trainer contract on Tinker, over the native client and an independent server, and what training does there.

That server tells no likeliest tokens, so what `rehearse`, `topk` and `topk-select` send is tested at the level of the
data sent (`tests/trainer_cloud/training/test_objective.py`), and the suite's tests of it are skipped, saying so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.provider import Adam, Datum, Pass
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer, create
from tests.contract import test_trainer as contract
from tests.contract.test_trainer import Make, Subject, loaded
from tests.processes import ROOT
from tests.rigs.tinker_server import TinkerServer, run_tinker_server
from tests.trainer_cloud.serving import tinker_settings
from tests.trainer_local.tiny import sample, write_policy

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RECIPE = Recipe(method="binary", distillation="none", rewards="all", epochs=2, learning_rate=1e-2)

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
distils = contract.distils


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def server(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    shim = not os.environ.get("TINKER_OLD_CLIENT")
    with run_tinker_server(policy, tmp_path_factory.mktemp("tinker"), shim=shim, adapters=128) as running:
        yield running


@pytest.fixture
def subject() -> Subject:
    return Subject(recipe=RECIPE, distils=False, tolerance=1e-4, many=4, weights=contract.adapter)


@pytest.fixture
async def make(server: TinkerServer, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Make]:
    """Makes trainers on the same settings, each as a fresh process would."""
    made: list[CloudTrainer] = []
    data = tmp_path_factory.mktemp("data")

    def build() -> CloudTrainer:
        made.append(create(tinker_settings(server.url, policy, data, request_timeout=60.0)))
        return made[-1]

    yield build
    for trainer in made:
        await trainer.close()


async def logprob(trainer: CloudTrainer, one: Sample) -> float:
    """The summed logprob of an answer under the trainer's weights as they are."""
    full = [*one.prompt_ids, *one.response_ids]
    training = await trainer._ready()
    found = await training.forward([Datum(full[:-1], np.array(full[1:], dtype=np.int64))])
    return float(found[0][-len(one.response_ids) :].sum())


async def forget(trainer: CloudTrainer, one: Sample) -> None:
    """Make an optimizer forget all gradients, and leave the weights as they are: a step of rate 0 on a gradient of 0
    whose moments keep nothing of the old ones. The server of the tests has no states without optimizer.
    """
    full = [*one.prompt_ids, *one.response_ids]
    targets = np.array(full[1:], dtype=np.int64)
    nothing = Datum(full[:-1], targets, weights=np.zeros(len(targets), dtype=np.float32))
    adam = Adam(learning_rate=0.0, beta1=0.0, beta2=0.0, epsilon=1e-8, weight_decay=0.0, clip_grad=1.0)
    await (await trainer._ready()).update([Pass("cross_entropy", [nothing])], adam)


@pytest.mark.parametrize("loss", ["ppo", "cispo", "importance_sampling"])
@pytest.mark.parametrize("reward", [1.0, -1.0])
async def test_an_advantage_moves_an_answer_in_its_direction(
    server: TinkerServer, policy: Path, tmp_path: Path, loss: str, reward: float
) -> None:
    trainer = create(tinker_settings(server.url, policy, tmp_path, cloud_loss=loss))
    one = sample(5, hints=0, reward=reward)
    recipe = Recipe(distillation="none", rewards="all", epochs=1, learning_rate=1e-3)
    before = await logprob(trainer, one)
    await trainer.step([one], recipe)
    after = await logprob(trainer, one)
    await trainer.close()
    assert (after - before) * reward > 0.01


async def test_a_killed_trainer_continues_with_the_optimizer(
    make: Make, server: TinkerServer, policy: Path, tmp_path: Path
) -> None:
    """One process makes a step, saves and kills itself; another continues as if nothing had been."""
    (tmp_path / "killed").mkdir()
    program = (
        "import asyncio, os, signal\n"
        "from pathlib import Path\n"
        "from tests.real.test_tinker_trainer import RECIPE\n"
        "from tests.trainer_cloud.serving import tinker_settings\n"
        "from tests.trainer_local.tiny import sample\n"
        "from openclaw_rl.trainer_cloud.training.trainer import create\n"
        "async def main():\n"
        f"    trainer = create(tinker_settings({server.url!r}, {str(policy)!r}, Path({str(tmp_path / 'killed')!r})))\n"
        "    await trainer.step([sample(1, hints=0, reward=1.0)], RECIPE)\n"
        f"    await trainer.save({str(tmp_path / '1')!r})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    uninterrupted, resumed, forgetful = make(), make(), make()
    assert isinstance(uninterrupted, CloudTrainer) and isinstance(resumed, CloudTrainer)
    assert isinstance(forgetful, CloudTrainer)
    next_one = sample(2, hints=0, reward=-1.0)
    await uninterrupted.step([sample(1, hints=0, reward=1.0)], RECIPE)
    await uninterrupted.step([next_one], RECIPE)
    await resumed.restore(str(tmp_path / "1"))
    assert (await resumed.step([next_one], RECIPE)).step == 2
    probe = sample(9, response=12)
    await forgetful.restore(str(tmp_path / "1"))
    saved = await logprob(forgetful, probe)
    await forget(forgetful, next_one)
    assert await logprob(forgetful, probe) == saved
    # The same weights with an optimizer that has forgotten what it saw end up elsewhere.
    await forgetful.step([next_one], RECIPE)
    found = [await logprob(trainer, probe) for trainer in (uninterrupted, resumed, forgetful)]
    # The server answers in single precision, whose step is 4e-6 at these sums.
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert abs(found[0] - found[2]) > 1e-4


async def test_an_exported_model_is_the_trained_one(make: Make, policy: Path, tmp_path: Path) -> None:
    trainer = make()
    assert isinstance(trainer, CloudTrainer)
    await trainer.step([sample(1, hints=0, reward=1.0)], RECIPE)
    await trainer.export(str(tmp_path / "exported"))
    one = sample(9, response=12)
    ids = [*one.prompt_ids, *one.response_ids]
    import torch

    with torch.no_grad():
        logits = loaded(tmp_path / "exported", policy).eval()(torch.tensor([ids])).logits[0].float()
    rows = torch.log_softmax(logits, dim=-1)[len(one.prompt_ids) - 1 : -1]
    mine = float(rows.gather(-1, torch.tensor(list(one.response_ids))[:, None]).sum())
    assert mine == pytest.approx(await logprob(trainer, one), abs=1e-3)


async def test_methods_that_compare_distributions_are_refused_in_words(make: Make) -> None:
    with pytest.raises(TrainerError, match="binary"):
        await make().step([sample(1)], Recipe())


async def test_a_checkpoint_of_another_model_is_refused_in_words(make: Make, tmp_path: Path) -> None:
    checkpoint = await make().save(str(tmp_path / "1"))
    for file in (Path(checkpoint.path) / "meta.json", Path(checkpoint.served) / "cloud.json"):
        file.write_text(file.read_text().replace("policy", "another"))
    with pytest.raises(TrainerError, match="another"):
        await make().restore(checkpoint.path)
