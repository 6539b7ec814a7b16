"""Requests to Fireworks' service, which no test can reach, compared with the SDK's own types: sampling from
snapshots and deployments, provisioning, hot-loading, cleaning up, adapters as files. The answers come from a stand-in
(`fireworks_fake`), so nothing here says that the service does what it is asked for.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints
from unittest.mock import AsyncMock

import numpy as np
import pytest
from fireworks import types as rest
from fireworks.training.sdk import types
from fireworks.training.sdk.client import _BaseOnlyCreateModelRequest
from fireworks.types.completion_create_params import CompletionCreateParamsStreaming
from fireworks.types.deployment_create_params import DeploymentCreateParams
from pydantic import TypeAdapter

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.fireworks import provider as fireworks
from openclaw_rl.trainer_cloud.fireworks import sampler as fireworks_rollout
from openclaw_rl.trainer_cloud.pointer import Pointer
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass, ScoreRequest
from tests.trainer_cloud.fireworks_fake import ACCOUNT, MODEL, RUN, SERVERLESS, SESSION, Fake, settings
from tests.trainer_cloud.front import Front, Sent

pytest_plugins = ("tests.trainer_cloud.fireworks_fixtures",)

ADAM = Adam(learning_rate=1e-3, beta1=0.9, beta2=0.95, epsilon=1e-12, weight_decay=0.0, clip_grad=1.0)
COMPLETIONS = "/inference/v1/completions"
DEPLOYMENTS = f"/v1/accounts/{ACCOUNT}/deployments"
JOBS = f"/v1/accounts/{ACCOUNT}/rlorTrainerJobs"
IDS = [5, 6, 7, 8]
TARGETS = np.array(IDS[1:], dtype=np.int64)


def completion(sent: Sent) -> dict[str, Any]:
    """The body of a completion request, all of whose fields are of the API's type, or the SDK's own."""
    TypeAdapter(CompletionCreateParamsStreaming).validate_python(sent.body)
    own = {"top_p", "top_k", "perf_metrics_in_response", "raw_output"}
    assert set(sent.body) <= set(get_type_hints(CompletionCreateParamsStreaming)) | own
    assert sent.headers["Authorization"] == "Bearer fw_secret"
    return dict(sent.body)


async def test_request_shape_of_a_lora_and_of_a_step(shared: fireworks.Fireworks, front: Front) -> None:
    training = await shared.train(rank=8, seed=3)
    (made,) = front.posts(f"{SERVERLESS}/api/v1/create_model")
    asked = types.CreateModelRequest.model_validate(made.body)
    assert (asked.base_model, asked.session_id, asked.lora_config.rank, asked.lora_config.seed) == (
        MODEL,
        SESSION,
        8,
        3,
    )
    known = np.array([-1.0, -2.0, -3.0], dtype=np.float32)
    advantages = np.array([0.0, 0.5, 0.5], dtype=np.float32)
    both = np.stack([TARGETS, TARGETS + 1], axis=1)
    updated = await training.update(
        [
            Pass("ppo", [Datum(IDS[:-1], TARGETS, None, known, advantages)], {"clip_low_threshold": 0.7}),
            Pass("cross_entropy", [Datum(IDS[:-1], both, np.ones((3, 2), dtype=np.float32))]),
        ],
        ADAM,
        after=[Datum(IDS[:-1], TARGETS)],
    )
    assert updated.metrics == {"gradient/norm": 2.0}
    assert [one.tolist() for one in updated.after] == [[-0.5, -1.5, -2.5]]
    assert [one.shape for part in updated.before for one in part] == [(3,), (3, 2)]
    first, second = (sent.body["forward_backward_input"] for sent in front.posts("/api/v1/forward_backward"))
    assert (first["loss_fn"], first["loss_fn_config"]) == ("ppo", {"clip_low_threshold": 0.7})
    inputs = first["data"][0]["loss_fn_inputs"]
    assert inputs["advantages"] == {"data": [0.0, 0.5, 0.5], "dtype": "float32", "shape": [3]}
    assert inputs["target_tokens"] == {"data": [6, 7, 8], "dtype": "int64", "shape": [3]}
    assert second["data"][0]["loss_fn_inputs"]["target_tokens"]["shape"] == [3, 2]
    (stepped,) = front.posts("/api/v1/optim_step")
    adam = types.OptimStepRequest.model_validate(stepped.body).adam_params
    assert (adam.learning_rate, adam.beta1, adam.beta2, adam.eps, adam.grad_clip_norm) == (1e-3, 0.9, 0.95, 1e-12, 1.0)
    ends = ("/forward_backward", "/optim_step", "/forward")
    order = [sent.body["seq_id"] for end in ends for sent in front.posts(end)]
    assert order == [1, 2, 3, 4]


async def test_request_shape_of_several_candidates_in_one_place(shared: fireworks.Fireworks) -> None:
    training = await shared.train(rank=8, seed=3)
    (found,) = await training.forward([Datum(IDS[:-1], np.stack([TARGETS, TARGETS + 1], axis=1))])
    assert found.tolist() == [[-0.5, -1.5], [-2.5, -3.5], [-4.5, -5.5]]


async def test_request_shape_of_a_state_and_of_resuming(shared: fireworks.Fireworks, front: Front) -> None:
    training = await shared.train(rank=8, seed=3)
    path = await training.save_state("openclaw-rl-4-beef")
    types.SaveWeightsRequest.model_validate(front.posts("/api/v1/save_weights")[0].body)
    again = await shared.resume(path, rank=8)
    loaded = types.LoadWeightsRequest.model_validate(front.posts("/api/v1/load_weights")[0].body)
    assert (loaded.path, loaded.optimizer) == (f"{ACCOUNT}/{RUN}/openclaw-rl-4-beef", True)
    assert again.usable
    assert len(front.posts("/create_session")) == 1


async def test_request_shape_of_a_snapshot_that_is_sampled(
    shared: fireworks.Fireworks, front: Front, tmp_path: Path, tokenizer: Path
) -> None:
    training = await shared.train(rank=8, seed=3)
    path = await training.save_sampler("openclaw-rl-4-beef")
    (saved,) = front.posts("/api/v1/save_weights_for_sampler")
    types.SaveWeightsForSamplerRequest.model_validate(
        {name: value for name, value in saved.body.items() if name != "checkpoint_type"}
    )
    assert saved.body["checkpoint_type"] == "base"
    assert path == f"accounts/{ACCOUNT}/trainingSessions/{SESSION}/checkpoints/{ACCOUNT}/{RUN}/{saved.body['path']}"
    # Another process, which samples: it needs no session of its own.
    other = fireworks.Fireworks(settings(front, tmp_path, tokenizer))
    sampler = await other.sampler(path)
    front.sent.clear()
    answer = await sampler.sample(
        IDS, SamplingParams(max_new_tokens=9, temperature=0.5, top_p=0.9, stop_token_ids=[1, 7], seed=4), top_logprobs=2
    )
    body = completion(front.posts(SERVERLESS + COMPLETIONS)[0])
    assert (body["model"], body["prompt"], body["max_tokens"], body["temperature"]) == (path, IDS, 9, 0.5)
    assert (body["top_p"], body["top_k"], body["seed"], body["top_logprobs"]) == (0.9, 0, 4, 2)
    # w1 is a control token, which is known by its text; 7 is a word, at which the engine cuts.
    assert body["stop"] == ["w1"]
    # The model's own logprobs, not those after temperature and filters.
    assert (answer.ids, answer.logprobs, answer.finish) == ([7, 8], [-1.0, -2.0], "stop")
    assert answer.top_logprobs == [[(0.0, 8), (-0.1, 9)], [(0.0, 9), (-0.1, 10)]]
    assert not front.posts("/create_session")
    await other.close()


async def test_request_shape_of_a_text_that_is_scored(shared: fireworks.Fireworks, front: Front) -> None:
    sampler = await shared.sampler(f"accounts/{ACCOUNT}/trainingSessions/{SESSION}/checkpoints/x")
    scored = await sampler.score(ScoreRequest(IDS, 2, top_logprobs=9))
    body = completion(front.posts(COMPLETIONS)[-1])
    assert (body["prompt"], body["echo_last"], body["max_tokens"], body["top_logprobs"]) == (IDS, 2, 1, 5)
    assert scored.logprobs == [-1.0, -2.0]
    assert [len(row) for row in scored.top_logprobs] == [5, 5]
    with pytest.raises(CloudError, match="chosen"):
        await sampler.score(ScoreRequest(IDS, 2, chosen=np.ones((2, 1), dtype=np.int64)))
    assert shared.most_top_logprobs == 5


async def test_request_shape_of_the_base_model(shared: fireworks.Fireworks, front: Front) -> None:
    sampler = await shared.sampler("")
    assert not front.sent
    await sampler.sample(IDS, SamplingParams(max_new_tokens=2))
    (made,) = front.posts("/api/v1/create_model")
    assert _BaseOnlyCreateModelRequest.model_validate(made.body).base_only
    assert completion(front.posts(COMPLETIONS)[0])["model"] == f"accounts/{ACCOUNT}/trainingSessions/{SESSION}"


async def test_request_shape_of_a_snapshot_whose_session_is_over(
    shared: fireworks.Fireworks, front: Front, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for through a session of our own."""
    monkeypatch.setattr(fireworks_rollout, "READY_PAUSE", 0.0)
    over = f"accounts/{ACCOUNT}/trainingSessions/ts-over/checkpoints/{ACCOUNT}/{RUN}/name"
    fake.gone.add(over)
    await shared.sampler(over)
    ours = f"accounts/{ACCOUNT}/trainingSessions/{SESSION}/checkpoints/{ACCOUNT}/{RUN}/name"
    assert {sent.body["model"] for sent in front.posts(COMPLETIONS)} == {over, ours}
    fake.gone.add(ours)
    with pytest.raises(CloudError, match="any more") as caught:
        await shared.sampler(over)
    assert caught.value.trouble == "model"


async def test_request_shape_of_cleaning_up_sessions(shared: fireworks.Fireworks, front: Front, tmp_path: Path) -> None:
    name = f"accounts/{ACCOUNT}/trainingSessions/{SESSION}"
    left = Artifact("fireworks", "session", f"accounts/{ACCOUNT}/trainingSessions/ts-left", purpose="training")
    ArtifactRegistry(tmp_path).add(left)
    await shared.train(rank=8, seed=3)
    assert ArtifactRegistry(tmp_path).find("fireworks", "session") == [
        Artifact("fireworks", "session", name, purpose="training")
    ]
    await shared.close()
    assert [sent.path for sent in front.asked("DELETE", "")] == [f"/v1/{left.name}", f"/v1/{name}"]
    assert ArtifactRegistry(tmp_path).find("fireworks", "session") == []


async def test_request_shape_of_provisioning(
    dedicated: fireworks.Fireworks, front: Front, tmp_path: Path, tokenizer: Path
) -> None:
    """The trainer comes first, by whichever process, and the deployment names it."""
    serving = fireworks.Fireworks(settings(front, tmp_path, tokenizer, fireworks_mode="dedicated region=US_VIRGINIA_1"))
    await serving.sampler("")
    (job,) = front.asked("POST", JOBS)
    assert "deploymentId" not in job.query and "hotLoadDeploymentId" not in job.body
    assert job.body["trainingConfig"]["loraRank"] == 8
    assert (job.body["trainingConfig"]["baseModel"], job.body["inactivityTimeout"]) == (MODEL, "900s")
    assert "trainingShape" not in job.query
    (made,) = front.asked("POST", DEPLOYMENTS)
    assert front.sent.index(job) < front.sent.index(made)
    known = {"forTraining", "hotLoadTransitionType", "hotLoadTrainerJob"}  # of the SDK's own class alone
    aliases = {field.alias for field in rest.Deployment.model_fields.values()} | set(
        get_type_hints(DeploymentCreateParams)
    )
    assert set(made.body) - known <= aliases
    deployment = rest.Deployment.model_validate(made.body)
    assert (deployment.base_model, deployment.deployment_shape) == (MODEL, "default")
    assert (deployment.enable_hot_load, deployment.min_replica_count, deployment.max_replica_count) == (True, 1, 1)
    assert made.body["hotLoadTransitionType"] == "SYNC"
    assert made.body["placement"] == {"region": "US_VIRGINIA_1"}
    assert made.body["hotLoadTrainerJob"] == f"accounts/{ACCOUNT}/rlorTrainerJobs/{job.query['rlorTrainerJobId']}"
    # Both are on the list, the trainer by the id that it was asked for with.
    created = ArtifactRegistry(tmp_path)
    assert [one.name for one in created.find("fireworks", "trainer")] == [job.query["rlorTrainerJobId"]]
    assert [one.name for one in created.find("fireworks", "deployment")] == [made.query["deploymentId"]]
    # The process that trains finds the trainer there, and leaves the deployment alone.
    training = await dedicated.train(rank=8, seed=3)
    assert len(front.asked("POST", JOBS)) == len(front.asked("POST", DEPLOYMENTS)) == 1
    (session,) = front.posts("/create_session")
    prefix = f"/training/v1/rlorTrainerJobs/{ACCOUNT}/{job.query['rlorTrainerJobId']}"
    assert session.path == f"{prefix}/api/v1/create_session"
    state = await training.save_state("x")
    again = await dedicated.resume(state, rank=8)
    assert front.posts("/load_weights")[0].body["path"] == f"{ACCOUNT}/{RUN}/x"
    assert again.usable
    await serving.close()


async def test_request_shape_of_a_deployment_that_is_attached_to_another_trainer(
    front: Front, fake: Fake, tmp_path: Path, tokenizer: Path
) -> None:
    """Weights are loaded from the bucket of the trainer that saved them. Attaching restarts the deployment, so it is
    done only for another trainer's weights.
    """
    first, second = (f"accounts/{ACCOUNT}/rlorTrainerJobs/{name}" for name in ("one", "two"))
    serving = fireworks.Fireworks(settings(front, tmp_path, tokenizer, fireworks_mode="dedicated"))
    await serving.sampler(f"{first}/checkpoints/a")
    await serving.sampler(f"{first}/checkpoints/b")
    (made,) = front.asked("POST", DEPLOYMENTS)
    assert made.body["hotLoadTrainerJob"] == first and not front.asked("POST", JOBS)
    assert not [one for one in front.sent if one.method == "PATCH"]
    await serving.sampler(f"{second}/checkpoints/c")
    (attached,) = [one for one in front.sent if one.method == "PATCH"]
    assert attached.path == f"{DEPLOYMENTS}/{made.query['deploymentId']}"
    assert (attached.query, attached.body) == ({"updateMask": "hot_load_trainer_job"}, {"hotLoadTrainerJob": second})
    loads = front.asked("POST", "/hot_load")
    assert [one.body["identity"] for one in loads] == ["a", "b", "c"]
    assert front.sent.index(attached) < front.sent.index(loads[-1])
    await serving.close()


async def test_request_shape_of_training_shapes(front: Front, tmp_path: Path, tokenizer: Path) -> None:
    shape = "accounts/fireworks/trainingShapes/qwen3-8b-128k"
    provider = fireworks.Fireworks(
        settings(front, tmp_path, tokenizer, fireworks_mode=f"dedicated shape={shape}" if shape else "dedicated")
    )
    await provider.sampler("")
    assert front.asked("POST", JOBS)[0].query["trainingShape"] == shape
    assert front.asked("POST", DEPLOYMENTS)[0].body["deploymentShape"] == "accounts/f/deploymentShapes/d"
    await provider.close()


async def test_request_shape_of_a_hot_load_and_of_sampling_from_it(
    dedicated: fireworks.Fireworks, front: Front, fake: Fake, tmp_path: Path, tokenizer: Path
) -> None:
    training = await dedicated.train(rank=8, seed=3)
    path = await training.save_sampler("openclaw-rl-4-beef")
    serving = fireworks.Fireworks(settings(front, tmp_path, tokenizer, fireworks_mode="dedicated"))
    assert not serving.several_versions and not dedicated.several_versions
    base = await serving.sampler("")
    assert not front.asked("POST", "/hot_load")
    await base.sample(IDS, SamplingParams(max_new_tokens=2))
    live = await serving.sampler(path)
    (loaded,) = front.asked("POST", "/hot_load")
    deployment = f"accounts/{ACCOUNT}/deployments/{ArtifactRegistry(tmp_path).find('fireworks', 'deployment')[0].name}"
    assert loaded.body == {"identity": path.rsplit("/", 1)[-1], "reset_prompt_cache": True}
    assert loaded.headers["fireworks-deployment"] == deployment
    assert loaded.headers["fireworks-model"] == MODEL
    assert (await live.sample(IDS, SamplingParams(max_new_tokens=2))).ids == [7, 8]
    assert completion(front.posts(COMPLETIONS)[-1])["model"] == deployment
    # The weights of before are not there any more, and say so instead of answering with others.
    with pytest.raises(CloudError, match="serves other weights") as caught:
        await base.sample(IDS, SamplingParams(max_new_tokens=2))
    assert (caught.value.trouble, caught.value.undone) == ("away", True)
    # The base comes back as an adapter that was not trained.
    again = await serving.sampler("")
    assert fake.snapshot.startswith("base-")
    await again.sample(IDS, SamplingParams(max_new_tokens=2))
    assert dedicated.most_top_logprobs == 0
    await serving.close()


async def test_request_shape_of_the_base_model_that_scores(shared: fireworks.Fireworks, front: Front) -> None:
    base = await shared.base(rank=8)
    (made,) = front.posts("/api/v1/create_model")
    assert _BaseOnlyCreateModelRequest.model_validate(made.body).base_only
    (found,) = await base.forward([Datum(IDS[:-1], TARGETS)])
    assert found.tolist() == [-0.5, -1.5, -2.5]


async def test_request_shape_of_cleaning_up_machines(
    dedicated: fireworks.Fireworks, front: Front, tmp_path: Path, tokenizer: Path
) -> None:
    await dedicated.train(rank=8, seed=3)
    serving = fireworks.Fireworks(settings(front, tmp_path, tokenizer, fireworks_mode="dedicated"))
    await serving.sampler("")
    job, deployment = (ArtifactRegistry(tmp_path).find("fireworks", kind)[0].name for kind in ("trainer", "deployment"))
    await dedicated.close()
    # The weights that deployments load are in its bucket: it can be resumed.
    assert front.asked("POST", f"{JOBS}/{job}:cancel") and not front.asked("DELETE", "")
    await serving.close()
    (removed,) = front.asked("DELETE", "")
    assert removed.path == f"{DEPLOYMENTS}/{deployment}"
    assert removed.query == {"hard": "true", "ignoreChecks": "true"}
    created = ArtifactRegistry(tmp_path)
    assert [one.name for one in created.find("fireworks", "trainer")] == [job]
    assert not created.find("fireworks", "deployment")
    again = fireworks.Fireworks(settings(front, tmp_path, tokenizer, fireworks_mode="dedicated"))
    await again.train(rank=8, seed=3)
    assert front.asked("POST", f"{JOBS}/{job}:resume") and len(front.asked("POST", JOBS)) == 1
    await again.close()


async def test_request_shape_of_a_deployment_of_ones_own(
    front: Front, fake: Fake, tmp_path: Path, tokenizer: Path
) -> None:
    own = {"fireworks_mode": f"dedicated deployment=accounts/{ACCOUNT}/deployments/mine"}
    provider = fireworks.Fireworks(settings(front, tmp_path, tokenizer, **own))
    with pytest.raises(CloudError, match="no deployment mine"):
        await provider.sampler("")
    fake.deployment_state = "READY"
    await provider.sampler("")
    await provider.close()
    assert not front.asked("POST", DEPLOYMENTS) and not front.asked("DELETE", "")


@pytest.mark.parametrize("where", ["session", "job"])
async def test_request_shape_of_an_adapter_as_files(
    shared: fireworks.Fireworks, front: Front, fake: Fake, tmp_path: Path, where: str
) -> None:
    names = ("adapter_config.json", "adapter_model.safetensors")
    fake.files = {"name-1": ""} | {f"hf/{name}": f"{front.url}/files/{name}" for name in names}
    parent = {"session": f"trainingSessions/{SESSION}", "job": "rlorTrainerJobs/j"}[where]
    checkpoint = {"session": f"{ACCOUNT}/{RUN}/name-1", "job": "name-1"}[where]
    path = f"accounts/{ACCOUNT}/{parent}/checkpoints/{checkpoint}"
    await shared.download(Pointer("fireworks", "model", 8, path, "", 1), str(tmp_path))
    (promoted,) = [sent for sent in front.sent if sent.path.endswith(":promote")]
    wanted = {
        "session": f"/v1/accounts/{ACCOUNT}/{parent}/checkpoints/name-1:promote",
        "job": f"/v1/accounts/{ACCOUNT}/checkpoints/name-1:promote",
    }
    assert (promoted.path, promoted.body["base_model"]) == (wanted[where], MODEL)
    model = promoted.body["output_model"].rsplit("/", 1)[-1]
    assert (tmp_path / names[0]).read_text() == f"content of {names[0]}"
    # The model was there for the download alone.
    assert front.asked("DELETE", f"/v1/accounts/{ACCOUNT}/models/{model}")
    assert not ArtifactRegistry(tmp_path).find("fireworks", "model")


async def test_an_answer_without_likeliest_tokens_is_an_answer(
    shared: fireworks.Fireworks, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine, which asked for them, says that there are none. The answer is a mock of the SDK's."""
    sampler = await shared.sampler("")
    made = SimpleNamespace(
        full_tokens=[1, 2, 3],
        prompt_len=2,
        inference_logprobs=[-0.5],
        finish_reason="stop",
        inference_topk_token_ids=None,
        inference_topk_logprobs=None,
    )
    monkeypatch.setattr(fireworks_rollout.RolloutSampler, "_completion", AsyncMock(return_value=made))
    assert (await sampler.sample([1, 2], SamplingParams(max_new_tokens=1), top_logprobs=3)).top_logprobs == ()
