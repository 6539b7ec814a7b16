"""Lets tinker 0.38.0 talk to SkyRL 0.3.0, which speaks the older, JSON form of the protocol, and leaves older clients
as they are. An ASGI application around its own; it translates what is on the wire, and no number is made here.

The newer client sends passes as protobuf, takes results of passes and samples as protobuf only, and expects an id for
each answer when it submits. To every client the logprobs of a prompt are sent from its first token on, which has none.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as messages

Application = Callable[[Any, Any, Any], Awaitable[None]]
PASS = "/api/v1/forward_backward"
NUMBERED = (PASS, "/api/v1/forward", "/api/v1/optim_step", "/api/v1/save_weights", "/api/v1/save_weights_for_sampler")
"""Routes of training requests that have a sequence number; in the older form of the protocol all of them are JSON."""
SAMPLE = "/api/v1/asample"
RESULT = "/api/v1/retrieve_future"
PROTOBUF = b"application/x-protobuf"
JSON = b"application/json"
_TYPES = {messages.DTYPE_FLOAT32: ("float32", np.float32), messages.DTYPE_INT64: ("int64", np.int64)}
_STOPS = {"stop": messages.STOP_REASON_STOP, "length": messages.STOP_REASON_LENGTH}


def recognising(application: Application) -> Application:
    """The server as Tinker's own is: a request of training that comes again under its sequence number is answered like
    the first time, and is not made again.
    """
    answers: dict[tuple[str, int], tuple[int, bytes]] = {}

    async def recognise(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] not in NUMBERED:
            await application(scope, receive, send)
            return
        body = await _body(receive)
        asked = json.loads(body)
        number = (asked["model_id"], asked["seq_id"])
        if number not in answers:
            status, answer = await _ask(application, scope, body, receive)
            if status != 200:
                await _send(send, status, answer, JSON)
                return
            answers[number] = status, answer
        await _send(send, *answers[number], JSON)

    return recognise


async def _send(send: Any, status: int, answer: bytes, kind: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def shimmed(application: Application) -> Application:
    """The server for the newer client."""

    async def shim(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] not in (PASS, SAMPLE, RESULT):
            await application(scope, receive, send)
            return
        headers = dict(scope["headers"])
        body = await _body(receive)
        asked: Mapping[str, Any] = {}
        path = scope["path"]
        if PROTOBUF in headers.get(b"content-type", b""):
            path, asked = _pass(body)
            body = json.dumps(asked).encode()
        elif path == SAMPLE:
            asked = json.loads(body)
        status, answer = await _ask(application, {**scope, "path": path, "raw_path": path.encode()}, body, receive)
        kind = JSON
        if status == 200 and path == SAMPLE:
            ids = [uuid.uuid4().hex for _ in range(asked.get("num_samples", 1))]
            answer = json.dumps({**json.loads(answer), "sample_sequence_ids": ids}).encode()
        elif status == 200 and path == RESULT:
            answer, kind = _result(json.loads(answer), PROTOBUF in headers.get(b"accept", b""))
        await _send(send, status, answer, kind)

    return shim


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def _ask(application: Application, scope: Any, body: bytes, receive: Any) -> tuple[int, bytes]:
    """The application's status and answer to a JSON body."""
    about = (b"content-type", b"content-length", b"accept")
    kept = [(name, value) for name, value in scope["headers"] if name not in about]
    headers = [*kept, (b"content-type", JSON), (b"content-length", str(len(body)).encode())]
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    status, answer = 500, b""

    async def give() -> Any:
        return waiting.pop() if waiting else await receive()

    async def take(message: Any) -> None:
        nonlocal status, answer
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            answer += message.get("body", b"")

    await application({**scope, "headers": headers}, give, take)
    return status, answer


def _pass(body: bytes) -> tuple[str, dict[str, Any]]:
    """Path and body of a pass in the older form."""
    message = messages.ForwardBackwardRequest.FromString(body)
    data = [
        {
            "model_input": {
                "chunks": [
                    {"type": "encoded_text", "tokens": np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()}
                    for chunk in datum.model_input
                ]
            },
            "loss_fn_inputs": {name: _tensor(tensor) for name, tensor in datum.loss_fn_inputs.items()},
        }
        for datum in message.data
    ]
    config = dict(message.loss_fn_config) or None
    given = {"data": data, "loss_fn": message.loss_fn, "loss_fn_config": config}
    common = {"model_id": message.model_id, "seq_id": message.seq_id}
    if message.forward_only:
        return "/api/v1/forward", {**common, "forward_input": given}
    return PASS, {**common, "forward_backward_input": given}


def _tensor(tensor: Any) -> dict[str, Any]:
    name, dtype = _TYPES[tensor.dtype]
    return {"data": np.frombuffer(tensor.dense, dtype).tolist(), "dtype": name, "shape": list(tensor.shape)}


def _result(done: dict[str, Any], protobuf: bool) -> tuple[bytes, bytes]:
    """A result in the form that is asked for, and its kind."""
    if done.get("prompt_logprobs") is not None:
        done["prompt_logprobs"].insert(0, None)
    if protobuf and "sequences" in done:
        return _samples(done), PROTOBUF
    if protobuf and "loss_fn_outputs" in done:
        return _outputs(done), PROTOBUF
    return json.dumps(done).encode(), JSON


def _samples(done: Mapping[str, Any]) -> bytes:
    message = messages.SampleResponse()
    for sequence in done["sequences"]:
        message.sequences.add(
            stop_reason=_STOPS[sequence["stop_reason"]],
            tokens=np.asarray(sequence["tokens"], np.int32).tobytes(),
            logprobs=np.asarray(sequence["logprobs"], np.float32).tobytes(),
        )
    if done.get("prompt_logprobs") is not None:
        message.prompt_logprobs = np.array(done["prompt_logprobs"], np.float32).tobytes()  # None becomes NaN
    return message.SerializeToString()


def _outputs(done: Mapping[str, Any]) -> bytes:
    message = messages.ForwardBackwardOutput(loss_fn_output_type=done.get("loss_fn_output_type") or "ArrayRecord")
    for name, value in (done.get("metrics") or {}).items():
        message.metrics[name] = float(value)
    outputs = done["loss_fn_outputs"]
    if outputs:
        record = message.loss_fn_outputs.add(num_datums=len(outputs))
        for name in outputs[0]:
            arrays = [np.asarray(output[name]["data"], np.float32) for output in outputs]
            offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=np.int64)
            field = record.fields[name]
            field.data, field.offsets = b"".join(array.tobytes() for array in arrays), offsets.tobytes()
            field.dtype = messages.DTYPE_FLOAT32
    return message.SerializeToString()
