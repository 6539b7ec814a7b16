"""Steps at a provider that bounds a scored text's length times the tokens asked about, as Tinker documents
(`TorchProvider`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openclaw_rl.shared.errors import TrainerAway
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.provider import CloudError, ScoreRequest
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import anchor, sample, settings, write_policy

LONG = 4000
"""Tokens of a prompt."""
TOP = 20
REHEARSE = Recipe(topk=TOP, epochs=1, early_stop=0.0, learning_rate=1e-3)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"), max_position_embeddings=8192)


def build(policy: Path, folder: Path, *, bound: int) -> tuple[TorchProvider, CloudTrainer]:
    provider = TorchProvider(policy)
    provider.bound = bound
    return provider, CloudTrainer(settings(policy, data=folder), provider)


def batch(**changes: Any) -> list[Any]:
    return [sample(1, hints=1, prompt=LONG, response=12, **changes), anchor(2)]


async def test_a_sampler_takes_no_chosen_tokens_after_a_long_prompt(policy: Path, tmp_path: Path) -> None:
    """The bound is real: the request that scored them before is refused."""
    provider, _ = build(policy, tmp_path, bound=TOP * (LONG + 100))
    base = await provider.sampler("")
    ids = [5] * LONG + [6] * 30
    await base.score(ScoreRequest(ids, LONG, top_logprobs=TOP))
    with pytest.raises(CloudError, match="ids are more than"):
        await base.score(ScoreRequest(ids, LONG, chosen=np.arange(30, dtype=np.int64)[:, None]))


@pytest.mark.parametrize("teacher", ["base", "live"])
async def test_rehearse_trains_after_a_prompt_of_thousands_of_tokens(
    policy: Path, tmp_path: Path, teacher: str
) -> None:
    provider, trainer = build(policy, tmp_path, bound=TOP * (LONG + 100))
    recipe = REHEARSE.replace(teacher=teacher)
    first = await trainer.step(batch(), recipe)
    assert (await trainer.step(batch(), recipe)).step == 2 and provider.updates == 2
    assert first.metrics["loss/distill"] > 0 and first.metrics["samples/anchor"] == 1
    assert {top for _, top, _ in provider.scored} == {TOP} and not any(chosen for _, _, chosen in provider.scored)
    # The LoRA in training is the base before its first step, and the live policy always; later an untrained one is it.
    assert [bool(base.asked) for base in provider.bases] == ([True] if teacher == "base" else [])
    await trainer.close()
    assert all(training.closed for training in (*provider.trainings, *provider.bases))


async def test_fewer_likeliest_tokens_are_compared_where_the_bound_allows_no_more(policy: Path, tmp_path: Path) -> None:
    provider, trainer = build(policy, tmp_path, bound=10 * (LONG + 100))
    await trainer.step(batch(), REHEARSE)
    ((part,),) = provider.trainings[0].passes
    assert {datum.targets.shape[1] for datum in part.data} == {10}
    asked = len(provider.scored)
    await trainer.step(batch(), REHEARSE)
    assert max(top for _, top, _ in provider.scored[asked:]) == 10, "it is known by now"


async def test_a_bound_that_allows_no_likeliest_tokens_at_that_length_is_reported(policy: Path, tmp_path: Path) -> None:
    _, trainer = build(policy, tmp_path, bound=LONG)
    with pytest.raises(TrainerAway, match="binary, opd, combined or follow-up"):
        await trainer.step(batch(), REHEARSE)


async def test_every_token_that_was_sent_is_counted_and_none_twice(policy: Path, tmp_path: Path) -> None:
    provider, trainer = build(policy, tmp_path, bound=0)
    await trainer.step(batch(), REHEARSE)
    (training,) = provider.trainings
    forward = [datum for data in training.asked for datum in data]
    sent = sum(length for length, _, _ in provider.scored) + sum(len(datum.ids) for datum in forward)
    entries = trainer._budget.ledger.day(trainer._budget._day())
    spent = {entry.kind: amount for entry, amount in entries.items()}
    assert spent["prefill"] + spent["cached"] == sent
    # The longest text was sent to learn the number of likeliest tokens, and was in the cache when it was asked about.
    assert spent["cached"] >= 2 * LONG
