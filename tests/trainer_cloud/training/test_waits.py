"""Requests of a step that are waited for, one after the other: a provider takes seconds for each. On `TorchProvider`,
and over Tinker's wire with a fake of the service.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tinker.proto import tinker_public_pb2 as pb

from openclaw_rl.shared.records import Sample, VersionSpan
from openclaw_rl.shared.trainer import Checkpoint, Recipe
from openclaw_rl.trainer_cloud.provider import ScoreRequest
from openclaw_rl.trainer_cloud.tinker.provider import Tinker
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer
from tests.trainer_cloud.front import Answer, Sent, run_front
from tests.trainer_cloud.serving import tinker_settings
from tests.trainer_cloud.tinker_fake import TinkerFake
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_cloud.torch_training import TorchSampler
from tests.trainer_local.tiny import sample, settings, write_policy

BINARY = Recipe(method="binary", distillation="none", rewards="all", epochs=1, learning_rate=1e-2)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def build(policy: Path, folder: Path) -> tuple[TorchProvider, CloudTrainer]:
    folder.mkdir(exist_ok=True)
    provider = TorchProvider(policy)
    return provider, CloudTrainer(settings(policy, data=folder), provider)


async def sampled(provider: TorchProvider, seed: int, version: int, **changes: Any) -> Sample:
    """A turn with the logprobs that the base gives its answer, said to be of a version."""
    one = sample(seed, **({"hints": 0, "response": 6} | changes))
    text = [*one.prompt_ids, *one.response_ids]
    scored = await TorchSampler(provider._base).score(ScoreRequest(text, len(one.prompt_ids)))
    return replace(one, logprobs=list(scored.logprobs), versions=[VersionSpan(version, 0, len(one.response_ids))])


class _Engine:
    """Stands for an engine that accepts every load."""

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Nothing."""


async def published(trainer: CloudTrainer, folder: Path, version: int) -> Checkpoint:
    checkpoint = await trainer.save(str(folder / str(version)))
    await trainer.publish(checkpoint, version, _Engine(), live=True)  # type: ignore[arg-type]
    return checkpoint


@pytest.mark.parametrize(
    ("recipe", "version", "hints", "waits"),
    [
        (BINARY, 0, 0, ["update"]),
        (BINARY.replace(epochs=3), 0, 0, ["update"] * 3),
        (BINARY, 7, 0, ["forward", "update"]),
        (Recipe(method="combined", distillation="token", rewards="all", epochs=1), 0, 1, ["update"]),
        (Recipe(distillation="topk", topk=5, epochs=1), 0, 1, ["forward", "update"]),
    ],
    ids=["fresh answers", "three passes", "answers of another version", "combined", "distributions"],
)
async def test_a_step_waits_once_for_each_update_and_once_before_if_it_must(
    policy: Path, tmp_path: Path, recipe: Recipe, version: int, hints: int, waits: list[str]
) -> None:
    provider, trainer = build(policy, tmp_path)
    one = await sampled(provider, 1, version, reward=1.0, hints=hints)
    await trainer.step([one], recipe.replace(early_stop=0.0))
    assert provider.trainings[0].waits == waits


@pytest.mark.parametrize("reward", [1.0, -1.0])
async def test_gradient_and_metrics_are_those_of_a_step_that_asked_first(
    policy: Path, tmp_path: Path, reward: float
) -> None:
    found = []
    for version in (0, 7):
        provider, trainer = build(policy, tmp_path / str(version))
        samples = [await sampled(provider, seed, version, reward=reward / seed) for seed in (1, 2, 3)]
        report = await trainer.step(samples, BINARY.replace(epochs=2))
        found.append((provider.trainings[0], report.metrics))
    (known, metrics), (asked, wanted) = found
    assert known.waits == ["update"] * 2 and asked.waits == ["forward", "update", "update"]
    for part, other in zip(known.passes, asked.passes, strict=True):
        for datum, expected in zip(part[0].data, other[0].data, strict=True):
            np.testing.assert_allclose(datum.advantages, expected.advantages, atol=1e-7)
    for mine, other_one in zip(known.model.parameters(), asked.model.parameters(), strict=True):
        assert torch.allclose(mine, other_one, atol=1e-7)
    seconds = {name for name in wanted if name.startswith("seconds")}
    shared = wanted.keys() - seconds
    assert {name: metrics[name] for name in shared} == pytest.approx({name: wanted[name] for name in shared}, abs=1e-5)


async def test_logprobs_that_were_recorded_wrongly_are_corrected_by_the_pass(policy: Path, tmp_path: Path) -> None:
    """The distance of the step is measured from the policy as it was, whatever the samples say of it."""
    provider, trainer = build(policy, tmp_path)
    one = await sampled(provider, 1, 0, reward=1.0)
    off = replace(one, logprobs=[value - 0.1 for value in one.logprobs])
    report = await trainer.step([off], BINARY.replace(learning_rate=1e-9))
    assert report.metrics["kl/parent"] == pytest.approx(0.0, abs=1e-6)
    assert report.metrics["ratio/mean"] == pytest.approx(np.exp(0.1), rel=1e-4)


async def test_the_version_of_the_weights_is_that_under_which_they_were_published(policy: Path, tmp_path: Path) -> None:
    provider, trainer = build(policy, tmp_path)
    await trainer.step([await sampled(provider, 1, 0, reward=1.0)], BINARY)
    first = await published(trainer, tmp_path, 4)
    await trainer.step([await sampled(provider, 2, 4, reward=1.0)], BINARY)
    assert provider.trainings[0].waits == ["update", "update"]
    await published(trainer, tmp_path, 5)
    await trainer.step([await sampled(provider, 3, 4, reward=1.0)], BINARY)
    assert provider.trainings[0].waits == ["update", "update", "forward", "update"]
    await trainer.restore(first.path)
    await trainer.step([await sampled(provider, 3, 4, reward=1.0)], BINARY)
    await trainer.step([await sampled(provider, 3, 4, reward=1.0)], BINARY)
    assert provider.trainings[1].waits == ["update", "forward", "update"], "the second is made on weights of no version"


async def test_the_requests_of_an_update_are_submitted_before_any_is_answered_with_a_fake(
    policy: Path, tmp_path: Path
) -> None:
    """The fake answers the gradients only once the forward pass after them has come."""
    fake = TinkerFake(TorchProvider(policy), str(policy))
    order: list[str] = []
    held: set[str] = set()

    def answer(sent: Sent) -> Answer:
        if sent.path.endswith("/forward_backward"):
            only = pb.ForwardBackwardRequest.FromString(sent.raw).forward_only
            order.append("forward" if only else "gradient")
            answered = fake(sent)
            if not only:
                held.add(answered.body["request_id"])
            return answered
        if sent.path.endswith("/optim_step"):
            order.append("step")
        if sent.path.endswith("/retrieve_future") and sent.body["request_id"] in held and "forward" not in order:
            return Answer({"type": "try_again", "queue_state": "active"})
        return fake(sent)

    with run_front(answer) as front:
        own = tinker_settings(front.url, policy, tmp_path, request_timeout=30.0)
        trainer = CloudTrainer(own, Tinker(own))
        await trainer.step([await sampled(fake.provider, 1, 0, reward=1.0)], BINARY)
        assert order == ["gradient", "step", "forward"]
        assert not [one for one in front.sent if one.path.endswith("/create_sampling_session")], (
            "nothing asks a sampler"
        )
        await trainer.close()
