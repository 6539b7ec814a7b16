"""The Fireworks provider over a stand-in for the service (`fireworks_fake`): requests sent once, requests given up on,
the endpoint of each request, and artifacts left on the list.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.fireworks import provider as fireworks
from openclaw_rl.trainer_cloud.fireworks import sdk
from openclaw_rl.trainer_cloud.fireworks.sdk import training_url
from openclaw_rl.trainer_cloud.fireworks.training import FireworksTraining
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass, ScoreRequest
from openclaw_rl.trainer_cloud.training.scorer import Scorer
from tests.trainer_cloud.fireworks_fake import ACCOUNT, MODEL, Fake, settings
from tests.trainer_cloud.front import Answer, Front, Lost

pytest_plugins = ("tests.trainer_cloud.fireworks_fixtures",)

ADAM = Adam(learning_rate=1e-3, beta1=0.9, beta2=0.95, epsilon=1e-12, weight_decay=0.0, clip_grad=1.0)
COMPLETIONS = "/inference/v1/completions"
JOBS = f"/v1/accounts/{ACCOUNT}/rlorTrainerJobs"
IDS = [5, 6, 7, 8]
TARGETS = np.array(IDS[1:], dtype=np.int64)


async def test_an_answer_under_way_ends_before_a_hot_load_with_a_stand_in(
    dedicated: fireworks.Fireworks, front: Front, fake: Fake
) -> None:
    first, second = (f"accounts/{ACCOUNT}/rlorTrainerJobs/j/checkpoints/{name}" for name in ("one", "two"))
    await dedicated.sampler(first)
    deployment = dedicated._deployment
    async with deployment.serving(first):
        loading = asyncio.create_task(dedicated.sampler(second))
        while not deployment._swapping:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(deployment.serving(first).__aenter__())
        await asyncio.sleep(0)
        assert (fake.snapshot, loading.done(), waiting.done()) == ("one", False, False)
    await loading
    assert fake.snapshot == "two"
    with pytest.raises(CloudError, match="other weights"):
        await waiting


async def test_a_trainer_that_a_crash_left_is_gone_on_with_or_removed_with_a_stand_in(
    front: Front, fake: Fake, tmp_path: Path, tokenizer: Path
) -> None:
    created = ArtifactRegistry(tmp_path)
    fits = Artifact("fireworks", "trainer", "openclaw-rl-left", purpose=f"{MODEL} rank 8")
    other = Artifact("fireworks", "trainer", "openclaw-rl-other", purpose=f"{MODEL} rank 16")
    created.add(other)
    created.add(fits)
    fake.trainer_state = "JOB_STATE_CANCELLED"
    provider = fireworks.Fireworks(settings(front, tmp_path, tokenizer, fireworks_mode="dedicated"))
    await provider.train(rank=8, seed=3)
    assert created.find("fireworks", "trainer") == [fits]
    assert front.asked("DELETE", f"{JOBS}/{other.name}")
    assert front.asked("POST", f"{JOBS}/{fits.name}:resume")
    assert not front.asked("POST", JOBS)
    await provider.close()


async def test_an_artifact_that_cannot_be_removed_stays_on_the_list_with_a_stand_in(
    dedicated: fireworks.Fireworks, fake: Fake, tmp_path: Path
) -> None:
    await dedicated.sampler("")
    (deployment,) = ArtifactRegistry(tmp_path).find("fireworks", "deployment")
    fake.failures["DELETE", deployment.name] = Answer({"message": "no"}, 500)
    await dedicated.close()
    assert ArtifactRegistry(tmp_path).find("fireworks", "deployment") == [deployment]


async def step(training: FireworksTraining) -> None:
    ones = np.ones(len(TARGETS), dtype=np.float32)
    await training.update([Pass("importance_sampling", [Datum(IDS[:-1], TARGETS, None, -ones, ones)])], ADAM)


@pytest.mark.parametrize("path", ["/api/v1/forward_backward", "/api/v1/optim_step"])
@pytest.mark.parametrize("fault", [Lost(), Answer({"detail": "bad gateway"}, 502)])
async def test_a_step_whose_answer_was_lost_is_sent_once_with_a_stand_in(
    shared: fireworks.Fireworks, front: Front, fake: Fake, path: str, fault: Lost | Answer
) -> None:
    training = await shared.train(rank=8, seed=3)
    fake.failures["POST", path] = fault
    with pytest.raises(CloudError) as caught:
        await step(training)
    assert (caught.value.trouble, caught.value.undone) == ("away", False)
    assert len(front.posts(path)) == 1
    fake.failures.clear()
    assert not training.usable
    with pytest.raises(CloudError):
        await training.forward([Datum(IDS[:-1], TARGETS)])
    await training.close()
    # The session is as good as before.
    again = await shared.train(rank=8, seed=3)
    await step(again)
    assert len(front.posts("/create_session")) == 1


async def test_a_step_that_failed_there_is_reported_with_a_stand_in(shared: fireworks.Fireworks, fake: Fake) -> None:
    training = await shared.train(rank=8, seed=3)
    fake.failed["forward_backward"] = {"error": "the loss is not finite", "category": "user"}
    with pytest.raises(CloudError, match="the loss is not finite") as caught:
        await step(training)
    assert (caught.value.trouble, caught.value.undone, training.usable) == ("refused", False, False)


async def test_an_unfinished_request_is_given_up_on_and_not_asked_for_any_more_with_a_stand_in(
    front: Front, fake: Fake, tmp_path: Path, tokenizer: Path
) -> None:
    provider = fireworks.Fireworks(settings(front, tmp_path, tokenizer, request_timeout=2.0))
    training = await provider.train(rank=8, seed=3)
    fake.failed["optim_step"] = {"type": "try_again", "queue_state": "active"}
    with pytest.raises(CloudError, match="did not answer within 2 s"):
        await step(training)
    fake.failed.clear()
    (unfinished,) = [one for one in fake.results if fake.results[one].get("type") == "try_again"]
    await training.close()
    asked = [sent for sent in front.posts("/retrieve_future") if sent.body["request_id"] == unfinished]
    await (await provider.train(rank=8, seed=4)).forward([Datum(IDS[:-1], TARGETS)])
    later = [sent for sent in front.posts("/retrieve_future") if sent.body["request_id"] == unfinished]
    assert len(asked) == len(later)
    await provider.close()


async def test_a_server_that_does_nothing_but_fail_is_given_up_on_with_a_stand_in(
    shared: fireworks.Fireworks, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "FAILING_SECONDS", 0.2)
    training = await shared.train(rank=8, seed=3)
    fake.failures["POST", "/retrieve_future"] = Answer({"detail": "NaN is no JSON"}, 500)
    with pytest.raises(CloudError, match="NaN is no JSON") as caught:
        await training.forward([Datum(IDS[:-1], TARGETS)])
    assert (caught.value.trouble, training.usable) == ("away", False)


async def test_likeliest_tokens_are_asked_of_what_is_served_and_all_else_of_a_trainer_with_a_stand_in(
    shared: fireworks.Fireworks, front: Front
) -> None:
    training = await shared.train(rank=8, seed=3)
    path = await training.save_sampler("openclaw-rl-4-beef")

    async def ready() -> FireworksTraining:
        return training

    scorer = Scorer(ready, partial(shared.sampler, path), scores_texts=shared.scores_texts)
    assert (await scorer.score(ScoreRequest(IDS, 2), Bill())).logprobs == [-1.5, -2.5] and not front.posts(COMPLETIONS)
    listed = await scorer.score(ScoreRequest(IDS, 2, top_logprobs=3), Bill())
    assert listed.logprobs == [-1.0, -2.0] and [len(row) for row in listed.top_logprobs] == [3, 3]
    assert front.posts(COMPLETIONS)[-1].body["model"] == path
    both = await scorer.score(
        ScoreRequest(IDS, 2, top_logprobs=3, chosen=np.array([[9], [10]], dtype=np.int64)), Bill()
    )
    assert both.logprobs == [-2.5, -4.5] and [len(row) for row in both.top_logprobs] == [3, 3]


async def test_nothing_is_sent_without_a_key_or_a_rank(front: Front, tmp_path: Path, tokenizer: Path) -> None:
    keyless = fireworks.Fireworks(settings(front, tmp_path, tokenizer, fireworks_api_key=""))
    with pytest.raises(CloudError, match="FIREWORKS_API_KEY"):
        await keyless.train(rank=8, seed=3)
    with pytest.raises(CloudError, match="FIREWORKS_API_KEY"):
        await keyless.sampler("")
    with pytest.raises(CloudError, match="lora_rank"):
        await fireworks.Fireworks(settings(front, tmp_path, tokenizer)).train(rank=0, seed=3)
    assert not front.sent


async def test_a_key_of_several_accounts_is_refused_with_a_stand_in(dedicated: fireworks.Fireworks, fake: Fake) -> None:
    fake.accounts = ["one", "two"]
    with pytest.raises(CloudError, match="one, two") as caught:
        await dedicated._account.name()
    assert caught.value.trouble == "key"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://api.fireworks.ai", "https://api.fireworks.ai/training/v1/serverless"),
        ("https://eu.fireworks.ai/training/v1/serverless/", "https://eu.fireworks.ai/training/v1/serverless"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9"),
    ],
)
def test_the_address_is_always_given(given: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The SDK's own default is another provider's variable."""
    monkeypatch.setenv("TINKER_BASE_URL", "http://elsewhere")
    assert training_url(Settings(backend="fireworks", fireworks_base_url=given, data=tmp_path)) == url
