"""The questions of `doctor --try-provider` to a stand-in for a provider (`TorchProvider`)."""

from __future__ import annotations

import random
from collections import Counter, deque
from pathlib import Path

import pytest

from openclaw_rl.trainer_cloud.artifacts.cleanup import ArtifactCleanup
from openclaw_rl.trainer_cloud.artifacts.registry import ArtifactRegistry
from openclaw_rl.trainer_cloud.budget.ledger import Kind
from openclaw_rl.trainer_cloud.provider import CloudError
from openclaw_rl.trainer_cloud.trial import ANSWER, Finding, Trial, scrubbed
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import VOCABULARY, settings, write_policy

LENGTH = 1500


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def provider(policy: Path) -> TorchProvider:
    return TorchProvider(policy)


def build(policy: Path, provider: TorchProvider, data: Path) -> Trial:
    draw = random.Random(3)
    text = [draw.randrange(2, VOCABULARY) for _ in range(LENGTH)]
    cleanup = ArtifactCleanup(provider, settings(policy, data=data))
    return Trial(provider, cleanup, text, rank=8, loss="ppo", name="openclaw-rl-trial-1")


async def rows(trial: Trial) -> dict[str, Finding]:
    found = [finding async for finding in trial.run()]
    return {finding.asked: finding for finding in found}


async def test_every_question_is_answered_and_nothing_is_left_behind(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trial = build(policy, provider, tmp_path)
    found = await rows(trial)
    assert not any(finding.trouble for finding in found.values()), found
    again = found["the same scores again"]
    assert again.sent == {"cached": LENGTH, "sample": 1} and "100% of the text from the cache" in again.answered
    assert found["the 20 likeliest tokens in their places"].answered == "20 in each place"
    assert "the 10 likeliest tokens in their places" not in found
    assert found["the scores of 20 distinct chosen ids"].answered == f"{20 * ANSWER:,} scores of 20 ids"
    assert found["a forward pass over 511 places"].consequence == "sampler and trainer agree"
    assert "off by" in found["the same with 20 more ids in each place"].answered
    step = found["a step on sampled tokens, and a forward pass after it"]
    assert step.consequence == "praise made the answer likelier" and step.sent["step"] == 1
    assert "the pass reports logprobs" in found["a step on distributions, and a forward pass after it"].answered
    assert found["a LoRA that continues from them"].consequence == "it continues where it was"
    assert found["an answer of the trained weights"].consequence == "what is published is what was trained"
    assert not provider.kept and len(provider.deleted) == 2
    registry = ArtifactRegistry(tmp_path)
    assert not any(registry.find(provider.name, kind) for kind in ("state", "sampler", "saving"))
    assert all(training.closed for training in provider.trainings)


async def test_no_more_is_sent_than_was_planned(policy: Path, provider: TorchProvider, tmp_path: Path) -> None:
    trial = build(policy, provider, tmp_path)
    spent: Counter[Kind] = Counter()
    for finding in (await rows(trial)).values():
        spent.update(finding.sent)
    assert spent["prefill"] + spent["cached"] <= trial.plan["prefill"]
    assert all(spent[kind] <= trial.plan[kind] for kind in ("sample", "train", "step"))
    assert spent["prefill"] + spent["cached"] > 0.9 * trial.plan["prefill"]


async def test_a_bound_is_found_where_it_is(policy: Path, provider: TorchProvider, tmp_path: Path) -> None:
    provider.bound = 10 * LENGTH
    found = await rows(build(policy, provider, tmp_path))
    assert found["the 20 likeliest tokens in their places"].trouble == "refused"
    assert found["the 10 likeliest tokens in their places"].answered == "10 in each place"
    assert not found["the scores of 1 distinct chosen ids"].trouble
    assert "more than 15000" in found["the scores of 20 distinct chosen ids"].answered
    assert not found["the same with 20 more ids in each place"].trouble
    assert not found["a step on distributions, and a forward pass after it"].trouble


@pytest.mark.parametrize("where", ["sample", "score", "train", "forward", "update", "save_state", "resume", "delete"])
async def test_an_error_is_the_answer_of_its_row(
    policy: Path, provider: TorchProvider, tmp_path: Path, where: str
) -> None:
    provider.failures[where] = deque([CloudError(f"no {where} today", "refused", undone=True)])
    found = await rows(build(policy, provider, tmp_path))
    failed = [finding for finding in found.values() if finding.trouble]
    assert len(failed) == 1 and failed[0].answered == f"no {where} today" and failed[0].sent == {}
    assert len(found) == 17


async def test_a_provider_that_cannot_be_used_is_asked_nothing_else(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    provider.away = CloudError("the key has expired", "key", undone=True)
    found = await rows(build(policy, provider, tmp_path))
    assert [finding.trouble for finding in found.values()] == ["key"] and not provider.trainings


def test_a_row_that_is_sent_on_has_no_key_address_path_or_id() -> None:
    text = (
        "Tinker has nothing at tinker://3f2b1c9a-aaaa-bbbb-cccc-1234567890ab:train:0/weights/x any more; "
        "https://tinker.example/a?b (request 0123456789abcdef) of accounts/me/models/x with tml-secret: refused"
    )
    found = scrubbed(text, "tml-secret")
    for part in ("3f2b1c9a", "tinker.example", "0123456789abcdef", "accounts/me", "tml-secret", "weights/x"):
        assert part not in found
    assert "Tinker has nothing at" in found and found.endswith("refused")
