"""The trainer contract on the cloud trainer over a stand-in (`TorchProvider`), which tells likeliest tokens: that is
where `rehearse` runs. On a real server: `tests/real/test_tinker_trainer.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.trainer import Trainer
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer
from tests.contract import test_trainer as contract
from tests.contract.test_trainer import Make, Subject
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import settings, write_policy

RECIPE = contract.RECIPE.replace(topk=24, early_stop=0.0)
CANNOT = {
    "test_without_an_importance_ratio_the_hint_teaches_and_the_reward_does_not": "its batch has one at temperature 0.8",
    "test_other_tools_load_what_is_served_and_what_is_exported": "what it serves is where it was trained",
}

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
distils = contract.distils


@pytest.fixture(autouse=True)
def possible(request: pytest.FixtureRequest) -> None:
    """Skips what is another thing with a provider."""
    if reason := CANNOT.get(request.node.name):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


async def _weights(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    await trainer.export(str(folder))
    found = dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())
    shutil.rmtree(folder)
    return found


@pytest.fixture
def subject() -> Subject:
    return Subject(recipe=RECIPE, weights=_weights)


@pytest.fixture
async def make(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Make]:
    """Makes trainers on the same settings and the same account, each as a fresh process would."""
    made: list[CloudTrainer] = []
    data = tmp_path_factory.mktemp("data")
    provider = TorchProvider(policy)

    def build() -> CloudTrainer:
        made.append(CloudTrainer(settings(policy, data=data), provider))
        return made[-1]

    yield build
    for trainer in made:
        await trainer.close()
