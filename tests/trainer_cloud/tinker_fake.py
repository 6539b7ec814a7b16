"""Stands in for Tinker's service, over the wire of tinker 0.38: likeliest and chosen tokens of a scored text, scores of
its end alone, its cache, and sparse tensors. No server that could be run here has them; SkyRL's (`tests/rigs/
tinker_server`) has all else. A small model (`TorchProvider`) computes.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass, Sampled, Scored, ScoreRequest
from tests.trainer_cloud.front import Answer, Sent
from tests.trainer_cloud.torch_provider import KeptTraining, LiveSampler, TorchProvider

PLACEHOLDER = 9
"""The token that stands for each of an image."""
PROTOBUF = {"content-type": "application/x-protobuf"}
_DTYPES = {pb.DTYPE_FLOAT32: np.dtype(np.float32), pb.DTYPE_INT64: np.dtype(np.int64)}
T = TypeVar("T")


class TinkerFake:
    """Answers by path. `ignores_last_n`: scores of a text's end are those of all of it, as older servers give them.
    `samples` are the sampling requests, `tensors` the tensors of passes by name, `images` those of all requests, as
    (place, format, file). The model reads an image as placeholders.
    """

    def __init__(self, provider: TorchProvider, model: str, *, context: int = 4096) -> None:
        self.provider = provider
        self.context = context
        self.ignores_last_n = False
        self.samples: list[types.SampleRequest] = []
        self.tensors: list[Mapping[str, pb.Tensor]] = []
        self.images: list[tuple[int, str, bytes]] = []
        self._model = model
        self._samplers: dict[str, LiveSampler] = {}
        self._trainings: dict[str, KeptTraining] = {}
        self._passes: dict[str, list[Pass]] = {}
        self._results: dict[str, Answer] = {}

    def __call__(self, sent: Sent) -> Answer:
        name = sent.path.rpartition("/api/v1/")[2]
        body: Any = sent.body if isinstance(sent.body, dict) else {}
        if sent.method == "DELETE":
            _, run, _, kind, file = name.split("/")
            now(self.provider.delete(f"tinker://{run}/{kind}/{file}"))
            return Answer(status=204, raw=b"")
        if name == "get_server_capabilities":
            return Answer({"supported_models": [{"model_name": self._model, "max_context_length": self.context}]})
        if name == "create_session":
            return Answer(_plain(types.CreateSessionResponse(session_id=f"session-{len(self._results)}")))
        if name == "create_sampling_session":
            return self._sampling_session(types.CreateSamplingSessionRequest.model_validate(body))
        if name == "get_info":
            return Answer({"model_id": body["model_id"], "model_data": {"model_name": self._model}, "is_lora": True})
        if name.startswith("samplers/"):
            return Answer({"sampler_id": name.split("/")[1], "base_model": self._model})
        if name == "retrieve_future":
            return self._results[body["request_id"]]
        if name in ("session_heartbeat", "client/config", "telemetry") or name.endswith("/finish"):
            return Answer({"type": "session_heartbeat"} if name == "session_heartbeat" else {})
        work = {
            "asample": lambda: self._sample(types.SampleRequest.model_validate(body)),
            "forward_backward": lambda: self._pass(pb.ForwardBackwardRequest.FromString(sent.raw)),
            "optim_step": lambda: self._step(body),
            "create_model": lambda: self._create(body),
            "load_weights": lambda: self._load(body),
            "save_weights": lambda: self._save(body, "save_weights"),
            "save_weights_for_sampler": lambda: self._save(body, "save_weights_for_sampler"),
        }.get(name)
        return Answer({"detail": f"nothing is known of {name}"}, 404) if work is None else self._future(work, body)

    def _future(self, work: Any, body: Mapping[str, Any]) -> Answer:
        request = f"request-{len(self._results)}"
        try:
            self._results[request] = work()
        except CloudError as error:
            self._results[request] = Answer({"error": str(error), "category": "user"})
        ids = [f"sequence-{number}" for number in range(body.get("num_samples", 1))]
        return Answer({"request_id": request, "sample_sequence_ids": ids})

    def _sampling_session(self, asked: types.CreateSamplingSessionRequest) -> Answer:
        session = f"sampler-{len(self._samplers)}"
        self._samplers[session] = now(self.provider.sampler(asked.model_path or ""))
        return Answer(_plain(types.CreateSamplingSessionResponse(sampling_session_id=session)))

    def _sample(self, asked: types.SampleRequest) -> Answer:
        self.samples.append(asked)
        sampler = self._samplers[str(asked.sampling_session_id)]
        ids: list[int] = []
        for chunk in asked.prompt.chunks:
            if isinstance(chunk, types.ImageChunk):
                ids += self._seen(len(ids), chunk.format, chunk.data, chunk.length)
            else:
                assert isinstance(chunk, types.EncodedTextChunk)
                ids += chunk.tokens
        message = pb.SampleResponse()
        if asked.prompt_logprobs:
            drawn = Sampled([5], [-1.0], "length")
            self._score(message, sampler, ids, asked)
        else:
            params = SamplingParams(
                max_new_tokens=int(asked.sampling_params.max_tokens or 1),
                temperature=asked.sampling_params.temperature,
                sampling_seed=asked.sampling_params.seed,
                stop_token_ids=list(asked.sampling_params.stop or ()),  # type: ignore[arg-type]
            )
            drawn = finish(sampler.sample(ids, params))
            message.prompt_cache_hit_tokens = drawn.cached
        message.sequences.add(
            stop_reason=pb.STOP_REASON_STOP if drawn.finish == "stop" else pb.STOP_REASON_LENGTH,
            tokens=np.asarray(drawn.ids, np.int32).tobytes(),
            logprobs=np.asarray(drawn.logprobs, np.float32).tobytes(),
        )
        return Answer(raw=message.SerializeToString(), headers=PROTOBUF)

    def _score(
        self, message: pb.SampleResponse, sampler: LiveSampler, ids: Sequence[int], asked: types.SampleRequest
    ) -> None:
        count = asked.prompt_logprobs_last_n if asked.prompt_logprobs_last_n and not self.ignores_last_n else None
        start = 1 if count is None else len(ids) - count
        chosen, first = None, len(ids)
        if asked.target_prompt_logprobs is not None:
            wanted = types.TensorData(**asked.target_prompt_logprobs.model_dump()).to_numpy(pad_value=-1)
            first = int((wanted >= 0).any(axis=1).argmax()) + 1
            chosen = wanted[first - 1 :]
        found: Scored = now(
            sampler.score(ScoreRequest(ids, min(start, first), top_logprobs=asked.topk_prompt_logprobs, chosen=chosen))
        )
        message.prompt_cache_hit_tokens = found.cached if count is not None else 0
        logprobs = np.full(len(ids), np.nan, dtype=np.float32)
        logprobs[start:] = found.logprobs[start - len(ids) :]
        message.prompt_logprobs = logprobs.tobytes()
        if width := asked.topk_prompt_logprobs:
            tokens, values = np.full((len(ids), width), -1, np.int32), np.full((len(ids), width), np.nan, np.float32)
            rows = found.top_logprobs[start - len(ids) :]
            tokens[start:] = [[token for _, token in row] for row in rows]
            values[start:] = [[value for value, _ in row] for row in rows]
            message.topk_prompt_logprobs.length, message.topk_prompt_logprobs.k = len(ids), width
            message.topk_prompt_logprobs.token_ids = tokens.tobytes()
            message.topk_prompt_logprobs.logprobs = values.tobytes()
        if found.chosen is not None:
            dense = np.zeros((len(ids) - 1, found.chosen.shape[1]), dtype=np.float32)
            dense[first - 1 :] = found.chosen
            message.target_prompt_logprobs.dtype = pb.DTYPE_FLOAT32
            message.target_prompt_logprobs.shape.extend(dense.shape)
            message.target_prompt_logprobs.dense = dense.tobytes()

    def _create(self, body: Mapping[str, Any]) -> Answer:
        model = f"{body['session_id']}:train:{body['model_seq_id']}"
        self._trainings[model] = now(self.provider.train(rank=body["lora_config"]["rank"], seed=0))
        return Answer(_plain(types.CreateModelResponse(model_id=model)))

    def _load(self, body: Mapping[str, Any]) -> Answer:
        model = f"{body['session_id']}:train:{body['model_seq_id']}"
        self._trainings[model] = now(self.provider.resume(body["path"], rank=8))
        return Answer({"type": "load_weights", "path": body["path"]})

    def _save(self, body: Mapping[str, Any], kind: str) -> Answer:
        folder = "weights" if kind == "save_weights" else "sampler_weights"
        path = f"tinker://run/{folder}/{body['path']}"
        return Answer({"type": kind, "path": self.provider.keep(path, self._trainings[body["model_id"]])})

    def _pass(self, asked: pb.ForwardBackwardRequest) -> Answer:
        training = self._trainings[asked.model_id]
        data = [self._datum(datum) for datum in asked.data]
        found = now(training.forward(data))
        if not asked.forward_only:
            self._passes.setdefault(asked.model_id, []).append(Pass(asked.loss_fn, data, dict(asked.loss_fn_config)))
        message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        for logprobs in found:  # a record for each: their shapes differ
            field = message.loss_fn_outputs.add(num_datums=1).fields["logprobs"]
            field.dtype, field.data = pb.DTYPE_FLOAT32, logprobs.tobytes()
            field.offsets = np.array([0, logprobs.nbytes], dtype=np.int64).tobytes()
            field.trailing_shape.extend(logprobs.shape[1:])
        return Answer(raw=message.SerializeToString(), headers=PROTOBUF)

    def _datum(self, datum: Any) -> Datum:
        self.tensors.append(dict(datum.loss_fn_inputs))
        ids: list[int] = []
        for chunk in datum.model_input:
            if chunk.WhichOneof("chunk") == "image":
                ids += self._seen(len(ids), chunk.image.format, chunk.image.data, chunk.image.expected_tokens)
            else:
                ids += np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()
        parts = {name: _array(tensor) for name, tensor in datum.loss_fn_inputs.items()}
        return Datum(
            [int(token) for token in ids],
            parts["target_tokens"],
            weights=parts.get("weights"),
            logprobs=parts.get("logprobs"),
            advantages=parts.get("advantages"),
        )

    def _seen(self, place: int, form: str, data: bytes, count: int) -> list[int]:
        self.images.append((place, form, data))
        return [PLACEHOLDER] * count

    def _step(self, body: Mapping[str, Any]) -> Answer:
        given = types.OptimStepRequest.model_validate(body).optim_params
        assert isinstance(given, types.AdamParams)
        adam = Adam(given.learning_rate, given.beta1, given.beta2, given.eps, given.weight_decay, given.grad_clip_norm)
        updated = now(self._trainings[body["model_id"]].update(self._passes.pop(body["model_id"], []), adam))
        return Answer({"metrics": {"grad_norm": updated.metrics["gradient/norm"]}})


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that lets others run now and then."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def _array(tensor: Any) -> NDArray[Any]:
    dtype, shape = _DTYPES[tensor.dtype], list(tensor.shape)
    if not tensor.HasField("sparse_csr"):
        return np.frombuffer(tensor.dense, dtype).reshape(shape).copy()
    csr = tensor.sparse_csr
    crow, columns = (np.frombuffer(part, np.int64) for part in (csr.crow_indices, csr.col_indices))
    dense = np.zeros(shape, dtype=dtype)
    rows = np.repeat(np.arange(shape[0]), np.diff(crow))
    dense[rows, columns] = np.frombuffer(csr.values, dtype)
    return dense


def _plain(model: Any) -> Any:
    return json.loads(model.model_dump_json(exclude_none=True))
