"""Promises of the Tinker-compatible server to the tests that use it: the same to both Tinker clients, and training to
Fireworks'. One of these tests runs those of a client again, with the older one.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.processes import ROOT
from tests.rigs.environments import clean_environment, environment
from tests.rigs.tinker_server import KEY, TinkerServer, run_tinker_server

tinker = pytest.importorskip("tinker")

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1800),
    # The older client's methods for a running loop are deprecated in the newer one.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

RUNNING = "TINKER_RIG_URL"
"""Names a server that runs already, to the tests in the environment of the older client."""
ADAPTERS = 4
PROMPT = list(range(100, 160))
ANSWER = [5, 6, 7, 8]
STEP = 1e-3


def done(future: Any) -> Any:
    """The result of a call: of a future in the newer client, itself in the older."""
    return future.result() if hasattr(future, "result") else future


@dataclass
class Client:
    """A Tinker client of the server, in small steps."""

    server: TinkerServer

    @cached_property
    def service(self) -> Any:
        return tinker.ServiceClient(base_url=self.server.url, api_key=KEY)

    @cached_property
    def rest(self) -> Any:
        return self.service.create_rest_client()

    def train(self, rank: int = 8) -> Any:
        """A LoRA in training."""
        return done(
            self.service.create_lora_training_client(
                base_model=self.server.base_model, rank=rank, seed=1, train_unembed=False
            )
        )

    def sampler(self, path: str = "") -> Any:
        """Sampled from the weights at a path, or the base model."""
        given = {"model_path": path} if path else {"base_model": self.server.base_model}
        return done(self.service.create_sampling_client(**given))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    if RUNNING in os.environ:
        yield TinkerServer(os.environ[RUNNING], str(EMBEDDED_POLICY), Path(), None)  # type: ignore[arg-type]
        return
    folder = tmp_path_factory.mktemp("tinker")
    with run_tinker_server(EMBEDDED_POLICY, folder, adapters=ADAPTERS) as running:
        yield running


@pytest.fixture
def client(server: TinkerServer) -> Iterator[Client]:
    client = Client(server)
    yield client
    if hasattr(client.service, "close"):
        client.service.close("success").result()
    else:  # its models would keep their slots until it has been silent for some time
        httpx.post(f"{server.url}/api/v1/sessions/{client.service.holder.get_session_id()}/finish").raise_for_status()
        client.service.holder.close()


def datum(loss: str, types: Any = tinker) -> Any:
    """The answer after the prompt, for a loss."""
    full = PROMPT + ANSWER
    masked = [0.0] * (len(PROMPT) - 1) + [1.0] * len(ANSWER)

    def tensor(values: Sequence[float]) -> Any:
        return types.TensorData(data=list(values), dtype="float32", shape=[len(values)])

    inputs = {"target_tokens": types.TensorData(data=full[1:], dtype="int64", shape=[len(full) - 1])}
    if loss == "cross_entropy":
        inputs |= {"weights": tensor(masked)}
    else:
        inputs |= {"logprobs": tensor([-8.0 * place for place in masked]), "advantages": tensor(masked)}
    return types.Datum(model_input=types.ModelInput.from_ints(full[:-1]), loss_fn_inputs=inputs)


def logprobs(result: Any) -> NDArray[np.float64]:
    """Of the answer, from a pass."""
    return np.array(result.loss_fn_outputs[0]["logprobs"].data)[-len(ANSWER) :]


def forward(training: Any) -> NDArray[np.float64]:
    """The answer's logprobs to the weights in training."""
    return logprobs(training.forward([datum("cross_entropy")], "cross_entropy").result())


def step(training: Any, loss: str = "cross_entropy", **adam: float) -> None:
    """One step that makes the answer likelier."""
    config = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28} if loss in ("ppo", "cispo") else None
    passed = training.forward_backward([datum(loss)], loss, loss_fn_config=config)
    stepped = training.optim_step(tinker.AdamParams(learning_rate=STEP, **adam))
    passed.result()
    stepped.result()


def score(samplers: Sequence[Any]) -> list[NDArray[np.float64]]:
    """The answer's logprobs to each, asked together."""
    full = tinker.ModelInput.from_ints(PROMPT + ANSWER)
    replies = [future.result() for future in [sampler.compute_logprobs(full) for sampler in samplers]]
    assert all(len(values) == len(PROMPT + ANSWER) and values[0] is None for values in replies)
    return [np.array(values[-len(ANSWER) :]) for values in replies]


def params(**changes: Any) -> Any:
    """Sampling parameters, all of them set."""
    values = {"max_tokens": 12, "temperature": 1.0, "seed": 3, "stop": [], "top_k": -1, "top_p": 1.0}
    return tinker.SamplingParams(**(values | changes))


@pytest.mark.parametrize("loss", ["cross_entropy", "importance_sampling", "ppo", "cispo"])
def test_a_client_trains_with_every_loss(client: Client, loss: str) -> None:
    training = client.train()
    before = forward(training)
    for _ in range(3):
        step(training, loss)
    assert forward(training).sum() > before.sum() + 1.0


def test_a_client_samples_old_versions_together_during_training(client: Client) -> None:
    training = client.train()
    paths, trained = [], [forward(training)]
    for name in ("v1", "v2"):
        step(training)
        paths.append(training.save_weights_for_sampler(name).result().path)
        trained.append(forward(training))
    samplers = [client.sampler(), *map(client.sampler, paths)]
    for sampler, expected in zip(samplers, trained, strict=True):  # one after the other
        np.testing.assert_allclose(score([sampler])[0], expected, atol=1e-3)
    order = [2, 0, 1, 1, 2, 0]
    for scored, place in zip(score([samplers[place] for place in order]), order, strict=True):  # in one batch
        np.testing.assert_allclose(scored, trained[place], atol=1e-3)
    np.testing.assert_array_equal(forward(training), trained[-1])
    step(training)
    assert forward(training).sum() > trained[-1].sum()


def test_a_client_samples_more_versions_than_there_are_slots(client: Client) -> None:
    training = client.train()
    paths, trained = [], []
    for number in range(ADAPTERS + 1):
        step(training)
        paths.append(training.save_weights_for_sampler(f"v{number}").result().path)
        trained.append(forward(training))
    samplers = [client.sampler(path) for path in paths]
    for scored, expected in zip(score(samplers), trained, strict=True):
        np.testing.assert_allclose(scored, expected, atol=1e-3)
    score(samplers[-1:])
    step(training, weight_decay=100.0)  # of the one in training, not of the one sampled last
    np.testing.assert_allclose(score(samplers[-1:])[0], trained[-1], atol=1e-3)


def test_a_client_continues_from_a_saved_state(client: Client) -> None:
    training = client.train()
    step(training)
    saved = training.save_state("state").result().path
    step(training)
    resumed = done(client.service.create_training_client_from_state_with_optimizer(saved))
    step(resumed)
    np.testing.assert_allclose(forward(resumed), forward(training), atol=1e-4)


def test_a_client_gets_answers_that_end_where_it_asked(client: Client) -> None:
    sampler, prompt = client.sampler(), tinker.ModelInput.from_ints(PROMPT)

    def sample(**changes: Any) -> Any:
        return sampler.sample(prompt, 1, params(temperature=2.0, **changes)).result().sequences[0]

    free = sample()
    assert (free.stop_reason, len(free.tokens), len(free.logprobs)) == ("length", 12, 12)
    assert list(sample().tokens) == list(free.tokens)
    assert list(sample(seed=4).tokens) != list(free.tokens)
    tokens = list(free.tokens)
    stopped = sample(stop=[tokens[4]])
    assert (stopped.stop_reason, list(stopped.tokens)) == ("stop", tokens[: tokens.index(tokens[4]) + 1])


def test_a_client_gets_sense_from_the_policy_that_ships(client: Client) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(EMBEDDED_POLICY / "tokenizer.json"))
    text = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    prompt = tinker.ModelInput.from_ints(tokenizer.encode(text, add_special_tokens=False).ids)
    end = tokenizer.token_to_id("<|im_end|>")
    answer = client.sampler().sample(prompt, 1, params(temperature=0.0, max_tokens=40, stop=[end])).result()
    assert "7" in tokenizer.decode(list(answer.sequences[0].tokens))
    assert answer.sequences[0].tokens[-1] == end


def test_a_client_sees_the_offered_models(client: Client) -> None:
    (offered,) = client.service.get_server_capabilities().supported_models
    assert (offered.model_name, offered.max_context_length) == (client.server.base_model, 32768)


def test_a_client_downloads_an_adapter(client: Client, tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    training = client.train()
    step(training)
    if hasattr(training, "save_weights_external"):
        path = training.save_weights_external("out").result().path
        for name, url in client.rest.get_external_weights_urls(path).result().urls.items():
            urllib.request.urlretrieve(url, tmp_path / name)
    else:
        import tarfile

        path = training.save_weights_for_sampler("out").result().path
        archive, _ = urllib.request.urlretrieve(
            client.rest.get_checkpoint_archive_url_from_tinker_path(path).result().url
        )
        with tarfile.open(archive) as files:
            files.extractall(tmp_path, filter="data")
    base = transformers.AutoModelForCausalLM.from_pretrained(client.server.base_model, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, str(tmp_path))
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + ANSWER])).logits[0, len(PROMPT) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(ANSWER)[:, None])[:, 0]
    np.testing.assert_allclose(expected.numpy(), forward(training), atol=1e-2)


def test_a_client_cannot_sample_a_checkpoint_that_it_deleted(client: Client) -> None:
    path = client.train().save_weights_for_sampler("gone").result().path
    sampler = client.sampler(path)
    client.rest.delete_checkpoint_from_tinker_path(path).result()
    with pytest.raises(tinker.NotFoundError):
        sampler.sample(tinker.ModelInput.from_ints(PROMPT), 1, params()).result()


def test_models_whose_session_is_closed_make_room_and_leave_their_checkpoints(server: TinkerServer) -> None:
    paths = []
    for number in range(ADAPTERS + 1):
        client = Client(server)
        training = client.train()
        paths.append(training.save_weights_for_sampler(f"from{number}").result().path)
        client.service.close("success").result()
    client = Client(server)
    score([client.sampler(path) for path in paths])
    client.service.close("success").result()


def test_fireworks_trains_and_continues_from_a_saved_state(server: TinkerServer) -> None:
    sdk = pytest.importorskip("fireworks.training.sdk")
    from fireworks.training.sdk import types

    service = sdk.FiretitanServiceClient(base_url=server.url, api_key=KEY)
    training = service.create_training_client(base_model=server.base_model, lora_rank=8)

    def update(loss: str) -> None:
        training.forward_backward([datum(loss, types)], loss).result()
        training.optim_step(types.AdamParams(learning_rate=STEP)).result()

    def answer_logprobs() -> NDArray[np.float64]:
        return logprobs(training.forward([datum("cross_entropy", types)], "cross_entropy").result())

    before = answer_logprobs()
    update("importance_sampling")
    training.save_state("fireworks").result()
    saved = answer_logprobs()
    assert saved.sum() > before.sum()
    for loss in ("ppo", "cispo"):
        update(loss)
    assert answer_logprobs().sum() > saved.sum()
    assert "sampler_weights/published" in training.save_weights_for_sampler("published").result().path
    training.load_state_with_optimizer("fireworks").result()
    np.testing.assert_allclose(answer_logprobs(), saved, atol=1e-4)
    training.unload_model().result()
    service.close()


def test_the_older_client_is_served_alike(server: TinkerServer, tmp_path: Path) -> None:
    python = environment("tinker_old") / "bin" / "python"
    command = [
        str(python),
        "-m",
        "pytest",
        str(Path(__file__)),
        "-m",
        "real",
        "-k",
        "test_a_client",
        "-p",
        "no:cacheprovider",
    ]
    ran = subprocess.run(
        command, cwd=ROOT, env=clean_environment(tmp_path, **{RUNNING: server.url}), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert " skipped" not in ran.stdout and " passed" in ran.stdout
