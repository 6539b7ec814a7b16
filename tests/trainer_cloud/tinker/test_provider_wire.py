"""Tinker's requests as the pinned client sends them, and what is read of the answers. `TinkerFake` stands in for the
service where SkyRL's server has no such thing: likeliest and chosen tokens, scores of a text's end, cached tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud import preflight
from openclaw_rl.trainer_cloud.provider import CloudError, Datum, ScoreRequest
from openclaw_rl.trainer_cloud.tinker.provider import Tinker
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer
from tests.trainer_cloud.front import Front
from tests.trainer_cloud.serving import tinker_settings
from tests.trainer_cloud.tinker_fake import TinkerFake
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_cloud.torch_training import TorchSampler, TorchTraining
from tests.trainer_local.tiny import anchor, sample

pytest_plugins = ("tests.trainer_cloud.tinker_fixtures",)

IDS = [5, 6, 7, 8, 9, 10, 11, 12]
START = 5
CHOSEN = np.array([[3, 0], [0, 11], [2, 4]], dtype=np.int64)


@pytest.fixture
async def provider(front: Front, policy: Path, tmp_path: Path) -> AsyncIterator[Tinker]:
    made = Tinker(tinker_settings(front.url, policy, tmp_path, request_timeout=20.0))
    yield made
    await made.close()


async def test_the_end_of_a_text_is_scored_with_a_fake(provider: Tinker, fake: TinkerFake) -> None:
    sampler = await provider.sampler("")
    for _ in range(2):
        found = await sampler.score(ScoreRequest(IDS, START, top_logprobs=4))
    (asked, _) = fake.samples
    assert asked.prompt_logprobs and asked.prompt_logprobs_last_n == 3 and asked.topk_prompt_logprobs == 4
    assert asked.sampling_params.max_tokens == 1 and asked.target_prompt_logprobs is None
    wanted = await TorchSampler(fake.provider._base).score(ScoreRequest(IDS, START, top_logprobs=4))
    assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-6)
    for row, expected in zip(found.top_logprobs, wanted.top_logprobs, strict=True):
        assert [token for _, token in row] == [token for _, token in expected]
    assert found.cached == len(IDS)


async def test_a_server_that_scores_the_whole_text_is_asked_again_once_with_a_fake(
    provider: Tinker, fake: TinkerFake
) -> None:
    fake.ignores_last_n = True
    for _ in range(2):
        found = await (await provider.sampler("")).score(ScoreRequest(IDS, START, top_logprobs=4))
        wanted = await TorchSampler(fake.provider._base).score(ScoreRequest(IDS, START, top_logprobs=4))
        assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-6) and len(found.top_logprobs) == 3
    assert [asked.prompt_logprobs_last_n for asked in fake.samples] == [3, None, None]


async def test_chosen_tokens_are_named_sparsely_and_a_bound_is_a_refusal_with_a_fake(
    provider: Tinker, fake: TinkerFake
) -> None:
    sampler = await provider.sampler("")
    found = await sampler.score(ScoreRequest(IDS, START, chosen=CHOSEN))
    wanted = await TorchSampler(fake.provider._base).score(ScoreRequest(IDS, START, chosen=CHOSEN))
    assert found.chosen is not None and wanted.chosen is not None
    np.testing.assert_allclose(found.chosen, wanted.chosen, atol=1e-6)
    named = fake.samples[0].target_prompt_logprobs
    assert named is not None and named.shape == [7, 2]
    assert named.sparse_crow_indices == [0, 0, 0, 0, 0, 2, 4, 6] and list(named.data) == [3, 0, 0, 11, 2, 4]
    fake.provider.bound = 20
    with pytest.raises(CloudError, match="ids are more than 20") as caught:
        await sampler.score(ScoreRequest(IDS, START, chosen=CHOSEN))
    assert caught.value.trouble == "refused"


async def test_an_answer_says_how_much_of_its_prompt_was_in_the_cache_with_a_fake(provider: Tinker) -> None:
    sampler = await provider.sampler("")
    params = SamplingParams(max_new_tokens=3, sampling_seed=4)
    first, second = [await sampler.sample(IDS, params) for _ in range(2)]
    assert (first.cached, second.cached) == (0, len(IDS)) and first.ids == second.ids


@pytest.mark.parametrize("own", [True, False])
async def test_targets_are_sent_without_the_prompt_to_tinker_itself_with_a_fake(
    provider: Tinker, fake: TinkerFake, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(preflight, "is_tinkers_own", lambda url: own)
    training = await provider.train(rank=8, seed=1)
    targets = np.zeros((7, 3), dtype=np.int64)
    targets[4:] = np.concatenate([np.array(IDS[START:])[:, None], CHOSEN], axis=1)
    (found,) = await training.forward([Datum(IDS[:-1], targets, lead=4)])
    (wanted,) = await TorchTraining(fake.provider._base).forward([Datum(IDS[:-1], targets)])
    np.testing.assert_allclose(found[4:], wanted[4:], atol=1e-6)
    ((tensors),) = fake.tensors
    for tensor in tensors.values():
        assert tensor.HasField("sparse_csr") is own
        if own:
            crow = np.frombuffer(tensor.sparse_csr.crow_indices, np.int64).tolist()
            # All of the answer's rows, zeros too: an id of 0 is one that is asked about.
            assert crow == [0, 0, 0, 0, 0, 3, 6, 9]
    await training.close()


async def test_rehearse_trains_over_tinkers_wire_as_it_does_without_with_a_fake(
    front: Front, fake: TinkerFake, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "is_tinkers_own", lambda url: True)
    samples, recipe = [sample(1, hints=2), anchor(2)], Recipe(topk=8, epochs=2, early_stop=0.0, learning_rate=1e-2)
    settings = tinker_settings(front.url, policy, tmp_path / "wire", request_timeout=20.0)
    (tmp_path / "wire").mkdir()
    (tmp_path / "plain").mkdir()
    plain = TorchProvider(policy)
    trainers = [
        CloudTrainer(settings, Tinker(settings)),
        CloudTrainer(settings.replace(data=tmp_path / "plain"), plain),
    ]
    reports = []
    for trainer in trainers:
        await trainer.step(samples, recipe)
        reports.append(await trainer.step(samples, recipe))
        await trainer.save(str(tmp_path / trainer._provider.name))
    wire, own = (report.metrics for report in reports)
    assert wire["loss/total"] == pytest.approx(own["loss/total"], rel=1e-4)
    assert wire["kl/parent"] == pytest.approx(own["kl/parent"], rel=1e-3)
    assert not any(asked.target_prompt_logprobs for asked in fake.samples)
    assert len(fake.provider.trainings) == 2, "the one in training, and an untrained one as the base"
    for trainer in trainers:
        await trainer.close()
